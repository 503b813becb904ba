package deviceplugin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// gave writes kubelet's file: a plugin gave the container main of a pod ids, and
// answered with devices of the host.
func (s *scene) gave(pod *corev1.Pod, resourceName, id string, paths ...string) {
	s.Helper()
	response := &pluginapi.ContainerAllocateResponse{}
	for _, path := range paths {
		response.Devices = append(response.Devices, &pluginapi.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
	}
	answer, err := proto.Marshal(response)
	gputest.Must(s, err)
	e := entry(pod.UID, "main", resourceName, id)
	e.AllocResp = answer
	s.writeCheckpoint(e)
}

// A container that the vendor's plugin served restarts after the node was taken
// over, with what it had and with nothing of ours.
func TestForeignRestarts(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	silent := s.pod("silent", oneCard, "", running, func(p *corev1.Pod) { p.Annotations = nil })
	s.has(silent, whole, "GPU-a")
	s.wantNoStart(whole, "no container holds devices", "GPU-b")
	s.wantNoStart(whole, "their cards are not known yet", "GPU-a")
	s.publishGiven()
	s.starts(whole, "GPU-a") // the container restarts
	s.gave(silent, whole, "GPU-a", "/dev/mxcd", "/dev/dri/card0", "/dev/dri/renderD128")
	s.starts(whole, "GPU-a") // the container restarts with its own devices
	s.gave(silent, whole, "GPU-a", "/dev/mxcd", "/dev/dri/card1", "/dev/dri/renderD129")
	s.wantNoStart(whole, "/dev/dri/card1, which is not a device of its cards any more", "GPU-a")
	s.gave(silent, whole, "GPU-a")
	if got := s.specs(); len(got) > 0 || len(s.records()) > 0 {
		t.Errorf("it was given something: specs %v, records %v", got, s.records())
	}
	s.pod("thief", oneCard, allOf("GPU-a"), running)
	gputest.Must(t, s.server.journal.change(func(d *document) error {
		d.put(&record{PodUID: "uid-thief", Namespace: "default", Pod: "thief", Container: "main", Shares: []share{{Card: "GPU-a", Exclusive: true}}})
		return nil
	}))
	s.wantNoStart(whole, "one of the two wants it alone", "GPU-a")
}

// publishGiven waits until the agent knows what kubelet gave, and updates the server
// what it then publishes.
func (s *scene) publishGiven() {
	s.Helper()
	s.eventually("what was given is known", func() bool { return len(s.server.Status().Given) > 0 })
	p := &inventory.Publication{Node: "n1", Mode: s.node.Mode, Topology: s.node.Inventory.Topology, Cards: make([]inventory.CardStatus, 2), PluginAllocations: s.server.Status().Given}
	device, err := inventory.EncodeDevice(p)
	gputest.Must(s, err)
	n := *s.node
	n.Inventory = inventory.ReadInventory(nil, device)
	s.node = &n
	s.server.Update(&n)
}

// A slice that the vendor's plugin made must still be there: after a restart of
// the machine its number may be that of another pod's slice.
func TestForeignSliceRestarts(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := s.slicePod("old", "GPU-a", 10, 4, running)
	s.has(pod, slice, "GPU-a-1:1")
	s.gave(pod, slice, "GPU-a-1:1", "/dev/mxcd", "/dev/sgpu16")
	card := s.driver.cards["0000:01:00.0"]
	set := func(list ...discover.Slice) {
		s.driver.mu.Lock()
		defer s.driver.mu.Unlock()
		card.Slices = list
	}
	set(discover.Slice{ID: 3, UUID: "X", Alias: "sgpu-178", Minor: 16, Memory: 4096, ComputePercent: 10})
	s.starts(slice, "GPU-a-1:1") // the container restarts
	set()
	s.wantNoStart(slice, "has no slice any more that the vendor's plugin made", "GPU-a-1:1")
	set(discover.Slice{ID: 3, UUID: "Y", Alias: aliasPrefix + "other", Minor: 16, Memory: 4096, ComputePercent: 10}, discover.Slice{ID: 4, UUID: "Z", Alias: "sgpu-179", Minor: 17, Memory: 4096, ComputePercent: 10})
	s.wantNoStart(slice, "/dev/sgpu16, which is not a device of its cards any more", "GPU-a-1:1")
}

// The card of a pod that the vendor's plugin served and that was deleted by force
// goes to no other pod while its container lives, also if the agent was away.
func TestForeignDeletedByForce(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]bool{"seen by the agent": false, "while the agent was away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			if away {
				s.stop()
			}
			old := s.pod("old", oneCard, allOf("GPU-a"), running)
			s.has(old, whole, "GPU-a")
			s.gave(old, whole, "GPU-a")
			s.setAlive("old", true)
			if !away {
				s.eventually("what it has is noted", func() bool { return len(s.server.journal.now().Foreign) == 1 })
			}
			s.delete("old")
			s.kubelet.change(func() {
				s.kubelet.held = slices.DeleteFunc(s.kubelet.held, func(p *podresources.PodResources) bool { return p.GetName() == "old" })
			})
			if away {
				s.start()
				s.eventually("what it has is noted", func() bool { return len(s.server.journal.now().Foreign) == 1 })
			} else if err := os.Remove(filepath.Join(s.cfg.Plugins, checkpointFile)); err != nil {
				t.Fatal(err)
			}
			s.pod("new", oneCard, allOf("GPU-a"))
			s.admit(whole, "new", "daybreak-gpu-000")
			s.pass(5 * time.Second)
			s.restart()
			s.wantNoStart(whole, "one of the two wants it alone", "daybreak-gpu-000")
			s.setAlive("old", false)
			s.starts(whole, "daybreak-gpu-000") // after the container is gone
		})
	}
}
