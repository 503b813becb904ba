package deviceplugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	whole = "metax-tech.com/gpu"
	slice = "metax-tech.com/sgpu"
)

// A container gets a slice of its own, the same again when it restarts, and it
// is gone when the pod is.
func TestSliceOfAContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	names := s.startSlice("a", "GPU-b", 30, 4, "daybreak-sgpu-007")
	want := []string{"/dev/mxcd", "/dev/sgpu16", "MACA_VISIBLE_DEVICES=0"}
	gputest.Equal(t, "the container sees", want, s.sees(names...))
	card := s.driver.cards["0000:02:00.0"]
	if x := card.Slices; len(x) != 1 || x[0].Memory != 4096 || x[0].ComputePercent != 30 || card.QoS != gpu.FixedShare {
		t.Errorf("card: %+v", card)
	}
	s.starts(slice, "daybreak-sgpu-007") // the container restarts
	s.restart()
	s.starts(slice, "daybreak-sgpu-007") // the container restarts after the agent did
	if s.driver.made != 1 {
		t.Errorf("%d slices were made, want 1", s.driver.made)
	}
	s.delete("a")
	s.eventually("the slice is removed", func() bool { return len(s.driver.aliases()) == 0 })
	s.eventually("the spec is removed", func() bool { return len(s.specs()) == 0 })
}

// What is not certain starts no container.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	limits := corev1.ResourceList{slice: resource.MustParse("1"), wire.ResourceVCore: resource.MustParse("30"), wire.ResourceVMemory: resource.MustParse("4")}
	cases := map[string]struct {
		prepare func(s *scene)
		ids     []string
		want    string
	}{
		"an id that the agent never made up": {
			prepare: func(*scene) {}, ids: []string{"GPU-a-0:1"}, want: "are not this plugin's: no container holds devices",
		},
		"an allocation that is larger than the limits": {
			prepare: func(s *scene) { s.pod("a", limits, `[[{"uuid":"GPU-a","compute":20,"vRam":4096}]]`) },
			want:    "its allocation has 20% of card GPU-a, it asks for 30%",
		},
		"no allocation": {
			prepare: func(s *scene) { s.pod("a", limits, `x`) },
			want:    "no annotation names its cards",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			tc.prepare(s)
			ids := tc.ids
			if ids == nil {
				ids = []string{"daybreak-sgpu-000"}
				s.admit(slice, "a", ids...)
			}
			s.wantNoStart(slice, tc.want, ids...)
			if got := s.specs(); len(got) > 0 {
				t.Errorf("specs were written: %v", got)
			}
		})
	}
}

// Whole cards, seats and virtual functions get the card's own devices.
func TestWholeCards(t *testing.T) {
	t.Parallel()
	two := corev1.ResourceList{whole: resource.MustParse("2")}
	cases := map[string]struct {
		mode gpu.Mode
		text string
		want []string
	}{
		"two whole cards": {
			mode: gpu.ModeNative, text: `[[{"uuid":"GPU-a","compute":100,"vRam":65536},{"uuid":"GPU-b","compute":100,"vRam":65536}]]`,
			want: []string{"/dev/dri/card0", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/mxcd", "MACA_VISIBLE_DEVICES=0,1"},
		},
		"two seats": {
			mode: gpu.ModeShared, text: `[[{"uuid":"GPU-a"},{"uuid":"GPU-b"}]]`,
			want: []string{"/dev/dri/card0", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/mxcd", "MACA_MPS_MODE=1", "MACA_VISIBLE_DEVICES=0,1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tc.mode)
			s.pod("a", two, tc.text)
			names := s.admit(whole, "a", "daybreak-gpu-000", "daybreak-gpu-001")
			s.starts(whole, "daybreak-gpu-001", "daybreak-gpu-000")
			gputest.Equal(t, "the container sees", tc.want, s.sees(names...))
		})
	}
}

// Of two pods that were placed on one card the earlier one gets it.
func TestTwoHoldersOfOneCard(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	at := func(when string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[wire.AnnotationPredicateTime] = when }
	}
	s.slicePod("late", "GPU-a", 60, 4, at("2000"))
	s.slicePod("early", "GPU-a", 60, 4, at("1000"))
	s.admit(slice, "late", "daybreak-sgpu-000")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := s.server.preStart(ctx, slice, []string{"daybreak-sgpu-000"})
	if err == nil || !strings.Contains(err.Error(), "60% are held by another pod,") || holderIn(err) != "default/early" {
		t.Errorf("the later one: %v, because of %q", err, holderIn(err))
	}
	// The event, and the error that kubelet makes one of, are read by users who may
	// not see the other pod.
	if len(s.events) != 1 || !strings.HasPrefix(s.events[0], "late CardsNotReady") || strings.Contains(s.events[0]+err.Error(), "early") {
		t.Errorf("events: %v", s.events)
	}
	s.admit(slice, "early", "daybreak-sgpu-001")
	s.starts(slice, "daybreak-sgpu-001") // the earlier one
}

// A card is not given on while a container of a pod that was deleted by force
// lives, although kubelet has given its id to someone else.
func TestDeletedByForce(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	one := corev1.ResourceList{whole: resource.MustParse("1")}
	alone := `[[{"uuid":"GPU-a","compute":100,"vRam":65536}]]`
	s.pod("old", one, alone)
	s.admit(whole, "old", "daybreak-gpu-000")
	s.starts(whole, "daybreak-gpu-000")
	s.setAlive("old", true)
	s.delete("old")
	s.pod("new", one, alone)
	names := s.admit(whole, "new", "daybreak-gpu-000")
	done := s.waits(10*time.Second, whole, "daybreak-gpu-000")
	gputest.Equal(t, "the new one sees", []string{"nothing"}, s.sees(names...))
	s.restart() // the journal remembers
	s.setAlive("old", false)
	s.starts(whole, "daybreak-gpu-000") // after the container is gone
	<-done
}

// kubelet's limit on questions costs nothing but time, and many who ask at once
// cost few questions.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	const n = 16
	s.kubelet.change(func() { s.kubelet.refuse = 5 })
	done := make(chan error, n)
	want := map[string]string{}
	for i := range n {
		name := "p" + string(rune('a'+i))
		card := []string{"GPU-a", "GPU-b"}[i%2]
		s.slicePod(name, card, 10, 2)
		s.admit(slice, name, token(wire.ResourceSGPU, i))
		want[name] = card
	}
	for i := range n {
		go func() { done <- s.begin(slice, token(wire.ResourceSGPU, i)) }()
	}
	for range n {
		gputest.Check(t, <-done)
	}
	for _, r := range s.records() {
		gputest.Equal(t, r.Pod+" has card", want[r.Pod], string(r.Shares[0].Card))
	}
	if s.kubelet.lists > 2*n {
		t.Errorf("kubelet was asked %d times", s.kubelet.lists)
	}
}

// The mode changes and changes back: the node is served in a mode when kubelet has
// the devices of it, which it may take a while for.
func TestModeChanges(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	served := func(mode gpu.Mode) bool {
		st := s.server.Status()
		return st.Serving && st.Mode == mode
	}
	s.setMode(gpu.ModeNative)
	s.server.Update(s.node)
	s.eventually("whole cards alone are served", func() bool {
		healthy, _ := s.kubelet.health(slice)
		return served(gpu.ModeNative) && healthy == 0
	})
	s.kubelet.slow.Lock()
	s.setMode(gpu.ModeSGPU)
	s.server.Update(s.node)
	s.eventually("kubelet is waited for", func() bool {
		st := s.server.Status()
		return !st.Serving && strings.Contains(st.Waits, "kubelet has not taken the list of devices yet")
	})
	s.kubelet.slow.Unlock()
	s.eventually("slices are served", func() bool { return served(gpu.ModeSGPU) })
	if healthy, _ := s.kubelet.health(slice); healthy != 32 {
		t.Errorf("kubelet has %d devices when the node is said to be served, want 32", healthy)
	}
}

// kubelet restarts: it deletes all sockets and knows nothing.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.kubelet.stop()
	s.isServed(false)
	for _, name := range []string{"daybreak-gpu.sock", "daybreak-sgpu.sock"} {
		if err := os.Remove(filepath.Join(s.cfg.Plugins, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	s.kubelet.start(t)
	s.isServed(true)
	if healthy, _ := s.kubelet.health(slice); healthy != 32 {
		t.Errorf("%d devices, want 32", healthy)
	}
}

// A held id is as healthy as its card; free ids make up the number.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.startSlice("a", "GPU-b", 10, 2, "daybreak-sgpu-000")
	s.makeIll("GPU-b")
	s.eventually("half of the ids are unhealthy", func() bool {
		healthy, unhealthy := s.kubelet.health(slice)
		return healthy == 16 && unhealthy == 16
	})
	if d := s.kubelet.devices[slice][0]; d.GetID() != "daybreak-sgpu-000" || d.GetHealth() == "Healthy" {
		t.Errorf("the pod's own id: %v", d)
	}
	s.eventually("one of two whole cards is unhealthy", func() bool {
		healthy, unhealthy := s.kubelet.health(whole)
		return healthy == 1 && unhealthy == 1
	})
}

// Slices of others stay; unused ones of Daybreak go.
func TestForeignSlices(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.stop()
	orphan := aliasOf(&record{PodUID: "uid-gone", Container: "main"}, "GPU-a")
	s.driver.cards["0000:01:00.0"].Slices = []discover.Slice{
		{ID: 3, UUID: "X", Alias: "sgpu-178", Memory: 1024, ComputePercent: 5}, {ID: 4, UUID: "Y", Alias: orphan, Memory: 1024, ComputePercent: 5},
	}
	s.start()
	s.eventually("the orphan is gone", func() bool { return cmp.Equal(s.driver.aliases(), []string{"sgpu-178"}) })
	s.eventually("the foreign slice is reported", func() bool { return s.server.Status().ForeignSlices["GPU-a"].Slices == 1 })
}

// A slice that was made when the agent ended, and has no name yet, is found and made again.
func TestSliceWithoutName(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.slicePod("a", "GPU-a", 30, 4)
	s.driver.fail = errors.New("the agent ends here")
	s.admit(slice, "a", "daybreak-sgpu-000")
	s.eventually("the slice is noted", func() bool {
		return len(s.records()) == 1
	})
	s.stop()
	s.driver.fail = nil
	s.driver.cards["0000:01:00.0"].Slices = []discover.Slice{{ID: 0, UUID: "N", Minor: 16, Memory: 4096, ComputePercent: 30}}
	s.start()
	s.starts(slice, "daybreak-sgpu-000")
	if got := s.driver.aliases(); s.driver.made != 1 || len(got) != 1 || !strings.HasPrefix(got[0], aliasPrefix) {
		t.Errorf("%d made, slices %v", s.driver.made, got)
	}
}

// A card may turn out to have less memory for slices than it has in all; a pod
// that asked for all of it gets what there is.
func TestLessMemoryThanThought(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	limits := corev1.ResourceList{slice: resource.MustParse("1"), wire.ResourceVCore: resource.MustParse("30")}
	s.pod("a", limits, `[[{"uuid":"GPU-a","compute":30,"vRam":65536}]]`)
	s.driver.mu.Lock()
	s.driver.most = 60 << 10
	s.driver.mu.Unlock()
	s.admit(slice, "a", "daybreak-sgpu-000")
	done := make(chan error, 1)
	go func() { done <- s.begin(slice, "daybreak-sgpu-000") }()
	s.eventually("it is tried", func() bool {
		return len(s.records()) == 1
	})
	s.memory = 60 << 10
	s.setMode(gpu.ModeSGPU)
	s.server.Update(s.node)
	gputest.Must(t, <-done)
	if x := s.driver.cards["0000:01:00.0"].Slices; len(x) != 1 || x[0].Memory != 60<<10 {
		t.Errorf("slices: %+v", x)
	}
}

// A driver that does not let go is asked again, and the card is not given on.
func TestDriverDoesNotLetGo(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.startSlice("a", "GPU-a", 30, 4, "daybreak-sgpu-000")
	s.driver.setBusy(true)
	s.delete("a")
	s.eventually("the spec is removed at once", func() bool { return len(s.specs()) == 0 })
	s.pass(20 * time.Second)
	if len(s.driver.aliases()) != 1 {
		t.Error("the slice is gone")
	}
	s.driver.setBusy(false)
	s.eventually("the slice is removed", func() bool { return len(s.driver.aliases()) == 0 })
}

// A pod that the watch does not show yet is asked for.
func TestWatchIsLate(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.locked(func() { s.hidden["default/a"] = true })
	s.startSlice("a", "GPU-a", 30, 4, "daybreak-sgpu-000")
	s.pass(20 * time.Second)
	if len(s.driver.aliases()) != 1 {
		t.Error("the slice of a pod that lives was removed")
	}
}

// An id that kubelet gave and no container started with counts as free after
// five minutes, not before.
func TestFreshIDs(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.admit(slice, "no-pod", "daybreak-sgpu-000")
	fresh := func() bool {
		s.server.devices(s.server.plugins[1])
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		_, ok := s.server.fresh["daybreak-sgpu-000"]
		return ok
	}
	s.clock.Step(freshFor - time.Minute)
	if !fresh() {
		t.Error("it counts as free although its container may be about to start")
	}
	s.clock.Step(2 * time.Minute)
	if fresh() {
		t.Error("it is kept for a container that never started")
	}
}
