package chart

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/daybreak-gpu/daybreak/internal/agent/check"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// whole is what an installation with everything consists of.
var whole = []string{
	"ClusterRole/daybreak-agent", "ClusterRole/daybreak-manager", "ClusterRole/daybreak-scheduler", "ClusterRole/daybreak-test", "ClusterRole/daybreak-viewer",
	"ClusterRoleBinding/daybreak-agent", "ClusterRoleBinding/daybreak-manager", "ClusterRoleBinding/daybreak-scheduler",
	"ClusterRoleBinding/daybreak-scheduler-as-kube-scheduler", "ClusterRoleBinding/daybreak-scheduler-as-volume-scheduler", "ClusterRoleBinding/daybreak-test",
	"ConfigMap/daybreak-dashboard",
	"CustomResourceDefinition/devices.scheduling.koordinator.sh",
	"DaemonSet/daybreak-agent",
	"Deployment/daybreak-manager", "Deployment/daybreak-scheduler",
	"MutatingWebhookConfiguration/daybreak",
	"Pod/daybreak-test",
	"PodDisruptionBudget/daybreak-manager", "PodDisruptionBudget/daybreak-scheduler",
	"Role/daybreak-manager",
	"RoleBinding/daybreak-manager", "RoleBinding/daybreak-scheduler-authentication-reader",
	"Secret/daybreak-manager-webhook",
	"Service/daybreak-manager", "Service/daybreak-scheduler",
	"ServiceAccount/daybreak-agent", "ServiceAccount/daybreak-manager", "ServiceAccount/daybreak-scheduler", "ServiceAccount/daybreak-test",
	"ValidatingAdmissionPolicy/daybreak-bindings", "ValidatingAdmissionPolicy/daybreak-devices",
	"ValidatingAdmissionPolicy/daybreak-nodes", "ValidatingAdmissionPolicy/daybreak-pods",
	"ValidatingAdmissionPolicy/daybreak-configurations", "ValidatingAdmissionPolicy/daybreak-events", "ValidatingAdmissionPolicy/daybreak-quota",
	"ValidatingAdmissionPolicyBinding/daybreak-bindings", "ValidatingAdmissionPolicyBinding/daybreak-devices",
	"ValidatingAdmissionPolicyBinding/daybreak-nodes", "ValidatingAdmissionPolicyBinding/daybreak-pods",
	"ValidatingAdmissionPolicyBinding/daybreak-configurations", "ValidatingAdmissionPolicyBinding/daybreak-events", "ValidatingAdmissionPolicyBinding/daybreak-quota",
}

// TestObjects: what each value adds to an installation, and takes from it.
func TestObjects(t *testing.T) {
	t.Parallel()
	monitors := []string{"PodMonitor/daybreak-agent", "ServiceMonitor/daybreak-manager", "ServiceMonitor/daybreak-scheduler"}
	tests := map[string]struct {
		flags []string
		less  func(string) bool
		more  []string
	}{
		"by default": {},
		"with an operator for Prometheus": {
			flags: []string{"--api-versions", "monitoring.coreos.com/v1"}, more: append([]string{"PrometheusRule/daybreak"}, monitors...),
		},
		"with alerts alone":  {flags: []string{"--set", "monitoring.alerts=true"}, more: []string{"PrometheusRule/daybreak"}},
		"with scrapes alone": {flags: []string{"--set", "monitoring.serviceMonitor=true"}, more: monitors},
		"with the operator, but without either": {
			flags: []string{"--api-versions", "monitoring.coreos.com/v1", "--set", "monitoring.alerts=false,monitoring.serviceMonitor=false"},
		},
		"with the vendor's ConfigMap": {
			flags: []string{"--set", "agent.deviceConfig.create=true,agent.deviceConfig.clusterConfig=mode: sgpu"}, more: []string{"ConfigMap/metax-device-config"},
		},
		"with the operator's ConfigMap by labels": {
			flags: []string{"--set", "vendorOperator.namespace=gpus,vendorOperator.selector=app=gpu-device"}, more: []string{"Role/daybreak-agent", "RoleBinding/daybreak-agent"},
		},
		"with network policies": {
			flags: []string{"--set", "networkPolicies.enabled=true"},
			more:  []string{"NetworkPolicy/daybreak-agent", "NetworkPolicy/daybreak-manager", "NetworkPolicy/daybreak-scheduler"},
		},
		"with network policies of one part": {
			flags: []string{"--set", "networkPolicies.enabled=true,agent.enabled=false,manager.enabled=false,admission.webhook=false"},
			more:  []string{"NetworkPolicy/daybreak-scheduler"},
			less: func(o string) bool {
				return named("daybreak-manager")(o) || named("daybreak-agent")(o) || kind("MutatingWebhookConfiguration")(o)
			},
		},
		"with the page for everybody": {flags: []string{"--set", "dashboard.serve=service"}, more: []string{"Service/daybreak-dashboard"}},
		"without the definition":      {flags: []string{"--set", "crd.install=never"}, less: kind("CustomResourceDefinition")},
		"without policies":            {flags: []string{"--set", "admission.policies=false,agent.withoutPolicies=true"}, less: kind("ValidatingAdmission")},
		"without the webhook": {
			flags: []string{"--set", "admission.webhook=false"},
			less:  func(o string) bool { return kind("MutatingWebhookConfiguration")(o) || kind("Secret")(o) },
		},
		"without budgets": {
			flags: []string{"--set", "scheduler.podDisruptionBudget.enabled=false,manager.podDisruptionBudget.enabled=false"}, less: kind("PodDisruptionBudget"),
		},
		"without the agent": {flags: []string{"--set", "agent.enabled=false"}, less: named("daybreak-agent")},
		"without the scheduler": {
			flags: []string{"--set", "scheduler.enabled=false,admission.otherSchedulers={someone}"}, less: named("daybreak-scheduler"),
		},
		"without the manager": {
			flags: []string{"--set", "manager.enabled=false,admission.webhook=false"},
			less:  func(o string) bool { return named("daybreak-manager")(o) || kind("MutatingWebhookConfiguration")(o) },
		},
		"without the dashboard": {flags: []string{"--set", "monitoring.dashboard.enabled=false"}, less: kind("ConfigMap")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Concat(whole, tt.more)
			if tt.less != nil {
				want = slices.DeleteFunc(want, tt.less)
			}
			slices.Sort(want)
			gputest.Equal(t, "objects", want, slices.Sorted(maps.Keys(rendered(t, tt.flags...))))
		})
	}
}

func kind(prefix string) func(string) bool {
	return func(o string) bool { return strings.HasPrefix(o, prefix) }
}

func named(name string) func(string) bool {
	return func(o string) bool { return strings.Contains(o, "/"+name) }
}

// furtherName adds names of the scheduler, one of them twice and one that is a number.
const furtherName = "scheduler.extraArgs={--profile=third,--kube-api-qps=9,--profile=daybreak,--profile=1e3},manager.extraArgs={--scheduler-name=third}"

// TestProfiles: what the scheduler serves under one name, the manager admits under it
// and the policies know by it. A name twice would end the scheduler.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"scheduler.mode=second", "scheduler.mode=replace", furtherName, "scheduler.mode=replace," + furtherName, "scheduler.extraArgs=null"} {
		o := rendered(t, "--set", set)
		names := func(part, flag string) (names []string) {
			for _, arg := range o.pod(t, part).Containers[0].Args {
				if name, ok := strings.CutPrefix(arg, flag); ok {
					names = append(names, name)
				}
			}
			return names
		}
		profiles, admitted := names("Deployment/daybreak-scheduler", "--profile="), slices.Compact(slices.Sorted(slices.Values(names("Deployment/daybreak-manager", "--scheduler-name="))))
		slices.Sort(profiles)
		if !slices.Equal(profiles, admitted) {
			t.Errorf("%s: the scheduler serves %q, the manager admits %q", set, profiles, admitted)
		}
		known := fmt.Sprint(o["ValidatingAdmissionPolicy/daybreak-quota"].Object)
		for _, name := range profiles {
			if !strings.Contains(known, strconv.Quote(name)) {
				t.Errorf("%s: the policy of quotas does not know %s", set, name)
			}
		}
	}
}

// TestArguments: what values become on the command line.
func TestArguments(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set  string
		part string
		want []string
		not  []string
	}{
		"the second scheduler":                  {part: "Deployment/daybreak-scheduler", want: []string{"scheduler", "--profile=daybreak"}, not: []string{"--profile=default-scheduler"}},
		"in kube-scheduler's place":             {set: "scheduler.mode=replace", part: "Deployment/daybreak-scheduler", want: []string{"--profile=default-scheduler", "--profile=daybreak"}},
		"Koordinator's gate":                    {set: "scheduler.featureGates=DevicePluginAdaption=true", part: "Deployment/daybreak-scheduler", want: []string{"--feature-gates=DevicePluginAdaption=true"}},
		"the vendor's plugin, to the scheduler": {set: "vendorPlugin.selector=app=gpu-device", part: "Deployment/daybreak-scheduler", want: []string{"--vendor-plugin-selector=app=gpu-device"}},
		"the vendor's plugin, to the manager":   {set: "vendorPlugin.selector=app=gpu-device", part: "Deployment/daybreak-manager", want: []string{"--vendor-plugin-selector=app=gpu-device"}},
		"the namespaces, to the scheduler":      {part: "Deployment/daybreak-scheduler", want: []string{"--vendor-namespace=metax-operator", "--namespace=" + namespace}},
		"the operator elsewhere, the scheduler": {set: "vendorOperator.namespace=gpus", part: "Deployment/daybreak-scheduler", want: []string{"--vendor-namespace=gpus"}},
		"the operator elsewhere, the manager":   {set: "vendorOperator.namespace=gpus", part: "Deployment/daybreak-manager", want: []string{"--vendor-namespace=gpus"}},
		"no ConfigMap of the operator":          {set: "vendorOperator.namespace=", part: "Deployment/daybreak-scheduler", not: []string{"--vendor-namespace"}},
		"the vendor's operator":                 {part: "DaemonSet/daybreak-agent", want: []string{"--vendor-namespace=metax-operator"}, not: []string{"--vendor-config-selector="}},
		"its ConfigMap by labels":               {set: "vendorOperator.namespace=gpus,vendorOperator.selector=app=gpu-device", part: "DaemonSet/daybreak-agent", want: []string{"--vendor-namespace=gpus", "--vendor-config-selector=app=gpu-device"}},
		"a policy":                              {set: "scheduler.policy=spread", part: "Deployment/daybreak-scheduler", want: []string{"--policy=spread"}},
		"an argument":                           {set: "scheduler.extraArgs={--kube-api-qps=9}", part: "Deployment/daybreak-scheduler", want: []string{"--kube-api-qps=9"}},
		"whom pods are given to":                {part: "Deployment/daybreak-manager", want: []string{"--scheduler-name=daybreak", "--namespace=" + namespace}, not: []string{"--scheduler-name=default-scheduler"}},
		"whom they are given to in its place": {
			set: "scheduler.mode=replace", part: "Deployment/daybreak-manager", want: []string{"--scheduler-name=default-scheduler", "--scheduler-name=daybreak"},
		},
		"a further name": {set: furtherName, part: "Deployment/daybreak-scheduler", want: []string{"--profile=daybreak", "--profile=third", "--profile=1e3", "--kube-api-qps=9"}},
		"a further name, to the manager": {
			set: furtherName, part: "Deployment/daybreak-manager", want: []string{"--scheduler-name=daybreak", "--scheduler-name=third", "--scheduler-name=1e3"},
		},
		"who may create bound pods": {set: "admission.directBinders={system:serviceaccount:a:b}", part: "Deployment/daybreak-manager", want: []string{"--direct-binder=system:serviceaccount:a:b"}},
		"no page":                   {set: "dashboard.serve=off", part: "Deployment/daybreak-manager", want: []string{"--dashboard-bind-address=0"}},
		"a page for all": {
			set: "dashboard.serve=service,dashboard.tlsSecret=page", part: "Deployment/daybreak-manager",
			want: []string{"--dashboard-bind-address=:8443", "--dashboard-tls-cert-file=/etc/daybreak/dashboard/tls.crt"},
		},
		"metrics of the manager over TLS": {
			set: "monitoring.tlsSecret=metrics", part: "Deployment/daybreak-manager",
			want: []string{"--metrics-tls-cert-file=/etc/daybreak/metrics/tls.crt", "--metrics-tls-key-file=/etc/daybreak/metrics/tls.key"},
		},
		"metrics of agents over TLS": {
			set: "monitoring.tlsSecret=metrics", part: "DaemonSet/daybreak-agent",
			want: []string{"--metrics-tls-cert-file=/etc/daybreak/metrics/tls.crt", "--metrics-tls-key-file=/etc/daybreak/metrics/tls.key"},
		},
		"the memory of a card in quotas": {set: "quota.cardMemory=96Gi", part: "Deployment/daybreak-manager", want: []string{"--quota-card-memory=96Gi"}},
		"HAMi's keys in quotas":          {set: "quota.hamiKeys=warn", part: "Deployment/daybreak-scheduler", want: []string{"--quota-keys=warn"}},
		"a taint":                        {part: "Deployment/daybreak-manager", want: []string{"--tolerated-taint=metax-tech.com/gpu:NoSchedule"}},
		"no taint":                       {set: "admission.toleratedTaint=", part: "Deployment/daybreak-manager", not: []string{"--tolerated-taint"}},
		"the last step":                  {set: "agent.cleanup=true", part: "DaemonSet/daybreak-agent", want: []string{"agent", "cleanup", "--wait"}},
		"an agent":                       {part: "DaemonSet/daybreak-agent", want: []string{"agent"}, not: []string{"cleanup", "--wait"}},
		"no webhook":                     {set: "admission.webhook=false", part: "Deployment/daybreak-manager", want: []string{"--admission-bind-address=0"}},
		"a mode":                         {set: "agent.mode=sgpu", part: "DaemonSet/daybreak-agent", want: []string{"--mode=sgpu"}},
		"no mode":                        {part: "DaemonSet/daybreak-agent", want: []string{"--serve=auto"}, not: []string{"--mode="}},
		"only observe":                   {set: "agent.serve=off", part: "DaemonSet/daybreak-agent", want: []string{"--serve=off"}},
		"kubelet elsewhere":              {set: "agent.kubeletDir=/data/kubelet", part: "DaemonSet/daybreak-agent", want: []string{"--device-plugin-dir=/data/kubelet/device-plugins", "--pod-resources-socket=/data/kubelet/pod-resources/kubelet.sock"}},
		"k3s":                            {set: "agent.runtimeSocket=/run/k3s/containerd/containerd.sock", part: "DaemonSet/daybreak-agent", want: []string{"--runtime-endpoint=unix:///run/k3s/containerd/containerd.sock", "--runtime-root=/host"}, not: []string{"--assume-cdi"}},
		"a link's socket":                {set: "agent.runtimeSocket=/var/run/crio/crio.sock", part: "DaemonSet/daybreak-agent", want: []string{"--runtime-endpoint=unix:///run/crio/crio.sock"}},
		"a waived check":                 {set: "agent.waive={" + strings.Join(check.Waivable(), ",") + "}", part: "DaemonSet/daybreak-agent", want: []string{"--waive=card-devices", "--waive=runtime-of-kubelet"}},
		"CDI is assumed":                 {set: "agent.assumeCDI={docker,podman}", part: "DaemonSet/daybreak-agent", want: []string{"--assume-cdi=docker", "--assume-cdi=podman"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			if tt.set != "" {
				flags = []string{"--set", tt.set}
			}
			got := rendered(t, flags...).pod(t, tt.part).Containers[0].Args
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("args %q lack %q", got, want)
				}
			}
			for _, not := range tt.not {
				if slices.ContainsFunc(got, func(a string) bool { return strings.HasPrefix(a, not) }) {
					t.Errorf("args %q have %q", got, not)
				}
			}
		})
	}
}

// TestRuntimeFolders: the runtime's socket is reached through a folder that every
// node has, and none is created: the agent starts, and reports a wrong socket.
func TestRuntimeFolders(t *testing.T) {
	t.Parallel()
	for socket, want := range map[string][]string{
		"/run/containerd/containerd.sock":               {"/run"},
		"/run/k3s/containerd/containerd.sock":           {"/run"},
		"/var/run/crio/crio.sock":                       {"/run"},
		"/var/snap/microk8s/common/run/containerd.sock": {"/run", "/var"},
	} {
		pod := rendered(t, "--set", "agent.runtimeSocket="+socket).pod(t, "DaemonSet/daybreak-agent")
		mounts := map[string]corev1.VolumeMount{}
		for _, m := range pod.Containers[0].VolumeMounts {
			mounts[m.Name] = m
		}
		var got []string
		for _, v := range pod.Volumes {
			if !strings.HasPrefix(v.Name, "runtime-") {
				continue
			}
			got = append(got, v.HostPath.Path)
			if v.HostPath.Type == nil || *v.HostPath.Type != corev1.HostPathDirectory {
				t.Errorf("%s: %s may be created", socket, v.HostPath.Path)
			}
			if m := mounts[v.Name]; m.MountPath != "/host"+v.HostPath.Path || !m.ReadOnly {
				t.Errorf("%s: mounted as %+v", socket, m)
			}
		}
		gputest.Equal(t, socket+": folders", want, got)
	}
}

// TestSecrets: the certificates that arguments name are mounted, from the
// Secrets that the values name.
func TestSecrets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set, part string
		want      map[string]string // folder to Secret
	}{
		"of the page":                   {"dashboard.serve=service,dashboard.tlsSecret=page", "Deployment/daybreak-manager", map[string]string{"/etc/daybreak/dashboard": "page"}},
		"of the manager's metrics":      {"monitoring.tlsSecret=m", "Deployment/daybreak-manager", map[string]string{"/etc/daybreak/metrics": "m"}},
		"of the agents' metrics":        {"monitoring.tlsSecret=m", "DaemonSet/daybreak-agent", map[string]string{"/etc/daybreak/metrics": "m"}},
		"of both":                       {"dashboard.serve=service,dashboard.tlsSecret=page,monitoring.tlsSecret=m", "Deployment/daybreak-manager", map[string]string{"/etc/daybreak/dashboard": "page", "/etc/daybreak/metrics": "m"}},
		"of none, in the manager's pod": {"", "Deployment/daybreak-manager", map[string]string{}},
		"of none, in agents' pods":      {"", "DaemonSet/daybreak-agent", map[string]string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := rendered(t, "--set", tt.set).pod(t, tt.part)
			secrets, got := map[string]string{}, map[string]string{}
			for _, v := range spec.Volumes {
				if v.Secret != nil {
					secrets[v.Name] = v.Secret.SecretName
				}
			}
			for _, m := range spec.Containers[0].VolumeMounts {
				if secret, ok := secrets[m.Name]; ok {
					got[m.MountPath] = secret
				}
			}
			gputest.Equal(t, "Secrets by folder", tt.want, got)
		})
	}
}

// TestScrapes: Prometheus knows how manager and agents serve their metrics.
func TestScrapes(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]int{"monitoring.tlsSecret=m": 2, "monitoring.tlsSecret=": 0} {
		text, err := render(t.Context(), "--api-versions", "monitoring.coreos.com/v1", "--set", set, "--show-only", "templates/monitoring/prometheus.yaml")
		gputest.Must(t, err)
		if got := strings.Count(string(text), "serverName: daybreak-metrics\n        ca: {secret: {name: m, key: ca.crt}}"); got != want {
			t.Errorf("with %s %d scrapes have the certificate, want %d:\n%s", set, got, want, text)
		}
	}
}

// TestJobs: Jobs are sent to the manager where the value says so.
func TestJobs(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]int{"quota.jobs=true": 1, "quota.jobs=false": 0} {
		for _, version := range []string{"1.36", "1.27"} {
			o := rendered(t, "--kube-version", version, "--set", set)
			webhooks, _, err := unstructured.NestedSlice(o["MutatingWebhookConfiguration/daybreak"].Object, "webhooks")
			gputest.Must(t, err)
			if got := len(webhooks) - 2; got != want || strings.Count(string(encode(t, webhooks)), policy.PathJobs) != want {
				t.Errorf("%s on %s: %d further webhooks, want %d: %s", set, version, got, want, encode(t, webhooks))
			}
		}
	}
}

// TestQuotaNamespaces: quotas must hold in labelled namespaces or in all, whether the
// API server or the manager sees to it.
func TestQuotaNamespaces(t *testing.T) {
	t.Parallel()
	const labelled, all = `namespaceSelector: {matchLabels: {daybreak-gpu.io/quota: enforced}}`, `namespaceSelector: {}`
	for set, want := range map[string]string{"quota.enforce=all": all, "quota.enforce=labelled": labelled} {
		for version, times := range map[string]int{"1.36": 1, "1.28": 2, "1.27": 1} {
			text, err := render(t.Context(), "--kube-version", version, "--set", set, "--show-only", "templates/policies.yaml")
			gputest.Must(t, err)
			if got := strings.Count(string(text), labelled) + strings.Count(string(text), all); got != times || strings.Count(string(text), want) != times {
				t.Errorf("%s on %s: %d selectors, want %d of %s", set, version, got, times, want)
			}
		}
	}
}

// TestWhoMayWrite: the policies name this installation's accounts, and whom the
// values add.
func TestWhoMayWrite(t *testing.T) {
	t.Parallel()
	text, err := render(t.Context(), "--namespace", "gpus", "--set", "admission.otherSchedulers={koord},admission.publishers={vendor},admission.directBinders={operator},scheduler.extraArgs={--profile=third}", "--show-only", "templates/policies.yaml")
	gputest.Must(t, err)
	for _, want := range []string{
		`["system:serviceaccount:gpus:daybreak-scheduler","koord"]`, `["system:serviceaccount:gpus:daybreak-agent"]`, `["vendor"]`, `["operator"]`, `namespace: "gpus"`,
		`["system:serviceaccount:gpus:daybreak-agent","system:serviceaccount:gpus:daybreak-manager","system:serviceaccount:gpus:daybreak-scheduler"]`,
		`["system:serviceaccount:gpus:daybreak-manager"]`, `["default-scheduler","daybreak","third"]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the policies lack %s", want)
		}
	}
}

// TestRights: no part may create Secrets, whoever evaluates the policies. The right
// can create a token of any account.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.36", "1.29"} {
		for key, o := range rendered(t, "--kube-version", version) {
			if !kind("Role/")(key) && !kind("ClusterRole/")(key) {
				continue
			}
			var role rbacv1.ClusterRole // as a Role, as far as rules go
			gputest.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			for _, r := range role.Rules {
				about := slices.ContainsFunc(r.Resources, func(name string) bool { return name == "secrets" || name == "*" })
				if about && (len(r.ResourceNames) == 0 || slices.ContainsFunc(r.Verbs, func(verb string) bool { return verb == "create" || verb == "*" })) {
					t.Errorf("on %s %s has %+v", version, key, r)
				}
			}
		}
	}
}

// TestGuards: values that can't work are refused with what to write instead.
func TestGuards(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ set, want string }{
		"a webhook without a server":     {"manager.enabled=false", "set manager.enabled=true, or admission.webhook=false"},
		"no scheduler for the pods":      {"scheduler.enabled=false", "name another scheduler in admission.otherSchedulers"},
		"agents that nothing confines":   {"admission.policies=false", "set admission.policies=true, or agent.withoutPolicies=true"},
		"agents nowhere":                 {"agent.nodes=null", "agent.nodes is empty"},
		"no image":                       {"image.repository=", "image.repository is empty: push the image to a registry and set image.repository=REGISTRY/daybreak"},
		"no tag":                         {"image.tag=", "image.tag is empty, and a chart from the source tree has no version: set image.tag to the tag that `make images` printed"},
		"a limit that is none":           {"manager.resources.limits.memory=1e3Gi", "resources.limits.memory is 1e3Gi: write a number, optionally with one of the units"},
		"a page without clients":         {"networkPolicies.enabled=true,dashboard.serve=service", "name the clients in networkPolicies.dashboardFrom"},
		"a taint that is none":           {"admission.toleratedTaint=metax-tech.com/gpu:Never", "'/admission/toleratedTaint'"},
		"two images":                     {"image.tag=a,image.digest=sha256:" + strings.Repeat("0", 64), "image.tag and image.digest are mutually exclusive"},
		"modes without a ConfigMap":      {"agent.deviceConfig.nodesConfig=x", "set agent.deviceConfig.create=true"},
		"labels without a namespace":     {"vendorOperator.namespace=,vendorOperator.selector=a=b", "set it to the namespace of the MetaX operator"},
		"a page without a certificate":   {"dashboard.serve=service,admission.webhook=false", "name a Secret of type kubernetes.io/tls in dashboard.tlsSecret"},
		"another configuration":          {"scheduler.extraArgs={--config=/x}", "use scheduler.mode, scheduler.policy and scheduler.featureGates"},
		"a name in two arguments":        {"scheduler.extraArgs={--profile,third}", "scheduler.extraArgs[0] is --profile: write --profile=NAME as one argument"},
		"an empty name":                  {"scheduler.extraArgs={--profile=}", "scheduler.extraArgs[0] is --profile=: write --profile=NAME"},
		"a name of the manager alone":    {"manager.extraArgs={--v=1,--scheduler-name=third}", "manager.extraArgs[1] is --scheduler-name=third: the manager gets the names of the scheduler's profiles; add a name with scheduler.extraArgs={--profile=NAME}"},
		"one in two arguments":           {"manager.extraArgs={--scheduler-name,daybreak}", "manager.extraArgs[0] is --scheduler-name: the manager gets the names"},
		"a mode that is none":            {"scheduler.mode=third", "'/scheduler/mode': value must be one of 'second', 'replace'"},
		"a value that is none":           {"agent.kubletDir=/x", "additional properties 'kubletDir' not allowed"},
		"a digest that is none":          {"image.digest=latest", "'/image/digest'"},
		"no replicas":                    {"manager.replicas=0", "'/manager/replicas'"},
		"a gate that is none":            {"scheduler.featureGates=DevicePluginAdaption", "'/scheduler/featureGates'"},
		"a policy that is none":          {"scheduler.policy=mutex", "'/scheduler/policy'"},
		"amounts that no part writes":    {"quota.enforce=all,admission.webhook=false", "quota.enforce=all rejects pods without the amounts that the manager writes: set manager.enabled=true, admission.webhook=true and admission.policies=true, or quota.enforce=labelled"},
		"Jobs that no part answers for":  {"quota.jobs=true,admission.webhook=false", "quota.jobs=true sends Jobs to the manager: set manager.enabled=true and admission.webhook=true, or quota.jobs=false"},
		"a place of quotas that is none": {"quota.enforce=everywhere", "'/quota/enforce': value must be one of 'labelled', 'all'"},
		"HAMi's keys, mistyped":          {"quota.hamiKeys=on", "'/quota/hamiKeys'"},
		"a card without memory":          {"quota.cardMemory=0", "'/quota/cardMemory'"},
		"a failure policy that is none":  {"admission.failurePolicy=fail", "'/admission/failurePolicy'"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t.Context(), "--set", tt.set)
			gputest.ErrorHas(t, "--set "+tt.set, tt.want, err)
		})
	}
}

// TestOldServer: an API server that is too old, or too old for the values, is
// rejected before anything is installed.
func TestOldServer(t *testing.T) {
	t.Parallel()
	const policies = "has no ValidatingAdmissionPolicy, which requires 1.30, so the manager evaluates the policies: set manager.enabled=true and admission.webhook=true"
	tests := map[string]struct{ version, set, want string }{
		"too old":                       {"1.22.17", "", "requires kubeVersion: >=1.23.0-0 which is incompatible with Kubernetes v1.22.17"},
		"said to be too old":            {"1.36", "kubeVersionOverride=v1.22.17", "the API server is Kubernetes 1.22, and Daybreak requires 1.23 or later"},
		"a version that is none":        {"1.36", "kubeVersionOverride=latest", `invalid Kubernetes version "latest": set kubeVersionOverride to a version such as 1.28 or v1.28.3`},
		"policies without a manager":    {"1.28.15", "manager.enabled=false,admission.webhook=false", "(Kubernetes 1.28) " + policies},
		"policies without the webhook":  {"1.29.0-rc.1", "admission.webhook=false", "(Kubernetes 1.29) " + policies},
		"agents that nothing confines":  {"1.25", "admission.webhook=false,admission.policies=false", "set admission.policies=true, or agent.withoutPolicies=true"},
		"a manager outside of the pods": {"1.23", "manager.enabled=false,admission.failurePolicy=Ignore", policies},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t.Context(), "--kube-version", tt.version, "--set", tt.set)
			gputest.ErrorHas(t, fmt.Sprintf("on %s with %s", tt.version, tt.set), tt.want, err)
		})
	}
	_, err := render(t.Context(), "--set-json", "kubeVersionOverride=1.30")
	gputest.ErrorHas(t, "a version without quotes, which YAML reads as 1.3", "'/kubeVersionOverride': got number, want string", err)
}

// TestConfinement: who is privileged, and who is not.
func TestConfinement(t *testing.T) {
	t.Parallel()
	all := rendered(t)
	for _, key := range []string{"Deployment/daybreak-scheduler", "Deployment/daybreak-manager"} {
		pod := all.pod(t, key)
		want := &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		gputest.Equal(t, key+": securityContext of the pod", want, pod.SecurityContext)
		confined := &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		gputest.Equal(t, key+": securityContext", confined, pod.Containers[0].SecurityContext)
		for _, volume := range pod.Volumes {
			if volume.HostPath != nil {
				t.Errorf("%s has %s of its node", key, volume.HostPath.Path)
			}
		}
	}
	agent := all.pod(t, "DaemonSet/daybreak-agent")
	if agent.HostNetwork || agent.HostPID || agent.HostIPC {
		t.Error("the agent shares its node's network, processes or memory")
	}
	if ro := agent.Containers[0].SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
		t.Error("the agent can write into its image")
	}
}

// TestHostPaths: what the agent sees of its node. Kubelet creates what is
// Daybreak's own and nothing else.
func TestHostPaths(t *testing.T) {
	t.Parallel()
	const created, there = corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory
	common := map[string]corev1.HostPathType{
		"/dev": there, "/sys": there, "/var/lib/kubelet/device-plugins": there, "/var/lib/kubelet/pod-resources": there,
		"/var/run/cdi": created, "/var/lib/daybreak": created,
	}
	tests := map[string]struct {
		set  string
		more []string
	}{
		"by default":         {set: "", more: []string{"/opt"}},
		"a driver elsewhere": {set: "agent.driverDirs={/opt/maca,/data/metax,/opt}", more: []string{"/opt", "/data/metax"}},
		"the last step":      {set: "agent.cleanup=true", more: []string{"/opt", "/var/lib"}},
		"no driver":          {set: "agent.driverDirs=null", more: nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := maps.Clone(common)
			if strings.Contains(tt.set, "cleanup") {
				delete(want, "/var/lib/daybreak")
			}
			for _, path := range tt.more {
				want[path] = there
			}
			got := map[string]corev1.HostPathType{}
			agent := rendered(t, "--set", tt.set).pod(t, "DaemonSet/daybreak-agent")
			for _, v := range agent.Volumes {
				if v.HostPath == nil || strings.HasPrefix(v.Name, "runtime") {
					continue
				}
				got[v.HostPath.Path] = ptr.Deref(v.HostPath.Type, corev1.HostPathUnset)
				if !slices.ContainsFunc(agent.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.MountPath == v.HostPath.Path }) {
					t.Errorf("%s is not mounted where it is on the node", v.HostPath.Path)
				}
			}
			gputest.Equal(t, "folders of the node", want, got)
		})
	}
}

// TestCleanupEverywhere: agents that clean up do so on all nodes at once, so
// that a node whose cards are in use holds up no other.
func TestCleanupEverywhere(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{"agent.cleanup=true": "100%", "agent.cleanup=false": "10%"} {
		got, _, err := unstructured.NestedString(rendered(t, "--set", set)["DaemonSet/daybreak-agent"].Object, "spec", "updateStrategy", "rollingUpdate", "maxUnavailable")
		if err != nil || got != want {
			t.Errorf("with %s agents of %q of the nodes may be away (%v), want %s", set, got, err, want)
		}
	}
}

// TestMemory: Go gets less memory than the container may use, so that it
// collects before the kernel ends the process. The agent shares its limit with
// the processes that call the vendor's library.
func TestMemory(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set, part string
		want      int64
	}{
		"the scheduler's": {"", "Deployment/daybreak-scheduler", 2 << 30 * 9 / 10},
		"the manager's":   {"", "Deployment/daybreak-manager", 1 << 30 * 9 / 10},
		"the agent's":     {"", "DaemonSet/daybreak-agent", 256 << 20 * 6 / 10},
		"a fraction":      {"manager.resources.limits.memory=1.5Gi", "Deployment/daybreak-manager", 1536 << 20 * 9 / 10},
		"powers of ten":   {"manager.resources.limits.memory=500M", "Deployment/daybreak-manager", 450_000_000},
		"bytes":           {"manager.resources.limits.memory=2147483648", "Deployment/daybreak-manager", 2 << 30 * 9 / 10},
		"no limit":        {"manager.resources.limits=null", "Deployment/daybreak-manager", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			container := rendered(t, "--set", tt.set).pod(t, tt.part).Containers[0]
			at := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
			if tt.want == 0 {
				if at >= 0 {
					t.Errorf("GOMEMLIMIT is %+v without a limit", container.Env[at])
				}
				return
			}
			if at < 0 {
				t.Fatal("no GOMEMLIMIT")
			}
			if got := container.Env[at].Value; got != strconv.FormatInt(tt.want, 10) {
				t.Errorf("GOMEMLIMIT is %s, want %d", got, tt.want)
			}
		})
	}
}

// TestNetworkPolicies: who reaches which port of which part.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	prometheus := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "monitoring"}}}
	const fromPrometheus = "networkPolicies.metricsFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=monitoring"
	rule := func(port string, from ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
		return networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(port))}}, From: from}
	}
	tests := map[string]struct {
		set  string
		want map[string][]networkingv1.NetworkPolicyIngressRule
	}{
		"the webhook alone": {
			want: map[string][]networkingv1.NetworkPolicyIngressRule{"manager": {rule("admission")}, "scheduler": nil, "agent": nil},
		},
		"metrics": {
			set: "," + fromPrometheus,
			want: map[string][]networkingv1.NetworkPolicyIngressRule{
				"manager": {rule("admission"), rule("metrics", prometheus)}, "scheduler": {rule("https", prometheus)}, "agent": {rule("metrics", prometheus)},
			},
		},
		"the page": {
			set: ",dashboard.serve=service,networkPolicies.dashboardFrom[0].ipBlock.cidr=10.0.0.0/8",
			want: map[string][]networkingv1.NetworkPolicyIngressRule{
				"manager":   {rule("admission"), rule("dashboard", networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}})},
				"scheduler": nil, "agent": nil,
			},
		},
		"the API servers": {
			set: ",networkPolicies.apiServers={192.0.2.1/32}",
			want: map[string][]networkingv1.NetworkPolicyIngressRule{
				"manager":   {rule("admission", networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.1/32"}})},
				"scheduler": nil, "agent": nil,
			},
		},
		"no webhook": {
			set:  ",admission.webhook=false",
			want: map[string][]networkingv1.NetworkPolicyIngressRule{"manager": nil, "scheduler": nil, "agent": nil},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := rendered(t, "--set", "networkPolicies.enabled=true"+tt.set)
			for part, want := range tt.want {
				var p networkingv1.NetworkPolicy
				gputest.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(all["NetworkPolicy/daybreak-"+part].Object, &p))
				gputest.Equal(t, part, want, p.Spec.Ingress, cmpopts.EquateEmpty())
				gputest.Equal(t, part+": policy types", []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, p.Spec.PolicyTypes)
				if got := p.Spec.PodSelector.MatchLabels["app.kubernetes.io/component"]; got != part {
					t.Errorf("the policy of %s is for pods of %s", part, got)
				}
			}
		})
	}
}
