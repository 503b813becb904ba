package command

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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
	want := `{"apiVersion": "daybreak-gpu.io/v1", "kind": "Placements", "pods": [
	  {"namespace": "default", "name": "a", "node": "n1",
	   "containers": [{"name": "main", "cards": [{"uuid": "GPU-n1-4", "index": 4, "computePercent": 60, "memoryMiB": 4096}]}],
	   "annotations": {
	     "metax-tech.com/gpu-devices-allocated": "[[{\"uuid\":\"GPU-n1-4\",\"compute\":60,\"vRam\":4096}]]",
	     "metax-tech.com/predicate-time": "1000000000",
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
	gputest.Equal(t, "on stderr", "", stderr)
	gputest.Equal(t, "answer", decode(t, want), elide(decode(t, stdout)))
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
	gputest.Equal(t, "answer", map[string]any{"apiVersion": "daybreak-gpu.io/v1", "kind": "Placements", "pods": []any{}}, decode(t, stdout))
	gputest.Equal(t, "on stderr", "note: no pod to place: a pod to place has no spec.nodeName\n", stderr)
}

// TestPlaceJSONKeepsCharacters: what a user wrote is found again as it was.
func TestPlaceJSONKeepsCharacters(t *testing.T) {
	o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
	stdout, _, _ := o.place(t, documents(device("n1", 1, "8Gi"), pod("p", "sgpu: 1", "metax-tech.com/sgpu-qos-policy: <fast & 快>")))
	if !strings.Contains(stdout, "<fast & 快>") {
		t.Errorf("the value is not in the answer: %s", stdout)
	}
}

// TestPlaceIsRepeatable: where everything comes from files, the clock does not show
// in the answer. The pods get the latest time that the files show.
func TestPlaceIsRepeatable(t *testing.T) {
	input := documents(device("n1", 2, "8Gi"), slice("n1", "runs", 0, 50, 4, `metax-tech.com/predicate-time: "1773568800000000000"`), pod("p", "gpu: 1"))
	var answers []string
	for _, hour := range []int{1, 2} {
		o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}, now: func() time.Time { return noon().Add(time.Duration(hour) * time.Hour) }}
		var out bytes.Buffer
		gputest.Must(t, o.run(t.Context(), strings.NewReader(input), &out, io.Discard))
		answers = append(answers, out.String())
	}
	gputest.Equal(t, "two runs", answers[0], answers[1])
	if want := `"metax-tech.com/predicate-time": "1773568800000000000"`; !strings.Contains(answers[0], want) {
		t.Errorf("the answer is without %s: %s", want, answers[0])
	}
}

// TestPlaceWorkloads: the pods of a workload are placed, and a bad template is an
// error, not an answer.
func TestPlaceWorkloads(t *testing.T) {
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3, template: {spec: {containers: [{name: main, resources: {limits: {metax-tech.com/gpu: 1}}}]}}}\n"
	o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
	stdout, stderr, ok := o.place(t, documents(deployment, device("n1", 2, "8Gi")))
	var got view.Placements
	gputest.Must(t, json.Unmarshal([]byte(stdout), &got))
	var nodes []string
	for i := range got.Pods {
		nodes = append(nodes, got.Pods[i].Name+" "+got.Pods[i].Node)
	}
	if want := []string{"web-1 n1", "web-2 n1", "web-3 "}; ok || stderr != "" || !slices.Equal(nodes, want) {
		t.Errorf("placed %q, OK is %v, on stderr %q; want %q and no", nodes, ok, stderr, want)
	}
	bad := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}, now: noon}
	err := bad.run(t.Context(), strings.NewReader(documents(strings.ReplaceAll(deployment, "containers", "boxes"), device("n1", 2, "8Gi"))), io.Discard, io.Discard)
	if want := "standard input, document 1: Deployment web: spec.template has no containers"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
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
		gputest.Must(t, addLive(objects, live))
		want := &cluster.Objects{Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{named("asked", ""), named("waits", ""), named("runs", "n1")}}
		gputest.Equal(t, "objects", want, objects, cmpopts.IgnoreFields(cluster.Objects{}, "VendorPlugin"))
	})
	t.Run("a pod that runs can't be placed again", func(t *testing.T) {
		err := addLive(&cluster.Objects{Pods: []*corev1.Pod{named("runs", "")}}, live)
		want := "pod default/runs is in the files, but already runs on node n1: give the one to place another name"
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	})
}

// TestPlaceWithAmounts: a pod that the manager admitted, with the amounts that quotas
// count, gets the answer that it gets without them.
func TestPlaceWithAmounts(t *testing.T) {
	const amounts = ", daybreak-gpu.io/compute: 60, daybreak-gpu.io/memory: 4Gi, daybreak-gpu.io/cards: 0"
	var answers []string
	for _, limits := range []string{"sgpu: 1, vcore: 60, vmemory: 4", "sgpu: 1, vcore: 60, vmemory: 4" + amounts} {
		o := placeOptions{source: source{files: []string{"-"}}, format: format{output: "json"}}
		stdout, stderr, ok := o.place(t, documents(device("n1", 2, "64Gi"), strings.ReplaceAll(pod("a", limits), "metax-tech.com/daybreak", "daybreak")))
		if !ok || stderr != "" || strings.Contains(stdout, "warnings") {
			t.Errorf("%s: placed %t, on stderr %q: %s", limits, ok, stderr, stdout)
		}
		answers = append(answers, stdout)
	}
	gputest.Equal(t, "answers without and with amounts", answers[0], answers[1])
}
