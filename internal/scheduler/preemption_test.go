package scheduler

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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

// selectionOn is the search for victims on a node with the given pods.
func (r *rig) selectionOn(t *testing.T, cards int, pod *corev1.Pod, onNode []*corev1.Pod, pdbs ...*policyv1.PodDisruptionBudget) *selection {
	t.Helper()
	r.setDevice(t, makeDevice("n1", cards))
	ask, problems := wire.Admit(pod)
	if ask == nil {
		t.Fatalf("Admit() = %v", problems)
	}
	ni := nodeInfo(makeNode("n1"), onNode...)
	return newSelection(r.shared.nodes.of(ni, true), ask, r.evictable(ni, pod), pdbs)
}

func podNames(victims []*victim) []string {
	var names []string
	for _, v := range victims {
		names = append(names, v.info.GetPod().Name)
	}
	slices.Sort(names)
	return names
}

// oneAgainstThree has an old pod on card 0 and three younger ones on card 1.
func oneAgainstThree(options ...podOption) []*corev1.Pod {
	return []*corev1.Pod{
		makePod("a", append([]podOption{slice(50, 32), holds(0), started(0), ofApp("a")}, options...)...),
		makePod("b1", slice(20, 16), holds(1), started(1), ofApp("b")),
		makePod("b2", slice(20, 16), holds(1), started(2), ofApp("b")),
		makePod("b3", slice(20, 16), holds(1), started(3), ofApp("b")),
	}
}

func TestCheapest(t *testing.T) {
	tests := map[string]struct {
		cards  int
		onNode []*corev1.Pod
		pdbs   []*policyv1.PodDisruptionBudget
		pod    *corev1.Pod
		want   []string // none: it is for others to say
	}{
		"one old pod rather than three young ones": {
			cards: 2, onNode: oneAgainstThree(), pod: makePod("p", whole(1), priority(9)), want: []string{"a"},
		},
		"three pods rather than one that a budget protects": {
			cards: 2, onNode: oneAgainstThree(), pdbs: []*policyv1.PodDisruptionBudget{budget("a", 0)},
			pod: makePod("p", whole(1), priority(9)), want: []string{"b1", "b2", "b3"},
		},
		"three pods rather than one of higher priority": {
			cards: 2, onNode: oneAgainstThree(priority(1)), pod: makePod("p", whole(1), priority(9)), want: []string{"b1", "b2", "b3"},
		},
		"one broken budget rather than three": {
			cards: 2, onNode: oneAgainstThree(priority(1)), pdbs: []*policyv1.PodDisruptionBudget{budget("a", 0), budget("b", 0)},
			pod: makePod("p", whole(1), priority(9)), want: []string{"a"},
		},
		"a budget is charged for evicted pods only": {
			cards: 2, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 1)}, pod: makePod("p", whole(1), priority(9)), want: []string{"young"},
			onNode: []*corev1.Pod{makePod("old", slice(50, 32), holds(0), started(0), ofApp("a")), makePod("young", slice(50, 32), holds(1), started(1), ofApp("a"))},
		},
		"two pods of two budgets rather than two of one": {
			cards: 3, pod: makePod("p", whole(2), priority(9)), want: []string{"a2", "b"},
			pdbs: []*policyv1.PodDisruptionBudget{budget("a", 1), budget("b", 1)},
			onNode: []*corev1.Pod{
				makePod("a1", slice(50, 32), holds(0), started(0), ofApp("a")), makePod("a2", slice(50, 32), holds(1), started(1), ofApp("a")),
				makePod("b", slice(50, 32), holds(2), started(2), ofApp("b")),
			},
		},
		"one violation either way: one protected pod rather than two that exceed a budget together": {
			cards: 2, pod: makePod("p", whole(1), priority(9)), want: []string{"b"},
			pdbs: []*policyv1.PodDisruptionBudget{budget("a", 1), budget("b", 0)},
			onNode: []*corev1.Pod{
				makePod("a1", slice(50, 32), holds(0), ofApp("a")), makePod("a2", slice(50, 32), holds(0), ofApp("a")),
				makePod("b", slice(50, 32), holds(1), ofApp("b")),
			},
		},
		"a pod of the same priority is never a victim": {
			cards: 2, onNode: oneAgainstThree(priority(9)), pod: makePod("p", whole(1), priority(9)), want: []string{"b1", "b2", "b3"},
		},
		"only as many as it takes": {
			cards: 2, onNode: oneAgainstThree(priority(9)), pod: makePod("p", slice(60, 32), priority(9)), want: []string{"b3"},
		},
		"the pod that started last": {
			cards: 2, onNode: []*corev1.Pod{makePod("a", slice(50, 32), holds(0), started(5)), makePod("b", slice(50, 32), holds(1), started(6))},
			pod: makePod("p", whole(1), priority(9)), want: []string{"b"},
		},
		"four cards of eight: those with one pod each, and of these the youngest": {
			cards: 8, pod: makePod("p", whole(4), priority(9)), want: []string{"s2", "s4", "s6", "s7"},
			onNode: []*corev1.Pod{
				makePod("s0", slice(10, 8), holds(0), started(0)),
				makePod("s1", slice(10, 8), holds(1), started(1)), makePod("x1", slice(10, 8), holds(1), started(9)),
				makePod("s2", slice(10, 8), holds(2), started(2)),
				makePod("s3", slice(10, 8), holds(3), started(3)), makePod("x3", slice(10, 8), holds(3), started(9)),
				makePod("s4", slice(10, 8), holds(4), started(4)),
				makePod("s5", slice(10, 8), holds(5), started(5)), makePod("x5", slice(10, 8), holds(5), started(9)),
				makePod("s6", slice(10, 8), holds(6), started(6)), makePod("s7", slice(10, 8), holds(7), started(7)),
			},
		},
		"a pod on several cards is one victim": {
			cards: 4, pod: makePod("p", whole(2), priority(9)), want: []string{"pair"},
			onNode: []*corev1.Pod{
				makePod("pair", whole(2), holds(0, 1), started(0)),
				makePod("s2", slice(10, 8), holds(2), started(8)), makePod("s3", slice(10, 8), holds(3), started(8)),
			},
		},
		"a pod whose cards are not known": {
			cards: 2, onNode: []*corev1.Pod{makePod("a", whole(1), holds(0)), makePod("u", whole(1), boundTo("n1"))},
			pod: makePod("p", whole(1), priority(9)), want: []string{"u"},
		},
		"cards are not what is missing": {
			cards: 2, onNode: []*corev1.Pod{makePod("a", whole(1), holds(0))}, pod: makePod("p", whole(1), priority(9)),
		},
		"nobody is worth less": {
			cards: 1, onNode: []*corev1.Pod{makePod("a", whole(1), holds(0))}, pod: makePod("p", whole(1)),
		},
		"evicting all of them would not do": {
			cards: 2, onNode: []*corev1.Pod{makePod("a", whole(1), holds(0)), makePod("b", whole(1), holds(1), priority(9))},
			pod: makePod("p", whole(2), priority(9)),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for range 3 { // in whatever order the node has them
				victims, ok := r.selectionOn(t, tt.cards, tt.pod, tt.onNode, tt.pdbs...).cheapest()
				if ok != (tt.want != nil) {
					t.Fatalf("cheapest() found something: %v", ok)
				}
				if diff := cmp.Diff(tt.want, podNames(victims)); diff != "" {
					t.Errorf("victims (-want +got):\n%s", diff)
				}
				slices.Reverse(tt.onNode)
			}
		})
	}
}

// TestCheapestOfMany: where there are too many sets to try, cards are emptied
// one by one, and whoever need not go stays.
func TestCheapestOfMany(t *testing.T) {
	var stairs []*corev1.Pod // i+1 pods on card i
	for card := range 8 {
		for k := range card + 1 {
			stairs = append(stairs, makePod(fmt.Sprintf("s%d-%d", card, k), slice(10, 4), holds(card), started(k)))
		}
	}
	level := []*corev1.Pod{makePod("dear", slice(10, 4), holds(0), priority(5))} // and eight pods on each other card
	for card := 1; card < 8; card++ {
		for k := range 8 {
			level = append(level, makePod(fmt.Sprintf("s%d-%d", card, k), slice(10, 4), holds(card), started(k)))
		}
	}
	var unknown []*corev1.Pod
	for i := range 14 {
		unknown = append(unknown, makePod(fmt.Sprintf("u%02d", i), whole(1), boundTo("n1")))
	}
	var apps []*corev1.Pod // four of app a on each card but the last; there, eight of app b
	for card := range 8 {
		app, n := "a", 4
		if card == 7 {
			app, n = "b", 8
		}
		for k := range n {
			apps = append(apps, makePod(fmt.Sprintf("%s%d-%d", app, card, k), slice(10, 4), holds(card), started(k), ofApp(app)))
		}
	}
	tests := map[string]struct {
		onNode []*corev1.Pod
		pdbs   []*policyv1.PodDisruptionBudget
		pod    *corev1.Pod
		want   []string
	}{
		"eight pods rather than four of which one exceeds a budget": {
			onNode: apps, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 3)}, pod: makePod("p", whole(1), priority(9)),
			want: []string{"b7-0", "b7-1", "b7-2", "b7-3", "b7-4", "b7-5", "b7-6", "b7-7"},
		},
		"the second card exceeds a budget, so pods of another app are evicted": {
			onNode: apps, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 4)}, pod: makePod("p", whole(2), priority(9)),
			want: []string{"a0-0", "a0-1", "a0-2", "a0-3", "b7-0", "b7-1", "b7-2", "b7-3", "b7-4", "b7-5", "b7-6", "b7-7"},
		},
		"the four cards with the fewest pods": {
			onNode: stairs, pod: makePod("p", whole(4), priority(9)),
			want: []string{"s0-0", "s1-0", "s1-1", "s2-0", "s2-1", "s2-2", "s3-0", "s3-1", "s3-2", "s3-3"},
		},
		"only the named cards": {
			onNode: stairs, pod: makePod("p", whole(1), priority(9), annotated(wire.AnnotationUseCards, "GPU-4")),
			want: []string{"s4-0", "s4-1", "s4-2", "s4-3", "s4-4"},
		},
		"eight pods rather than one of higher priority": {
			onNode: level, pod: makePod("p", whole(1), priority(9)),
			want: []string{"s1-0", "s1-1", "s1-2", "s1-3", "s1-4", "s1-5", "s1-6", "s1-7"},
		},
		"those on no known card, and nobody else": {
			onNode: append([]*corev1.Pod{makePod("s0", slice(10, 4), holds(0)), makePod("s1", slice(10, 4), holds(1)), makePod("s2", slice(10, 4), holds(2))}, unknown...),
			pod:    makePod("p", whole(1), priority(9)),
			want:   []string{"u00", "u01", "u02", "u03", "u04", "u05", "u06", "u07", "u08", "u09", "u10", "u11", "u12", "u13"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newRig(t).selectionOn(t, 8, tt.pod, tt.onNode, tt.pdbs...)
			victims, ok := s.cheapest()
			if diff := cmp.Diff(tt.want, podNames(victims)); !ok || diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			if !s.fitsWithout(victims) {
				t.Error("the pod does not fit without them")
			}
			for i, v := range victims {
				if s.fitsWithout(slices.Concat(victims[:i], victims[i+1:])) {
					t.Errorf("%s could have been spared", v.info.GetPod().Name)
				}
			}
			if s.tries > 2*maxTries {
				t.Errorf("%d sets were tried", s.tries)
			}
		})
	}
}

// cost returns the cost of evicting the set, in order of weight: violations of
// budgets, the highest priority, the sum of priorities, the number of pods, and
// the earliest start, negated.
func cost(set []*victim, budgets ...*policyv1.PodDisruptionBudget) []int {
	beyond, highest, sum, minute := 0, -1, 0, math.MaxInt
	for i, v := range set {
		pod := v.info.GetPod()
		over := false
		for _, b := range budgets {
			before := 0
			for _, other := range set[:i] {
				if maps.Equal(other.info.GetPod().Labels, b.Spec.Selector.MatchLabels) {
					before++
				}
			}
			over = over || maps.Equal(pod.Labels, b.Spec.Selector.MatchLabels) && before >= int(b.Status.DisruptionsAllowed)
		}
		if over {
			beyond++
		}
		highest, sum = max(highest, int(*pod.Spec.Priority)), sum+int(*pod.Spec.Priority)+1<<31
		minute = min(minute, int(pod.Status.StartTime.Sub(start).Minutes()))
	}
	return []int{beyond, highest, sum, len(set), -minute}
}

// TestCheapestIsCheapest compares with all sets there are.
func TestCheapestIsCheapest(t *testing.T) {
	r, random := newRig(t), rand.New(rand.NewPCG(3, 4))
	found, broken, together := 0, 0, 0
	for round := range 600 {
		cards := 1 + random.IntN(3)
		var pods []*corev1.Pod
		for i := range 1 + random.IntN(8) {
			amount := slice(10*(1+random.IntN(3)), 4*(1+random.IntN(4)))
			if random.IntN(5) == 0 {
				amount = whole(1)
			}
			pods = append(pods, makePod(fmt.Sprintf("q%d", i), amount, holds(random.IntN(cards)), started(random.IntN(4)),
				priority(random.Int32N(4)), ofApp(strconv.Itoa(random.IntN(3)))))
		}
		pod := makePod("p", slice(10*(1+random.IntN(9)), 8*(1+random.IntN(7))), priority(3))
		if random.IntN(2) == 0 {
			pod = makePod("p", whole(1+random.IntN(cards)), priority(3))
		}
		budgets := []*policyv1.PodDisruptionBudget{
			budget("0", random.Int32N(3)), budget("0", random.Int32N(3)), budget("1", random.Int32N(3)), budget("2", random.Int32N(5)),
		}
		s := r.selectionOn(t, cards, pod, pods, budgets...)
		var want []*victim
		for mask := 1; mask < 1<<len(s.victims); mask++ {
			var set []*victim
			for i, v := range s.victims {
				if mask>>i&1 == 1 {
					set = append(set, v)
				}
			}
			if s.fitsWithout(set) && (want == nil || slices.Compare(cost(set, budgets...), cost(want, budgets...)) < 0) {
				want = set
			}
		}
		if s.fitsWithout(nil) {
			want = nil
		}
		s.tries = 0
		got, ok := s.cheapest()
		if ok != (want != nil) || ok && (!s.fitsWithout(got) || !slices.Equal(cost(got, budgets...), cost(want, budgets...))) {
			t.Fatalf("round %d: victims %v, want %v", round, podNames(got), podNames(want))
		}
		if !ok {
			continue
		}
		found++
		if n := cost(want, budgets...)[0]; n > 0 {
			broken++
		} else if s.violations(s.victims) > 0 {
			together++
		}
	}
	if found < 100 || broken < 20 || together < 20 {
		t.Errorf("%d rounds had victims, %d with violations, %d without although all pods together violate: too few to prove anything", found, broken, together)
	}
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
		"nobody to evict": {
			onNode: []*corev1.Pod{makePod("a", whole(2), holds(0, 1))}, pod: makePod("p", whole(1)), wantCode: fwk.UnschedulableAndUnresolvable,
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
			pods, violated, status := r.SelectVictimsOnNode(t.Context(), r.cycle(t, tt.pod).Clone(), tt.pod,
				nodeInfo(makeNode("n1"), tt.onNode...), []*policyv1.PodDisruptionBudget{budget("b", 0)})
			if status.Code() != tt.wantCode || violated != tt.wantViolations {
				t.Errorf("SelectVictimsOnNode() = %v with %d budgets broken, want %v with %d", status, violated, tt.wantCode, tt.wantViolations)
			}
			var names []string
			for _, pod := range pods {
				names = append(names, pod.Name)
			}
			if diff := cmp.Diff(tt.want, names); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
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
				cs := r.cycle(t, pod)
				victims, _, status := r.SelectVictimsOnNode(t.Context(), cs.Clone(), pod, ni.Snapshot(), nil)
				if !status.IsSuccess() {
					t.Fatalf("SelectVictimsOnNode(%s) = %v", pod.Name, status)
				}
				for _, v := range victims {
					evicted = append(evicted, v.Name)
					if tt.leave {
						onNode = slices.DeleteFunc(onNode, func(on *corev1.Pod) bool { return on == v })
					}
				}
				c, err := readState(cs)
				if err != nil {
					t.Fatal(err)
				}
				r.promise(c, pod, "n1")
				h, _ := r.shared.overlay.getHold(pod.UID, r.shared.nodes.of(ni, false))
				cards = append(cards, h.Cards())
				if tt.restart {
					r.shared.overlay.dropHold(pod.UID)
				}
				r.fakes.nominated["n1"] = append(r.fakes.nominated["n1"], podInfo(t, pod))
			}
			if diff := cmp.Diff(tt.wantVictims, evicted); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantCards, cards); diff != "" {
				t.Errorf("promised cards (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPostFilterWithoutLowerPriority: where no pod can be evicted the answer
// comes at once, and it clears an old nomination as kube-scheduler's own does.
func TestPostFilterWithoutLowerPriority(t *testing.T) {
	never := corev1.PreemptNever
	tests := map[string]struct {
		pod *corev1.Pod
		// rejected: PreFilter rejects the pod.
		rejected bool
		wantCode fwk.Code
		want     *fwk.PostFilterResult
	}{
		"a pod that may preempt": {
			pod: makePod("p", whole(1), priority(3)), wantCode: fwk.Unschedulable, want: framework.NewPostFilterResultWithNominatedNode(""),
		},
		"a pod that never preempts": {
			pod: makePod("p", whole(1), priority(3), func(pod *corev1.Pod) { pod.Spec.PreemptionPolicy = &never }), wantCode: fwk.Unschedulable,
		},
		"an invalid request": {
			pod: makePod("p", slice(120, 8), priority(9)), rejected: true, wantCode: fwk.UnschedulableAndUnresolvable,
			want: framework.NewPostFilterResultWithNominatedNode(""),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 1))
			ni := nodeInfo(makeNode("n1"), makePod("q", whole(1), holds(0), priority(3)))
			r.fakes.snapshot = snapshotOf(ni)
			tt.pod.Status.NominatedNodeName = "n1"
			r.shared.overlay.putHold(tt.pod.UID, preemptorHold{node: "n1"})
			cs, statuses := fwk.CycleState(framework.NewCycleState()), framework.NewDefaultNodeToStatus()
			if !tt.rejected {
				cs = r.cycle(t, tt.pod)
				statuses.Set("n1", r.Filter(t.Context(), cs, tt.pod, ni))
			}
			result, status := r.PostFilter(t.Context(), cs, tt.pod, statuses)
			if diff := cmp.Diff(tt.want, result); diff != "" || status.Code() != tt.wantCode || status.Message() != "" {
				t.Errorf("PostFilter() = %v %q, want %v and no message; result (-want +got):\n%s", status.Code(), status.Message(), tt.wantCode, diff)
			}
			if _, kept := r.shared.overlay.held[tt.pod.UID]; kept != (tt.want == nil) {
				t.Errorf("the promise is kept: %v", kept)
			}
		})
	}
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 1))
	ni := nodeInfo(makeNode("n1"), makePod("q", whole(1), holds(0), priority(3)))
	r.shared.index.refresh([]fwk.NodeInfo{ni, nodeInfo(makeNode("empty"))})
	if !r.shared.index.outranks(4) || r.shared.index.outranks(3) {
		t.Error("a pod of priority 3 is outranked by priority 4 alone")
	}
}

func TestViolations(t *testing.T) {
	a := func(name string) *corev1.Pod { return makePod(name, slice(10, 4), holds(0), ofApp("a")) }
	tests := map[string]struct {
		pods []*corev1.Pod
		pdbs []*policyv1.PodDisruptionBudget
		want int
	}{
		"no budgets":                       {pods: []*corev1.Pod{a("1"), a("2")}},
		"a budget of one":                  {pods: []*corev1.Pod{a("1"), makePod("x", slice(10, 4), holds(0)), a("2"), a("3")}, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 1)}, want: 2},
		"one budget of two is broken":      {pods: []*corev1.Pod{a("1"), a("2")}, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 2), budget("a", 1)}, want: 1},
		"a pod that was charged for twice": {pods: []*corev1.Pod{a("1"), a("2")}, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 0, "1")}, want: 1},
		"a budget that covers no victim":   {pods: []*corev1.Pod{a("1"), a("2")}, pdbs: []*policyv1.PodDisruptionBudget{budget("b", 0), budget("a", 1)}, want: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newRig(t).selectionOn(t, 1, makePod("p", whole(1), priority(9)), tt.pods, tt.pdbs...)
			if got := s.violations(s.victims); got != tt.want {
				t.Errorf("violations() = %d, want %d", got, tt.want)
			}
			if got := s.violations(nil); got != 0 {
				t.Errorf("violations() of nobody = %d", got)
			}
		})
	}
}

func TestCovers(t *testing.T) {
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
			if got := covers(b, tt.pod); got != tt.want {
				t.Errorf("covers() = %v, want %v", got, tt.want)
			}
		})
	}
}
