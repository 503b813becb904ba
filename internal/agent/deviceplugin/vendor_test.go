package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// vendorServes makes kubelet advertise an id of the vendor's plugin, or none.
func (s *scene) vendorServes(id string) {
	s.kubelet.mu.Lock()
	defer s.kubelet.mu.Unlock()
	s.kubelet.foreign = id
}

// registrations is how often the agent registered a plugin.
func (s *scene) registrations() int {
	s.kubelet.mu.Lock()
	defer s.kubelet.mu.Unlock()
	return s.kubelet.register
}

// vendorNode is a scene in which the vendor's plugin serves and the agent waits.
func vendorNode(t *testing.T) *scene {
	s := newScene(t, gpu.ModeSGPU)
	s.stop()
	s.vendorServes("GPU-a-0:0")
	s.launch()
	s.eventually("the plugin is seen", func() bool { return s.server.Status().Foreign == "metax-tech.com/sgpu with device GPU-a-0:0" })
	return s
}

// updateNode waits until the server has used the update at least once.
func (s *scene) updateNode(change func(n *Node)) {
	s.changeNode(change)
	<-s.clock.After(3 * watchInterval)
}

// A restart of the vendor's plugin is not its removal, also if the agent restarts
// in between: the agent never registers over it.
func TestYields(t *testing.T) {
	t.Parallel()
	s := vendorNode(t)
	for range 8 {
		s.pass(watchInterval)
		if got := s.server.Status().Foreign; !strings.HasSuffix(got, "GPU-a-0:0") {
			t.Fatalf("what is said of the plugin changes, to %q", got)
		}
	}
	before := s.registrations()
	for i := range 4 {
		s.vendorServes("")
		s.eventually("the restart is noticed", func() bool { return s.server.Status().Left != "" })
		if i%3 == 0 {
			s.stop()
			s.launch()
		}
		s.clock.Step(vendorAbsence / 2)
		s.pass(2 * watchInterval)
		s.vendorServes("GPU-a-0:0")
		s.eventually("the plugin is back", func() bool { return s.server.Status().Foreign != "" })
	}
	if got := s.registrations(); got != before || s.server.Status().Serving {
		t.Fatalf("the agent registered %d times while the vendor's plugin restarted", got-before)
	}
	s.vendorServes("")
	s.eventually("the plugin is gone", func() bool { return strings.Contains(s.server.Status().Left, "10m0s") })
	s.isTakenOver()
	s.restart() // the plugin is forgotten
}

// isTakenOver lets so much time pass that the node is taken over. A leap of the clock
// ends the request that is under way, and the absence counts from the next answer.
func (s *scene) isTakenOver() {
	s.Helper()
	s.eventually("the node is taken over", func() bool {
		s.clock.Step(vendorAbsence)
		s.pass(3 * watchInterval)
		return s.server.Status().Serving
	})
}

// What is left of the vendor's plugin keeps the node its own, however long, until
// it is gone or an administrator decides.
func TestLeftOfVendor(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		vendor Vendor
		socket string
		want   string
	}{
		"its pod":         {vendor: Vendor{Pod: "its pod metax/gpu-device-x"}, want: "its pod metax/gpu-device-x is left of it"},
		"its annotations": {vendor: Vendor{Marks: "annotation metax-tech.com/node-gpu-devices"}, want: "annotation metax-tech.com/node-gpu-devices is left of it"},
		"its socket":      {socket: "metax-sgpu.sock", want: "socket metax-sgpu.sock is left of it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := vendorNode(t)
			before := s.registrations()
			path := filepath.Join(s.cfg.Plugins, tc.socket)
			if tc.socket != "" {
				gputest.Must(t, os.WriteFile(path, nil, 0o600))
			}
			s.updateNode(func(n *Node) { n.Vendor = tc.vendor })
			s.vendorServes("")
			s.eventually("it is said what is left", func() bool { return strings.Contains(s.server.Status().Left, tc.want) })
			s.clock.Step(3 * vendorAbsence)
			s.pass(3 * watchInterval)
			if s.registrations() != before {
				t.Fatal("the node was taken over")
			}
			if tc.socket != "" {
				gputest.Must(t, os.Remove(path))
			}
			s.updateNode(func(n *Node) { n.Vendor = Vendor{} })
			s.clock.Step(vendorAbsence / 2)
			s.pass(3 * watchInterval)
			if s.registrations() != before {
				t.Fatal("the absence counts from before what was left was gone")
			}
			s.isTakenOver()
		})
	}
}

// An administrator leaves the node to the vendor and takes it back: that is the
// order to take over, which counts against what is left of the plugin but not
// against a plugin that is there. A Node that was deleted and came back without
// its annotations is no order. An order is used up in the journal before the agent
// registers: else it would hold again after a crash.
func TestOrdered(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"taken back", "the Node was deleted", "the journal can't be written"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := vendorNode(t)
			before := s.registrations()
			update := func(uid types.UID, yield string) {
				s.updateNode(func(n *Node) {
					n.UID, n.Yield, n.Vendor = uid, yield, Vendor{Pod: "its pod metax/gpu-device-x"}
				})
			}
			update("uid-1", "its annotation says vendor")
			if name == "the Node was deleted" {
				update("uid-2", "")
			} else {
				update("uid-1", "")
			}
			if s.registrations() != before {
				t.Fatal("the agent registered over the vendor's plugin")
			}
			s.stop() // the order is remembered
			s.launch()
			if name == "the journal can't be written" {
				s.setDisk(func() error { return syscall.ENOSPC })
			}
			s.vendorServes("")
			if name == "taken back" {
				s.isServed(true)
				return
			}
			s.eventually("it is left to the vendor", func() bool { return s.server.Status().Left != "" })
			s.pass(probeInterval)
			if s.registrations() != before {
				t.Error("the node was taken over")
			}
			s.setDisk(nil)
			if name == "the journal can't be written" {
				s.isServed(true)
			}
		})
	}
}

// Where the vendor's pod is on a node that was never served, its plugin may just
// be starting. On a node that Daybreak serves a pod alone changes nothing.
func TestVendorPodFirst(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	pod := Vendor{Pod: "its pod metax/gpu-device-x", Ours: true}
	s.updateNode(func(n *Node) { n.Vendor = pod })
	s.restart()
	s.stop()
	before := s.registrations()
	pod.Ours = false
	s.changeNode(func(n *Node) { n.Vendor = pod })
	s.launch()
	s.eventually("it is left to the vendor", func() bool { return s.server.Status().Left != "" })
	if s.registrations() != before {
		t.Error("the node was served")
	}
}

// Where the vendor's plugin registers over ours, kubelet has its devices under
// the resources that it serves: our stream stays open there and says nothing, and
// the rest of ours ends.
func TestRegisteredOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.vendorServes("GPU-a-0:0")
	s.isServed(false)
	streams := func(p *plugin) int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.streams
	}
	s.eventually("whole cards are not served any more", func() bool { return streams(s.server.plugins[0]) == 0 })
	s.makeIll("GPU-a")
	s.pass(2 * watchInterval)
	if streams(s.server.plugins[1]) != 1 {
		t.Error("the stream of slices ended, and with it kubelet's connection to the other plugin")
	}
	if _, unhealthy := s.kubelet.health(slice); unhealthy > 0 {
		t.Error("kubelet was sent devices that another plugin serves")
	}
}

// A kubelet that does not report its devices is named as too old, with the way out; one
// that is busy is not.
func TestOldKubelet(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err error
		old bool
	}{
		"1.20":      {err: status.Error(codes.Unimplemented, "unknown method GetAllocatableResources for service v1.PodResourcesLister"), old: true},
		"1.22":      {err: errors.New("Pod Resources API GetAllocatableResources disabled"), old: true},
		"any, busy": {err: status.Error(codes.ResourceExhausted, "rejected by rate limit")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			s.kubelet.change(func() { s.kubelet.old = tc.err })
			s.pass(2 * foreignInterval)
			got := s.server.Status().OldKubelet
			if (got != "") != tc.old || tc.old && (!strings.Contains(got, "kubelet 1.23 or later is needed") || !strings.Contains(got, "daybreak-gpu.io/served-by=vendor")) {
				t.Errorf("reported %q", got)
			}
		})
	}
}
