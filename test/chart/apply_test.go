package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
		if err := srv.Apply(ctx, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
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
	if _, err := onCluster("install", "second", dir, "--namespace", "elsewhere", "--create-namespace"); err == nil || !strings.Contains(err.Error(), "already installed in namespace "+namespace) {
		t.Errorf("a second installation: %v", err)
	}

	before := kubectl(nil, "get", "crd", "devices.scheduling.koordinator.sh", "-o", "jsonpath={.metadata.uid}")
	if _, err := onCluster("uninstall", "daybreak", "--wait"); err != nil {
		t.Fatal(err)
	}
	if after := kubectl(nil, "get", "crd", "devices.scheduling.koordinator.sh", "-o", "jsonpath={.metadata.uid}"); after != before {
		t.Error("the definition of Device went with the chart, and all Devices with it")
	}
	left := strings.Fields(kubectl(nil, "get", "-A", "-o", "name", "-l", "app.kubernetes.io/managed-by=Helm",
		"deployments,daemonsets,services,serviceaccounts,configmaps,roles,rolebindings,clusterroles,clusterrolebindings,poddisruptionbudgets,"+
			"validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// A definition of another installation is left alone.
	kubectl(nil, "annotate", "--overwrite", "crd", "devices.scheduling.koordinator.sh", "meta.helm.sh/release-name=koordinator", "meta.helm.sh/release-namespace=koordinator-system")
	if _, err := onCluster("install", "daybreak", dir); err != nil {
		t.Errorf("with Koordinator's definition: %v", err)
	}
	if got := kubectl(nil, "get", "crd", "devices.scheduling.koordinator.sh", "-o", `jsonpath={.metadata.annotations.meta\.helm\.sh/release-name}`); got != "koordinator" {
		t.Errorf("the definition is %s's now", got)
	}
}

// TestCertificates: the Secret of the manager's certificates survives whatever
// Helm does: an upgrade from a release whose manager made it, an upgrade, a
// rollback to a release that does not know it, and an uninstallation.
func TestCertificates(t *testing.T) {
	t.Parallel()
	srv, ctx := newServer(t), t.Context()
	client, err := kubernetes.NewForConfig(srv.REST())
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets(namespace)
	step := func(args ...string) {
		t.Helper()
		if _, err := srv.helm(args...); err != nil {
			t.Fatalf("helm %v: %v", args, err)
		}
	}
	has := func(when, want string) *corev1.Secret {
		t.Helper()
		s, err := secrets.Get(ctx, "daybreak-manager-webhook", metav1.GetOptions{})
		if err != nil || string(s.Data["tls.key"]) != want {
			t.Fatalf("%s: %v, %v; want %q", when, s.Data, err, want)
		}
		return s
	}
	previous := filepath.Join(t.TempDir(), "daybreak") // a chart without the Secret
	if err := os.CopyFS(previous, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(previous, "templates", "manager", "secret.yaml")); err != nil {
		t.Fatal(err)
	}

	step("install", "daybreak", previous, "--create-namespace")
	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "daybreak-manager-webhook"}, Data: map[string][]byte{"tls.key": []byte("old")}}
	if _, err := secrets.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	step("upgrade", "daybreak", dir)
	has("after an upgrade from a release whose manager made it", "old")
	step("upgrade", "daybreak", dir)
	has("after another", "old")
	step("rollback", "daybreak", "1")
	has("after a rollback", "old")
	step("uninstall", "daybreak", "--wait")
	has("after an uninstallation", "old")

	if err := secrets.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	step("install", "daybreak", previous)
	step("upgrade", "daybreak", dir)
	s := has("of a release that brings it", "")
	s.Data = map[string][]byte{"tls.key": []byte("new")}
	if _, err := secrets.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	step("upgrade", "daybreak", dir, "--set", "manager.replicas=3")
	has("after an upgrade", "new")
	step("rollback", "daybreak", "1")
	has("after a rollback to a release without it", "new")
	step("upgrade", "daybreak", dir)
	has("after an upgrade again", "new")
	step("uninstall", "daybreak", "--wait")
	has("after an uninstallation", "new")
	step("install", "daybreak", dir)
	has("after another installation", "new")
}

// TestPackage: what a user gets is the chart alone.
func TestPackage(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	if _, err := helm(t.Context(), "package", dir, "--destination", to, "--version", "1.2.3", "--app-version", "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "daybreak-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 256<<10 {
		t.Errorf("the package has %d bytes: something is in it that does not belong there", info.Size())
	}
}
