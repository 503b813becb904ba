package deviceplugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const aliasPrefix = "daybreak-"

// aliasOf is the name of a slice, which is always the same for a container and a
// card, and within the 32 letters that a driver takes.
func aliasOf(r *record, card gpu.CardID) string {
	sum := sha256.Sum256([]byte(string(r.PodUID) + "/" + r.Container + "/" + string(card)))
	return aliasPrefix + hex.EncodeToString(sum[:11])
}

// makeSlices makes the slices of a container, or finds them again.
func (s *Server) makeSlices(ctx context.Context, n *Node, r *record) error {
	for i := range r.Shares {
		sh := &r.Shares[i]
		if sh.Exclusive || sh.Seat {
			continue
		}
		if s.slicer == nil {
			return errFinal{errors.New("slices are made through the vendor's library, which this agent does not use")}
		}
		if err := s.makeSlice(ctx, n, r, sh); err != nil {
			return fmt.Errorf("slice of card %s: %w", sh.Card, err)
		}
	}
	return nil
}

// makeSlice makes one slice. That it will be made is on disk before it is.
func (s *Server) makeSlice(ctx context.Context, n *Node, r *record, sh *share) error {
	bdf := n.Cards[sh.Card].BDF
	now, err := s.slicer.Slices(ctx, bdf)
	if err != nil {
		return err
	}
	note := sliceNote{Alias: aliasOf(r, sh.Card)}
	if sh.Slice != nil {
		note = *sh.Slice
	}
	note.BDF = bdf
	if there := ourSlice(now, &note, sh); there != nil {
		return s.reuse(ctx, n, r, sh, note, there)
	}
	note.UUID, note.Pending, note.Before = "", true, nil
	for _, x := range now.Slices {
		note.Before = append(note.Before, x.UUID)
	}
	if err := s.saveNote(r, sh, note); err != nil {
		return err
	}
	order := discover.SliceOrder{BDF: bdf, QoS: r.QoS, Memory: sh.Memory, Compute: sh.Compute, Alias: note.Alias, Urgent: r.Class == gpu.Online}
	if r.Class == gpu.Online && len(now.Slices) > 0 {
		order.QoS = "" // it runs next to slices of any class
	}
	made, err := s.slicer.Create(ctx, order)
	if err != nil {
		s.metrics.slicesFailed.Inc()
		if errors.Is(err, discover.ErrNoSlice) {
			return errUnlike("reports a slice as made and does not list it")
		}
		return err
	}
	s.metrics.slicesCreated.Inc()
	klog.FromContext(ctx).V(2).Info("Slice made", "container", r.String(), "card", sh.Card, "slice", made.ID, "memory", sh.Memory, "compute", sh.Compute)
	_, err = s.accept(ctx, n, r, sh, note, made)
	return err
}

// of completes a note with the slice that it is about.
func (n sliceNote) of(x *discover.Slice) *sliceNote {
	n.UUID, n.ID, n.Minor, n.Pending, n.Before = x.UUID, x.ID, x.Minor, false, nil
	return &n
}

// saveNote writes the record before the slice is made. Tokens and names stay those of
// before until all is given.
func (s *Server) saveNote(r *record, sh *share, note sliceNote) error {
	sh.Slice = &note
	pending := r.clone()
	pending.Tokens, pending.Names = nil, nil
	return s.journal.change(func(d *document) error {
		if before := d.byContainer(r.id()); before != nil {
			pending.Tokens, pending.Names = before.Tokens, before.Names
		}
		if len(pending.Tokens) != len(pending.Shares) {
			pending.Tokens = nil
		}
		d.put(pending)
		return nil
	})
}

// ourSlice finds the slice of a note on its card: by its name or UUID, or, if the agent
// ended before it was named, as the only new one with the right amounts.
func ourSlice(now *discover.CardSlices, note *sliceNote, sh *share) *discover.Slice {
	if at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool { return note.is(&x) }); at >= 0 {
		return &now.Slices[at]
	}
	if !note.Pending {
		return nil
	}
	at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool {
		return x.Alias == "" && sh.fits(&x) && !slices.Contains(note.Before, x.UUID)
	})
	if at < 0 {
		return nil
	}
	return &now.Slices[at]
}

// reuse gives the share a slice that is there. One that was verified when it was made, and
// has not changed since, is not verified again; one that is not what it should be, such as
// a slice without a name, is removed, and the next try makes another.
func (s *Server) reuse(ctx context.Context, n *Node, r *record, sh *share, note sliceNote, there *discover.Slice) error {
	if verified := note.of(there); !note.Pending && there.Alias == note.Alias && sh.fits(there) && reflect.DeepEqual(&note, verified) {
		sh.Slice = verified
		return nil
	}
	removed, err := s.accept(ctx, n, r, sh, note, there)
	if removed {
		return fmt.Errorf("a slice that was not as ordered is made again: %s", err.Error()) // not final any more
	}
	return err
}

// takeOver uses again what the container had before, or was about to get, and what ended
// containers of the pod with the same tokens had if it is the same. Other slices of those
// are removed; their records go with the next write.
func (s *Server) takeOver(ctx context.Context, n *Node, r *record) error {
	for _, o := range s.journal.now().Records {
		switch {
		case o.id() == r.id(), o.PodUID == r.PodUID && o.has(r.Tokens) && o.sameShares(r):
			r.adopt(o)
		case o.PodUID == r.PodUID && o.hasAny(r.Tokens):
			if err := s.removeSlices(ctx, n, o); err != nil {
				return fmt.Errorf("what container %s had: %w", o.Container, err)
			}
		}
	}
	return nil
}

// adopt takes over another record's slices of the same cards.
func (r *record) adopt(o *record) {
	for i := range r.Shares {
		for k := range o.Shares {
			if o.Shares[k].Card == r.Shares[i].Card && r.Shares[i].Slice == nil {
				r.Shares[i].Slice = o.Shares[k].Slice
			}
		}
	}
}

// removeSlices removes the slices of a record, as far as the driver lets go.
func (s *Server) removeSlices(ctx context.Context, n *Node, r *record) error {
	var failures []error
	for i := range r.Shares {
		if sh := &r.Shares[i]; sh.Slice != nil {
			if err := s.removeSlice(ctx, n.Cards[sh.Card], sh); err != nil {
				failures = append(failures, fmt.Errorf("slice of card %s: %w", sh.Card, err))
			}
		}
	}
	return errors.Join(failures...)
}

// removeSlice removes one slice of a card, if it is there and Daybreak's. A card that
// is gone takes its slices along.
func (s *Server) removeSlice(ctx context.Context, card Card, sh *share) error {
	if !card.Here || card.BDF == "" {
		return nil
	}
	if s.slicer == nil {
		return errors.New("slices are removed through the vendor's library, which this agent does not use")
	}
	now, err := s.slicer.Slices(ctx, card.BDF)
	if err != nil {
		return err
	}
	there := ourSlice(now, sh.Slice, sh)
	if there == nil {
		return nil // it is gone, or was never made
	}
	err = s.slicer.Remove(ctx, discover.SliceRef{BDF: card.BDF, ID: there.ID, UUID: there.UUID})
	switch {
	case errors.Is(err, discover.ErrNoSlice):
		return nil
	case err != nil:
		s.metrics.slicesFailed.Inc()
		return err
	}
	s.metrics.slicesRemoved.Inc()
	return nil
}

// IsOurs reports whether Daybreak made a slice.
func IsOurs(x *discover.Slice) bool { return strings.HasPrefix(x.Alias, aliasPrefix) }
