package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// errUnlike is a slice that is not what was ordered. Another try makes the same one.
func errUnlike(format string, args ...any) error {
	return errFinal{fmt.Errorf("the driver "+format+"; run daybreak agent check --bundle on the node and attach the archive to a report, "+
		"and until then use whole GPUs on this node (mode native)", args...)}
}

// fits reports whether a slice has the amounts of the share. A driver may round memory up
// to its step of 128 MiB, never by a whole step. The share of an online pod has no limit of
// compute, and its slice any.
func (sh *share) fits(x *discover.Slice) bool {
	return x.Memory >= sh.Memory && x.Memory < sh.Memory+gpu.MemoryStep && (sh.Compute == 0 || x.ComputePercent == sh.Compute)
}

// is reports whether the note is about a slice.
func (n sliceNote) is(x *discover.Slice) bool {
	return x.Alias == n.Alias || n.UUID != "" && x.UUID == n.UUID
}

// accept gives the share a slice that was made or found. One that is not what was ordered
// is removed; if the driver keeps it, the journal leads to it.
func (s *Server) accept(ctx context.Context, n *Node, r *record, sh *share, note sliceNote, x *discover.Slice) (removed bool, err error) {
	if err = s.verify(ctx, n, sh, &note, x); err == nil {
		sh.Slice = note.of(x) // the record is saved before anyone learns of it
		return false, nil
	}
	s.metrics.slicesFailed.Inc()
	if !isFinal(err) {
		return false, err // it could not be read
	}
	if kept := s.slicer.Remove(ctx, discover.SliceRef{BDF: note.BDF, ID: x.ID, UUID: x.UUID}); kept != nil && !errors.Is(kept, discover.ErrNoSlice) {
		note.UUID, note.Pending = x.UUID, true
		return false, errors.Join(err, kept, s.saveNote(r, sh, note))
	}
	return true, err
}

// verify reads all GPUs again and returns why the slice is not what was ordered: its
// container would get more than its share, or the device of another one.
func (s *Server) verify(ctx context.Context, n *Node, sh *share, note *sliceNote, made *discover.Slice) error {
	now, err := s.slicer.Slices(ctx, note.BDF)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool { return x.ID == made.ID && x.UUID == made.UUID })
	if at < 0 {
		return errUnlike("reports a slice as made and does not list it")
	}
	x := &now.Slices[at]
	switch {
	case x.Alias != note.Alias:
		return errUnlike("made a slice that has the name %q instead of %q", x.Alias, note.Alias)
	case !sh.fits(x):
		return errUnlike("made a slice with %v and %d%% instead of %v and %d%%", x.Memory, x.ComputePercent, sh.Memory, sh.Compute)
	}
	for _, id := range slices.Sorted(maps.Keys(n.Cards)) {
		list := s.notedSlices(id)
		if now, err := s.slicer.Slices(ctx, n.Cards[id].BDF); err == nil {
			list = now.Slices
		}
		for i := range list {
			other := &list[i]
			switch {
			case n.Cards[id].BDF == note.BDF && other.ID == x.ID:
			case other.Minor == x.Minor:
				return errUnlike("made a slice with minor number %d, which slice %d of GPU %s has too, so that both would be one device", x.Minor, other.ID, id)
			case other.UUID == x.UUID:
				return errUnlike("made a slice with UUID %s, which slice %d of GPU %s has too", x.UUID, other.ID, id)
			}
		}
	}
	return nil
}

// notedSlices returns the slices of a GPU that the journal knows, for one that can't be
// read: a fault of it must not keep the others from being used.
func (s *Server) notedSlices(card gpu.CardID) (list []discover.Slice) {
	for _, r := range s.journal.now().Records {
		for i := range r.Shares {
			if note := r.Shares[i].Slice; note != nil && note.UUID != "" && r.Shares[i].Card == card {
				list = append(list, discover.Slice{ID: note.ID, UUID: note.UUID, Minor: note.Minor})
			}
		}
	}
	return list
}
