package discover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

const fourCards = "model: C500\nmemoryMiB: 65536\ncards: 4\nzones: [[0, 1], [2, 3]]\nnuma: [[0, 1], [2, 3]]\nswitches: [[0, 1, 2, 3]]\n"

// simulation is a simulated node whose profile a test changes.
func simulation(t *testing.T, text string) (f *Finder, write func(text string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	f, err := New(Config{Sources: []string{SourceSimulated}, Profile: path, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, write
}

func TestSimulatedMatchesTopology(t *testing.T) {
	for _, name := range ProfileNames() {
		kinds, err := LoadProfiles(name)
		if err != nil || len(kinds) > 1 {
			continue
		}
		f, err := New(Config{Sources: []string{SourceSimulated}, Profile: name, Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		topology, err := kinds[0].Topology("n1")
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Cards) != topology.Len() || s.Driver != "3.8.30" || !s.LinksKnown {
			t.Errorf("%s: %d cards, driver %s", name, len(s.Cards), s.Driver)
		}
		for i := range s.Cards {
			c, want := &s.Cards[i], topology.Card(i)
			if gpu.CardID(c.UUID) != want.ID || c.Memory != want.Memory || c.Model != want.Model || c.Minor != i || *c.NUMA != want.NUMA || !*c.Sliced {
				t.Errorf("%s: card %d is %+v, want %+v", name, i, c, want)
			}
			if linked := len(c.Vitals.Ports); linked != topology.Linked(i).Len() {
				t.Errorf("%s: card %d has %d ports, want one for each of %d links", name, i, linked, topology.Linked(i).Len())
			}
		}
	}
}

// The ids of simulated cards are part of what people see and script against.
func TestSimulatedIDs(t *testing.T) {
	f, _ := simulation(t, fourCards)
	s, err := f.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := s.Cards[1]
	got := []string{c.UUID, c.BDF, c.PCIeRoot, c.PCIeSwitch}
	if diff := cmp.Diff([]string{"GPU-b318cd69-860b-da32-f6ba-06a3434bac76", "0000:12:00.0", "pci0000:c0", "0000:80:00.0"}, got); diff != "" {
		t.Errorf("card 1 (-want +got):\n%s", diff)
	}
}

// Faults come and go with what is in the file.
func TestSimulatedFaults(t *testing.T) {
	cases := map[string]struct {
		fault string
		// want are the fields of a card that the fault changes.
		check func(t *testing.T, s *Snapshot)
	}{
		"unhealthy": {"unhealthy: [3]\n", func(t *testing.T, s *Snapshot) {
			if c := s.Cards[3]; !c.Unavailable() || c.Vitals.Reason == "" || s.Cards[2].Unavailable() {
				t.Errorf("card 3: %+v", c.Vitals)
			}
		}},
		"ecc": {"ecc: {3: 2}\n", func(t *testing.T, s *Snapshot) {
			if s.Cards[3].Vitals.ECC.DRAMUncorrectable != 2 || s.Cards[2].Vitals.ECC.DRAMUncorrectable != 0 {
				t.Errorf("card 3: %+v", s.Cards[3].Vitals.ECC)
			}
		}},
		"a lost card": {"lost: [1]\n", func(t *testing.T, s *Snapshot) {
			if len(s.Cards) != 3 || s.Cards[1].Minor != 2 || len(s.Links) != 1 || s.Links[0] != (gpu.Link{A: 1, B: 2}) {
				t.Errorf("%d cards, links %v", len(s.Cards), s.Links)
			}
			if p := s.Cards[0].Vitals.Ports; len(p) != 1 || p[0].Up {
				t.Errorf("ports of its peer: %v", p)
			}
		}},
		"a dead link": {"deadLinks: [[1, 0]]\n", func(t *testing.T, s *Snapshot) {
			if len(s.Links) != 1 || s.Cards[0].Vitals.Ports[0].Up || s.Cards[1].Vitals.Ports[0].Up || !s.Cards[2].Vitals.Ports[0].Up {
				t.Errorf("links %v, ports %v", s.Links, s.Cards[0].Vitals.Ports)
			}
		}},
		"an old driver": {"driver: 2.31.0\n", func(t *testing.T, s *Snapshot) {
			if s.Driver != "2.31.0" {
				t.Errorf("driver %s", s.Driver)
			}
		}},
		"another card among them": {"overrides: {2: {model: C550, memoryMiB: 32768}, 3: {model: MXC600}}\n", func(t *testing.T, s *Snapshot) {
			if a, b := s.Cards[2], s.Cards[3]; a.Model != "C550" || a.Memory != 32768 || b.Model != "C600" || b.Memory != 65536 {
				t.Errorf("cards %+v and %+v", a, b)
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, write := simulation(t, fourCards)
			before, err := f.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			write(fourCards + tc.fault)
			s, err := f.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tc.check(t, s)
			write(fourCards)
			after, err := f.Look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("afterwards (-before +after):\n%s", diff)
			}
		})
	}
	t.Run("a profile that breaks is a failed look", func(t *testing.T) {
		f, write := simulation(t, fourCards)
		write("cards: many")
		if _, err := f.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "simulated: profile") {
			t.Errorf("got %v", err)
		}
	})
}

// A profile that can't be read fails the look in time, and the next one too.
func TestSimulatedHangs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.yaml")
	if err := os.WriteFile(file, []byte(fourCards), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewSimulated(file, "node")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no answer in time", "an earlier look has not ended"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Look(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// The write ends the read that hangs.
	if err := os.WriteFile(file, []byte(fourCards), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSimulatedVirtualFunctions(t *testing.T) {
	f, _ := simulation(t, fourCards+"virtualFunctions: 8\nunhealthy: [1]\nlost: [3]\n")
	s, err := f.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Cards) != 24 || len(s.Links) != 0 {
		t.Fatalf("%d cards, links %v; want 24 and none", len(s.Cards), s.Links)
	}
	for i, c := range s.Cards {
		if !c.Virtual || c.Memory != 8192 || c.Sliced != nil || c.Unavailable() != (i/8 == 1) || *c.NUMA != i/16 {
			t.Errorf("card %d is %+v", i, c)
		}
	}
	if s.Cards[7].BDF != "0000:11:01.0" {
		t.Errorf("the eighth function is at %s", s.Cards[7].BDF)
	}
}
