package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// stream is pods that come and go on a few nodes.
type stream struct {
	*rig
	*testing.T
	random *rand.Rand
	infos  []fwk.NodeInfo
	bound  map[string][]*corev1.Pod
	// allocated has what Bind writes on the pods.
	allocated map[types.UID]map[string]string
}

func newStream(t *testing.T, nodes int, seed uint64) *stream {
	t.Helper()
	s := &stream{rig: newRig(t), T: t, random: rand.New(rand.NewPCG(seed, 1)), bound: map[string][]*corev1.Pod{}, allocated: map[types.UID]map[string]string{}} //nolint:gosec // to repeat it
	for i := range nodes {
		node := makeNode(fmt.Sprintf("n%d", i))
		s.setDevice(t, makeDevice(node.Name, 4))
		s.infos = append(s.infos, nodeInfo(node))
	}
	s.fakes.snapshot = snapshotOf(s.infos...)
	return s
}

// pod returns one of a few kinds.
func (s *stream) pod(i int) *corev1.Pod {
	kinds := []podOption{whole(1), whole(2), whole(4), slice(10, 4), slice(30, 20), slice(60, 8)}
	options := []podOption{kinds[s.random.IntN(len(kinds))], requesting(corev1.ResourceCPU, []string{"1", "2"}[s.random.IntN(2)])}
	return makePod(fmt.Sprintf("p%d", i), options...)
}

// TestIndexAgrees: whatever comes and goes, the index gives the answers that the
// nodes themselves give.
func TestIndexAgrees(t *testing.T) {
	for seed := range uint64(5) {
		s := newStream(t, 8, seed)
		for i := range 200 {
			pod, cs := s.pod(i), framework.NewCycleState()
			narrowed, status := s.PreFilter(t.Context(), cs, pod, s.infos)
			if !status.IsSuccess() {
				t.Fatal(status)
			}
			s.checkCensus(cs)
			feasible, want := s.ask(cs, pod, narrowed)
			if len(want) > 0 {
				s.PreScore(t.Context(), cs, pod, feasible)
				best := s.best(cs, pod, feasible)
				if best != want[0] {
					t.Fatalf("seed %d, pod %d: %s is best, want %s of %v", seed, i, best, want[0], want)
				}
				s.bind(cs, pod, best)
			}
			if s.random.IntN(3) == 0 {
				s.end()
			}
			if s.random.IntN(3) == 0 {
				s.confirm()
			}
			if s.random.IntN(5) == 0 {
				s.reread()
			}
			s.checkCards()
		}
	}
}

// checkCensus checks that the pods on the nodes are counted, each once, and no others.
func (s *stream) checkCensus(cs fwk.CycleState) {
	s.Helper()
	want := place.NewCensus()
	for _, pods := range s.bound {
		for _, pod := range pods {
			want.Add(request.CensusKinds(pod), 1)
		}
	}
	want.SetSupply(s.shared.nodes.supplied())
	if demand := want.Demand(); !reflect.DeepEqual(demand, stateOf(s.T, cs).prefer.Demand) || !reflect.DeepEqual(want, s.shared.index.census) {
		s.Fatalf("the census is %+v, want %+v", s.shared.index.census, want)
	}
}

// ask checks Filter's answers against what fresh accounts say, and returns the
// nodes that can take the pod: as they are, and from the best to the worst.
func (s *stream) ask(cs fwk.CycleState, pod *corev1.Pod, narrowed *fwk.PreFilterResult) (feasible []fwk.NodeInfo, order []string) {
	s.Helper()
	c := stateOf(s.T, cs)
	worths := map[string]place.Worth{}
	for _, ni := range s.infos {
		name := ni.Node().Name
		fresh := newNodes(s.shared.devices, s.shared.pods).of(ni, false)
		offer, refusal := place.Fit(fresh, &c.ask.Request, &c.prefer)
		got := s.Filter(s.Context(), cs, pod, ni)
		if got.IsSuccess() != (refusal.Code == place.Fits) || got.Message() != status(&refusal).Message() {
			s.Fatalf("Filter(%s, %s) = %v, want %v", pod.Name, name, got, refusal.Code)
		}
		if refusal.Code != place.Fits {
			continue
		}
		if !narrowed.AllNodes() && !narrowed.NodeNames.Has(name) {
			s.Fatalf("PreFilter(%s) left %s out, which can take it", pod.Name, name)
		}
		worths[name] = place.Rank(&offer, &c.prefer)
		feasible, order = append(feasible, ni), append(order, name)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(worths[b].Compare(worths[a]), cmp.Compare(a, b)) })
	return feasible, order
}

// best scores the nodes as kube-scheduler does.
func (s *stream) best(cs fwk.CycleState, pod *corev1.Pod, feasible []fwk.NodeInfo) string {
	s.Helper()
	var list fwk.NodeScoreList
	for _, ni := range feasible {
		points, status := s.Score(s.Context(), cs, pod, ni)
		if !status.IsSuccess() {
			s.Fatal(status)
		}
		list = append(list, fwk.NodeScore{Name: ni.Node().Name, Score: points})
	}
	succeeds(s.T, s.NormalizeScore(s.Context(), cs, pod, list))
	return slices.MaxFunc(list, func(a, b fwk.NodeScore) int { return cmp.Compare(a.Score, b.Score) }).Name
}

func (s *stream) bind(cs fwk.CycleState, pod *corev1.Pod, node string) {
	s.Helper()
	succeeds(s.T, s.Reserve(s.Context(), cs, pod, node))
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	s.info(node).AddPodInfo(podInfo(s.T, assumed))
	res := s.shared.pods.claimOf(pod.UID, reservedClaim)
	s.allocated[pod.UID] = res.annotations
	s.bound[node] = append(s.bound[node], assumed)
}

// confirm makes a pod on a random node carry what was reserved for it, as after its
// Binding.
func (s *stream) confirm() {
	s.Helper()
	node := s.infos[s.random.IntN(len(s.infos))].Node().Name
	if len(s.bound[node]) == 0 {
		return
	}
	i := s.random.IntN(len(s.bound[node]))
	before := s.bound[node][i]
	after := before.DeepCopy()
	maps.Copy(after.Annotations, s.allocated[after.UID])
	gputest.Must(s.T, s.info(node).RemovePod(testLogger(s.T), before))
	s.info(node).AddPodInfo(podInfo(s.T, after))
	s.bound[node][i] = after
}

// reread makes the agent of a random node read its cards in another order.
func (s *stream) reread() {
	s.Helper()
	d := makeDevice(s.infos[s.random.IntN(len(s.infos))].Node().Name, 4)
	for i, minor := range s.random.Perm(len(d.Spec.Devices)) {
		d.Spec.Devices[i].Minor = new(int32(minor))
	}
	s.setDevice(s.T, d)
}

// checkCards checks by what Bind writes on the pods that no card is allocated
// twice.
func (s *stream) checkCards() {
	s.Helper()
	for _, ni := range s.infos {
		name := ni.Node().Name
		account := readInventory(ni.Node(), s.shared.devices.get(name), false).NewNode()
		for _, pod := range s.bound[name] {
			pod = pod.DeepCopy()
			maps.Copy(pod.Annotations, s.allocated[pod.UID])
			h, known, notes := allocation.AnnotatedHolding(account, pod)
			if !known {
				s.Fatal(notes)
			}
			account.Book(h)
		}
		for i, u := range account.Now().Usage {
			if card := account.Topology().Card(i); u.Compute > 100 || u.Memory > card.Memory || u.Exclusive && u.Slots > 1 {
				s.Fatalf("%s of %s is allocated twice: %+v", card.ID, name, u)
			}
		}
	}
}

// end ends a pod on a random node.
func (s *stream) end() {
	s.Helper()
	node := s.infos[s.random.IntN(len(s.infos))].Node().Name
	pods := s.bound[node]
	if len(pods) == 0 {
		return
	}
	i := s.random.IntN(len(pods))
	gputest.Must(s.T, s.info(node).RemovePod(testLogger(s.T), pods[i]))
	s.shared.pods.dropClaim(pods[i].UID, reservedClaim)
	s.bound[node] = slices.Delete(pods, i, i+1)
}

func (s *stream) info(name string) fwk.NodeInfo {
	s.Helper()
	i := slices.IndexFunc(s.infos, func(ni fwk.NodeInfo) bool { return ni.Node().Name == name })
	return s.infos[i]
}

// TestCoarseCPU: amounts of CPU that are about the same are of one kind.
func TestCoarseCPU(t *testing.T) {
	s := newStream(t, 2, 1)
	kinds := map[*place.Ranking]struct{}{}
	for i := range 500 {
		cs, pod := framework.NewCycleState(), makePod(fmt.Sprintf("q%d", i), slice(1, 60), requesting(corev1.ResourceCPU, fmt.Sprintf("%dm", 100+i)))
		if _, status := s.PreFilter(t.Context(), cs, pod, s.infos); !status.IsSuccess() {
			t.Fatal(status)
		}
		kinds[stateOf(t, cs).ranking] = struct{}{}
	}
	if len(kinds) > 24 {
		t.Errorf("500 amounts of CPU have %d rankings, want at most 24", len(kinds))
	}
}

// TestIndexFollows: nodes and Devices that come and go are seen.
func TestIndexFollows(t *testing.T) {
	s := newStream(t, 3, 1)
	fits := func(infos []fwk.NodeInfo) int {
		cs, pod := framework.NewCycleState(), makePod("p", whole(5))
		if _, status := s.PreFilter(t.Context(), cs, pod, infos); !status.IsSuccess() {
			t.Fatal(status)
		}
		c := stateOf(t, cs)
		return c.ranking.Room()
	}
	if got := fits(s.infos); got != 0 {
		t.Errorf("%d nodes of four cards can take five", got)
	}
	s.setDevice(t, makeDevice("n1", 8))
	if got := fits(s.infos); got != 1 {
		t.Errorf("with a larger Device %d nodes can, want 1", got)
	}
	s.setDevice(t, makeDevice("n9", 8))
	more := append(slices.Clone(s.infos), fwk.NodeInfo(nodeInfo(makeNode("n9"))))
	if got := fits(more); got != 2 {
		t.Errorf("with a larger node %d nodes can, want 2", got)
	}
	if got := fits(s.infos[2:]); got != 0 {
		t.Errorf("without both %d nodes can, want none", got)
	}
}

// TestIndexOfManyNodes: rows that are brought up to date side by side are those
// of their nodes, and again after some have changed.
func TestIndexOfManyNodes(t *testing.T) {
	s := newStream(t, 3*smallCluster, 1)
	for round := range 3 {
		for i, ni := range s.infos {
			if i%3 >= round { // all, two of three, one of three
				s.setDevice(t, makeDevice(ni.Node().Name, 1+(i+round)%8))
			}
		}
		s.shared.index.refresh(s.infos)
		for i, ni := range s.infos {
			want := 1 + (i+min(round, i%3))%8
			if got := s.shared.index.entryOf(ni, false).node.Topology().Len(); got != want {
				t.Fatalf("round %d: node %d has %d cards in the index, want %d", round, i, got, want)
			}
		}
	}
}
