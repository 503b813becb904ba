package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// A container runtime that comes back without CDI: no container is started
// there, and the node is not served until CDI is on again.
func TestRuntimeWithoutCDI(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.slicePod("p", "GPU-a", 50, 8)
	s.admit(slice, "p", "daybreak-sgpu-000")
	s.restartRuntime(withoutCDI(), false)
	s.eventually("the connection has ended", func() bool { return s.server.runtime.changes.Load() > 1 })
	err := s.begin(slice, "daybreak-sgpu-000")
	if err == nil || !strings.Contains(err.Error(), "has CDI off") || !strings.Contains(err.Error(), "enable_cdi = true") {
		t.Errorf("a container starts without its cards: %v", err)
	}
	s.eventually("the node is not served", func() bool {
		st := s.server.Status()
		return !st.Serving && st.Runtime.Reason == ReasonNoCDI
	})
	s.mu.Lock()
	events := strings.Join(s.events, "\n")
	s.mu.Unlock()
	if !strings.Contains(events, "p CardsNotReady no container with cards is started") {
		t.Errorf("the pod has events %q", events)
	}
	s.restartRuntime(withCDI(), false)
	s.isServed(true)
	s.starts(slice, "daybreak-sgpu-000")
}

// A runtime that does not answer is noticed without any pod, and so is its
// return; a restart that takes a moment is not reported.
func TestRuntimeUnreachable(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	var reported []string
	s.restartRuntime(withCDI(), true)
	<-s.clock.After(runtimeRestart / 2) // slowly: a connection takes the time that it takes
	reported = append(reported, s.server.Status().Runtime.Reason)
	s.setRuntime(withCDI(), false)
	<-s.clock.After(2 * runtimeRestart)
	reported = append(reported, s.server.Status().Runtime.Reason)
	if strings.Join(reported, "") != "" {
		t.Errorf("a quick restart is reported: %q", reported)
	}
	s.setRuntime(withCDI(), true)
	s.eventually("it is noticed", func() bool { return s.server.Status().Runtime.Reason == ReasonRuntimeUnreachable })
	if st := s.server.Status(); st.Serving || !strings.Contains(st.Waits, "it is down") {
		t.Errorf("status: %+v", st)
	}
	s.setRuntime(withCDI(), false)
	s.isServed(true)
}

// A runtime whose connection lasts is asked now and then all the same, but not
// by every container that starts.
func TestRuntimeIsAskedRegularly(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.stop() // and with it its questions
	conn, c, err := dialRuntime(&s.cfg)
	gputest.Must(t, err)
	defer conn.Close()
	_, err = c.current(t.Context())
	gputest.Must(t, err)
	s.locked(func() { s.asked = 0 })
	for range 10 {
		_, err := c.current(t.Context())
		gputest.Must(t, err)
	}
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if asked != 0 {
		t.Errorf("ten starts ask %d times", asked)
	}
	s.start()
	s.setRuntime(withoutCDI(), false)
	s.eventually("it is noticed", func() bool { return s.server.Status().Runtime.Reason == ReasonNoCDI })
}

// A wrong endpoint is reported with the sockets that are there. A socket without CRI v1
// is not one that is away: it takes another runtime.
func TestWrongEndpoint(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ there, reason, want string }{
		"k3s and RKE2":   {"/run/k3s/containerd/containerd.sock", ReasonRuntimeUnreachable, "a socket was found at /run/k3s/containerd/containerd.sock: if it is the runtime of kubelet, set agent.runtimeSocket"},
		"CRI-O":          {"/run/crio/crio.sock", ReasonRuntimeUnreachable, "a socket was found at /run/crio/crio.sock:"},
		"none":           {"", ReasonRuntimeUnreachable, "set agent.runtimeSocket (--runtime-endpoint) to the endpoint that kubelet uses"},
		"without CRI v1": {"/run/containerd/containerd.sock", ReasonNoCDI, "does not serve CRI v1, because it is too old, its CRI plugin is off, or kubelet uses Docker (method Version not implemented): use containerd 1.7 or later"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, err := os.MkdirTemp("", "r") //nolint:usetesting // a short path, for a socket
			gputest.Must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(root) })
			cfg := &Config{Runtime: DefaultConfig().Runtime, RuntimeRoot: root}
			if tc.there != "" {
				serveRuntime(t, filepath.Join(root, tc.there), cri.UnimplementedRuntimeServiceServer{})
			}
			conn, c, err := dialRuntime(cfg)
			gputest.Must(t, err)
			defer conn.Close()
			_, err = c.ask(t.Context())
			if fault := cfg.unreachable(err); err == nil || fault.Reason != tc.reason || !strings.Contains(fault.Message, tc.want) || strings.Contains(fault.Message, "found at /run/containerd") {
				t.Errorf("%v: fault %+v, want %q", err, fault, tc.want)
			}
		})
	}
}
