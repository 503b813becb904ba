package discover_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover/mxsml"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// envHold makes this program look at the machine, say so, and wait.
const envHold = "DISCOVER_TEST_HOLD"

// TestMain lets this program stand for the agent's binary: the vendor's library
// runs in it as it does in the real one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == discover.HelperCommand {
		cmd := mxsml.NewCommand()
		cmd.SetArgs(os.Args[2:])
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	if library := os.Getenv(envHold); library != "" {
		os.Exit(hold(library))
	}
	os.Exit(m.Run())
}

// machine is a fake machine in a test.
type machine struct {
	*fake.Machine
	testing.TB
	config string
}

func newMachine(t testing.TB, m *fake.Machine) *machine {
	t.Helper()
	out := &machine{Machine: m, TB: t, config: filepath.Join(t.TempDir(), "machine")}
	out.write()
	if s, ok := t.(*testing.T); ok {
		s.Setenv(fake.EnvConfig, out.config)
	}
	return out
}

// write makes what was changed happen.
func (m *machine) write() {
	m.Helper()
	gputest.Must(m, m.Write(m.config))
}

func (m *machine) sysfs() string {
	m.Helper()
	dir := filepath.Join(m.TempDir(), "sys")
	gputest.Must(m, m.WriteSysfs(dir))
	return dir
}

func (m *machine) finder(cfg discover.Config) *discover.Finder {
	m.Helper()
	f, err := discover.New(cfg)
	gputest.Must(m, err)
	m.Cleanup(f.Close)
	return f
}

func look(t testing.TB, s discover.Source) *discover.Snapshot {
	t.Helper()
	got, err := tryLook(t, s)
	gputest.Must(t, err)
	return got
}

func tryLook(t testing.TB, s discover.Source) (*discover.Snapshot, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.Look(ctx)
}

// lookFails wants an error with all of the words in it.
func lookFails(t testing.TB, s discover.Source, words ...string) {
	t.Helper()
	got, err := tryLook(t, s)
	if err == nil {
		t.Fatalf("got %d cards, want an error with %q", len(got.Cards), words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %q, want an error with %q", err, w)
		}
	}
}

// lookSoon looks until it works: a process that crashed is not started again
// at once.
func lookSoon(t testing.TB, s discover.Source) *discover.Snapshot {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, err := tryLook(t, s)
		if err == nil {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// want is the picture of a machine: what everything together must find.
func want(m *fake.Machine) []discover.Card {
	var cards []discover.Card
	for i := range m.Cards {
		c := &m.Cards[i]
		card := discover.Card{
			UUID: c.UUID, Minor: i, BDF: c.BDF, Model: strings.TrimPrefix(c.Model, "MX"), Memory: gpu.MiB(c.MemoryKiB / 1024),
			PCIeRoot: strings.Split(c.Path, "/")[0], PCIeSwitch: c.Switch,
			Vitals: discover.Vitals{Available: new(true), ECC: &discover.ECC{
				SRAMCorrectable: int64(c.ECC[0]), SRAMUncorrectable: int64(c.ECC[1]),
				DRAMCorrectable: int64(c.ECC[2]), DRAMUncorrectable: int64(c.ECC[3]), RetiredPages: int64(c.ECC[4]),
			}},
			Figures: discover.Figures{
				UsagePercent: new(float64(c.Usage)), MemoryTotalKiB: new(c.MemoryKiB), MemoryUsedKiB: new(c.UsedKiB),
				PowerMilliwatt: new(int64(c.Milliwatt)), HotspotCelsius: new(float64(c.CentiCelsius) / 100), BIOS: c.BIOS,
			},
		}
		if c.NUMA >= 0 {
			card.NUMA = new(c.NUMA)
		}
		cards = append(cards, card)
	}
	return cards
}

func wantLinks(m *fake.Machine) []gpu.Link {
	var links []gpu.Link
	for _, l := range m.Links {
		if !l.Down {
			links = append(links, gpu.Link{A: l.A, B: l.B})
		}
	}
	return links
}

// compare leaves out the fields of [discover.Card], Vitals or Figures that a
// source is not asked for here.
func compare(t testing.TB, want, got []discover.Card, without ...string) {
	t.Helper()
	options := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 0.001), cmp.FilterPath(func(p cmp.Path) bool {
		for _, step := range p {
			if f, ok := step.(cmp.StructField); ok {
				for _, name := range without {
					if f.Name() == name {
						return true
					}
				}
			}
		}
		return false
	}, cmp.Ignore())}
	gputest.Equal(t, "cards", want, got, options)
}
