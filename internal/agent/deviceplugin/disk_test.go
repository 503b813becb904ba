package deviceplugin

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func (s *scene) setDisk(disk func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk = disk
}

// A disk that is full or read-only: no more pods are to come, and it is said
// why; when it can be written to again they are.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	full := func() error { return syscall.ENOSPC }
	s.setDisk(full)
	if _, err := s.server.allocate([]string{"daybreak-sgpu-000"}); err == nil {
		t.Error("an id was given that is not written down")
	} else {
		s.server.sawWrite(err)
	}
	if st := s.server.Status(); st.Serving || !strings.Contains(st.Disk, "no space left") {
		t.Errorf("status after a failed write: %+v", st)
	}
	s.pass(3 * probeInterval)
	if st := s.server.Status(); st.Serving || st.Disk == "" {
		t.Errorf("status while it lasts: %+v", st)
	}
	s.setDisk(nil)
	s.isServed(true)
	s.setDisk(full)
	s.isServed(false)
}

// A disk that does not answer holds up neither what is said of the node nor what
// kubelet is notified.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	hang := make(chan struct{})
	s.setDisk(func() error { <-hang; return nil })
	done := make(chan error, 1)
	go func() {
		_, err := s.server.allocate([]string{"daybreak-sgpu-000"})
		done <- err
	}()
	s.eventually("it is said that the node is not served", func() bool {
		st := s.server.Status()
		return !st.Serving && strings.Contains(st.Disk, "does not end within")
	})
	if got := len(s.server.devices(s.server.plugins[1])); got != 32 {
		t.Errorf("%d devices, want 32", got)
	}
	close(hang)
	gputest.Check(t, <-done)
	s.isServed(true)
}

// The server's end leaves no write behind: the folders may be another agent's then.
func TestStopDuringProbe(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	started, ended := make(chan struct{}), make(chan struct{})
	slow := sync.OnceFunc(func() {
		close(started)
		time.Sleep(100 * time.Millisecond)
		close(ended)
	})
	s.setDisk(func() error { slow(); return nil })
	s.eventually("it writes", func() bool {
		select {
		case <-started:
			return true
		default:
			return false
		}
	})
	s.stop()
	select {
	case <-ended:
	default:
		t.Error("the server ended during a write")
	}
}
