package mxsml

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// newDriver loads the fake library with a machine, which write writes again.
func newDriver(t *testing.T, m *fake.Machine) (d *library, write func()) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "machine")
	write = func() {
		gputest.Must(t, m.Write(config))
	}
	write()
	t.Setenv(fake.EnvConfig, config)
	d, err := load(fake.Library(t, fake.V231))
	gputest.Must(t, err)
	if code := d.startWithFlags(1); code != success {
		t.Fatalf("start: %v", d.failure(code))
	}
	return d, write
}

// The fake driver keeps the real one's limits.
func TestFakeDriverLimits(t *testing.T) {
	m := fake.NewMachine(2, 2)
	m.Reserve = 1536
	d, write := newDriver(t, m)
	var id uint32
	expect := func(what string, want, got uint32) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, d.failure(got), d.failure(want))
		}
	}
	expect("a slice while slicing is off", operationNotSupport, d.createSGPU(0, 1024, 5, &id))
	expect("switch it on", success, d.setToggle(0, 1))
	expect("no memory", 9, d.createSGPU(0, 0, 5, &id))
	expect("memory not in steps of 128 MiB", 5, d.createSGPU(0, 1000, 5, &id))
	expect("more compute than there is", 9, d.createSGPU(0, 1024, 101, &id))
	expect("more memory than slices may use", 5, d.createSGPU(0, 64000+128, 5, &id))
	for n := range uint32(16) {
		expect("a slice", success, d.createSGPU(0, 1024, 5, &id))
		if id != n {
			t.Errorf("slice %d has id %d", n, id)
		}
	}
	expect("a seventeenth slice", 5, d.createSGPU(0, 1024, 5, &id))
	expect("remove one", success, d.removeSGPU(0, 7))
	expect("remove it again", operationNotSupport, d.removeSGPU(0, 7))
	expect("its id is the next", success, d.createSGPU(0, 128, 25, &id))
	gputest.Equal(t, "id", uint32(7), id)
	expect("an alias", success, d.setAlias(0, 7, "daybreak-1"))
	expect("an alias too long", 9, d.setAlias(0, 7, "daybreak-0123456789-0123456789-0123456789"))
	expect("another class while idle", success, d.setSchedClass(0, 1))
	expect("a class that is none", 9, d.setSchedClass(0, 3))
	m.InUse = [][2]int{{0, 7}}
	write()
	expect("another class while in use", 5, d.setSchedClass(0, 2))
	expect("remove one in use", 23, d.removeSGPU(0, 7))
	expect("switch off while there are slices", 23, d.setToggle(0, 0))
	var info padded[sgpuInfo]
	expect("the other card has none", operationNotSupport, d.sgpuInfo(1, 7, &info.value))
}

func TestSlices(t *testing.T) {
	m := fake.NewMachine(2, 2)
	m.Cards[0].SGPU, m.Reserve = true, 1536
	d, write := newDriver(t, m)
	var first, second, third uint32
	for _, id := range []*uint32{&first, &second, &third} {
		if code := d.createSGPU(0, 16000, 25, id); code != success {
			t.Fatal(d.failure(code))
		}
	}
	if code := d.removeSGPU(0, second); code != success {
		t.Fatal(d.failure(code))
	}
	if code := d.setAlias(0, third, "daybreak-x"); code != success {
		t.Fatal(d.failure(code))
	}
	m.InUse = [][2]int{{0, int(third)}}
	write()
	s, err := call(sessionOf(d).Look, false)
	gputest.Must(t, err)
	c := s.Cards[0]
	if !*c.Sliced || c.Memory != 64000 || *s.Cards[1].Sliced || s.Cards[1].Memory != 65536 || s.Cards[1].Figures.Slices != nil {
		t.Errorf("cards %+v and %+v", c, s.Cards[1])
	}
	want := []discover.Slice{
		{ID: 0, Minor: 16, Memory: 16000, ComputePercent: 25, UsagePercent: new(0.0), MemoryUsed: new(gpu.MiB(0))},
		{ID: 2, Alias: "daybreak-x", Minor: 18, Memory: 16000, ComputePercent: 25, UsagePercent: new(25.0), MemoryUsed: new(gpu.MiB(64))},
	}
	for i := range c.Figures.Slices {
		if c.Figures.Slices[i].UUID == "" {
			t.Errorf("slice %d has no uuid", i)
		}
		c.Figures.Slices[i].UUID = ""
	}
	gputest.Equal(t, "slices", want, c.Figures.Slices)
	t.Run("one that can't be read hides all", func(t *testing.T) {
		m.Faults = []fake.Fault{{Kind: "error", Function: "mxSmlGetSgpuInfo", Code: 4}}
		write()
		s, err := call(sessionOf(d).Look, false)
		if err != nil || s.Cards[0].Figures.Slices != nil {
			t.Errorf("slices %v, %v; want none", s.Cards[0].Figures.Slices, err)
		}
	})
}

// Slices are shared between processes: here, between threads that open the
// file as processes do.
func TestFakeDriverShares(t *testing.T) {
	m := fake.NewMachine(4, 0)
	for i := range m.Cards {
		m.Cards[i].SGPU = true
	}
	d, _ := newDriver(t, m)
	var group sync.WaitGroup
	for card := range uint32(4) {
		for range 16 {
			group.Go(func() {
				var id uint32
				if code := d.createSGPU(card, 128, 1, &id); code != success {
					t.Error(d.failure(code))
				}
			})
		}
	}
	group.Wait()
	minors := map[int]bool{}
	s, err := call(sessionOf(d).Look, false)
	gputest.Must(t, err)
	for _, c := range s.Cards {
		for _, slice := range c.Figures.Slices {
			minors[slice.Minor] = true
		}
	}
	if len(minors) != 64 {
		t.Errorf("%d slices with minors of their own, want 64", len(minors))
	}
}
