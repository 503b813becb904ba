package scheduler

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// waitingHandle is a stand-in of which only its waitingPods matter.
type waitingHandle struct {
	fakeHandle
	*waitingPods
	clock *alarmClock
	woken []string
}

// alarmClock calls what is due outside of its lock, as a real clock does.
type alarmClock struct {
	*clocktesting.FakeClock
	calls sync.WaitGroup
}

func (c *alarmClock) AfterFunc(d time.Duration, call func()) clock.Timer {
	return c.FakeClock.AfterFunc(d, func() { c.calls.Go(call) })
}

func (b *waitingHandle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		b.woken = append(b.woken, name)
	}
}

func (*waitingHandle) SharedDRAManager() fwk.SharedDRAManager { return noClasses{} }

func (*waitingHandle) Parallelizer() fwk.Parallelizer { return parallelize.NewParallelizer(1) }

func newBedroom(t *testing.T, name string) *waitingHandle {
	t.Helper()
	client := fake.NewClientset()
	b := &waitingHandle{clock: &alarmClock{FakeClock: clocktesting.NewFakeClock(start)}}
	b.fakeHandle = fakeHandle{client: client, informers: informers.NewSharedInformerFactory(client, 0), snapshot: schedulercache.NewEmptySnapshot()}
	plugin, err := NewState(b.clock).standIns()[name](t.Context(), nil, b)
	if err != nil {
		t.Fatal(err)
	}
	n, ok := plugin.(*neighbours)
	if !ok {
		t.Fatalf("%s is a %T", name, plugin)
	}
	b.waitingPods = n.waitingPods
	return b
}

// after lets the time pass and returns who was woken meanwhile.
func (b *waitingHandle) after(t *testing.T, d time.Duration) []string {
	t.Helper()
	b.woken = nil
	b.clock.Step(d)
	b.clock.calls.Wait()
	return b.woken
}

// nearApp wants to be where a pod of the app is.
func nearApp(app string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: corev1.LabelHostname,
		}}}}
	}
}

// evenly wants pods of the app to be on all hosts alike.
func evenly(app string) podOption {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": app}
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

var refused = fwk.NewStatus(fwk.Unschedulable, "neighbours")

func TestSleepersWake(t *testing.T) {
	for name, waitingPod := range map[string]podOption{AffinityName: nearApp("web"), SpreadName: evenly("web")} {
		t.Run(name, func(t *testing.T) {
			b := newBedroom(t, name)
			b.note(makePod("waitingPod", waitingPod), refused)
			b.bound(makePod("stranger", ofApp("db"), boundTo("n1")))
			if got := b.after(t, time.Minute); len(got) > 0 {
				t.Errorf("a pod of another app woke %v", got)
			}
			b.bound(makePod("web-1", ofApp("web"), boundTo("n1")))
			b.bound(makePod("web-2", ofApp("web"), boundTo("n2")))
			want := []string{"ns/waitingPod"}
			if diff := cmp.Diff(want, b.after(t, gather)); diff != "" {
				t.Errorf("after two pods of the app (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, b.after(t, time.Second)); diff != "" {
				t.Errorf("in case the cache came later (-want +got):\n%s", diff)
			}
			if got := b.after(t, time.Hour); len(got) > 0 {
				t.Errorf("woken without a reason: %v", got)
			}
		})
	}
}

func TestSleepersNap(t *testing.T) {
	b := newBedroom(t, AffinityName)
	b.note(makePod("waitingPod", nearApp("web")), refused)
	// Pods of the app are bound all the time and none helps.
	wakes := 0
	const minute = 60 * 20
	for range minute {
		b.bound(makePod("web", ofApp("web"), boundTo("n1")))
		wakes += len(b.after(t, 50*time.Millisecond))
	}
	// 1 + 2 + 4 + 8 seconds, then every ten.
	if wakes < 8 || wakes > 10 {
		t.Errorf("woken %d times in a minute, want about nine", wakes)
	}
}

func TestSleepersGone(t *testing.T) {
	for name, end := range map[string]func(*waitingHandle, *corev1.Pod){
		"deleted": func(b *waitingHandle, pod *corev1.Pod) { b.drop(pod) },
		"bound":   func(b *waitingHandle, pod *corev1.Pod) { b.bound(pod) },
		"fits":    func(b *waitingHandle, pod *corev1.Pod) { b.drop(pod); b.note(pod, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBedroom(t, AffinityName)
			pod := makePod("waitingPod", nearApp("web"))
			b.note(pod, refused)
			b.bound(makePod("web", ofApp("web"), boundTo("n1")))
			end(b, pod)
			if got := b.after(t, time.Hour); len(got) > 0 {
				t.Errorf("woke %v", got)
			}
			if n := len(b.pods); n > 0 {
				t.Errorf("%d pods are kept in mind", n)
			}
		})
	}
}

// TestSpreadWithCards: default constraints, be they soft or hard, are for pods
// without cards alone; what a user wrote counts for pods with cards too.
func TestSpreadWithCards(t *testing.T) {
	schedulermetrics.Register()
	const hard = `{"defaultingType":"List","defaultConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}]}`
	nodes := []*corev1.Node{makeNode("n1"), makeNode("n2")}
	for _, node := range nodes {
		node.Labels = map[string]string{corev1.LabelHostname: node.Name}
	}
	snapshot := schedulercache.NewSnapshot([]*corev1.Pod{makePod("web-1", ofApp("web"), boundTo("n1"))}, nodes)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	for name, tt := range map[string]struct {
		args                  string
		pod                   *corev1.Pod
		wantFilter, wantScore bool
	}{
		"no cards, the system's constraints":  {pod: makePod("p", ofApp("web")), wantScore: true},
		"no cards, constraints by arguments":  {args: hard, pod: makePod("p", ofApp("web")), wantFilter: true},
		"cards, the system's constraints":     {pod: makePod("p", ofApp("web"), whole(1))},
		"cards, constraints by arguments":     {args: hard, pod: makePod("p", ofApp("web"), whole(1))},
		"cards, constraints of the pod's own": {args: hard, pod: makePod("p", evenly("web"), whole(1)), wantFilter: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(service)
			h := &waitingHandle{fakeHandle: fakeHandle{client: client, informers: informers.NewSharedInformerFactory(client, 0), snapshot: snapshot}}
			var args runtime.Object
			if tt.args != "" {
				args = &runtime.Unknown{Raw: []byte(tt.args)}
			}
			plugin, err := NewState(clocktesting.NewFakeClock(start)).standIns()[SpreadName](t.Context(), args, h)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := plugin.(*neighbours)
			if !ok {
				t.Fatalf("%s is a %T", SpreadName, plugin)
			}
			h.informers.Start(t.Context().Done())
			h.informers.WaitForCacheSync(t.Context().Done())
			infos, err := snapshot.NodeInfos().List()
			if err != nil {
				t.Fatal(err)
			}
			cs := framework.NewCycleState()
			_, status := s.PreFilter(t.Context(), cs, tt.pod, infos)
			if got := !status.IsSkip(); got != tt.wantFilter {
				t.Errorf("PreFilter() = %v, want nodes filtered: %t", status, tt.wantFilter)
			}
			if status := s.PreScore(t.Context(), cs, tt.pod, infos); !status.IsSkip() != tt.wantScore {
				t.Errorf("PreScore() = %v, want nodes scored: %t", status, tt.wantScore)
			}
		})
	}
}
