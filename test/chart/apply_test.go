package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// monitoringTypes stand for the Prometheus operator's, which keep everything.
const monitoringTypes = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: KIND, plural: PLURAL}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
`

// TestApply: a real API server takes every object of every kind of
// installation, also where it counts what it does not know as an error; and
// Helm installs, upgrades and uninstalls it.
func TestApply(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx, kubectl, onCluster := t.Context(), srv.kubectl, srv.helm
	for kind, plural := range map[string]string{"ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"} {
		text := strings.NewReplacer("KIND", kind, "PLURAL", plural).Replace(monitoringTypes)
		gputest.Must(t, srv.Apply(ctx, strings.NewReader(text)))
	}
	kubectl(nil, "create", "namespace", namespace)
	kubectl(nil, "create", "serviceaccount", "-n", namespace, "daybreak-test") // a dry run makes none for the pod of helm test
	for name, flags := range map[string][]string{
		"by default":   {},
		"everything":   {"--api-versions", "monitoring.coreos.com/v1", "--set", "agent.deviceConfig.create=true,agent.deviceConfig.clusterConfig=mode: sgpu,scheduler.policy=spread,dashboard.serve=service,dashboard.tlsSecret=page,monitoring.tlsSecret=metrics,networkPolicies.enabled=true,networkPolicies.dashboardFrom[0].ipBlock.cidr=10.0.0.0/8,networkPolicies.apiServers={192.0.2.1/32}"},
		"cleaning up":  {"--set", "agent.cleanup=true"},
		"in its place": {"--set", "scheduler.mode=replace,scheduler.featureGates=DevicePluginAdaption=true,admission.failurePolicy=Ignore"},
	} {
		text, err := render(ctx, flags...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The hooks of helm test come and go, and are objects all the same.
		kubectl(text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
	}

	kubectl(nil, "delete", "serviceaccount", "-n", namespace, "daybreak-test")
	if _, err := onCluster("install", "daybreak", dir); err != nil {
		t.Fatal(err)
	}
	// As the manager does, which is not there.
	kubectl(nil, "patch", "mutatingwebhookconfiguration", "daybreak", "--type=json", "-p",
		`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"LS0tLS1CRUdJTi0tLS0t"}]`)
	if _, err := onCluster("upgrade", "daybreak", dir, "--set", "manager.replicas=3"); err != nil {
		t.Fatal(err)
	}
	if got := kubectl(nil, "get", "mutatingwebhookconfiguration", "daybreak", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}"); got == "" {
		t.Error("an upgrade takes the trust away that the manager added")
	}
	_, err := onCluster("install", "second", dir, "--namespace", "elsewhere", "--create-namespace")
	gputest.ErrorHas(t, "a second installation", "already installed in namespace "+namespace, err)

	before := kubectl(nil, "get", "crd", "devices.scheduling.koordinator.sh", "-o", "jsonpath={.metadata.uid}")
	_, err = onCluster("uninstall", "daybreak", "--wait")
	gputest.Must(t, err)
	if after := kubectl(nil, "get", "crd", "devices.scheduling.koordinator.sh", "-o", "jsonpath={.metadata.uid}"); after != before {
		t.Error("the definition of Device went with the chart, and all Devices with it")
	}
	left := strings.Fields(kubectl(nil, "get", "-A", "-o", "name", "-l", "app.kubernetes.io/managed-by=Helm",
		"deployments,daemonsets,services,serviceaccounts,configmaps,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,"+
			"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestCertificates: what the manager writes into its Secret survives upgrades and
// rollbacks, a sync of what helm template renders, and the Secret's creation by hand.
func TestCertificates(t *testing.T) {
	t.Parallel()
	srv, ctx := newServer(t), t.Context()
	client, err := kubernetes.NewForConfig(srv.REST())
	gputest.Must(t, err)
	secrets := client.CoreV1().Secrets(namespace)
	step := func(args ...string) {
		t.Helper()
		if _, err := srv.helm(args...); err != nil {
			t.Fatalf("helm %v: %v", args, err)
		}
	}
	keeps := func(when, want string) *corev1.Secret {
		t.Helper()
		s, err := secrets.Get(ctx, policy.Secret, metav1.GetOptions{})
		if err != nil || string(s.Data["tls.key"]) != want || s.Type != corev1.SecretTypeOpaque {
			t.Fatalf("%s: %v, %v; want %q", when, s, err, want)
		}
		return s
	}
	step("install", "daybreak", dir, "--create-namespace")
	s := keeps("after an installation", "")
	s.Data = map[string][]byte{"tls.key": []byte("manager's")}
	_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	gputest.Must(t, err)
	step("upgrade", "daybreak", dir, "--set", "manager.replicas=3")
	keeps("after an upgrade", "manager's")
	step("rollback", "daybreak", "1")
	keeps("after a rollback", "manager's")
	text, err := render(ctx, "--show-only", "templates/manager/secret.yaml")
	gputest.Must(t, err)
	srv.kubectl(text, "apply", "--server-side", "--force-conflicts", "-f", "-")
	srv.kubectl(text, "apply", "-f", "-")
	keeps("after a sync", "manager's")

	gputest.Must(t, secrets.Delete(ctx, policy.Secret, metav1.DeleteOptions{}))
	step("upgrade", "daybreak", dir)
	keeps("that was deleted, after an upgrade", "")
	gputest.Must(t, secrets.Delete(ctx, policy.Secret, metav1.DeleteOptions{}))
	srv.kubectl(nil, "create", "secret", "generic", policy.Secret, "-n", namespace, "--from-literal=tls.key=by hand")
	step("upgrade", "daybreak", dir)
	keeps("made by hand, after an upgrade", "by hand")
	step("uninstall", "daybreak", "--wait")
	step("install", "gpus", dir)
	keeps("of another release", "")
}

// TestPackage: what a user gets is the chart alone.
func TestPackage(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	if _, err := helm(t.Context(), "package", dir, "--destination", to, "--version", "1.2.3", "--app-version", "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "daybreak-1.2.3.tgz"))
	gputest.Must(t, err)
	if info.Size() > 256<<10 {
		t.Errorf("the package has %d bytes: something is in it that does not belong there", info.Size())
	}
}
