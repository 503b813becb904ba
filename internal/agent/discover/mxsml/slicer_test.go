package mxsml

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// A slice is made, found and removed; what is not meant stays.
func TestSlicer(t *testing.T) {
	m := fake.NewMachine(2, 2)
	d, write := newDriver(t, m)
	s := sessionOf(d)
	bdf := m.Cards[1].BDF
	order := discover.SliceOrder{BDF: bdf, QoS: gpu.BurstShare, Memory: 4096, Compute: 30, Alias: "daybreak-1", Urgent: true}
	made, err := call(s.Create, order)
	gputest.Must(t, err)
	want := &discover.Slice{ID: 0, Alias: "daybreak-1", Minor: 16, Memory: 4096, ComputePercent: 30}
	ignore := cmpopts.IgnoreFields(discover.Slice{}, "UUID", "UsagePercent", "MemoryUsed")
	gputest.Equal(t, "slice", want, made, ignore)
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
	s := sessionOf(d)
	m.Faults = []fake.Fault{{Kind: "error", Function: "mxSmlSetSgpuAlias", Code: 4}}
	write()
	order := discover.SliceOrder{BDF: m.Cards[0].BDF, Memory: 1024, Compute: 5, Alias: "daybreak-1"}
	_, err := call(s.Create, order)
	gputest.ErrorHas(t, "Create", "mxSmlSetSgpuAlias", err)
	if now, err := call(s.Slices, discover.SliceRef{BDF: m.Cards[0].BDF}); err != nil || len(now.Slices) != 0 {
		t.Errorf("card: %+v, %v", now, err)
	}
	order.BDF = "0000:ff:00.0"
	_, err = call(s.Create, order)
	gputest.ErrorHas(t, "a card that is not there", "knows no card at 0000:ff:00.0", err)
}

// A driver that answers with a slice that is not there, or with another's number, makes
// none; what it makes other than ordered is reported as it is.
func TestSlicerLies(t *testing.T) {
	cases := map[string]struct {
		fault   fake.Fault
		want    discover.Slice
		wantErr string
	}{
		"it does as ordered":       {want: discover.Slice{ID: 1, Alias: "daybreak-2", Minor: 17, Memory: 4096, ComputePercent: 30}},
		"all of the memory":        {fault: fake.Fault{Kind: "vram", Code: 61440}, want: discover.Slice{ID: 1, Alias: "daybreak-2", Minor: 17, Memory: 61440, ComputePercent: 30}},
		"memory in larger steps":   {fault: fake.Fault{Kind: "step", Code: 10240}, want: discover.Slice{ID: 1, Alias: "daybreak-2", Minor: 17, Memory: 10240, ComputePercent: 30}},
		"all of the compute":       {fault: fake.Fault{Kind: "compute", Code: 100}, want: discover.Slice{ID: 1, Alias: "daybreak-2", Minor: 17, Memory: 4096, ComputePercent: 100}},
		"another's minor number":   {fault: fake.Fault{Kind: "minor", Code: 16}, want: discover.Slice{ID: 1, Alias: "daybreak-2", Minor: 16, Memory: 4096, ComputePercent: 30}},
		"a shortened name":         {fault: fake.Fault{Kind: "alias", Function: "mxSmlSetSgpuAlias", Code: 4}, want: discover.Slice{ID: 1, Alias: "dayb", Minor: 17, Memory: 4096, ComputePercent: 30}},
		"a slice that is not made": {fault: fake.Fault{Kind: "unlisted"}, wantErr: "there is no such slice"},
		"another's number":         {fault: fake.Fault{Kind: "id", Code: 0}, wantErr: "returned number 0, which a slice of the card at 0000:12:00.0 had before"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := fake.NewMachine(1, 0)
			d, write := newDriver(t, m)
			s := sessionOf(d)
			order := discover.SliceOrder{BDF: m.Cards[0].BDF, Memory: 4096, Compute: 30, Alias: "daybreak-1"}
			first, err := call(s.Create, order)
			gputest.Must(t, err)
			tc.fault.Function = cmp.Or(tc.fault.Function, "mxSmlCreateSgpu")
			m.Faults = []fake.Fault{tc.fault}
			write()
			order.Alias = "daybreak-2"
			made, err := call(s.Create, order)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want %q", err, tc.wantErr)
			}
			ignore := cmpopts.IgnoreFields(discover.Slice{}, "UUID", "UsagePercent", "MemoryUsed")
			if diff := gocmp.Diff(tc.want, *made, ignore); err == nil && diff != "" {
				t.Errorf("slice (-want +got):\n%s", diff)
			}
			now, err := call(s.Slices, discover.SliceRef{BDF: order.BDF})
			if err != nil || !slices.ContainsFunc(now.Slices, func(x discover.Slice) bool { return x.UUID == first.UUID && x.Alias == first.Alias }) {
				t.Errorf("the first slice is not what it was: %+v, %v", now, err)
			}
		})
	}
}
