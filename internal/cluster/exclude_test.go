package cluster

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// affine returns a pod with these terms of required node affinity.
func affine(terms ...corev1.NodeSelectorTerm) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	return pod
}

// TestNodeFilterCost: what parsing node affinity allocates grows with the number of
// expressions, not with its square, and matching a node allocates nothing.
func TestNodeFilterCost(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"rack": "1"}}}
	cost := func(n int) (bytes uint64) {
		var term corev1.NodeSelectorTerm
		for i := range n {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: fmt.Sprintf("k%d", n-i), Operator: corev1.NodeSelectorOpDoesNotExist})
		}
		pod := affine(term)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		filter := NewNodeFilter(pod)
		runtime.ReadMemStats(&after)
		if !filter.Selects(node) {
			t.Fatal("a node without these labels is not selected")
		}
		if allocs := testing.AllocsPerRun(10, func() { filter.Selects(node) }); allocs > float64(n) {
			t.Errorf("%d expressions: %.0f allocations to match a node", n, allocs)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := cost(500), cost(4000)
	t.Logf("500 expressions: %d bytes, 4000: %d", small, large)
	if large > 10*small {
		t.Errorf("%d bytes for 4000 expressions, %d for 500: more than 10 times as much for 8 times as many", large, small)
	}
}

// TestNodeFilterAsScheduler: nodeSelector and node affinity admit the same nodes as
// kube-scheduler's own parser, terms that can't be parsed included.
func TestNodeFilterAsScheduler(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 36))
	operators := []corev1.NodeSelectorOperator{
		corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, "",
	}
	key := func() string { return fmt.Sprintf("k%d", random.IntN(4)) }
	value := func() string { return strconv.Itoa(random.IntN(3)) }
	matched := 0
	for range 20_000 {
		var terms []corev1.NodeSelectorTerm
		for range random.IntN(4) {
			var term corev1.NodeSelectorTerm
			// Mostly such that hold, so that long terms match too.
			for range []int{0, 1, 2, 16, 40}[random.IntN(5)] {
				r := corev1.NodeSelectorRequirement{Key: "other", Operator: corev1.NodeSelectorOpDoesNotExist}
				if random.IntN(12) == 0 {
					r = corev1.NodeSelectorRequirement{Key: key(), Operator: operators[random.IntN(len(operators)-random.IntN(2))]}
					if r.Operator != corev1.NodeSelectorOpExists && r.Operator != corev1.NodeSelectorOpDoesNotExist {
						r.Values = []string{value()}
					}
				}
				term.MatchExpressions = append(term.MatchExpressions, r)
			}
			if random.IntN(3) == 0 {
				term.MatchFields = []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: operators[random.IntN(3)], Values: []string{fmt.Sprintf("n%d", random.IntN(2))}}}
			}
			terms = append(terms, term)
		}
		pod := affine(terms...)
		if random.IntN(4) == 0 {
			pod.Spec.NodeSelector = map[string]string{key(): value()}
		}
		if random.IntN(8) == 0 {
			pod.Spec.Affinity = nil
		}
		filter, want := NewNodeFilter(pod), nodeaffinity.GetRequiredNodeAffinity(pod)
		for _, name := range []string{"n0", "n1", ""} {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
			for range random.IntN(4) {
				node.Labels[key()] = value()
			}
			ok, _ := want.Match(node)
			if got := filter.Selects(node); got != ok {
				t.Fatalf("node %q with %v: selected is %t, for kube-scheduler %t: %+v, %v", name, node.Labels, got, ok, terms, pod.Spec.NodeSelector)
			}
			if ok {
				matched++
			}
		}
	}
	if matched < 5000 || matched > 55_000 {
		t.Errorf("%d of 60 000 nodes match: the test says little", matched)
	}
}
