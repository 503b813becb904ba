package discover_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// machines are the shapes that every source must see alike.
func machines() map[string]*fake.Machine {
	eight := fake.NewMachine(8, 4)
	eight.Cards[2].ECC = [5]int{1, 2, 3, 4, 5}
	sixteen := fake.NewMachine(16, 8)
	for i := range sixteen.Cards {
		sixteen.Cards[i].Model, sixteen.Cards[i].MemoryKiB = "MXC600-A", 72<<20
		// Nothing may take card 1 for one of 10 to 15.
		sixteen.Cards[i].UsedKiB, sixteen.Cards[i].ECC[0] = int64(178+i)<<10, i
	}
	mixed := fake.NewMachine(3, 2)
	mixed.Cards[1].Model, mixed.Cards[1].MemoryKiB = "MXC550-PL", 32<<20
	mixed.Cards[2].NUMA = -1
	mixed.Cards[2].Path, mixed.Cards[2].Switch = "pci0000:80/0000:80:01.0/0000:81:00.0", ""
	mixed.Cards[2].BDF = "0000:81:00.0"
	return map[string]*fake.Machine{
		"eight cards in two zones":                       eight,
		"sixteen devices of eight boards":                sixteen,
		"a mixed node, one card without switch and NUMA": mixed,
		"one card": fake.NewMachine(1, 0),
	}
}

// The same agent finds the same cards from the library, from mx-smi alone and,
// identity aside, from sysfs.
func TestSourcesAgree(t *testing.T) {
	smi := fake.MXSMI(t)
	for name, m := range machines() {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, m)
			sys := m.sysfs()
			check := func(name string, cfg discover.Config, without ...string) {
				t.Run(name, func(t *testing.T) {
					got := look(t, m.finder(cfg))
					compare(t, want(m.Machine), got.Cards, append(without, "Ports", "Sliced", "Slices")...)
					if diff := cmp.Diff(wantLinks(m.Machine), got.Links); diff != "" || !got.LinksKnown {
						t.Errorf("known: %v, links (-want +got):\n%s", got.LinksKnown, diff)
					}
					if library := cfg.Library != ""; (got.Driver == m.Driver) != (library || cfg.Sys != "") || (got.MACA == m.MACA) != library {
						t.Errorf("driver %q, MACA %q", got.Driver, got.MACA)
					}
				})
			}
			for _, version := range []string{"2.2.8", "2.2.9", "2.2.12"} {
				m.SMI = version
				m.write()
				check("mx-smi "+version, discover.Config{Sources: []string{"mx-smi", "sysfs"}, Command: smi, Sys: sys}, "BIOS")
				check("mx-smi "+version+" alone", discover.Config{Sources: []string{"mx-smi"}, Command: smi}, "BIOS", "PCIeRoot", "PCIeSwitch", "NUMA")
			}
			got := look(t, discover.NewSysfs(sys))
			expected := bySlot(want(m.Machine))
			compare(t, expected, got.Cards, "UUID", "Model", "Memory", "Vitals", "Figures")
			if got.Driver != m.Driver {
				t.Errorf("driver %q, want %q", got.Driver, m.Driver)
			}
			// Last: without a C compiler the rest is skipped.
			for _, v := range []fake.Variant{fake.V228, fake.V231} {
				check(fmt.Sprintf("library %d", v), discover.Config{Library: fake.Library(t, v), Sys: sys})
				check(fmt.Sprintf("library %d alone", v), discover.Config{Sources: []string{"mxsml"}, Library: fake.Library(t, v)}, "PCIeRoot", "PCIeSwitch", "NUMA")
			}
		})
	}
}

// bySlot numbers cards as sysfs does, by address.
func bySlot(cards []discover.Card) []discover.Card {
	for i := range cards {
		cards[i].Minor = 0
		for j := range cards {
			if cards[j].BDF < cards[i].BDF {
				cards[i].Minor++
			}
		}
	}
	out := make([]discover.Card, len(cards))
	for i := range cards {
		out[cards[i].Minor] = cards[i]
	}
	return out
}

// A library that has nothing but the required functions works; of links nothing is known.
func TestLibraryWithoutOptionalFunctions(t *testing.T) {
	m := newMachine(t, fake.NewMachine(16, 8))
	got := look(t, m.finder(discover.Config{Library: fake.Library(t, fake.Core), Sys: m.sysfs(), Command: fake.MXSMI(t)}))
	compare(t, want(m.Machine), got.Cards, "Vitals", "UsagePercent", "PowerMilliwatt", "HotspotCelsius", "BIOS")
	if got.LinksKnown || got.Driver != "3.8.30" {
		t.Errorf("links known: %v, driver %q; want links unknown and the driver from sysfs", got.LinksKnown, got.Driver)
	}
}

func TestVirtualFunctions(t *testing.T) {
	fakes := fake.NewVirtualMachine(2)
	m := newMachine(t, fakes)
	for name, cfg := range map[string]discover.Config{
		"library": {Sources: []string{"mxsml", "sysfs"}, Library: fake.Library(t, fake.V231), Sys: m.sysfs()},
		"mx-smi":  {Sources: []string{"mx-smi", "sysfs"}, Command: fake.MXSMI(t), Sys: m.sysfs()},
	} {
		t.Run(name, func(t *testing.T) {
			got := look(t, m.finder(cfg))
			if len(got.Cards) != 8 || len(got.Links) != 0 {
				t.Fatalf("%d cards, links %v; want 8 and none", len(got.Cards), got.Links)
			}
			for i, c := range got.Cards {
				if !c.Virtual || c.Model != "C500" || c.Memory != gpu.MiB(16384) || c.Minor != i || !*c.Vitals.Available {
					t.Errorf("card %d is %+v", i, c)
				}
			}
		})
	}
	t.Run("a fault of the card is one of its functions", func(t *testing.T) {
		m := newMachine(t, fakes)
		m.Cards[1].Reason = "MMIO lost"
		m.write()
		got := look(t, m.finder(discover.Config{Sources: []string{"mxsml"}, Library: fake.Library(t, fake.V228)}))
		for i, c := range got.Cards {
			if *c.Vitals.Available != (i < 4) {
				t.Errorf("function %d: available %v (%s)", i, *c.Vitals.Available, c.Vitals.Reason)
			}
		}
	})
}

// A machine that makes no slices is known as such: by a library without the functions,
// a driver that does not support them, or no library at all. One that fails may recover,
// which is said apart.
func TestNoSlices(t *testing.T) {
	command := fake.MXSMI(t)
	both := func(path string) discover.Config {
		return discover.Config{Sources: []string{"mxsml", "mx-smi"}, Library: path, Command: command}
	}
	cases := map[string]struct {
		cfg   discover.Config
		fault fake.Fault
		want  string
	}{
		"all is there":                    {cfg: library(t)},
		"a library without slices":        {cfg: discover.Config{Sources: []string{"mxsml"}, Library: fake.Library(t, fake.Core)}, want: "has no function mxSmlSetSgpuToggle, so it makes no slices: install a later driver"},
		"a GPU without slices":            {cfg: library(t), fault: fake.Fault{Kind: "error", Function: "mxSmlGetSgpuToggle", Code: 3, Card: new(1)}, want: "the driver makes no slices of GPU 1, model C500"},
		"a GPU that does not answer":      {cfg: library(t), fault: fake.Fault{Kind: "error", Function: "mxSmlGetSgpuToggle", Code: 4}},
		"no library":                      {cfg: both("/no/libmxsml.so"), want: "slices are made through the vendor's library libmxsml.so: mxsml: no library at /no/libmxsml.so: not installed"},
		"a library that is not used":      {cfg: discover.Config{Sources: []string{"mx-smi"}, Command: command}, want: "which is not among the sources"},
		"a library that never loads":      {cfg: both(command)},
		"a library that fails, for a bit": {cfg: both(fake.Library(t, fake.V231)), fault: fake.Fault{Kind: "error", Function: "mxSmlInit", Code: 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, fake.NewMachine(2, 2))
			m.Faults = []fake.Fault{tc.fault}
			if tc.fault.Kind == "" {
				m.Faults = nil
			}
			m.write()
			f := m.finder(tc.cfg)
			for i := range 2 { // the second look is of the source that was chosen
				s := look(t, f)
				if got := s.NoSlices; !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				failed := tc.cfg.Library == command || i == 0 && tc.fault.Function == "mxSmlInit"
				if got := s.LibraryFailed; strings.Contains(got, "libmxsml.so: mxsml: ") != failed || (got != "") != failed {
					t.Errorf("look %d: the library failed: %q", i, got)
				}
			}
		})
	}
}
