package chart

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const definition = "devices.scheduling.koordinator.sh"

// TestDefinitionIsAlwaysRendered: without a cluster to look at, as in Argo CD,
// the definition of Device is rendered whatever APIs there are, also the one
// that it defines, and nothing that manages releases removes it.
func TestDefinitionIsAlwaysRendered(t *testing.T) {
	t.Parallel()
	first, err := render(t.Context(), "--show-only", "templates/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	second, err := render(t.Context(), "--show-only", "templates/crd.yaml", "--is-upgrade", "--api-versions", "scheduling.koordinator.sh/v1alpha1,scheduling.koordinator.sh/v1alpha1/Device")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("the definition differs where it is installed already (-first +second):\n%s", diff)
	}
	annotations := rendered(t)["CustomResourceDefinition/"+definition].GetAnnotations()
	for key, want := range map[string]string{"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false"} {
		if annotations[key] != want {
			t.Errorf("annotation %s is %q, want %q: all Devices would go with the definition", key, annotations[key], want)
		}
	}
}

// TestDefinitionOverKoordinators: a tool without a view of the cluster applies
// the chart over Koordinator's definition, and a Device with every field of
// Koordinator's keeps them all, those stored before and those written after.
func TestDefinitionOverKoordinators(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	fields := koordinatorFields(t)
	srv.kubectl(koordinatorDefinition(t, fields), "apply", "-f", "-")
	srv.kubectl(nil, "wait", "--for=condition=Established", "crd/"+definition)
	want := deviceWith(fields, "before")
	srv.kubectl(encode(t, want), "create", "-f", "-")

	for range 2 { // a second time over our own
		text, err := render(t.Context(), "--show-only", "templates/crd.yaml")
		if err != nil {
			t.Fatal(err)
		}
		srv.kubectl(text, "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	srv.kubectl(nil, "wait", "--for=condition=Established", "crd/"+definition)
	if got := srv.kubectl(nil, "get", "crd", definition, "-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[0].name}"); got != "Vendor" {
		t.Fatalf("the definition is still Koordinator's: %q", got)
	}
	after := deviceWith(fields, "after")
	srv.kubectl(encode(t, after), "create", "--validate=strict", "-f", "-")
	srv.kubectl(nil, "annotate", "device", "before", "rewritten=true") // what is pruned is pruned by a write
	for name, want := range map[string]map[string]any{"before": want, "after": after} {
		var got map[string]any
		if err := json.Unmarshal([]byte(srv.kubectl(nil, "get", "device", name, "-o", "json")), &got); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"spec", "status"} {
			if diff := cmp.Diff(want[part], got[part]); diff != "" {
				t.Errorf("%s of Device %s (-want +got):\n%s", part, name, diff)
			}
		}
	}
}

// TestDefinitionOfAnotherRelease: a definition that an earlier installation left
// behind, by another name or in another namespace, does not keep the chart from
// being installed; neither does Koordinator's.
func TestDefinitionOfAnotherRelease(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for _, installation := range []struct{ release, namespace string }{{"daybreak", "elsewhere"}, {"daybreak", namespace}, {"gpus", namespace}, {"daybreak", "elsewhere"}} {
		at := []string{"--namespace", installation.namespace}
		if _, err := srv.helm(append([]string{"install", installation.release, dir, "--create-namespace"}, at...)...); err != nil {
			t.Fatalf("%+v: %v", installation, err)
		}
		if _, err := srv.helm(append([]string{"uninstall", installation.release, "--wait"}, at...)...); err != nil {
			t.Fatalf("%+v: %v", installation, err)
		}
	}
	if got := srv.kubectl(nil, "get", "crd", definition, "-o", `jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}`); got != "elsewhere" {
		t.Errorf("the definition went over to the release in namespace %s", got)
	}
}

// field is a field of Koordinator's definition: its path, type, and a value.
type field struct {
	path   []string
	typ    string
	value  any
	format string
}

func koordinatorFields(t *testing.T) []field {
	t.Helper()
	text, err := os.ReadFile("../../api/v1alpha1/testdata/koordinator-1.8-device.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var fields []field
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		f := field{path: strings.Split(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(columns[0]), ".")}
		f.typ, f.format, _ = strings.Cut(columns[1], "/")
		if err := json.Unmarshal([]byte(columns[2]), &f.value); err != nil {
			t.Fatalf("%s: %v", columns[0], err)
		}
		fields = append(fields, f)
	}
	if len(fields) < 20 {
		t.Fatalf("%d fields", len(fields))
	}
	return fields
}

// koordinatorDefinition is a definition with these fields, as Koordinator has it.
func koordinatorDefinition(t *testing.T, fields []field) []byte {
	t.Helper()
	root := map[string]any{"type": "object"}
	for _, f := range fields {
		at := root
		for _, step := range f.path {
			at = below(at, step)
		}
		switch f.typ {
		case "int-or-string":
			at["x-kubernetes-int-or-string"] = true
		default:
			at["type"] = f.typ
		}
		if f.format != "" {
			at["format"] = f.format
		}
	}
	return encode(t, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": definition},
		"spec": map[string]any{
			"group": "scheduling.koordinator.sh", "scope": "Cluster",
			"names":    map[string]any{"kind": "Device", "listKind": "DeviceList", "plural": "devices", "singular": "device"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": root}}},
		},
	})
}

// below returns the schema of a step below a schema.
func below(schema map[string]any, step string) map[string]any {
	child := func(of map[string]any, key string) map[string]any {
		if _, ok := of[key]; !ok {
			of[key] = map[string]any{}
		}
		m, _ := of[key].(map[string]any)
		return m
	}
	switch step {
	case "[]":
		schema["type"] = "array"
		return child(schema, "items")
	case "{}":
		schema["type"] = "object"
		return child(schema, "additionalProperties")
	}
	schema["type"] = "object"
	return child(child(schema, "properties"), step)
}

// deviceWith is a Device that has a value in every field.
func deviceWith(fields []field, name string) map[string]any {
	var root any = map[string]any{}
	for _, f := range fields {
		root = with(root, f.path, f.value)
	}
	device, _ := root.(map[string]any)
	device["apiVersion"], device["kind"] = "scheduling.koordinator.sh/v1alpha1", "Device"
	device["metadata"] = map[string]any{"name": name}
	return device
}

// with returns a value that has another one at a path.
func with(in any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "[]" {
		list, _ := in.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = with(list[0], path[1:], value)
		return list
	}
	m, _ := in.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	key := strings.Replace(path[0], "{}", "key", 1)
	m[key] = with(m[key], path[1:], value)
	return m
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
