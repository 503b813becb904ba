package chart

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestValuesAreDocumented: every value of values.yaml has a comment above it or
// above the map that it is in, and a place in the schema; the schema knows no
// other.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(dir + "/values.yaml")
	gputest.Must(t, err)
	var values map[string]any
	gputest.Must(t, yaml.UnmarshalStrict(text, &values))
	raw, err := os.ReadFile(dir + "/values.schema.json")
	gputest.Must(t, err)
	var schema map[string]any
	gputest.Must(t, json.Unmarshal(raw, &schema))
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
