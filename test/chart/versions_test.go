package chart

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// versions are servers whose objects differ, or that are the oldest or the newest.
var versions = []string{"1.23.17", "1.26.15", "1.28.15", "1.30.14", "1.33.0", "1.36.3"}

// TestVersions: nothing is rendered that a server of the version does not know:
// no kind, and no field, which old servers drop and newer ones reject.
func TestVersions(t *testing.T) {
	t.Parallel()
	since := fieldVersions(t)
	for name, set := range map[string]string{
		"by default":   "",
		"everything":   "agent.deviceConfig.create=true,agent.deviceConfig.clusterConfig=mode: sgpu,dashboard.serve=service,dashboard.tlsSecret=page,monitoring.tlsSecret=metrics,networkPolicies.enabled=true,networkPolicies.dashboardFrom[0].ipBlock.cidr=10.0.0.0/8",
		"cleaning up":  "agent.cleanup=true",
		"in its place": "scheduler.mode=replace,admission.failurePolicy=Ignore",
		"scheduler":    "agent.enabled=false,manager.enabled=false,admission.webhook=false,admission.policies=false",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range versions {
				for key, o := range rendered(t, "--kube-version", v, "--set", set) {
					for _, field := range unknown(t, since, v, o) {
						t.Errorf("Kubernetes %s does not know %s of %s", v, field, key)
					}
				}
			}
		})
	}
}

// fieldVersions returns the version that has a kind or a field, by the kind and
// the path of the field.
func fieldVersions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/fields.tsv")
	gputest.Must(t, err)
	since := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if columns := strings.Split(strings.TrimSpace(line), "\t"); len(columns) == 3 {
			since[columns[0]+" "+columns[1]] = columns[2]
		}
	}
	return since
}

// unknown returns what a server of the version does not know of the object:
// fields that no version knows, and those that came later.
func unknown(t *testing.T, since map[string]string, server string, o *unstructured.Unstructured) []string {
	t.Helper()
	if scheme.Scheme.Recognizes(o.GroupVersionKind()) {
		strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
		if _, _, err := strict.Decode(encode(t, o.Object), nil, nil); err != nil {
			return []string{err.Error()}
		}
	} else if k := o.GetKind(); k != "CustomResourceDefinition" { // which applies to a real server of each version in test/compat
		return []string{"the kind " + k}
	}
	later := map[string]bool{}
	check := func(kind, path string) {
		v, listed := since[kind+" "+path]
		if listed && (v == "never" || version.MustParse(server).LessThan(version.MustParse(v))) {
			later[path+" ("+v+")"] = true
		}
	}
	var walk func(kind, path string, value any)
	walk = func(kind, path string, value any) {
		check(kind, path)
		switch value := value.(type) {
		case []any:
			for _, v := range value {
				walk(kind, path, v)
			}
		case map[string]any:
			for name, v := range value {
				switch below := strings.TrimPrefix(path+"."+name, "."); below {
				case "spec.template":
					walk("v1 Pod", "", v)
				case "spec.initContainers":
					walk(kind, "spec.containers", v)
				default:
					walk(kind, below, v)
				}
			}
		}
	}
	walk(o.GetAPIVersion()+" "+o.GetKind(), "", o.Object)
	return slices.Sorted(maps.Keys(later))
}

// TestAgentsRestart: tokens that an API server issued before 1.30 may lack the node of
// their pod, by which policies know an agent. Where the server begins to evaluate the
// policies the agents restart and get new tokens, and for nothing else about policies.
func TestAgentsRestart(t *testing.T) {
	t.Parallel()
	agent := func(flags ...string) map[string]any {
		template, found, err := unstructured.NestedMap(rendered(t, flags...)["DaemonSet/daybreak-agent"].Object, "spec", "template")
		if err != nil || !found {
			t.Fatal(err)
		}
		return template
	}
	old, first := agent("--kube-version", "1.29.14"), agent("--kube-version", "1.30.0")
	if cmp.Equal(old, first) {
		t.Error("the agents keep their tokens when the API server is upgraded from 1.29 to 1.30")
	}
	for name, flags := range map[string][]string{
		"a later version":     {"--kube-version", "1.36.3"},
		"another publisher":   {"--kube-version", "1.30.0", "--set", "admission.publishers={system:serviceaccount:a:b}"},
		"quotas that hold":    {"--kube-version", "1.30.0", "--set", "quota.enforce=all"},
		"another policy hook": {"--kube-version", "1.30.0", "--set", "admission.failurePolicy=Ignore"},
	} {
		gputest.Equal(t, name+": the agents restart", first, agent(flags...))
	}
	gputest.Equal(t, "from 1.28 to 1.29 the agents restart", old, agent("--kube-version", "1.28.15"))
}

// TestVersionOverride: the version of the API server, with the suffixes of
// vendors, decides what is rendered; kubeVersionOverride comes before it.
func TestVersionOverride(t *testing.T) {
	t.Parallel()
	const policy = "ValidatingAdmissionPolicy/daybreak-pods"
	tests := map[string]struct {
		flags []string
		want  bool // whether policies are the server's own
	}{
		"new":                              {[]string{"--kube-version", "v1.30.0"}, true},
		"new, with a vendor's suffix":      {[]string{"--kube-version", "v1.30.1-aliyun.1"}, true},
		"old, with a vendor's suffix":      {[]string{"--kube-version", "v1.28.3-aliyun.1"}, false},
		"the oldest":                       {[]string{"--kube-version", "v1.23.0-r0"}, false},
		"said to be old":                   {[]string{"--set", "kubeVersionOverride=1.28"}, false},
		"said to be old, as /version says": {[]string{"--set", "kubeVersionOverride=1.28+"}, false},
		"said to be new":                   {[]string{"--kube-version", "1.28", "--set", "kubeVersionOverride=v1.31.4-eks-0"}, true},
		"said to be a release candidate":   {[]string{"--set", "kubeVersionOverride=1.30.0-rc.1"}, true},
		"new, without the API":             {[]string{"--kube-version", "v1.33.0", "--api-versions", "v1/Pod"}, false},
		"new, with the API":                {[]string{"--kube-version", "v1.33.0", "--api-versions", "v1/Pod,admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, got := rendered(t, tt.flags...)[policy]; got != tt.want {
				t.Errorf("%q: policies of the server: %v, want %v", tt.flags, got, tt.want)
			}
		})
	}
}
