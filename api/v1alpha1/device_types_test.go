package v1alpha1

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const manifest = "crd/scheduling.koordinator.sh_devices.yaml"

// seedDevice is a Device as users of Koordinator's MetaX support see it, plus
// the driver label and the mode annotation that Daybreak adds.
const seedDevice = `
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata:
  annotations:
    daybreak-gpu.io/mode: sgpu
  labels:
    node.koordinator.sh/gpu-driver-version: 2.13.2
    node.koordinator.sh/gpu-model: C500
    node.koordinator.sh/gpu-vendor: metax
  name: sample-node1
spec:
  devices:
  - health: true
    id: 89033010-2354-0000-0000-000000000000
    minor: 0
    resources:
      koordinator.sh/gpu-core: "100"
      koordinator.sh/gpu-memory: "64Gi"
      koordinator.sh/gpu-memory-ratio: "100"
    topology:
      busID: 0000:38:00.0
      nodeID: 3
      pcieID: pci0000:3a
      socketID: -1
    type: gpu
    conditions:
    - lastTransitionTime: "2025-03-15T10:00:00Z"
      message: device is healthy
      reason: DeviceHealthy
      status: "True"
      type: Healthy
status: {}
`

func TestDeviceReadsKoordinatorsDocument(t *testing.T) {
	var got Device
	if err := yaml.UnmarshalStrict([]byte(seedDevice), &got); err != nil {
		t.Fatal(err)
	}
	want := Device{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        "sample-node1",
			Annotations: map[string]string{"daybreak-gpu.io/mode": "sgpu"},
			Labels: map[string]string{
				"node.koordinator.sh/gpu-driver-version": "2.13.2",
				"node.koordinator.sh/gpu-model":          "C500",
				"node.koordinator.sh/gpu-vendor":         "metax",
			},
		},
		Spec: DeviceSpec{Devices: []DeviceInfo{{
			Type:   DeviceTypeGPU,
			UUID:   "89033010-2354-0000-0000-000000000000",
			Minor:  ptr.To[int32](0),
			Health: true,
			Resources: corev1.ResourceList{
				"koordinator.sh/gpu-core":         resource.MustParse("100"),
				"koordinator.sh/gpu-memory":       resource.MustParse("64Gi"),
				"koordinator.sh/gpu-memory-ratio": resource.MustParse("100"),
			},
			Topology: &DeviceTopology{SocketID: -1, NodeID: 3, PCIEID: "pci0000:3a", BusID: "0000:38:00.0"},
			Conditions: []metav1.Condition{{
				Type:               "Healthy",
				Status:             metav1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(time.Date(2025, 3, 15, 10, 0, 0, 0, time.UTC)),
				Reason:             "DeviceHealthy",
				Message:            "device is healthy",
			}},
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded Device (-want +got):\n%s", diff)
	}
}

// Absent and zero differ on the wire: a card with minor 0 must say so, and a
// card must always say whether it is healthy.
func TestDeviceInfoWritesZerosThatCount(t *testing.T) {
	got, err := json.Marshal(DeviceInfo{Minor: ptr.To[int32](0), Topology: &DeviceTopology{}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"minor":0,"health":false,"topology":{"socketID":0,"nodeID":0,"pcieID":""}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Device", "DeviceList"} {
		if !scheme.Recognizes(GroupVersion.WithKind(kind)) {
			t.Errorf("scheme does not know %s", kind)
		}
	}
}

// crd is the part of the manifest that the tests look at.
type crd struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind     string `json:"kind"`
			ListKind string `json:"listKind"`
			Plural   string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Columns []struct {
				Name     string `json:"name"`
				JSONPath string `json:"jsonPath"`
			} `json:"additionalPrinterColumns"`
			Subresources map[string]any `json:"subresources"`
			Schema       struct {
				Root node `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// node is one level of an OpenAPI schema.
type node struct {
	Type        string          `json:"type"`
	IntOrString bool            `json:"x-kubernetes-int-or-string"`
	Properties  map[string]node `json:"properties"`
	Items       *node           `json:"items"`
	Values      *node           `json:"additionalProperties"`
}

func readManifest(t *testing.T) crd {
	t.Helper()
	raw, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var c crd
	if err := yaml.Unmarshal(raw, &c); err != nil {
		t.Fatalf("read %s: %v", manifest, err)
	}
	if len(c.Spec.Versions) != 1 {
		t.Fatalf("%s has %d versions, want 1", manifest, len(c.Spec.Versions))
	}
	return c
}

func TestManifestNamesMatchKoordinators(t *testing.T) {
	spec := readManifest(t).Spec
	got := []string{spec.Group, spec.Versions[0].Name, spec.Scope, spec.Names.Kind, spec.Names.ListKind, spec.Names.Plural}
	want := []string{GroupVersion.Group, GroupVersion.Version, "Cluster", "Device", "DeviceList", "devices"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("group, version, scope and names (-want +got):\n%s", diff)
	}
	if len(spec.Versions[0].Subresources) != 0 {
		t.Errorf("subresources %v: Koordinator's writers update status with the object", spec.Versions[0].Subresources)
	}
}

// A field added to a type, or taken out of it, without `make generate` would be
// dropped by the API server without a word.
func TestManifestMatchesTypes(t *testing.T) {
	root := readManifest(t).Spec.Versions[0].Schema.Root
	for _, problem := range compare("", reflect.TypeFor[Device](), root) {
		t.Errorf("%s: %s; run `make generate`", manifest, problem)
	}
}

func TestCompareFindsDifferences(t *testing.T) {
	type inner struct {
		Count int32 `json:"count"`
	}
	type outer struct {
		Name  string           `json:"name,omitempty"`
		Parts []inner          `json:"parts"`
		ByKey map[string]inner `json:"byKey"`
	}
	part := node{Type: "object", Properties: map[string]node{"count": {Type: "integer"}}}
	empty := node{Type: "object"}
	cases := map[string]struct {
		schema node
		want   []string
	}{
		"every field is there": {
			schema: node{Type: "object", Properties: map[string]node{
				"name": {Type: "string"}, "parts": {Type: "array", Items: &part}, "byKey": {Type: "object", Values: &part},
			}},
		},
		"a field is missing": {
			schema: node{Type: "object", Properties: map[string]node{
				"parts": {Type: "array", Items: &part}, "byKey": {Type: "object", Values: &part},
			}},
			want: []string{".name is not in the schema"},
		},
		"a field is left over": {
			schema: node{Type: "object", Properties: map[string]node{
				"name": {Type: "string"}, "parts": {Type: "array", Items: &part}, "byKey": {Type: "object", Values: &part},
				"old": {Type: "string"},
			}},
			want: []string{".old is not in the types"},
		},
		"a type differs": {
			schema: node{Type: "object", Properties: map[string]node{
				"name": {Type: "boolean"}, "parts": {Type: "array", Items: &part}, "byKey": {Type: "object", Values: &part},
			}},
			want: []string{`.name is "boolean" in the schema, "string" in the types`},
		},
		"nested fields are missing": {
			schema: node{Type: "object", Properties: map[string]node{
				"name": {Type: "string"}, "parts": {Type: "array", Items: &empty}, "byKey": {Type: "object", Values: &empty},
			}},
			want: []string{".parts[].count is not in the schema", ".byKey{}.count is not in the schema"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, compare("", reflect.TypeFor[outer](), tc.schema)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// compare lists where a schema and a Go type disagree on fields and their types.
func compare(path string, typ reflect.Type, schema node) []string {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	want := jsonType(typ)
	if schema.IntOrString { // a quantity has no type of its own in the schema
		schema.Type = "string"
	}
	if schema.Type != want {
		return []string{path + ` is "` + schema.Type + `" in the schema, "` + want + `" in the types`}
	}
	switch {
	case want == "array":
		return compare(path+"[]", typ.Elem(), deref(schema.Items))
	case typ.Kind() == reflect.Map:
		return compare(path+"{}", typ.Elem(), deref(schema.Values))
	case want == "object" && typ != reflect.TypeFor[metav1.ObjectMeta](): // the API server knows metadata itself
		return compareFields(path, typ, schema)
	}
	return nil
}

func compareFields(path string, typ reflect.Type, schema node) []string {
	var problems []string
	known := map[string]bool{}
	for _, field := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		// Fields of embedded structs come one by one, except those of a struct
		// with a name of its own in JSON (metadata), which are inside it.
		if name == "" || (len(field.Index) > 1 && inNamed(typ, field)) {
			continue
		}
		known[name] = true
		sub, ok := schema.Properties[name]
		if !ok {
			problems = append(problems, path+"."+name+" is not in the schema")
			continue
		}
		problems = append(problems, compare(path+"."+name, field.Type, sub)...)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if !known[name] {
			problems = append(problems, path+"."+name+" is not in the types")
		}
	}
	return problems
}

// inNamed says whether an inherited field comes from an embedded struct that
// JSON nests under a name.
func inNamed(typ reflect.Type, field reflect.StructField) bool {
	name, _, _ := strings.Cut(typ.Field(field.Index[0]).Tag.Get("json"), ",")
	return name != ""
}

// jsonType is the schema's word for how a Go type is written.
func jsonType(typ reflect.Type) string {
	switch typ {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[resource.Quantity]():
		return "string"
	}
	switch typ.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Slice:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	default:
		return typ.Kind().String()
	}
}

func deref(n *node) node {
	if n == nil {
		return node{}
	}
	return *n
}

// The paths of printer columns need their dots escaped; a mistake shows as an
// empty column, never as an error.
func TestPrinterColumnsFindTheirValues(t *testing.T) {
	var device map[string]any
	if err := yaml.Unmarshal([]byte(seedDevice), &device); err != nil {
		t.Fatal(err)
	}
	if metadata, ok := device["metadata"].(map[string]any); ok {
		metadata["creationTimestamp"] = "2025-03-15T09:00:00Z"
	}
	got := map[string]string{}
	for _, column := range readManifest(t).Spec.Versions[0].Columns {
		path := jsonpath.New(column.Name)
		if err := path.Parse("{" + column.JSONPath + "}"); err != nil {
			t.Fatalf("column %s: %v", column.Name, err)
		}
		var out bytes.Buffer
		if err := path.Execute(&out, device); err != nil {
			t.Errorf("column %s: %v", column.Name, err)
		}
		got[column.Name] = out.String()
	}
	want := map[string]string{
		"Vendor": "metax", "Model": "C500", "Driver": "2.13.2", "Mode": "sgpu", "Age": "2025-03-15T09:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}
