package discover

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const fourCards = "model: C500\nmemoryMiB: 65536\ncards: 4\nzones: [[0, 1], [2, 3]]\nnuma: [[0, 1], [2, 3]]\nswitches: [[0, 1, 2, 3]]\n"

// simulation is a simulated node whose profile a test changes.
func simulation(t *testing.T, text string) (f *Finder, write func(text string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	write = func(text string) {
		t.Helper()
		gputest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(text)
	f, err := New(Config{Sources: []string{SourceSimulated}, Profile: path, Node: "n1"})
	gputest.Must(t, err)
	t.Cleanup(f.Close)
	return f, write
}

// The ids of simulated cards are part of what people see and script against.
func TestSimulatedIDs(t *testing.T) {
	f, _ := simulation(t, fourCards)
	s, err := f.Look(t.Context())
	gputest.Must(t, err)
	c := s.Cards[1]
	got := []string{c.UUID, c.BDF, c.PCIeRoot, c.PCIeSwitch}
	gputest.Equal(t, "card 1", []string{"GPU-b318cd69-860b-da32-f6ba-06a3434bac76", "0000:12:00.0", "pci0000:c0", "0000:80:00.0"}, got)
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
		"an old driver": {"driver: 2.31.0\n", func(t *testing.T, s *Snapshot) {
			gputest.Equal(t, "driver", "2.31.0", s.Driver)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, write := simulation(t, fourCards)
			before, err := f.Look(t.Context())
			gputest.Must(t, err)
			write(fourCards + tc.fault)
			s, err := f.Look(t.Context())
			gputest.Must(t, err)
			tc.check(t, s)
			write(fourCards)
			after, err := f.Look(t.Context())
			gputest.Must(t, err)
			gputest.Equal(t, "snapshots before and after", before, after)
		})
	}
	t.Run("a profile that breaks is a failed look", func(t *testing.T) {
		f, write := simulation(t, fourCards)
		write("cards: many")
		_, err := f.Look(t.Context())
		gputest.ErrorHas(t, "Look", "simulated: profile", err)
	})
}
