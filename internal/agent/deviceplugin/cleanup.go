package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Cleanup removes what the agent keeps on the node: slices, CDI specs, the plugins'
// sockets and the state folder. It is called in place of Run. While a pod or a live
// container uses a card or a slice, it removes nothing and returns an error. Blind is
// why the cards of the node are not known, nil if they are.
func (s *Server) Cleanup(ctx context.Context, n *Node, blind error) error {
	defer s.close()
	lock, err := lockState(s.cfg.State)
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.journal, err = openJournal(s.cfg.State, s.write); err != nil {
		return err
	}
	users, err := s.users(ctx)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("pods that use cards or slices of this node: %d; delete them, or wait until they end", len(users))
	}
	if err := s.takeAllBack(ctx, n, blind); err != nil {
		return err
	}
	return s.removeFiles()
}

func (s *Server) users(ctx context.Context) (map[types.UID]bool, error) {
	held, known := s.pods.Held()
	if !known {
		return nil, errors.New("the pods of the node are not known")
	}
	users := map[types.UID]bool{}
	for _, pod := range held {
		users[pod.UID] = true
	}
	for _, r := range s.journal.now().Records {
		alive, err := s.runtime.alive(ctx, r.PodUID)
		if err != nil {
			return nil, err
		}
		if alive {
			users[r.PodUID] = true
		}
	}
	return users, nil
}

// takeAllBack removes slices that were made for containers, and others of Daybreak.
func (s *Server) takeAllBack(ctx context.Context, n *Node, blind error) error {
	for _, r := range s.journal.now().Records {
		if blind != nil && slices.ContainsFunc(r.Shares, func(sh share) bool { return sh.Slice != nil }) {
			return fmt.Errorf("slices can't be removed: %w", blind)
		}
		if err := s.takeBack(ctx, n, r); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
	}
	if s.slicer == nil || n.Mode != gpu.ModeSGPU {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(n.Cards)) {
		if _, err := s.sweepCard(ctx, id, n.Cards[id].BDF, nil, nil); err != nil {
			return fmt.Errorf("card %s: %w", id, err)
		}
	}
	return nil
}

func (s *Server) removeFiles() error {
	names, err := s.cdi.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.cdi.remove(name); err != nil {
			return err
		}
	}
	for _, p := range s.plugins {
		if err := os.Remove(p.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// A folder that is mounted into a container can only be emptied from there.
	if err := os.RemoveAll(s.cfg.State); err != nil && !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}
