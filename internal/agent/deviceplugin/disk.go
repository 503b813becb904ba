package deviceplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Timing of the probe of what is written to.
const (
	probeInterval = 10 * time.Second
	// probeLimit is how long a write may take: kubelet waits 30 s for a container.
	probeLimit = 10 * time.Second
	// probeGrace is how long the end of the agent waits for a write.
	probeGrace = 2 * time.Second
	// probeSize is that of the journal of a node with many pods.
	probeSize = 64 << 10
	probeFile = "daybreak-probe"
)

// errDisk wraps a write that did not succeed.
type errDisk struct{ error }

func (e errDisk) Unwrap() error { return e.error }

// sawWrite marks the node not serving after a failed write, until a probe succeeds.
func (s *Server) sawWrite(err error) {
	if failed, is := errors.AsType[errDisk](err); is {
		s.setDisk(failed.Error())
	}
}

// setDisk notes why nothing can be written; empty when it can.
func (s *Server) setDisk(why string) {
	s.setStatus(func(st *Status) {
		st.Disk = why
		if why != "" {
			st.Serving, st.Waits = false, why
		}
	})
	notify(s.wake)
}

// probeLoop writes to the folders of the journal and of the specs regularly. It
// reports a write that does not end and goes on.
func (s *Server) probeLoop(ctx context.Context) {
	for {
		done, late := make(chan error, 1), s.clock.After(probeLimit)
		go func() { done <- s.probe() }()
		for ended := false; !ended; {
			select {
			case err := <-done:
				s.setDisk(text(err))
				ended = true
			case <-late:
				s.setDisk(fmt.Sprintf("a write to %s or %s does not end within %s", s.cfg.State, s.cfg.CDI, probeLimit))
			case <-ctx.Done():
				// Another agent may work with the folders next: no write is left behind,
				// unless it hangs.
				select {
				case <-done:
				case <-time.After(probeGrace):
				}
				return
			}
		}
		if s.sleep(ctx, probeInterval) != nil {
			return
		}
	}
}

// probe writes as much as a journal may have to both folders.
func (s *Server) probe() error {
	for _, dir := range []string{s.cfg.State, s.cfg.CDI} {
		path := filepath.Join(dir, probeFile)
		err := s.write(path, bytes.Repeat([]byte{'\n'}, probeSize))
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return fmt.Errorf("%s can't be written to: %w", dir, err)
		}
	}
	return nil
}

// errLocked is a state folder that another agent works with.
var errLocked = errors.New("another agent works with it; waiting until that agent ends")

// lockState lets one agent at a time work with the state folder, which it creates.
// The lock ends with the returned file or the process.
func lockState(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("state folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}
