package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// budget protects the pods with the label app=<app>.
func budget(app string, allowed int32, charged ...string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: app}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b.Status.DisruptionsAllowed = allowed
	for _, name := range charged {
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		b.Status.DisruptedPods[name] = metav1.Now()
	}
	return b
}

// victims returns the victims on the only node.
func (r *rig) victims(t *testing.T, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo, pdbs ...*policyv1.PodDisruptionBudget) ([]*corev1.Pod, int, *fwk.Status) {
	t.Helper()
	c := stateOf(t, cs)
	switch list, err := r.shortlist(t.Context(), cs, c, pod, []fwk.NodeInfo{ni}, pdbs); {
	case err != nil:
		return nil, 0, fwk.AsStatus(err)
	case len(list) == 0:
		return nil, 0, fwk.NewStatus(fwk.Unschedulable)
	}
	return r.SelectVictimsOnNode(t.Context(), cs.Clone(), pod, ni.Snapshot(), pdbs)
}

func TestSelectVictimsOnNode(t *testing.T) {
	hogged := func(ni fwk.NodeInfo, names ...string) bool {
		there := sets.New[string]()
		for _, pi := range ni.GetPods() {
			there.Insert(pi.GetPod().Name)
		}
		return there.HasAll(names...)
	}
	broken := fwk.AsStatus(errBroken)
	tests := map[string]struct {
		onNode         []*corev1.Pod
		pod            *corev1.Pod
		others         func(fwk.NodeInfo) *fwk.Status // what other plugins say
		want           []string
		wantViolations int
		wantCode       fwk.Code
	}{
		"victims come the most important first": {
			onNode: []*corev1.Pod{
				makePod("b", whole(1), holds(1), priority(2), ofApp("b")), makePod("a", whole(1), holds(0), ofApp("a")),
				makePod("plain", priority(1)),
			},
			pod: makePod("p", whole(2), priority(9)), want: []string{"b", "a"}, wantViolations: 1,
		},
		"a pod of the same priority is never a victim": {
			onNode: []*corev1.Pod{makePod("a", slice(50, 32), holds(0), priority(9)), makePod("c", whole(1), holds(1)), makePod("d", priority(1))},
			pod:    makePod("p", whole(1), priority(9)), want: []string{"c"},
		},
		"processor time is missing: kube-scheduler's own way": {
			onNode: []*corev1.Pod{makePod("cards", whole(1), holds(0), priority(5)), makePod("hog")},
			pod:    makePod("p", whole(1), priority(9)),
			others: func(ni fwk.NodeInfo) *fwk.Status {
				if hogged(ni, "cards", "hog") {
					return fwk.NewStatus(fwk.Unschedulable)
				}
				return nil
			},
			want: []string{"hog"},
		},
		"cards and processor time are missing": {
			onNode: []*corev1.Pod{makePod("a", whole(1), holds(0), started(1)), makePod("b", whole(1), holds(1), started(2)), makePod("hog", started(3))},
			pod:    makePod("p", whole(1), priority(9)),
			others: func(ni fwk.NodeInfo) *fwk.Status {
				if hogged(ni, "hog") {
					return fwk.NewStatus(fwk.Unschedulable)
				}
				return nil
			},
			want: []string{"b", "hog"},
		},
		"another plugin breaks": {
			onNode: []*corev1.Pod{makePod("a", whole(1), holds(0)), makePod("b", whole(1), holds(1))},
			pod:    makePod("p", whole(1), priority(9)),
			others: func(fwk.NodeInfo) *fwk.Status { return broken }, wantCode: fwk.Error,
		},
		"no pod to evict": {
			onNode: []*corev1.Pod{makePod("a", whole(2), holds(0, 1))}, pod: makePod("p", whole(1)), wantCode: fwk.Unschedulable,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 2))
			r.fakes.filter = func(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
				if tt.others != nil {
					if status := tt.others(ni); !status.IsSuccess() {
						return status
					}
				}
				return r.Filter(ctx, cs, pod, ni)
			}
			ni := nodeInfo(makeNode("n1"), tt.onNode...)
			pods, violated, status := r.victims(t, r.cycleOver(t, tt.pod, []fwk.NodeInfo{ni}), tt.pod, ni, budget("b", 0))
			if status.Code() != tt.wantCode || violated != tt.wantViolations {
				t.Errorf("SelectVictimsOnNode() = %v with %d budgets broken, want %v with %d", status, violated, tt.wantCode, tt.wantViolations)
			}
			var names []string
			for _, pod := range pods {
				names = append(names, pod.Name)
			}
			gputest.Equal(t, "victims", tt.want, names)
		})
	}
}

// TestNodeOfTheCheapestVictims: nodes are compared as victims are on one node.
func TestNodeOfTheCheapestVictims(t *testing.T) {
	job := makePod("job", whole(2), holds(0, 1), started(9))
	on := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	tests := map[string]struct {
		n1, n2     []*corev1.Pod
		violations int64 // on n2
		want       string
	}{
		"a slice rather than a job that started later": {n1: on(job), n2: on(makePod("a", slice(40, 8), holds(0), started(1))), want: "n2"},
		"a job of lower priority rather than a slice":  {n1: on(job), n2: on(makePod("a", slice(40, 8), holds(0), priority(1))), want: "n1"},
		"a job rather than two slices":                 {n1: on(job), n2: on(makePod("a", slice(40, 8), holds(0)), makePod("b", slice(40, 8), holds(0))), want: "n1"},
		"a job rather than a protected slice":          {n1: on(job), n2: on(makePod("a", slice(40, 8), holds(0))), violations: 1, want: "n1"},
		"the slice that started last":                  {n1: on(makePod("a", slice(40, 8), holds(0), started(1))), n2: on(makePod("b", slice(40, 8), holds(0), started(2))), want: "n2"},
		"the first by name":                            {n1: on(makePod("a", slice(40, 8), holds(0))), n2: on(makePod("b", slice(40, 8), holds(0))), want: "n1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 2))
			r.setDevice(t, makeDevice("n2", 2))
			r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1"), tt.n1...), nodeInfo(makeNode("n2"), tt.n2...))
			scores := r.OrderedScoreFuncs(t.Context(), map[string]*extenderv1.Victims{"n1": {Pods: tt.n1}, "n2": {Pods: tt.n2, NumPDBViolations: tt.violations}})
			if len(scores) != 1 || (scores[0]("n1") > scores[0]("n2")) != (tt.want == "n1") || scores[0]("n1") == scores[0]("n2") {
				t.Errorf("n1 has %d, n2 %d, want %s first", scores[0]("n1"), scores[0]("n2"), tt.want)
			}
		})
	}
}

// TestVictimsNextToNominatedPods: cards promised to a nominated pod of the same
// priority are neither counted as room nor promised again.
func TestVictimsNextToNominatedPods(t *testing.T) {
	low := func(name string, card, compute, minute int) *corev1.Pod {
		return makePod(name, slice(compute, 8), holds(card), started(minute))
	}
	others := []*corev1.Pod{makePod("c", whole(1), holds(1), priority(9)), makePod("d", whole(1), holds(2), priority(9))}
	three := []*corev1.Pod{low("b1", 2, 30, 3), low("b2", 2, 30, 3), low("b3", 2, 30, 3)}
	tests := map[string]struct {
		onNode []*corev1.Pod
		// pods preempt one after the other.
		pods []*corev1.Pod
		// leave: the victims of a pod are gone before the next pod comes.
		leave bool
		// restart: the promises are lost before the next pod comes.
		restart     bool
		wantVictims []string
		wantCards   []gpu.Set
	}{
		"the victims are still there": {
			onNode: append([]*corev1.Pod{low("a", 0, 50, 4), low("b", 1, 50, 2)}, three...),
			pods:   []*corev1.Pod{makePod("p", whole(1), priority(9)), makePod("q", whole(1), priority(9))},

			wantVictims: []string{"a", "b"}, wantCards: []gpu.Set{gpu.SetOf(0), gpu.SetOf(1)},
		},
		"the victims are gone": {
			onNode: append([]*corev1.Pod{low("a", 0, 50, 4), low("b", 1, 50, 2)}, three...),
			pods:   []*corev1.Pod{makePod("p", whole(1), priority(9)), makePod("q", whole(1), priority(9))}, leave: true,

			wantVictims: []string{"a", "b"}, wantCards: []gpu.Set{gpu.SetOf(0), gpu.SetOf(1)},
		},
		"the promise is lost with a restart, the victims are gone": {
			onNode: append([]*corev1.Pod{low("a", 0, 50, 4), low("b", 1, 50, 2)}, three...),
			pods:   []*corev1.Pod{makePod("p", whole(1), priority(9)), makePod("q", whole(1), priority(9))}, leave: true, restart: true,

			wantVictims: []string{"a", "b"}, wantCards: []gpu.Set{gpu.SetOf(0), gpu.SetOf(1)},
		},
		"a smaller eviction makes room next to a nominated slice": {
			onNode: append([]*corev1.Pod{low("a", 0, 60, 9), low("b", 0, 20, 0), low("b1", 0, 10, 5), low("b2", 0, 10, 5)}, others...),
			pods:   []*corev1.Pod{makePod("p", slice(60, 8), priority(9)), makePod("q", slice(20, 8), priority(9))}, leave: true,

			wantVictims: []string{"a", "b"}, wantCards: []gpu.Set{gpu.SetOf(0), gpu.SetOf(0)},
		},
		"a nominated pod of a lower priority does not count": {
			onNode: append([]*corev1.Pod{low("a", 0, 50, 4)}, others...),
			pods:   []*corev1.Pod{makePod("p", whole(1), priority(8)), makePod("q", whole(1), priority(9))},

			wantVictims: []string{"a", "a"}, wantCards: []gpu.Set{gpu.SetOf(0), gpu.SetOf(0)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 3))
			var evicted []string
			var cards []gpu.Set
			onNode := slices.Clone(tt.onNode)
			for _, pod := range tt.pods {
				ni := nodeInfo(makeNode("n1"), onNode...)
				r.fakes.snapshot = snapshotOf(ni)
				cs := r.cycleOver(t, pod, []fwk.NodeInfo{ni})
				victims, _, status := r.victims(t, cs, pod, ni)
				if !status.IsSuccess() {
					t.Fatalf("SelectVictimsOnNode(%s) = %v", pod.Name, status)
				}
				for _, v := range victims {
					evicted = append(evicted, v.Name)
					if tt.leave {
						onNode = slices.DeleteFunc(onNode, func(on *corev1.Pod) bool { return on == v })
					}
				}
				c := stateOf(t, cs)
				r.holdCards(c, pod, "n1")
				h, _ := r.shared.pods.heldOn(pod.UID, r.shared.nodes.of(ni, false))
				cards = append(cards, h.Cards())
				if tt.restart {
					r.shared.pods.dropClaim(pod.UID, heldClaim)
				}
				r.fakes.nominated["n1"] = append(r.fakes.nominated["n1"], podInfo(t, pod))
			}
			gputest.Equal(t, "victims", tt.wantVictims, evicted)
			gputest.Equal(t, "promised cards", tt.wantCards, cards)
		})
	}
}

// TestOutranks: a pod of some node has a lower priority.
func TestOutranks(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 1))
	ni := nodeInfo(makeNode("n1"), makePod("q", whole(1), holds(0), priority(3)))
	r.shared.index.refresh([]fwk.NodeInfo{ni, nodeInfo(makeNode("empty"))})
	if !r.shared.index.outranks(4) || r.shared.index.outranks(3) {
		t.Error("a pod of priority 3 is outranked by priority 4 alone")
	}
}

func TestCharges(t *testing.T) {
	tests := map[string]struct {
		change func(*policyv1.PodDisruptionBudget)
		pod    *corev1.Pod
		want   bool
	}{
		"its label":              {pod: makePod("p", ofApp("a")), want: true},
		"another label":          {pod: makePod("p", ofApp("b"))},
		"no labels":              {pod: makePod("p")},
		"another namespace":      {pod: makePod("p", ofApp("a")), change: func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }},
		"an empty selector":      {pod: makePod("p", ofApp("a")), change: func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = &metav1.LabelSelector{} }},
		"no selector":            {pod: makePod("p", ofApp("a")), change: func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }},
		"charged for it already": {pod: makePod("p", ofApp("a")), change: func(b *policyv1.PodDisruptionBudget) { b.Status = budget("a", 0, "p").Status }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := budget("a", 1)
			if tt.change != nil {
				tt.change(b)
			}
			v := &place.Victim{}
			newCharges([]*policyv1.PodDisruptionBudget{b}).of(&entry{read: []reading{{pod: tt.pod}}}, []*place.Victim{v})
			if got := len(v.Budgets) == 1; got != tt.want {
				t.Errorf("the eviction is charged: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestManyBudgets: thousands of disruption budgets and of pods with labels of their own
// are not all compared; pods beyond count as protected, those of other namespaces do not.
func TestManyBudgets(t *testing.T) {
	const many = 1000
	var pdbs []*policyv1.PodDisruptionBudget
	for i := range many {
		pdb := budget(fmt.Sprint("b", i), 1)
		pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a", "i": strconv.Itoa(i)}}
		pdbs = append(pdbs, pdb)
	}
	other := budget("other", 1)
	other.Namespace = "other"
	c := newCharges(append(pdbs, other))
	first, protects := 0, 0
	for i := range many {
		pod := makePod("p")
		pod.Labels = map[string]string{"app": "a", "i": strconv.Itoa(i)}
		switch of := c.byNamespace[pod.Namespace].of(pod); {
		case len(of) != 1:
			t.Fatalf("%d budgets cover pod %d, want one", len(of), i)
		case of[0].Name == fmt.Sprint("b", i):
			first++
		case of[0].Status.DisruptionsAllowed == 0:
			protects++
		}
	}
	if want := maxMatches / many; first != want || protects != many-want {
		t.Errorf("%d pods are compared and %d protected, want %d and the rest of %d", first, protects, want, many)
	}
	pod := makePod("p", inNamespace("other"))
	pod.Labels = other.Spec.Selector.MatchLabels
	if of := c.byNamespace["other"].of(pod); len(of) != 1 || of[0].PodDisruptionBudget != other {
		t.Errorf("%d budgets cover a pod of another namespace, want its own", len(of))
	}
}
