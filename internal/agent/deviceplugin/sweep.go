package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// leavingFor is how long a pod must be gone before what it had is taken back: a
	// container that is being made must have appeared by then.
	leavingFor = 2 * time.Second
	// slicesInterval is how often all slices of all cards are looked at.
	slicesInterval = 15 * time.Second
	sweepTimeout   = time.Minute
)

// sweepLoop takes back what pods that are gone have left.
func (s *Server) sweepLoop(ctx context.Context) {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(s.nextSweep()):
		case <-s.sweepNow:
		}
		within, cancel := s.within(ctx, sweepTimeout)
		text := ""
		err := s.sweep(within)
		s.sawWrite(err)
		if err != nil && ctx.Err() == nil {
			text = err.Error()
		}
		cancel()
		if plain := WithoutNumbers(text); plain != said {
			said = plain
			if text != "" {
				klog.FromContext(ctx).Info("Cards of deleted pods not all taken back yet", "why", text)
			}
		}
		if s.sleep(ctx, firstRetry) != nil { // however often it is asked for
			return
		}
	}
}

// nextSweep returns when what a pod had can be taken back, at the latest.
func (s *Server) nextSweep() time.Duration {
	next := sweepInterval
	for _, since := range s.leaving {
		if wait := leavingFor - s.clock.Since(since); wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// WithoutNumbers returns a text without digits and dots, which may vary.
func WithoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, text)
}

// sweep looks once at everything that was given.
func (s *Server) sweep(ctx context.Context) error {
	n := s.node.Load()
	held, known := s.pods.Held()
	if n == nil || !known {
		return nil
	}
	gone, err := s.goneRecords(ctx, uids(held))
	failures := []error{err}
	for _, r := range gone {
		if err := s.takeBack(ctx, n, r); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", r, err))
		}
	}
	failures = append(failures, s.sweepSpecs(ctx), s.sweepSlices(ctx, n, held))
	return errors.Join(failures...)
}

// goneRecords returns the records whose pods have been gone for long enough. The API
// server is asked once for what the watch does not show.
func (s *Server) goneRecords(ctx context.Context, there map[types.UID]*corev1.Pod) ([]*record, error) {
	var gone []*record
	var failures []error
	for _, r := range s.journal.now().all() {
		if there[r.PodUID] != nil {
			delete(s.leaving, r.id())
			continue
		}
		since, leaving := s.leaving[r.id()]
		if !leaving {
			there, err := s.stillThere(ctx, r)
			if err != nil {
				failures = append(failures, err)
			}
			if err != nil || there {
				continue
			}
			since = s.clock.Now()
			s.leaving[r.id()] = since
		}
		if s.clock.Since(since) >= leavingFor {
			gone = append(gone, r)
		}
	}
	return gone, errors.Join(failures...)
}

// stillThere asks the API server for the pod of a record.
func (s *Server) stillThere(ctx context.Context, r *record) (bool, error) {
	if r.Pod == "" {
		return false, nil
	}
	pod, err := s.pods.Get(ctx, r.Namespace, r.Pod)
	return pod != nil && pod.UID == r.PodUID && wire.Holds(pod), err
}

// takeBack takes back what a container of a deleted pod had: first the CDI devices,
// so that it can't start, then, once no container lives, slices and record.
func (s *Server) takeBack(ctx context.Context, n *Node, r *record) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.sem.Release(1)
	for _, name := range r.Names {
		if err := s.cdi.remove(name); err != nil {
			return err
		}
	}
	alive, err := s.runtime.alive(ctx, r.PodUID)
	switch {
	case err != nil:
		return err
	case alive:
		return errors.New("the pod is gone, but a container of it lives: what it holds is not given to others")
	}
	if err := s.removeSlices(ctx, n, r); err != nil {
		return err
	}
	err = s.journal.change(func(d *document) error {
		d.drop(cmp.Or(d.byContainer(r.id()), r))
		return nil
	})
	if err != nil {
		return err
	}
	delete(s.leaving, r.id())
	for _, p := range s.plugins {
		p.refresh()
	}
	klog.FromContext(ctx).V(2).Info("Taken back", "container", r.String())
	return nil
}

// sweepSpecs removes specs with unused names.
func (s *Server) sweepSpecs(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.sem.Release(1)
	names, err := s.cdi.names()
	if err != nil {
		return err
	}
	used, d := map[string]bool{}, s.journal.now()
	for _, list := range d.Names {
		for _, name := range list {
			used[name] = true
		}
	}
	for _, r := range d.Records {
		for _, name := range r.Names {
			used[name] = true
		}
	}
	var failures []error
	for _, name := range names {
		if !used[name] {
			failures = append(failures, s.cdi.remove(name))
		}
	}
	return errors.Join(failures...)
}

// sweepSlices reads the slices of all cards. Unused ones of Daybreak are removed,
// foreign ones are reported.
func (s *Server) sweepSlices(ctx context.Context, n *Node, held []*corev1.Pod) error {
	if s.slicer == nil || n.Mode != gpu.ModeSGPU || s.clock.Since(s.swept) < slicesInterval {
		return nil
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.sem.Release(1)
	var failures []error
	foreign := map[gpu.CardID]inventory.ForeignSlice{}
	booked := s.bookedSlices(n)
	for _, id := range slices.Sorted(maps.Keys(n.Cards)) {
		if !n.Cards[id].Here || n.Cards[id].BDF == "" {
			continue
		}
		taken, err := s.sweepCard(ctx, id, n.Cards[id].BDF, held, booked[id])
		if err != nil {
			failures = append(failures, fmt.Errorf("card %s: %w", id, err))
		}
		if taken.Slices > 0 {
			foreign[id] = taken
		}
	}
	s.setStatus(func(st *Status) { st.ForeignSlices = foreign })
	if len(failures) == 0 {
		s.swept = s.clock.Now()
	}
	return errors.Join(failures...)
}

// sweepCard reads the slices of one card and returns what foreign ones take. Booked
// are the shares of other plugins' pods: one slice each is theirs.
func (s *Server) sweepCard(ctx context.Context, id gpu.CardID, bdf string, held []*corev1.Pod, booked []ledger.Share) (inventory.ForeignSlice, error) {
	var taken inventory.ForeignSlice
	now, err := s.slicer.Slices(ctx, bdf)
	if err != nil {
		return taken, err
	}
	var failures []error
	for i := range now.Slices {
		x := &now.Slices[i]
		switch {
		case s.accounted(x, id) || IsOurs(x) && expected(x, id, held):
		case IsOurs(x):
			if err := s.slicer.Remove(ctx, discover.SliceRef{BDF: bdf, ID: x.ID, UUID: x.UUID}); err != nil {
				failures = append(failures, fmt.Errorf("slice %s, which no pod has: %w", x.Alias, err))
				continue
			}
			s.metrics.slicesRemoved.Inc()
		case claims(&booked, x):
		default:
			taken.Slices++
			taken.Compute, taken.Memory, taken.QoS = taken.Compute+x.ComputePercent, taken.Memory+x.Memory, now.QoS
		}
	}
	return taken, errors.Join(failures...)
}

// bookedSlices returns, by card, the slices of other plugins' pods, which are booked
// as the pods' and not as foreign.
func (s *Server) bookedSlices(n *Node) map[gpu.CardID][]ledger.Share {
	booked := map[gpu.CardID][]ledger.Share{}
	pods, _ := s.foreignPods()
	if n.Inventory == nil || n.Inventory.Topology == nil {
		return booked
	}
	node := n.Inventory.NewNode()
	for _, pod := range pods {
		h, known, _ := allocation.HoldingOf(n.Inventory, node, pod)
		if !known || pod.Status.Phase != corev1.PodRunning { // it may be yet to come, and ours
			continue
		}
		for i := range h.Parts {
			for _, share := range h.Parts[i].Shares {
				id := node.Topology().Card(share.Card).ID
				booked[id] = append(booked[id], share)
			}
		}
	}
	return booked
}

// claims reports whether a slice is one of the shares, and removes that share. Slices
// of online pods may have any compute.
func claims(shares *[]ledger.Share, x *discover.Slice) bool {
	at := slices.IndexFunc(*shares, func(s ledger.Share) bool {
		return !s.Exclusive && s.Memory == x.Memory.RoundUp() && (s.Compute == x.ComputePercent || s.Compute == 0)
	})
	if at < 0 {
		return false
	}
	*shares = slices.Delete(slices.Clone(*shares), at, at+1)
	return true
}

// accounted reports whether the journal knows the slice of a card.
func (s *Server) accounted(x *discover.Slice, card gpu.CardID) bool {
	for _, r := range s.journal.now().Records {
		for i := range r.Shares {
			note := r.Shares[i].Slice
			if note != nil && r.Shares[i].Card == card && (note.is(x) || note.Pending && x.Alias == "" && !slices.Contains(note.Before, x.UUID)) {
				return true
			}
		}
	}
	return false
}

// expected reports whether a pod may have the slice: the journal may be lost.
func expected(x *discover.Slice, card gpu.CardID, held []*corev1.Pod) bool {
	return slices.ContainsFunc(held, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			return aliasOf(&record{PodUID: pod.UID, Container: c.Name}, card) == x.Alias
		})
	})
}
