package scheduler

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// lister is a snapshot of the given nodes.
type lister struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	infos []fwk.NodeInfo
}

func snapshotOf(infos ...fwk.NodeInfo) *lister { return &lister{infos: infos} }

func (l *lister) NodeInfos() fwk.NodeInfoLister { return l }

func (l *lister) List() ([]fwk.NodeInfo, error) { return l.infos, nil }

func (l *lister) Get(name string) (fwk.NodeInfo, error) {
	for _, ni := range l.infos {
		if ni.Node().Name == name {
			return ni, nil
		}
	}
	return nil, errNoNode
}

func testLogger(t *testing.T) klog.Logger {
	t.Helper()
	return klog.FromContext(t.Context())
}

func TestPreScore(t *testing.T) {
	r := newRig(t)
	if got := r.PreScore(t.Context(), framework.NewCycleState(), makePod("p"), nil); !got.IsSkip() {
		t.Errorf("PreScore() of a pod without cards = %v, want Skip", got)
	}
	pod := makePod("p", whole(1))
	if got := r.PreScore(t.Context(), r.cycle(t, pod), pod, nil); !got.IsSuccess() {
		t.Errorf("PreScore() = %v, want success", got)
	}
}

// TestScoreSeesNominated: of two nodes the pod must not go to the one whose
// room was made for someone else.
func TestScoreSeesNominated(t *testing.T) {
	tests := map[string]struct {
		nominated *corev1.Pod
		wantRoom  bool
	}{
		"a pod of higher priority was promised the card": {nominated: makePod("q", whole(1), priority(9))},
		"a pod of the same priority was":                 {nominated: makePod("q", whole(1), priority(5))},
		"a pod of lower priority does not count":         {nominated: makePod("q", whole(1), priority(4)), wantRoom: true},
		"a pod without cards does not count":             {nominated: makePod("q", priority(9)), wantRoom: true},
		"the pod itself does not count":                  {nominated: makePod("p", whole(1), priority(5)), wantRoom: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 1))
			ni := nodeInfo(makeNode("n1"))
			r.fakes.snapshot = snapshotOf(ni)
			r.fakes.nominated["n1"] = []fwk.PodInfo{podInfo(t, tt.nominated)}
			pod := makePod("p", whole(1), priority(5))
			cs := r.cycle(t, pod)
			_, status := r.Score(t.Context(), cs, pod, ni)
			if ranked := rankedNodes(t, cs, "n1"); !status.IsSuccess() || ranked[0].room != tt.wantRoom {
				t.Errorf("Score() = %v, and the node is ranked %+v; want room: %v", status, ranked, tt.wantRoom)
			}
			if got := r.Reserve(t.Context(), cs, pod, "n1"); got.IsSuccess() != tt.wantRoom {
				t.Errorf("Reserve() = %v; want room: %v", got, tt.wantRoom)
			}
			if got := r.shared.nodes.last("n1").node.Holdings(); len(got) != 0 {
				t.Errorf("the node's account shows %v, want nothing of the nominated pod", got)
			}
		})
	}
}

// TestScoreIsTheRank: the fuller of two nodes is better for a slice, unless the
// policy or the pod says spread.
func TestScoreIsTheRank(t *testing.T) {
	tests := map[string]struct {
		policy     string
		pod        *corev1.Pod
		wantFuller bool
	}{
		"default":                        {pod: makePod("p", slice(10, 8)), wantFuller: true},
		"spread stands in":               {policy: `{"policy":"spread"}`, pod: makePod("p", slice(10, 8))},
		"the pod's own word comes first": {policy: `{"policy":"spread"}`, pod: makePod("p", slice(10, 8), annotated(wire.AnnotationNodePolicy, "binpack")), wantFuller: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			args, err := parseArgs(unknown(tt.policy))
			if err != nil {
				t.Fatal(err)
			}
			r.policy = args.policy()
			r.setDevice(t, makeDevice("n1", 1))
			r.setDevice(t, makeDevice("n2", 1))
			cs := r.cycle(t, tt.pod)
			for _, ni := range []fwk.NodeInfo{nodeInfo(makeNode("n1"), makePod("q", slice(10, 8), holds(0))), nodeInfo(makeNode("n2"))} {
				if _, status := r.Score(t.Context(), cs, tt.pod, ni); !status.IsSuccess() {
					t.Fatal(status)
				}
			}
			if best := rankedNodes(t, cs, "n1", "n2")[0]; (best.position == 0) != tt.wantFuller || !best.room {
				t.Errorf("the best node is %+v; want the fuller, which is 0, to win: %v", best, tt.wantFuller)
			}
		})
	}
}

// rankedNodes returns the nodes from the best to the worst, as Score left them.
func rankedNodes(t *testing.T, cs fwk.CycleState, names ...string) []rankedNode {
	t.Helper()
	c := stateOf(t, cs)
	var list fwk.NodeScoreList
	for _, name := range names {
		list = append(list, fwk.NodeScore{Name: name})
	}
	return c.ranked(list, newIndex(nil))
}

// noRoom stands for a node that Score found no room on.
const noRoom = math.MinInt64

// withRanks returns the state of a cycle in which Score found these ranks.
func withRanks(t *testing.T, ranks map[string]int64) fwk.CycleState {
	t.Helper()
	cs := framework.NewCycleState()
	c := &cycle{findings: &findings{}}
	for node, rank := range ranks {
		if rank != noRoom {
			c.rank(node, place.Rank(&ledger.Offer{Score: rank}, &place.Preference{}), true)
		}
	}
	cs.Write(stateKey, c)
	return cs
}

func TestNormalizeScore(t *testing.T) {
	tests := map[string]struct {
		ranks map[string]int64
		want  map[string]int64
	}{
		"no node":               {},
		"one node":              {ranks: map[string]int64{"a": -5}, want: map[string]int64{"a": 100}},
		"ties go to the name":   {ranks: map[string]int64{"b": 7, "a": 7}, want: map[string]int64{"a": 100, "b": 0}},
		"ranks far apart":       {ranks: map[string]int64{"a": noRoom, "b": 1 << 60, "c": 0}, want: map[string]int64{"a": 0, "b": 100, "c": 49}},
		"better rank than name": {ranks: map[string]int64{"a": 1, "b": 2, "c": 2, "d": 0}, want: map[string]int64{"b": 100, "c": 66, "a": 33, "d": 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var scores fwk.NodeScoreList
			for node := range tt.ranks {
				scores = append(scores, fwk.NodeScore{Name: node})
			}
			succeeds(t, newRig(t).NormalizeScore(t.Context(), withRanks(t, tt.ranks), nil, scores))
			var got map[string]int64
			for _, s := range scores {
				if got == nil {
					got = map[string]int64{}
				}
				got[s.Name] = s.Score
			}
			gputest.Equal(t, "scores", tt.want, got)
		})
	}
}

func TestSignPod(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a pod without cards may be batched": {pod: makePod("p"), want: true},
		"one with cards may not":             {pod: makePod("p", whole(1))},
		"nor an invalid one":                 {pod: makePod("p", slice(120, 8))},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fragments, status := newRig(t).SignPod(t.Context(), tt.pod)
			if status.IsSuccess() != tt.want || len(fragments) != 0 {
				t.Errorf("SignPod() = %v, %v; want signed: %v", fragments, status, tt.want)
			}
		})
	}
}
