package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
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

func newBedroom(t *testing.T, name string) *waitingHandle {
	t.Helper()
	b := &waitingHandle{fakeHandle: *newHandle(), clock: &alarmClock{FakeClock: clocktesting.NewFakeClock(start)}}
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

// store makes the informer have the pod, and bound makes it bound, too.
func (b *waitingHandle) store(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	gputest.Must(t, b.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
	return pod
}

func (b *waitingHandle) bound(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	b.change(nil, b.store(t, pod))
}

// refuse refuses the pod in a cycle whose snapshot has the running pods.
func (b *waitingHandle) refuse(pod *corev1.Pod, running ...*corev1.Pod) {
	infos := map[string]*framework.NodeInfo{}
	for _, p := range running {
		if infos[p.Spec.NodeName] == nil {
			infos[p.Spec.NodeName] = nodeInfo(makeNode(p.Spec.NodeName))
		}
		infos[p.Spec.NodeName].AddPod(p)
	}
	var list []fwk.NodeInfo
	for _, info := range infos {
		list = append(list, info)
	}
	b.snapshot = snapshotOf(list...)
	b.try(pod)
	b.begin()
	for range 3 { // nodes
		b.note(pod, refused)
	}
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
func nearApp() podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": modelApp}}, TopologyKey: corev1.LabelHostname,
		}}}}
	}
}

// evenly wants pods of the app to be on all hosts alike.
func evenly() podOption {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": modelApp}
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": modelApp}},
		}}
	}
}

var refused = fwk.NewStatus(fwk.Unschedulable, "neighbours")

func TestSleepersWake(t *testing.T) {
	for name, waitingPod := range map[string]podOption{AffinityName: nearApp(), SpreadName: evenly()} {
		t.Run(name, func(t *testing.T) {
			b := newBedroom(t, name)
			pod, db := b.store(t, makePod("waitingPod", waitingPod)), makePod("db", ofApp("db"), boundTo("n1"))
			b.refuse(pod)
			b.bound(t, db)
			if got := b.after(t, time.Minute); len(got) > 0 {
				t.Errorf("a pod of another app woke %v", got)
			}
			web1, web2 := makePod("web-1", ofApp("web"), boundTo("n1")), makePod("web-2", ofApp("web"), boundTo("n2"))
			b.bound(t, web1)
			b.bound(t, web2)
			want := []string{"ns/waitingPod"}
			gputest.Equal(t, "after two pods of the app", want, b.after(t, gather))
			b.refuse(pod, db, web1)
			gputest.Equal(t, "when the cache has the second one later", want, b.after(t, time.Second))
			b.refuse(pod, db, web1, web2)
			if got := b.after(t, time.Hour); len(got) > 0 {
				t.Errorf("woken without a reason: %v", got)
			}
			if n := len(b.changed); n > 0 {
				t.Errorf("%d changes are remembered that the snapshot shows", n)
			}
		})
	}
}

// TestSleepersOvertaken: a pod that is refused on a snapshot from before a change is
// woken, although the change came before the refusal; one from after it is not.
func TestSleepersOvertaken(t *testing.T) {
	other := func(app string) *corev1.Pod { return makePod("other", ofApp(app), boundTo("n1")) }
	tests := map[string]struct {
		shown, now *corev1.Pod // in the snapshot and in fact
		gone       bool        // other ends
		want       bool
	}{
		"bound":                     {now: other("web"), want: true},
		"bound, and gone":           {now: other("web"), gone: true},
		"bound, of another app":     {now: other("db")},
		"bound, in the snapshot":    {shown: other("web"), now: other("web")},
		"relabeled":                 {shown: other("db"), now: other("web"), want: true},
		"relabeled to other labels": {shown: other("db"), now: other("cache")},
	}
	for plugin, waitingPod := range map[string]podOption{AffinityName: nearApp(), SpreadName: evenly()} {
		for name, tt := range tests {
			t.Run(plugin+"/"+name, func(t *testing.T) {
				b := newBedroom(t, plugin)
				pod := b.store(t, makePod("waitingPod", waitingPod))
				var running []*corev1.Pod
				if tt.shown != nil {
					running = []*corev1.Pod{tt.shown}
				}
				b.change(tt.shown, b.store(t, tt.now))
				if tt.gone {
					gputest.Must(t, b.informers.Core().V1().Pods().Informer().GetStore().Delete(tt.now))
				}
				b.refuse(pod, running...)
				if got := len(b.after(t, gather)) > 0; got != tt.want {
					t.Errorf("woken: %v, want %v", got, tt.want)
				}
			})
		}
	}
}

// TestSleepersOfTheAssumed: a pod that was refused for the labels of one that was
// assumed is woken when that one is bound and has others by then.
func TestSleepersOfTheAssumed(t *testing.T) {
	for plugin, waitingPod := range map[string]podOption{AffinityName: awayFromApp("web"), SpreadName: evenly()} {
		for name, tt := range map[string]struct {
			tried, bound string
			want         bool
		}{
			"relabeled":                 {tried: "web", bound: "db", want: true},
			"relabeled to other labels": {tried: "cache", bound: "db"},
			"as it was":                 {tried: "db", bound: "db"},
		} {
			t.Run(plugin+"/"+name, func(t *testing.T) {
				b := newBedroom(t, plugin)
				pod, other := b.store(t, makePod("waitingPod", waitingPod)), b.store(t, makePod("other", ofApp(tt.tried)))
				b.try(other)
				b.refuse(pod, makePod("other", ofApp(tt.tried), boundTo("n1")))
				b.bound(t, makePod("other", ofApp(tt.bound), boundTo("n1")))
				if got := len(b.after(t, gather)) > 0; got != tt.want {
					t.Errorf("woken: %v, want %v", got, tt.want)
				}
				if b.tried[other.UID] != nil {
					t.Error("it is kept in mind how a pod that is bound was tried")
				}
			})
		}
	}
}

func TestSleepersNap(t *testing.T) {
	b := newBedroom(t, AffinityName)
	pod := b.store(t, makePod("waitingPod", nearApp()))
	b.refuse(pod)
	// Pods of the app are bound all the time and none helps.
	wakes := 0
	const minute = 60 * 20
	for range minute {
		b.bound(t, makePod("web", ofApp("web"), boundTo("n1")))
		wakes += len(b.after(t, 50*time.Millisecond))
	}
	// 1 + 2 + 4 + 8 seconds, then every ten.
	if wakes < 8 || wakes > 10 {
		t.Errorf("woken %d times in a minute, want about nine", wakes)
	}
	if n := len(b.changed); n > maxChanged {
		t.Errorf("%d changes are remembered, want at most %d", n, maxChanged)
	}
}

// TestSleepersAreBounded: however many pods are bound while none is tried, a bounded
// number of them is remembered, the last ones.
func TestSleepersAreBounded(t *testing.T) {
	b := newBedroom(t, AffinityName)
	for i := range 3 * maxChanged {
		b.bound(t, makePod(fmt.Sprint("web-", i), ofApp("web"), boundTo("n1")))
	}
	if n := len(b.changed); n > maxChanged || b.changed[n-1].name != fmt.Sprint("web-", 3*maxChanged-1) {
		t.Errorf("%d changes are remembered, want at most %d, and the last", n, maxChanged)
	}
}

// TestSleepersGone: no pod is kept in mind that has ended or is bound, whether that
// is heard before or after it is refused.
func TestSleepersGone(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *waitingHandle, *corev1.Pod){
		"deleted": func(t *testing.T, b *waitingHandle, pod *corev1.Pod) {
			t.Helper()
			gputest.Must(t, b.informers.Core().V1().Pods().Informer().GetStore().Delete(pod))
			b.drop(pod)
		},
		"bound": func(t *testing.T, b *waitingHandle, pod *corev1.Pod) {
			t.Helper()
			pod = pod.DeepCopy()
			pod.Spec.NodeName = "n1"
			b.bound(t, pod)
		},
		"made again": func(t *testing.T, b *waitingHandle, pod *corev1.Pod) {
			t.Helper()
			b.drop(pod)
			pod = pod.DeepCopy()
			pod.UID = "another"
			b.store(t, pod)
		},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/refused after=%v", name, late), func(t *testing.T) {
				b := newBedroom(t, AffinityName)
				pod := b.store(t, makePod("waitingPod", nearApp()))
				b.bound(t, makePod("web", ofApp("web"), boundTo("n1")))
				if !late {
					b.refuse(pod)
				}
				end(t, b, pod)
				if late {
					b.refuse(pod)
				}
				if got := b.after(t, time.Hour); len(got) > 0 {
					t.Errorf("woke %v", got)
				}
				if n := len(b.pods) + len(b.tried); n > 0 {
					t.Errorf("%d pods are kept in mind", n)
				}
			})
		}
	}
}

// TestSleepersThatFit: only pods that are refused are kept in mind.
func TestSleepersThatFit(t *testing.T) {
	b := newBedroom(t, AffinityName)
	pod := b.store(t, makePod("waitingPod", nearApp()))
	for _, status := range []*fwk.Status{nil, fwk.NewStatus(fwk.Skip), fwk.AsStatus(errNoNode)} {
		b.note(pod, status)
	}
	if n := len(b.pods); n > 0 {
		t.Errorf("%d pods are kept in mind", n)
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
		"cards, constraints of the pod's own": {args: hard, pod: makePod("p", evenly(), whole(1)), wantFilter: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandle(service)
			h.snapshot = snapshot
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
