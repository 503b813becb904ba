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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// writeCheckpoint writes kubelet's file as it would be.
func (s *scene) writeCheckpoint(entries ...checkpointEntry) {
	s.Helper()
	gputest.Must(s, writeCheckpoint(s.cfg.Plugins, entries))
}

func writeCheckpoint(folder string, entries []checkpointEntry) error {
	text, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, checkpointFile), text, 0o600)
}

func entry(pod types.UID, container, resource string, ids ...string) checkpointEntry {
	return checkpointEntry{PodUID: string(pod), ContainerName: container, ResourceName: resource, DeviceIDs: checkpoint.DevicesPerNUMA{-1: ids}}
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

// setInit sets the status of the init containers of pod a.
func (s *scene) setInit(status ...corev1.ContainerStatus) {
	s.locked(func() {
		p := s.pods["default/a"].DeepCopy()
		p.Status.InitContainerStatuses = status
		s.pods["default/a"] = p
	})
}

// An init container and the one that follows it use the same id one after the
// other, and each gets its own share.
func TestInitContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := s.initPod()
	id := "daybreak-sgpu-004"
	s.writeCheckpoint(entry(pod.UID, "init", slice, id), entry(pod.UID, "main", slice, id))
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
	s.starts(slice, id)
	gputest.Equal(t, "compute of the init container", gpu.Percent(80), compute())
	status := func(state corev1.ContainerState) {
		s.setInit(corev1.ContainerStatus{Name: "init", State: state})
	}
	status(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}) // kubelet has not reported its end yet
	done := s.waits(2*time.Second, slice, id)
	status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}})
	gputest.Must(t, <-done)
	gputest.Equal(t, "compute of the container", gpu.Percent(30), compute())
	if got := s.sees(names...); !cmp.Equal(got, []string{"/dev/mxcd", "/dev/sgpu17", "MACA_VISIBLE_DEVICES=0"}) {
		t.Errorf("it sees %v", got)
	}
}

// An init container that is so short that kubelet has not reported it yet: the container
// runtime has how it ended.
func TestShortInitContainer(t *testing.T) {
	t.Parallel()
	waits := []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}}
	for name, tc := range map[string]struct {
		status []corev1.ContainerStatus
		code   int32
		want   string
	}{
		"it succeeded": {waits, 0, "main"}, "it failed": {waits, 1, "init"},
		"it succeeded, and the pod has no status": {nil, 0, "main"}, "it failed, and the pod has no status": {nil, 1, "init"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			pod := s.initPod()
			id := "daybreak-sgpu-004"
			s.writeCheckpoint(entry(pod.UID, "init", slice, id), entry(pod.UID, "main", slice, id))
			s.admit(slice, "a", id)
			s.admit(slice, "a", id)
			s.starts(slice, id)
			s.locked(func() { s.exited = map[string]int32{"init": tc.code} })
			s.setInit(tc.status...)
			s.starts(slice, id)
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
	s.kubelet.change(func() { s.kubelet.held = nil })
	s.writeCheckpoint(entry(pod.UID, "init", slice, "daybreak-sgpu-001"))
	s.starts(slice, "daybreak-sgpu-001")
	if r := s.records(); len(r) != 1 || r[0].Container != "init" || r[0].Shares[0].Compute != 80 {
		t.Errorf("records: %+v", r)
	}
}

// A name that was used again means another pod: the UID decides.
func TestNameUsedAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	old := s.slicePod("a", "GPU-a", 30, 4)
	old.UID = "uid-before"
	s.writeCheckpoint(entry("uid-a", "main", slice, "daybreak-sgpu-000"))
	s.admit(slice, "a", "daybreak-sgpu-000")
	done := s.waits(2*time.Second, slice, "daybreak-sgpu-000")
	if got := s.driver.aliases(); len(got) != 0 {
		t.Errorf("slices were made for the wrong pod: %v", got)
	}
	s.slicePod("a", "GPU-b", 50, 8)
	gputest.Must(t, <-done)
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
			pod.Spec.InitContainers = []corev1.Container{{Name: "i1"}, {Name: "i2"}}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i1", State: tc.first}, {Name: "i2", State: tc.second}}
			got, err := nextOf(pod, []string{"i1", "i2", "main"}, func(string) (bool, error) { return false, nil })
			if got != tc.want || fmt.Sprint(err) != "<nil>" != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
