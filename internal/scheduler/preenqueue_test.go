package scheduler

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// closedFence returns kube-scheduler with the plugin and the pods in its queue,
// and what opens the fence.
func closedFence(t *testing.T, pods ...*corev1.Pod) (*benched, *fencing) {
	t.Helper()
	s, f := newBenched(t, "daybreak", 1, 0), newFencing(t, pods...)
	s.shared.term, f.cache, f.activate = f.term, s.Cache, s.SchedulingQueue.Activate
	for _, pod := range pods {
		s.SchedulingQueue.Add(t.Context(), pod)
	}
	return s, f
}

// TestTheFirstDecisionSeesWhatTheOldLeaderDid: what an old leader bound while the
// fence was closed is in the snapshot of the first decision.
func TestTheFirstDecisionSeesWhatTheOldLeaderDid(t *testing.T) {
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	s, f := closedFence(t, makePod("p", requesting(wire.ResourceGPU, "8")))
	if n := len(s.SchedulingQueue.PodsInActiveQ()); n != 0 {
		t.Fatalf("%d pods are to be placed with the fence closed", n)
	}
	old := makePod("old", requesting(wire.ResourceGPU, "1"), holds(0), boundTo("n0"))
	f.informed(t, old)
	f.steps(t)
	if f.term.isOpen() {
		t.Fatal("open before the cache shows the old leader's pod")
	}
	gputest.Must(t, s.Cache.AddPod(klog.FromContext(ctx), old))
	f.steps(t)
	if !f.term.isOpen() {
		t.Fatal("closed")
	}
	s.ScheduleOne(ctx)
	if n := len(s.shared.pods.claimsOf(reservedClaim)); n != 0 {
		t.Error("the old leader's card was given again")
	}
}

// TestFirstBindingAfterOpening: pods that were held back are placed at once, also
// when there are many, and pods without cards do not wait for the fence.
func TestFirstBindingAfterOpening(t *testing.T) {
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	pods := make([]*corev1.Pod, 1000)
	for i := range pods {
		pods[i] = makePod(fmt.Sprintf("p%d", i), requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "1"), requesting(wire.ResourceVMemory, "1Gi"))
	}
	s, f := closedFence(t, pods...)
	s.SchedulingQueue.Add(ctx, makePod("ordinary"))
	s.ScheduleOne(ctx)
	s.awaitBinds(t, 1, time.Minute)
	if n := len(s.SchedulingQueue.PodsInActiveQ()); n != 0 {
		t.Fatalf("%d pods are to be placed with the fence closed", n)
	}
	go func() {
		for ctx.Err() == nil {
			s.ScheduleOne(ctx)
		}
	}()
	f.seen = "2000"
	f.steps(t)
	if !f.term.isOpen() {
		t.Fatal("closed")
	}
	s.awaitBinds(t, 2, time.Second)
}

func (s *benched) awaitBinds(t *testing.T, n int64, limit time.Duration) {
	t.Helper()
	for end := time.Now().Add(limit); s.binds.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d Bindings after %v, want %d", s.binds.Load(), limit, n)
		}
	}
}

// TestCheckPlugins: without PreEnqueue decisions would begin before the fence is
// open, and before 1.24 VolumeBinding would wait forever.
func TestCheckPlugins(t *testing.T) {
	volumes := config.PluginSet{Enabled: []config.Plugin{{Name: "VolumeBinding"}}}
	ours := config.PluginSet{Enabled: []config.Plugin{{Name: "Other"}, {Name: Name}}}
	for _, tt := range []struct {
		plugins config.Plugins
		beta    bool
		want    string
	}{
		{},
		{plugins: config.Plugins{PreFilter: volumes}},
		{
			plugins: config.Plugins{PreFilter: volumes}, beta: true,
			want: "profile daybreak: VolumeBinding needs csistoragecapacities.v1.storage.k8s.io, which API servers have from Kubernetes 1.24 on: under multiPoint, disable it and enable DaybreakVolumes",
		},
		{plugins: config.Plugins{PreFilter: ours, PreEnqueue: ours}},
		{plugins: config.Plugins{PreFilter: ours}, want: "profile daybreak: preEnqueue does not enable Daybreak: enable the plugin under multiPoint"},
	} {
		if got := message((&State{betaCapacities: tt.beta}).checkPlugins("daybreak", &tt.plugins)); got != tt.want {
			t.Errorf("checkPlugins() says %q, want %q", got, tt.want)
		}
	}
}
