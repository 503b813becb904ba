package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPreemptionWork bounds the work of one attempt on a large cluster. The usual
// crowds need the search of one node; the hardest end at the bound.
func TestPreemptionWork(t *testing.T) {
	const one = 400 // tries: the search of one node, and the profile's filters there
	tests := map[string]struct {
		crowd crowd
		want  int
	}{
		"pods that cost the same":          {crowd: crowd{nodes: 1000, slices: 3, kind: "equal"}, want: one},
		"pods of several priorities":       {crowd: crowd{nodes: 1000, slices: 3, kind: "priorities"}, want: one},
		"pods that a budget protects":      {crowd: crowd{nodes: 1000, slices: 3, kind: "protected"}, want: one},
		"no eviction helps":                {crowd: crowd{nodes: 1000, slices: 2, kind: "impossible"}},
		"no two pods have the same amount": {crowd: crowd{nodes: 100, slices: 16, kind: "uneven"}, want: place.EvictionTries},
		"all pods are on two cards":        {crowd: crowd{nodes: 100, slices: 4, kind: "pairs"}, want: place.EvictionTries},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			infos := r.addCrowd(t, tt.crowd)
			var pdbs []*policyv1.PodDisruptionBudget
			if tt.crowd.kind == "protected" {
				pdbs = append(pdbs, budget("a", 0))
			}
			for _, cards := range []int{0, 1, 2, 4, twice} {
				pod := tt.crowd.preemptor("daybreak", fmt.Sprintf("p%d", cards), cards)
				most := tt.want
				if cards == twice {
					most = place.EvictionTries
				}
				if most == place.EvictionTries {
					// The last node's search may end later: by as much as it takes to empty
					// the cards one after the other and to spare the pods one by one.
					most += one + 25*8*(1+tt.crowd.slices)
				}
				list, c := r.shortlisted(t.Context(), t, pod, infos, pdbs...)
				if len(list) != min(1, tt.want) {
					t.Errorf("%s: %d nodes on the shortlist", pod.Name, len(list))
				}
				if c.tries > most {
					t.Errorf("%s: %d tries, at most %d are allowed", pod.Name, c.tries, most)
				}
			}
		})
	}
}

// addCrowd makes the crowd's nodes those of the snapshot.
func (r *rig) addCrowd(t *testing.T, c crowd) []fwk.NodeInfo {
	t.Helper()
	infos := make([]fwk.NodeInfo, c.nodes)
	for i := range infos {
		node := makeNode(fmt.Sprintf("n%04d", i))
		r.setDevice(t, makeDevice(node.Name, 8))
		var pods []*corev1.Pod
		for k := range 8 * c.slices {
			pods = append(pods, c.pod(i, k))
		}
		infos[i] = nodeInfo(node, pods...)
	}
	r.fakes.snapshot = snapshotOf(infos...)
	return infos
}

// shortlisted returns the names of the nodes on the shortlist, and the pod's cycle.
func (r *rig) shortlisted(ctx context.Context, t *testing.T, pod *corev1.Pod, infos []fwk.NodeInfo, pdbs ...*policyv1.PodDisruptionBudget) ([]string, *cycle) {
	t.Helper()
	cs := r.cycleOver(t, pod, infos)
	c := stateOf(t, cs)
	list, err := r.shortlist(ctx, cs, c, pod, infos, pdbs)
	if err != nil {
		t.Fatalf("shortlist(%s): %v", pod.Name, err)
	}
	var names []string
	for _, ni := range list {
		names = append(names, ni.Node().Name)
	}
	return names, c
}

// TestShortlist: of all nodes the one with the cheapest victims is left, and those
// where cards are not what is missing.
func TestShortlist(t *testing.T) {
	on := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	low := func(name string, card, minute int) *corev1.Pod {
		return makePod(name, slice(40, 8), holds(card), started(minute))
	}
	job := makePod("job", whole(2), holds(0, 1), started(9))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		nodes [][]*corev1.Pod // n0, n1 and so on, with two cards each
		pdbs  []*policyv1.PodDisruptionBudget
		// rejects is what other plugins reject.
		rejects  func(fwk.NodeInfo) bool
		extender bool
		ctx      context.Context
		want     []string
	}{
		"the cheapest victims":          {nodes: [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(low("b", 0, 2), taken())}, want: []string{"n1"}},
		"the first by name":             {nodes: [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(low("b", 0, 1), taken())}, want: []string{"n0"}},
		"a slice rather than a job":     {nodes: [][]*corev1.Pod{on(job), on(low("a", 0, 1), taken())}, want: []string{"n1"}},
		"no victims":                    {nodes: [][]*corev1.Pod{on(taken(), makePod("q", whole(1), holds(0), priority(9)))}},
		"a job rather than a protected": {nodes: [][]*corev1.Pod{on(job), on(makePod("a", slice(40, 8), holds(0), ofApp("a")), taken())}, pdbs: []*policyv1.PodDisruptionBudget{budget("a", 0)}, want: []string{"n0"}},
		"the next best where other plugins reject the best": {
			nodes:   [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(low("b", 0, 2), taken()), on(job)},
			rejects: func(ni fwk.NodeInfo) bool { return ni.Node().Name == "n1" }, want: []string{"n0"},
		},
		"nodes where processor time is missing compete": {
			nodes:   [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(makePod("hog"))},
			rejects: func(ni fwk.NodeInfo) bool { return ni.Node().Name == "n1" && len(ni.GetPods()) > 0 }, want: []string{"n0", "n1"},
		},
		"nodes where processor time is missing, too, compete": {
			nodes:   [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(low("b", 0, 2), makePod("c", whole(1), holds(1), started(1)), makePod("hog"))},
			rejects: func(ni fwk.NodeInfo) bool { return ni.Node().Name == "n1" && len(ni.GetPods()) > 1 }, want: []string{"n0", "n1"},
		},
		"an extender chooses among all": {
			nodes: [][]*corev1.Pod{on(low("a", 0, 1), taken()), on(low("b", 0, 2), taken()), on(job)}, extender: true, want: []string{"n1", "n0", "n2"},
		},
		"the attempt is canceled": {nodes: [][]*corev1.Pod{on(low("a", 0, 1), taken())}, ctx: cancelled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var infos []fwk.NodeInfo
			for i, pods := range tt.nodes {
				node := makeNode(fmt.Sprintf("n%d", i))
				r.setDevice(t, makeDevice(node.Name, 2))
				infos = append(infos, nodeInfo(node, pods...))
			}
			r.fakes.snapshot = snapshotOf(infos...)
			r.fakes.filter = func(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
				if tt.rejects != nil && tt.rejects(ni) {
					return fwk.NewStatus(fwk.Unschedulable)
				}
				return r.Filter(ctx, cs, pod, ni)
			}
			if tt.extender {
				r.fakes.extenders = []fwk.Extender{preemptingExtender{}}
			}
			if tt.ctx == nil {
				tt.ctx = t.Context()
			}
			for range 3 {
				got, c := r.shortlisted(tt.ctx, t, makePod("p", whole(1), priority(5)), infos, tt.pdbs...)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("shortlist (-want +got):\n%s", diff)
				}
				for _, name := range got {
					if noted, ok := c.victimsOn(name); !ok || len(noted.pods) == 0 {
						t.Errorf("%s is on the shortlist without victims", name)
					}
				}
			}
		})
	}
}

// taken holds card 1 and may not be evicted.
func taken() *corev1.Pod { return makePod("important", whole(1), holds(1), priority(9)) }

// preemptingExtender is an extender that supports preemption.
type preemptingExtender struct{ fwk.Extender }

func (preemptingExtender) SupportsPreemption() bool { return true }

func (preemptingExtender) IsInterested(*corev1.Pod) bool { return true }

// TestPreemptionOfTheWholeProfile: kube-scheduler evicts the pods that were found.
func TestPreemptionOfTheWholeProfile(t *testing.T) {
	c := crowd{nodes: 5, slices: 2, kind: "priorities"}
	s := c.fill(t, "daybreak")
	pod := c.preemptor("daybreak", "p", 2)
	gputest.Must(t, s.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	s.SchedulingQueue.Add(klog.NewContext(t.Context(), klog.Logger{}), pod)
	s.ScheduleOne(t.Context())
	r := newRig(t)
	want, found := r.shortlisted(t.Context(), t, pod, r.addCrowd(t, c))
	hold := s.shared.pods.claimOf(pod.UID, heldClaim)
	if len(want) != 1 || hold == nil || hold.node != want[0] {
		t.Fatalf("cards are kept on %+v, the shortlist is %v", hold, want)
	}
	victims, _ := found.victimsOn(want[0])
	cards := gpu.Set(0)
	for _, v := range victims.pods {
		_, k, _ := strings.Cut(v.Name, "-")
		n, err := strconv.Atoi(k)
		if err != nil {
			t.Fatal(err)
		}
		cards |= gpu.SetOf(n / c.slices)
	}
	if len(victims.pods) != 4 || hold.holding.Cards() != cards {
		t.Errorf("victims %d on cards %v, kept are %v", len(victims.pods), cards.Indices(), hold.holding.Cards().Indices())
	}
}
