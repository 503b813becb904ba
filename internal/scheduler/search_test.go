package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestBestOfAllNodes: the scheduler chooses the node and the cards that `daybreak
// place` chooses among all nodes: not only among those that kube-scheduler would
// look at.
func TestBestOfAllNodes(t *testing.T) {
	for _, nodes := range []int{1000, 5000} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			w := newChoices(t, nodes)
			for i := range 500 {
				w.decide(t, i)
				if i%25 == 24 {
					w.end(t, 1+w.random.IntN(20))
					w.readCluster() // place knows no more than the cluster shows
				}
			}
			if w.narrow < 50 {
				t.Errorf("%d pods with a node selector are too few to compare", w.narrow)
			}
		})
	}
}

// choices is the scheduler and the place command.
type choices struct {
	*benched
	random  *rand.Rand
	objects cluster.Objects
	placer  *view.Placer
	bound   chan *corev1.Binding
	running []*corev1.Pod
	narrow  int
}

// newChoices makes nodes of several kinds, some of which other plugins reject,
// with random pods on them.
func newChoices(t *testing.T, nodes int) *choices {
	t.Helper()
	w := &choices{benched: newUnfilled(t, "daybreak"), random: rand.New(rand.NewPCG(uint64(nodes), 1)), bound: make(chan *corev1.Binding, 1)} //nolint:gosec // to repeat it
	w.objects.Devices = map[string]cluster.Device{}
	w.benched.bound = func(b *corev1.Binding) { w.bound <- b }
	for i := range nodes {
		node := offering(map[corev1.ResourceName]string{
			corev1.ResourceCPU: []string{"200", "256", "384"}[w.random.IntN(3)], corev1.ResourceMemory: "1Ti", corev1.ResourcePods: "256",
			wire.ResourceGPU: "8", wire.ResourceSGPU: "128",
		})
		node.Name = fmt.Sprintf("n%d", i)
		node.Labels = map[string]string{"pool": []string{"a", "b", "c"}[w.random.IntN(3)]}
		switch w.random.IntN(6) {
		case 0:
			node.Spec.Unschedulable = true
		case 1:
			node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		case 2:
			node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
		}
		device := makeDevice(node.Name, []int{8, 8, 4}[w.random.IntN(3)])
		if half := len(device.Spec.Devices) / 2; w.random.IntN(2) == 0 {
			for k := range half {
				device.Spec.Devices[k].Labels = map[string]string{wire.LabelLinkZone: "2"}
			}
		}
		w.addNode(t, node, device)
		w.objects.Nodes, w.objects.Devices[node.Name] = append(w.objects.Nodes, node), cluster.Device{Device: device}
		w.fill(t, node, len(device.Spec.Devices))
	}
	w.readCluster()
	return w
}

// readCluster makes another place command.
func (w *choices) readCluster() {
	w.objects.Pods = w.running
	w.placer = view.NewPlacer(w.objects.Snapshot(), view.PlaceOptions{Now: time.Now})
}

// fill puts random pods on the node.
func (w *choices) fill(t *testing.T, node *corev1.Node, cards int) {
	t.Helper()
	for card := range cards {
		ask := []podOption{nil, nil, nil, whole(1), slice(50, 16), slice(30, 40)}[w.random.IntN(6)]
		if ask == nil {
			continue
		}
		pod := makePod(fmt.Sprintf("on-%s-%d", node.Name, card), ask, requesting(corev1.ResourceCPU, "1"), holds(card))
		pod.Spec.NodeName = node.Name
		w.run(t, pod)
	}
}

// run makes the scheduler see a bound pod.
func (w *choices) run(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	w.settle(t, pod)
	w.running = append(w.running, pod)
}

// decide makes up a pod, and compares what the scheduler and place do with it.
func (w *choices) decide(t *testing.T, i int) {
	t.Helper()
	kinds := []podOption{whole(1), whole(2), whole(4), slice(10, 4), slice(30, 20), slice(60, 8)}
	pod := makePod(fmt.Sprintf("p%d", i), kinds[w.random.IntN(len(kinds))], requesting(corev1.ResourceCPU, []string{"1", "2", "2500m"}[w.random.IntN(3)]))
	if w.random.IntN(3) == 0 {
		pod.Spec.NodeSelector = map[string]string{"pool": []string{"a", "b"}[w.random.IntN(2)]}
		w.narrow++
	}
	want, err := w.placer.Place(pod)
	if err != nil || want.Node == "" {
		t.Fatalf("place finds no node for %s: %v, %s", pod.Name, err, want.Summary)
	}
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	w.SchedulingQueue.Add(ctx, pod)
	w.ScheduleOne(ctx)
	got := <-w.bound
	if cards := got.Annotations[wire.AnnotationAllocated]; got.Target.Name != want.Node || cards != want.Annotations[wire.AnnotationAllocated] {
		t.Fatalf("pod %d goes to %s, cards %s; place chooses %s, cards %s", i, got.Target.Name, cards, want.Node, want.Annotations[wire.AnnotationAllocated])
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.Annotations = want.Node, got.Annotations
	w.run(t, pod)
}

// end ends random pods.
func (w *choices) end(t *testing.T, count int) {
	t.Helper()
	for range count {
		i := w.random.IntN(len(w.running))
		gputest.Must(t, w.Cache.RemovePod(klog.Background(), w.running[i]))
		w.running = slices.Delete(w.running, i, i+1)
	}
}

// TestSearch: the search gives kube-scheduler one node or leaves everything to it.
func TestSearch(t *testing.T) {
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: effect}} }
	}
	prefersPool := func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}
	}
	likes := func(app string) podOption {
		return func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "pool", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			}}}}
		}
	}
	tests := map[string]struct {
		nodes     map[string]func(*corev1.Node) // of two cards each, and named in the order of their worth
		running   []*corev1.Pod
		nominated *corev1.Pod // to node a
		pod       *corev1.Pod
		want      string // nothing: kube-scheduler decides
	}{
		"the best":                                   {pod: makePod("p", whole(1)), want: "a"},
		"the best that other plugins accept":         {nodes: map[string]func(*corev1.Node){"a": tainted(corev1.TaintEffectNoSchedule)}, pod: makePod("p", whole(1)), want: "b"},
		"a node that had better not be used":         {nodes: map[string]func(*corev1.Node){"a": tainted(corev1.TaintEffectPreferNoSchedule)}, pod: makePod("p", whole(1)), want: "b"},
		"no other plugin accepts one":                {nodes: map[string]func(*corev1.Node){"a": tainted(corev1.TaintEffectNoSchedule), "b": tainted(corev1.TaintEffectNoExecute), "c": tainted(corev1.TaintEffectPreferNoSchedule)}, pod: makePod("p", whole(1))},
		"no node has room":                           {pod: makePod("p", whole(3))},
		"the pod has preferences":                    {pod: makePod("p", whole(1), prefersPool)},
		"a running pod would like it near":           {running: []*corev1.Pod{makePod("q", likes("x"), boundTo("c"))}, pod: makePod("p", whole(1), ofApp("x"))},
		"a running pod would like another near":      {running: []*corev1.Pod{makePod("q", likes("y"), boundTo("c"))}, pod: makePod("p", whole(1), ofApp("x")), want: "a"},
		"the best is promised to others":             {nominated: makePod("q", whole(2), priority(5)), pod: makePod("p", whole(1)), want: "b"},
		"the best is promised to others of no cards": {nominated: makePod("q", priority(5)), pod: makePod("p", whole(1)), want: "a"},
		"the best is promised to others in part":     {nominated: makePod("q", slice(50, 8), priority(5)), pod: makePod("p", slice(50, 8)), want: "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newUnfilled(t, "daybreak")
			for _, node := range []string{"a", "b", "c"} {
				n := offering(map[corev1.ResourceName]string{corev1.ResourceCPU: "8", corev1.ResourceMemory: "1Ti", wire.ResourceGPU: "2", wire.ResourceSGPU: "32"})
				n.Name = node
				if change := tt.nodes[node]; change != nil {
					change(n)
				}
				s.addNode(t, n, makeDevice(node, 2))
			}
			for _, pod := range tt.running {
				gputest.Must(t, s.Cache.AddPod(klog.Background(), pod))
			}
			gputest.Must(t, s.informers.Core().V1().Namespaces().Informer().GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}))
			if tt.nominated != nil {
				gputest.Must(t, s.informers.Core().V1().Pods().Informer().GetIndexer().Add(tt.nominated))
				s.SchedulingQueue.Add(t.Context(), tt.nominated)
				s.SchedulingQueue.AddNominatedPod(klog.Background(), podInfo(t, tt.nominated), &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "a"})
			}
			profile := s.Profiles[DefaultProfile]
			snapshot, ok := profile.SnapshotSharedLister().(*schedulercache.Snapshot)
			if !ok {
				t.Fatalf("the snapshot is a %T", profile.SnapshotSharedLister())
			}
			for range 2 { // the order is the same after a search
				gputest.Must(t, s.Cache.UpdateSnapshot(klog.Background(), snapshot))
				result, status, _ := profile.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), tt.pod)
				if !status.IsSuccess() {
					t.Fatal(status)
				}
				var got string
				if !result.AllNodes() {
					got = strings.Join(sets.List(result.NodeNames), ",")
				}
				if got != tt.want {
					t.Errorf("kube-scheduler is given %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// interrupted is a profile in whose cycles something happens after PreFilter.
type interrupted struct {
	framework.Framework
	happens func()
}

func (p interrupted) RunPreFilterPlugins(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	defer p.happens()
	return p.Framework.RunPreFilterPlugins(ctx, cs, pod)
}

// TestSearchOvertaken: when the node that was found is promised to another pod before
// kube-scheduler takes it, the pod is tried again at once and gets the next node. The
// refusal of that node alone would let the pod sleep, or evict pods from it.
func TestSearchOvertaken(t *testing.T) {
	s := newUnfilled(t, "daybreak")
	bound := make(chan string, 2)
	s.bound = func(b *corev1.Binding) { bound <- b.Name + " on " + b.Target.Name }
	for _, name := range []string{"a", "b"} {
		node := offering(map[corev1.ResourceName]string{corev1.ResourceCPU: "8", corev1.ResourceMemory: "1Ti", corev1.ResourcePods: "9", wire.ResourceGPU: "2", wire.ResourceSGPU: "32"})
		node.Name = name
		s.addNode(t, node, makeDevice(name, 2))
	}
	pod, other := makePod("p", whole(1)), makePod("q", whole(2), priority(5))
	for _, p := range []*corev1.Pod{pod, other} {
		gputest.Must(t, s.informers.Core().V1().Pods().Informer().GetIndexer().Add(p))
	}
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	s.Profiles[DefaultProfile] = interrupted{Framework: s.Profiles[DefaultProfile], happens: sync.OnceFunc(func() {
		s.SchedulingQueue.Add(ctx, other)
		s.SchedulingQueue.AddNominatedPod(klog.Background(), podInfo(t, other), &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "a"})
	})}
	s.SchedulingQueue.Add(ctx, pod)
	s.ScheduleOne(ctx)
	if n := len(s.SchedulingQueue.UnschedulablePods()); n > 0 {
		t.Fatal("the pod sleeps until something happens, although node b has room")
	}
	for _, want := range []string{"q on a", "p on b"} {
		s.ScheduleOne(ctx)
		if got := <-bound; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestSearchOnlyByCards: where something else ranks nodes, the search would
// silence it.
func TestSearchOnlyByCards(t *testing.T) {
	s := newUnfilled(t, "daybreak")
	if p, ok := s.Profiles[DefaultProfile].(cardProfile); !ok || !p.searches {
		t.Errorf("the profile is a %T, want one that searches", s.Profiles[DefaultProfile])
	}
	if !ranksByCards(s.Profiles[DefaultProfile].ListPlugins().Score.Enabled) || ranksByCards([]config.Plugin{{Name: Name}, {Name: "NodeResourcesFit"}}) {
		t.Error("a profile with another scoring plugin would be searched, or the built-in one not")
	}
}
