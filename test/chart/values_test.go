package chart

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestValuesAreDocumented: every value of values.yaml has a comment above it or
// above the map that it is in, and a place in the schema; the schema knows no
// other.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(dir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(dir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	compareKeys(t, "", values, schema)

	// What says itself by its name in every chart.
	plain := []string{"enabled", "resources", "priorityClassName", "nodeSelector", "tolerations", "affinity", "podDisruptionBudget",
		"maxUnavailable", "extraArgs", "extraEnv", "extraVolumes", "extraVolumeMounts", "verbosity", "clusterConfig", "nodesConfig", "create", "labels",
		"requests", "limits", "alerts"}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		name, _, isKey := strings.Cut(strings.TrimSpace(line), ":")
		if !isKey || strings.HasPrefix(name, "#") || strings.HasPrefix(name, "-") || !strings.HasPrefix(line, " ") || slices.Contains(plain, name) {
			continue
		}
		if !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
			t.Errorf("values.yaml:%d: %s has no comment above it", i+1, name)
		}
	}
}

// compareKeys checks that values and schema have the same keys.
func compareKeys(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return // a map whose keys are the user's
	}
	if schema["additionalProperties"] != false {
		t.Errorf("schema%s lets any key pass", path)
	}
	for name := range properties {
		if _, known := values[name]; !known && path+name != "global" {
			t.Errorf("schema%s.%s is no value", path, name)
		}
	}
	for name, value := range values {
		property, known := properties[name].(map[string]any)
		if !known {
			t.Errorf("value %s.%s is not in the schema", path, name)
			continue
		}
		if m, ok := value.(map[string]any); ok {
			compareKeys(t, path+"."+name, m, property)
		}
	}
}

// firstValues are those of the first chart that was installed, group by group.
const firstValues = `
image: repository tag digest pullPolicy pullSecrets
crd: install
scheduler: enabled mode replicas policy featureGates extraArgs verbosity resources priorityClassName nodeSelector tolerations affinity podDisruptionBudget
agent: enabled nodes tolerations mode deviceConfig serve kubeletDir runtimeSocket driverDirs poll vendorAnnotations topologyAnnotations extraArgs extraEnv extraVolumes extraVolumeMounts verbosity resources priorityClassName maxUnavailable
manager: enabled replicas extraArgs verbosity resources priorityClassName nodeSelector tolerations affinity podDisruptionBudget
dashboard: serve tlsSecret
admission: webhook failurePolicy policies otherSchedulers publishers
monitoring: serviceMonitor alerts labels interval tlsSecret dashboard
`

// TestReuseValues: helm upgrade --reuse-values gives a chart the values of the
// installed one, so that those that were added since are not there.
func TestReuseValues(t *testing.T) {
	t.Parallel()
	first := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(firstValues)) {
		group, names, _ := strings.Cut(line, ":")
		first[group] = strings.Fields(names)
	}
	text, err := os.ReadFile(dir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var added []string
	for group, names := range values {
		names, ok := names.(map[string]any)
		if !ok {
			added = append(added, group+"=null")
		}
		for name := range names {
			switch {
			case first[group] == nil:
				added = append(added, group+"=null")
			case !slices.Contains(first[group], name):
				added = append(added, group+"."+name+"=null")
			}
		}
	}
	if len(added) == 0 {
		t.Fatal("no value was added since")
	}
	flags := []string{"--set", strings.Join(added, ",")}
	all := rendered(t, flags...)
	for key, want := range rendered(t) {
		if all[key] == nil {
			t.Errorf("without the values that were added since %s is missing", key)
		} else if want.GetKind() == "ValidatingAdmissionPolicy" && !reflect.DeepEqual(want.Object, all[key].Object) {
			t.Errorf("without the values that were added since %s is another:\n%s", key, cmp.Diff(want.Object, all[key].Object))
		}
	}
}
