package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// fakeDriver keeps slices as the driver does.
type fakeDriver struct {
	mu    sync.Mutex
	cards map[string]*discover.CardSlices
	busy  bool
	made  int
	calls []string
	fail  error
	most  gpu.MiB // that a slice may have; 0 is no limit
	reuse bool    // minor numbers of slices that are gone
	// lie, unless it is nil, makes a slice other than it was ordered; false is one that
	// the driver does not list.
	lie func(x *discover.Slice) bool
}

func (d *fakeDriver) Slices(_ context.Context, bdf string) (*discover.CardSlices, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	card := d.cards[bdf]
	if card == nil {
		return nil, fmt.Errorf("no card at %s", bdf)
	}
	out := *card
	out.Slices = slices.Clone(card.Slices)
	return &out, nil
}

func (d *fakeDriver) Create(_ context.Context, o discover.SliceOrder) (*discover.Slice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	if err := d.room(o.Memory); err != nil {
		return nil, err
	}
	card := d.cards[o.BDF]
	if o.QoS != "" && o.QoS != card.QoS {
		if len(card.Slices) > 0 {
			return nil, fmt.Errorf("class: %w", discover.ErrBusy)
		}
		card.QoS = o.QoS
	}
	d.made++
	d.calls = append(d.calls, "create "+o.Alias)
	made := discover.Slice{ID: d.made, UUID: fmt.Sprintf("S-%d", d.made), Alias: o.Alias, Minor: d.minor(), Memory: o.Memory, ComputePercent: o.Compute}
	if d.lie != nil && !d.lie(&made) {
		return nil, discover.ErrNoSlice
	}
	card.Slices = append(card.Slices, made)
	return &made, nil
}

// setLie sets how the driver lies from now on; nil is not at all.
func (d *fakeDriver) setLie(lie func(x *discover.Slice) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lie = lie
}

// minor returns the number of the device of the next slice.
func (d *fakeDriver) minor() int {
	if !d.reuse {
		return 15 + d.made
	}
	taken := map[int]bool{}
	for _, card := range d.cards {
		for _, x := range card.Slices {
			taken[x.Minor] = true
		}
	}
	minor := 16
	for taken[minor] {
		minor++
	}
	return minor
}

// room returns an error for a slice with more memory than there is.
func (d *fakeDriver) room(memory gpu.MiB) error {
	if d.most > 0 && memory > d.most {
		return errors.New("more than there is")
	}
	return nil
}

func (d *fakeDriver) Remove(_ context.Context, ref discover.SliceRef) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return discover.ErrBusy
	}
	card := d.cards[ref.BDF]
	at := slices.IndexFunc(card.Slices, func(x discover.Slice) bool { return x.ID == ref.ID && x.UUID == ref.UUID })
	if at < 0 {
		return discover.ErrNoSlice
	}
	d.calls = append(d.calls, "remove "+card.Slices[at].Alias)
	card.Slices = slices.Delete(card.Slices, at, at+1)
	return nil
}

// aliases lists the names of all slices.
func (d *fakeDriver) aliases() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, card := range d.cards {
		for _, x := range card.Slices {
			list = append(list, x.Alias)
		}
	}
	slices.Sort(list)
	return list
}

// setBusy sets whether the driver keeps slices because they are in use.
func (d *fakeDriver) setBusy(busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = busy
}
