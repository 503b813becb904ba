package mxsml

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// A slice is made, found, resized and removed; what is not meant stays.
func TestSlicer(t *testing.T) {
	m := fake.NewMachine(2, 2)
	d, write := newDriver(t, m)
	s := sessionOf(d.library)
	bdf := m.Cards[1].BDF
	order := discover.SliceOrder{BDF: bdf, QoS: gpu.BurstShare, Memory: 4096, Compute: 30, Alias: "daybreak-1", Urgent: true}
	made, err := call(s.Create, order)
	if err != nil {
		t.Fatal(err)
	}
	want := &discover.Slice{ID: 0, Alias: "daybreak-1", Minor: 16, Memory: 4096, ComputePercent: 30}
	ignore := cmpopts.IgnoreFields(discover.Slice{}, "UUID", "UsagePercent", "MemoryUsed")
	if diff := cmp.Diff(want, made, ignore); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
	now, err := call(s.Slices, discover.SliceRef{BDF: bdf})
	if err != nil || !now.On || now.QoS != gpu.BurstShare || len(now.Slices) != 1 {
		t.Errorf("card: %+v, %v", now, err)
	}
	if other, err := call(s.Slices, discover.SliceRef{BDF: m.Cards[0].BDF}); err != nil || other.On {
		t.Errorf("the other card: %+v, %v", other, err)
	}
	second := order
	second.QoS, second.Alias = gpu.FixedShare, "daybreak-2"
	if _, err := call(s.Create, second); !errors.Is(err, discover.ErrBusy) {
		t.Errorf("another class on the same card: %v", err)
	}
	ref := discover.SliceRef{BDF: bdf, ID: made.ID, UUID: made.UUID}
	changed, err := call(s.Change, discover.SliceChange{SliceRef: ref, Alias: new("daybreak-3"), Memory: new(gpu.MiB(8192)), Compute: new(gpu.Percent(50))})
	if err != nil || changed.Alias != "daybreak-3" || changed.Memory != 8192 || changed.ComputePercent != 50 {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	if err := s.Remove(discover.SliceRef{BDF: bdf, ID: made.ID, UUID: "another"}, nil); !errors.Is(err, discover.ErrNoSlice) {
		t.Errorf("a slice that took its number: %v", err)
	}
	m.InUse = [][2]int{{1, 0}}
	write()
	if err := s.Remove(ref, nil); !errors.Is(err, discover.ErrBusy) {
		t.Errorf("in use: %v", err)
	}
	m.InUse = nil
	write()
	if err := s.Remove(ref, nil); err != nil {
		t.Errorf("remove: %v", err)
	}
	if err := s.Remove(ref, nil); !errors.Is(err, discover.ErrNoSlice) {
		t.Errorf("remove it again: %v", err)
	}
}

// A slice that can't be named is not left behind.
func TestSlicerWithoutName(t *testing.T) {
	m := fake.NewMachine(1, 0)
	d, write := newDriver(t, m)
	s := sessionOf(d.library)
	m.Faults = []fake.Fault{{Kind: "error", Function: "mxSmlSetSgpuAlias", Code: 4}}
	write()
	order := discover.SliceOrder{BDF: m.Cards[0].BDF, Memory: 1024, Compute: 5, Alias: "daybreak-1"}
	if _, err := call(s.Create, order); err == nil || !strings.Contains(err.Error(), "mxSmlSetSgpuAlias") {
		t.Errorf("got %v", err)
	}
	if now, err := call(s.Slices, discover.SliceRef{BDF: m.Cards[0].BDF}); err != nil || len(now.Slices) != 0 {
		t.Errorf("card: %+v, %v", now, err)
	}
	order.BDF = "0000:ff:00.0"
	if _, err := call(s.Create, order); err == nil || !strings.Contains(err.Error(), "knows no card at 0000:ff:00.0") {
		t.Errorf("a card that is not there: %v", err)
	}
}
