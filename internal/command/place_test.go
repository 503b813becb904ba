package command

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// TestPlaceJSON asks for an answer with a pod of each kind, and compares it with
// the document that scripts are written against: every field, by its name.
func TestPlaceJSON(t *testing.T) {
	fixed := "metax-tech.com/sgpu-qos-policy: fixed-share"
	input := documents(
		device("n1", 8, "8Gi"),
		slice("n1", "fixed-0", 0, 10, 1, fixed), slice("n1", "fixed-1", 1, 10, 1, fixed), slice("n1", "fixed-2", 2, 10, 1, fixed),
		slice("n1", "r3", 3, 50, 4), slice("n1", "r4", 4, 30, 1), slice("n1", "r5", 5, 50, 4), slice("n1", "r6", 6, 50, 4), slice("n1", "r7", 7, 50, 4),
		pod("a", "sgpu: 1, vcore: 60, vmemory: 4", "hami.io/device-scoring-weights: slot=1"),
		pod("b", "sgpu: 1, vcore: 10, vmemory: 8"),
		pod("c", "sgpu: 1, vcore: 120"),
		pod("d", "sgpu: 0"),
	)
	want := `{"pods": [
	  {"namespace": "default", "name": "a", "node": "n1",
	   "containers": [{"name": "main", "cards": [{"uuid": "GPU-n1-4", "index": 4, "computePercent": 60, "memoryMiB": 4096}]}],
	   "annotations": {
	     "metax-tech.com/gpu-devices-allocated": "[[{\"uuid\":\"GPU-n1-4\",\"compute\":60,\"vRam\":4096}]]",
	     "metax-tech.com/predicate-time": "1773576000000000000",
	     "metax-tech.com/sgpu-qos-policy": "best-effort",
	     "hami.io/vgpu-node": "n1",
	     "hami.io/metax-sgpu-devices-allocated": "GPU-n1-4,Metax-SGPU,4096,60:;"},
	   "warnings": ["…"]},
	  {"namespace": "default", "name": "b", "node": "",
	   "refusals": [{"node": "n1", "code": "MemoryShort", "want": 8192, "have": 4096, "permanent": false,
	                 "cards": {"MemoryShort": 5, "QoSConflict": 3}, "message": "…"}],
	   "summary": "…"},
	  {"namespace": "default", "name": "c", "node": "",
	   "error": "spec.containers[0].resources.limits[metax-tech.com/vcore]: …",
	   "problems": ["spec.containers[0].resources.limits[metax-tech.com/vcore]: …"]},
	  {"namespace": "default", "name": "d", "node": "", "note": "…"}
	]}`
	o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
	stdout, stderr, ok := o.place(t, input)
	if ok {
		t.Error("the answer is yes, want no: two pods have no place")
	}
	if stderr != "" {
		t.Errorf("on stderr: %q", stderr)
	}
	if diff := cmp.Diff(decode(t, want), elide(decode(t, stdout))); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// decode decodes a text that must be one JSON document and nothing else.
func decode(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// elide replaces sentences, which are no contract, by an ellipsis; the path of
// a field at their start stays.
func elide(v any) any {
	sentences := []string{"message", "summary", "error", "note", "problems", "warnings"}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = elide(v[i])
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			v[key] = elide(v[key])
			if slices.Contains(sentences, key) {
				v[key] = elideSentences(v[key])
			}
		}
	}
	return v
}

func elideSentences(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = elideSentences(v[i])
		}
	case string:
		if path, _, ok := strings.Cut(v, ": "); ok && strings.HasPrefix(path, "spec.") {
			return path + ": …"
		}
		if v != "" {
			return "…"
		}
	}
	return v
}

func TestPlaceJSONWithoutPods(t *testing.T) {
	o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
	stdout, stderr, ok := o.place(t, device("n1", 1, "8Gi"))
	if !ok {
		t.Error("the answer is no")
	}
	if diff := cmp.Diff(map[string]any{"pods": []any{}}, decode(t, stdout)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if want := "note: no pod to place: a pod to place has no spec.nodeName\n"; stderr != want {
		t.Errorf("on stderr: %q, want %q", stderr, want)
	}
}

// TestPlaceJSONKeepsCharacters: what a user wrote is found again as it was.
func TestPlaceJSONKeepsCharacters(t *testing.T) {
	o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
	stdout, _, _ := o.place(t, documents(device("n1", 1, "8Gi"), pod("p", "sgpu: 1", "metax-tech.com/sgpu-qos-policy: <fast & 快>")))
	if !strings.Contains(stdout, "<fast & 快>") {
		t.Errorf("the value is not in the answer: %s", stdout)
	}
}

func TestAddLive(t *testing.T) {
	named := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	live := &cluster.Objects{Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{named("runs", "n1"), named("waits", "")}}

	t.Run("running pods are added, waiting ones are not", func(t *testing.T) {
		objects := &cluster.Objects{Pods: []*corev1.Pod{named("asked", ""), named("waits", "")}}
		if err := addLive(objects, live); err != nil {
			t.Fatal(err)
		}
		want := &cluster.Objects{Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{named("asked", ""), named("waits", ""), named("runs", "n1")}}
		if diff := cmp.Diff(want, objects, cmpopts.IgnoreFields(cluster.Objects{}, "VendorPlugin")); diff != "" {
			t.Errorf("objects (-want +got):\n%s", diff)
		}
	})
	t.Run("a pod that runs can't be placed again", func(t *testing.T) {
		err := addLive(&cluster.Objects{Pods: []*corev1.Pod{named("runs", "")}}, live)
		want := "pod default/runs is in the files, but already runs on node n1: give the one to place another name"
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	})
}
