package v1alpha1

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// leaf is a field, in the list of Koordinator's one without fields of its own.
type leaf struct {
	typ string
	// fallback is its default, rules is what a value has to meet.
	fallback string
	rules    []string
}

// TestManifestIsSupersetOfKoordinators: the definition has every field of
// Koordinator's with the same type and default, and accepts every value that
// Koordinator's accepts. An API server that gets it in place of Koordinator's
// prunes and rejects nothing.
func TestManifestIsSupersetOfKoordinators(t *testing.T) {
	theirs := koordinatorLeaves(t)
	v := readManifest(t).Spec.Versions[0]
	if !v.Served || !v.Storage {
		t.Errorf("served %v, stored %v: Koordinator's is both", v.Served, v.Storage)
	}
	ours := map[string]leaf{}
	collect("", v.Schema.Root, false, ours)
	for _, problem := range lacks(theirs, ours) {
		t.Errorf("%s: %s", manifest, problem)
	}
}

func TestLacksFindsDifferences(t *testing.T) {
	theirs := map[string]leaf{"a": {typ: "string"}, "b": {typ: "integer/int32", fallback: "1", rules: []string{"minimum=0"}}}
	cases := map[string]struct {
		ours map[string]leaf
		want []string
	}{
		"the same":                    {ours: theirs},
		"one more":                    {ours: map[string]leaf{"a": theirs["a"], "b": theirs["b"], "c": {typ: "string", rules: []string{"maxLength=9"}}}},
		"one more that has to be set": {ours: map[string]leaf{"a": theirs["a"], "b": theirs["b"], "c": {typ: "string", rules: []string{"required"}}}, want: []string{"c has required, Koordinator's has not"}},
		"a field is missing":          {ours: map[string]leaf{"a": theirs["a"]}, want: []string{"b is missing"}},
		"a type differs":              {ours: map[string]leaf{"a": {typ: "boolean"}, "b": theirs["b"]}, want: []string{"a is boolean, Koordinator's is string"}},
		"values are rejected":         {ours: map[string]leaf{"a": {typ: "string", rules: []string{"maxLength=9"}}, "b": theirs["b"]}, want: []string{"a has maxLength=9, Koordinator's has not"}},
		"more values are accepted":    {ours: map[string]leaf{"a": theirs["a"], "b": {typ: "integer/int32", fallback: "1"}}},
		"a default differs":           {ours: map[string]leaf{"a": theirs["a"], "b": {typ: "integer/int32", rules: []string{"minimum=0"}}}, want: []string{`b has default "", Koordinator's has "1"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lacks(theirs, tc.ours)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// lacks lists what keeps our fields from being a superset of theirs.
func lacks(theirs, ours map[string]leaf) []string {
	var problems []string
	for _, path := range slices.Sorted(maps.Keys(theirs)) {
		want := theirs[path]
		got, ok := ours[path]
		switch {
		case !ok:
			problems = append(problems, path+" is missing")
		case got.typ != want.typ:
			problems = append(problems, fmt.Sprintf("%s is %s, Koordinator's is %s", path, got.typ, want.typ))
		case got.fallback != want.fallback:
			problems = append(problems, fmt.Sprintf("%s has default %q, Koordinator's has %q", path, got.fallback, want.fallback))
		}
		for _, rule := range got.rules {
			if !slices.Contains(want.rules, rule) {
				problems = append(problems, fmt.Sprintf("%s has %s, Koordinator's has not", path, rule))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ours)) {
		if _, known := theirs[path]; known {
			continue
		}
		shared := slices.ContainsFunc(slices.Collect(maps.Keys(theirs)), func(p string) bool { return strings.HasPrefix(p, path) })
		for _, rule := range ours[path].rules {
			if rule == "required" || shared {
				problems = append(problems, fmt.Sprintf("%s has %s, Koordinator's has not", path, rule))
			}
		}
	}
	return problems
}

// koordinatorLeaves reads the fields of Koordinator's definition.
func koordinatorLeaves(t *testing.T) map[string]leaf {
	t.Helper()
	text, err := os.ReadFile("testdata/koordinator-1.8-device.tsv")
	if err != nil {
		t.Fatal(err)
	}
	leaves := map[string]leaf{}
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		l := leaf{typ: columns[1]}
		for rule := range strings.FieldsSeq(strings.Join(columns[3:], " ")) {
			if value, ok := strings.CutPrefix(rule, "default="); ok {
				l.fallback = value
				continue
			}
			l.rules = append(l.rules, rule)
		}
		leaves[columns[0]] = l
	}
	return leaves
}

// collect adds the leaves below a field of a schema, and what rules apply to
// the lists and objects on the way.
func collect(path string, schema map[string]any, required bool, into map[string]leaf) {
	into[path] = leafOf(schema, required)
	if properties, ok := schema["properties"].(map[string]any); ok {
		names, _ := schema["required"].([]any)
		for name, field := range properties {
			field, _ := field.(map[string]any)
			if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
				continue // the API server's own
			}
			collect(strings.TrimPrefix(path+"."+name, "."), field, slices.Contains(names, any(name)), into)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		collect(path+"[]", items, false, into)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		collect(path+"{}", values, false, into)
	}
}

// leafOf describes a field as the list of Koordinator's fields does. A keyword
// of OpenAPI that is not known here counts as a rule, since it may be one.
func leafOf(schema map[string]any, required bool) leaf {
	var l leaf
	if required {
		l.rules = append(l.rules, "required")
	}
	for _, word := range slices.Sorted(maps.Keys(schema)) {
		value := fmt.Sprint(schema[word])
		if list, ok := schema[word].([]any); ok {
			value = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), ",")
		}
		switch word {
		case "description", "anyOf", "properties", "items", "additionalProperties", "required": // anyOf says again that it is int or string
		case "type":
			l.typ = value + l.typ
		case "format":
			l.typ += "/" + value
		case "x-kubernetes-int-or-string":
			l.typ = "int-or-string"
		case "default":
			l.fallback = value
		default:
			l.rules = append(l.rules, word+"="+value)
		}
	}
	return l
}
