package cluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestStreamErrors: an error in a large file has the words of one in a small
// file, and names the document and the item.
func TestStreamErrors(t *testing.T) {
	list := func(item string) string {
		return `{"apiVersion":"v1","items":[` + nodeJSON + "," + item + `],"kind":"List"}`
	}
	const item = "standard input, document 2, item 2: "
	for name, tt := range map[string]struct{ text, want string }{
		"no kind":            {list(`{"metadata":{"name":"n2"}}`), "standard input, document 2, item 1: no apiVersion or no kind: want a v1 Node, Pod or List, or a " + deviceKind},
		"a Node twice":       {list(nodeJSON), item + "Node n1 was already read from standard input, document 2, item 1"},
		"no quantity":        {list(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"},"status":{"capacity":{"cpu":"eight"}}}`), item + `Node: status.capacity[cpu]: "eight" is no quantity: write a number, or one with a unit such as 512Mi or 4Gi`},
		"a key twice":        {list(`{"apiVersion":"v1","kind":"Node","kind":"Node"}`), item + `yaml: unmarshal errors:` + "\n" + `  line 1: key "kind" already set in map`},
		"items twice":        {`{"items":[],"items":[]}`, `standard input, document 2: key "items" already set in map`},
		"no list":            {`{"items":7}`, "standard input, document 2: not a Kubernetes object: items is no list"},
		"no object":          {list("7"), "standard input, document 2, item 2: not a Kubernetes object: the document is a number, want a mapping"},
		"cut off":            {`{"apiVersion":"v1","items":[` + nodeJSON, "standard input, document 2: unexpected EOF"},
		"words after JSON":   {list(podJSON) + " and more", "standard input, document 3: not a Kubernetes object: the document is a string, want a mapping"},
		"a bracket too many": {`}`, "standard input, document 2: yaml: did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readText(deviceJSON + tt.text + padding)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}

// TestHugeExponents: a quantity that would take hours to compute is rejected in
// every format, and in a Device it affects its node only.
func TestHugeExponents(t *testing.T) {
	const sentence = `"1e-999999999" is no amount of anything: write a number without an exponent`
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p1"},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-999999999"}}}]}}`
	node := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"capacity":{"cpu":"1e-999999999"}}}`
	device := `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"name":"n1"},"spec":{"devices":[{"resources":{"koordinator.sh/gpu-memory":"1e-999999999"}}]}}`
	for name, tt := range map[string]struct{ text, want string }{
		"Pod":  {pod, "Pod: spec.containers[0].resources.limits[cpu]: " + sentence},
		"Node": {node, "Node: status.capacity[cpu]: " + sentence},
	} {
		asYAML, err := yaml.JSONToYAML([]byte(tt.text))
		gputest.Must(t, err)
		for form, text := range map[string]string{"JSON": tt.text, "YAML": string(asYAML), "large JSON": `{"items":[` + tt.text + `]}` + padding} {
			if _, err := readText(text); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("%s in %s: error %v, want %q", name, form, err, tt.want)
			}
		}
	}
	want := "the Device can't be decoded: spec.devices[0].resources[koordinator.sh/gpu-memory]: " + sentence
	for form, text := range map[string]string{"JSON": device, "large JSON": device + padding} {
		objects, err := readText(text)
		if err != nil || objects.Devices["n1"].Err == nil || objects.Devices["n1"].Err.Error() != want {
			t.Errorf("Device in %s: %+v, error %v, want %q", form, objects.Devices["n1"], err, want)
		}
	}
	f := newFakes()
	var live unstructured.Unstructured
	gputest.Must(t, live.UnmarshalJSON([]byte(strings.Replace(device, `"n1"`, `"n3"`, 1))))
	if _, err := f.dynamic.Resource(devices).Create(t.Context(), &live, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects, err := f.client().Read(t.Context(), "")
	if err != nil || objects.Devices["n3"].Err == nil || objects.Devices["n3"].Err.Error() != want {
		t.Errorf("Device of a cluster: %+v, error %v, want %q", objects.Devices["n3"], err, want)
	}
}
