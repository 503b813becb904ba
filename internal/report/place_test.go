package report

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
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
	o := placeOptions{source: source{files: []string{"-"}}, output: "json"}
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
	o := placeOptions{source: source{files: []string{"-"}}, output: "json"}
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
	o := placeOptions{source: source{files: []string{"-"}}, output: "json"}
	stdout, _, _ := o.place(t, documents(device("n1", 1, "8Gi"), pod("p", "sgpu: 1", "metax-tech.com/sgpu-qos-policy: <fast & 快>")))
	if !strings.Contains(stdout, "<fast & 快>") {
		t.Errorf("the value is not in the answer: %s", stdout)
	}
}

// TestPolicyStandsIn: on n1, the fuller node, card 1 is the fuller; on n2 card 0
// is. So node and card tell which policy chose each.
func TestPolicyStandsIn(t *testing.T) {
	nodes := documents(
		device("n1", 2, "64Gi"), slice("n1", "half", 1, 50, 32),
		device("n2", 2, "64Gi"), slice("n2", "quarter", 0, 25, 16))
	const (
		node        = "hami.io/node-scheduler-policy: "
		card        = "hami.io/gpu-scheduler-policy: "
		aSlice      = "sgpu: 1, vcore: 10, vmemory: 1"
		aWhole      = "gpu: 1"
		fullFull    = "n1 1"
		fullEmpty   = "n1 0"
		emptyFull   = "n2 0"
		emptyEmpty  = "n2 1"
		wholeOnFull = fullEmpty // its only idle card
		wholeOnFree = emptyEmpty
	)
	cases := map[string]struct {
		limits      string
		annotations []string
		policy      place.Policy
		want        string
	}{
		"nothing is said":                                {limits: aSlice, want: fullFull},
		"binpack stands in for both":                     {limits: aSlice, policy: place.Binpack, want: fullFull},
		"spread stands in for both":                      {limits: aSlice, policy: place.Spread, want: emptyEmpty},
		"the node's is given, nothing stands in":         {limits: aSlice, annotations: []string{node + "spread"}, want: emptyFull},
		"spread nodes are given, binpack stands in":      {limits: aSlice, annotations: []string{node + "spread"}, policy: place.Binpack, want: emptyFull},
		"binpack nodes are given, spread stands in":      {limits: aSlice, annotations: []string{node + "binpack"}, policy: place.Spread, want: fullEmpty},
		"spread cards are given, binpack stands in":      {limits: aSlice, annotations: []string{card + "spread"}, policy: place.Binpack, want: fullEmpty},
		"binpack cards are given, spread stands in":      {limits: aSlice, annotations: []string{card + "binpack"}, policy: place.Spread, want: emptyFull},
		"both are given as spread, binpack is ignored":   {limits: aSlice, annotations: []string{node + "spread", card + "spread"}, policy: place.Binpack, want: emptyEmpty},
		"both are given as binpack, spread is ignored":   {limits: aSlice, annotations: []string{node + "binpack", card + "binpack"}, policy: place.Spread, want: fullFull},
		"an empty annotation is none":                    {limits: aSlice, annotations: []string{node + `""`, card + `""`}, policy: place.Spread, want: emptyEmpty},
		"whole cards, nothing is said":                   {limits: aWhole, want: wholeOnFull},
		"whole cards, spread stands in":                  {limits: aWhole, policy: place.Spread, want: wholeOnFree},
		"whole cards, binpack is given":                  {limits: aWhole, annotations: []string{node + "binpack"}, policy: place.Spread, want: wholeOnFull},
		"whole cards don't follow the policy for slices": {limits: aWhole, annotations: []string{card + "spread"}, policy: place.Binpack, want: wholeOnFull},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, nodes, pod("p", tc.limits, tc.annotations...))
			if got := placed(t, s, tc.policy); !slices.Equal(got, []string{tc.want}) {
				t.Errorf("placed on %q, want %q", got, tc.want)
			}
		})
	}
}

// placed places the pending pods and says of each on which node it is and on
// which cards, or that it is refused.
func placed(t *testing.T, s *cluster.Snapshot, policy place.Policy) []string {
	t.Helper()
	placements, err := Place(s, PlaceOptions{Policy: policy, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range placements.Pods {
		p := &placements.Pods[i]
		words := []string{p.Node}
		for _, card := range slices.Concat(p.cards()...) {
			words = append(words, strconv.Itoa(card.Index))
		}
		if len(p.Refusals) > 0 {
			words = []string{"refused:", p.Refusals[0].Code}
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func TestPlaceBooksOneAfterAnother(t *testing.T) {
	s := snapshot(t,
		pod("first", "gpu: 1"), pod("second", "sgpu: 1, vcore: 60, vmemory: 4"), pod("third", "sgpu: 1, vcore: 40, vmemory: 4"),
		pod("fourth", "sgpu: 1, vcore: 1, vmemory: 1"), pod("fifth", "gpu: 1"),
		device("n1", 2, "64Gi"))
	want := []string{"n1 0", "n1 1", "n1 1", "refused: ExclusiveConflict", "refused: ExclusiveConflict"}
	if diff := cmp.Diff(want, placed(t, s, place.Default)); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"default/first", "default/second", "default/third"}, holders(s)); diff != "" {
		t.Errorf("booked (-want +got):\n%s", diff)
	}
}

func holders(s *cluster.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		for _, h := range n.Holdings() {
			names = append(names, string(h.Holder))
		}
	}
	return names
}

// TestPlaceCountsRunningPodsFirst: a pod that runs holds its card also when it
// stands after the pod to place.
func TestPlaceCountsRunningPodsFirst(t *testing.T) {
	s := snapshot(t, pod("p", "gpu: 1"), device("n1", 2, "64Gi"), slice("n1", "runs", 0, 10, 1))
	if diff := cmp.Diff([]string{"n1 1"}, placed(t, s, place.Default)); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
}

func TestPlaceOnCountedCards(t *testing.T) {
	s := snapshot(t, counted("n1", 4), pod("two", "gpu: 2"), pod("slice", "sgpu: 1, vcore: 1, vmemory: 1"))
	placements, err := Place(s, PlaceOptions{Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	want := []Container{{Name: "main", Cards: []Card{
		{UUID: "", Index: 0, ComputePercent: 100, MemoryMiB: 65536},
		{UUID: "", Index: 1, ComputePercent: 100, MemoryMiB: 65536},
	}}}
	two, slice := placements.Pods[0], placements.Pods[1]
	if diff := cmp.Diff(want, two.Containers); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
	if text, ok := two.Annotations["metax-tech.com/gpu-devices-allocated"]; ok {
		t.Errorf("the annotation names cards that nobody knows: %s", text)
	}
	if len(slice.Refusals) != 1 || slice.Refusals[0].Code != "ModeConflict" {
		t.Errorf("the slice is refused for %+v, want ModeConflict", slice.Refusals)
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
