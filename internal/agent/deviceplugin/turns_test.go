package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// writeCheckpoint writes kubelet's file as it would be.
func (s *scene) writeCheckpoint(entries ...checkpoint.PodDevicesEntry) {
	s.Helper()
	text, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.cfg.Plugins, checkpointFile), text, 0o600); err != nil {
		s.Fatal(err)
	}
}

func entry(pod *corev1.Pod, container string, ids ...string) checkpoint.PodDevicesEntry {
	return checkpoint.PodDevicesEntry{PodUID: string(pod.UID), ContainerName: container, ResourceName: slice, DeviceIDs: checkpoint.DevicesPerNUMA{-1: ids}}
}

// initPod is a pod whose init container has another share than the other one,
// under the same id.
func (s *scene) initPod() *corev1.Pod {
	limits := func(compute string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{
			wire.ResourceSGPU: resource.MustParse("1"), wire.ResourceVCore: resource.MustParse(compute), wire.ResourceVMemory: resource.MustParse("4"),
		}}
	}
	return s.pod("a", nil, `[[{"uuid":"GPU-a","compute":80,"vRam":4096}],[{"uuid":"GPU-a","compute":30,"vRam":4096}]]`, func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: limits("80")}}
		p.Spec.Containers[0].Resources = limits("30")
	})
}

// An init container and the one that follows it use the same id one after the
// other, and each gets its own share.
func TestInitContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := s.initPod()
	id := "daybreak-sgpu-004"
	s.writeCheckpoint(entry(pod, "init", id), entry(pod, "main", id))
	names := append(s.admit(slice, "a", id), s.admit(slice, "a", id)...)
	compute := func() gpu.Percent {
		s.driver.mu.Lock()
		defer s.driver.mu.Unlock()
		all := s.driver.cards["0000:01:00.0"].Slices
		if len(all) != 1 {
			t.Fatalf("slices: %+v", all)
		}
		return all[0].ComputePercent
	}
	if err := s.begin(slice, id); err != nil {
		t.Fatal(err)
	}
	if got := compute(); got != 80 {
		t.Errorf("the init container has %d%%, want 80%%", got)
	}
	status := func(state corev1.ContainerState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.pods["default/a"].DeepCopy()
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: state}}
		s.pods["default/a"] = p
	}
	status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}) // kubelet has not reported its end yet
	done := make(chan error, 1)
	go func() { done <- s.begin(slice, id) }()
	select {
	case err := <-done:
		t.Fatalf("the container can not be known: %v", err)
	case <-s.clock.After(2 * time.Second):
	}
	status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := compute(); got != 30 {
		t.Errorf("the container has %d%%, want 30%%", got)
	}
	if got := s.sees(names...); !cmp.Equal(got, []string{"/dev/mxcd", "/dev/sgpu17", "MACA_VISIBLE_DEVICES=0"}) {
		t.Errorf("it sees %v", got)
	}
}

// An init container that is so short that kubelet has not reported it yet: the container
// runtime has how it ended.
func TestShortInitContainer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		code int32
		want string
	}{"it succeeded": {0, "main"}, "it failed": {1, "init"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			pod := s.initPod()
			id := "daybreak-sgpu-004"
			s.writeCheckpoint(entry(pod, "init", id), entry(pod, "main", id))
			s.admit(slice, "a", id)
			s.admit(slice, "a", id)
			if err := s.begin(slice, id); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			p := s.pods["default/a"].DeepCopy()
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}}
			s.pods["default/a"] = p
			s.exited = map[string]int32{"init": tc.code}
			s.mu.Unlock()
			if err := s.begin(slice, id); err != nil {
				t.Fatal(err)
			}
			if d := s.server.journal.now(); (d.byContainer(containerID{pod.UID, "main"}) != nil) != (tc.want == "main") {
				t.Errorf("records %+v, want that %s starts", d.Records, tc.want)
			}
		})
	}
}

// An id that only an init container has is in kubelet's file alone.
func TestOnlyInitContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := s.initPod()
	s.admit(slice, "someone-else", "daybreak-sgpu-001")
	s.kubelet.mu.Lock()
	s.kubelet.held = nil
	s.kubelet.mu.Unlock()
	s.writeCheckpoint(entry(pod, "init", "daybreak-sgpu-001"))
	if err := s.begin(slice, "daybreak-sgpu-001"); err != nil {
		t.Fatal(err)
	}
	if r := s.server.journal.now().Records; len(r) != 1 || r[0].Container != "init" || r[0].Shares[0].Compute != 80 {
		t.Errorf("records: %+v", r)
	}
}

// A name that was used again means another pod: the UID decides.
func TestNameUsedAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	old := s.slicePod("a", "GPU-a", 30, 4)
	old.UID = "uid-before"
	s.writeCheckpoint(checkpoint.PodDevicesEntry{PodUID: "uid-a", ContainerName: "main", ResourceName: slice, DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"daybreak-sgpu-000"}}})
	s.admit(slice, "a", "daybreak-sgpu-000")
	done := make(chan error, 1)
	go func() { done <- s.begin(slice, "daybreak-sgpu-000") }()
	s.pass(2 * time.Second)
	if got := s.driver.aliases(); len(got) != 0 {
		t.Errorf("slices were made for the wrong pod: %v", got)
	}
	s.slicePod("a", "GPU-b", 50, 8)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if x := s.driver.cards["0000:02:00.0"].Slices; len(x) != 1 || x[0].ComputePercent != 50 {
		t.Errorf("slices of the new pod's card: %+v", x)
	}
}

func TestTurnOf(t *testing.T) {
	t.Parallel()
	ended, failed := &corev1.ContainerStateTerminated{}, &corev1.ContainerStateTerminated{ExitCode: 1}
	cases := map[string]struct {
		first, second corev1.ContainerState
		want          string
		wantErr       string
	}{
		"the first waits":                   {want: "i1"},
		"the first failed and starts again": {first: corev1.ContainerState{Terminated: failed}, want: "i1"},
		"the first has ended":               {first: corev1.ContainerState{Terminated: ended}, want: "i2"},
		"both have ended":                   {first: corev1.ContainerState{Terminated: ended}, second: corev1.ContainerState{Terminated: ended}, want: "main"},
		"the second is reported as running": {first: corev1.ContainerState{Terminated: ended}, second: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, wantErr: "container i2 is reported as running"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i1", State: tc.first}, {Name: "i2", State: tc.second}}
			got, err := nextOf(pod, []string{"i1", "i2", "main"}, func(string) (bool, error) { return false, nil })
			if got != tc.want || fmt.Sprint(err) != "<nil>" != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
