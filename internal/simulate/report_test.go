package simulate

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// example is a result whose figures can be checked by eye: two policies, two
// loads, two seeds.
func example() study {
	r := study{Servers: 4, Jobs: 1000}
	for _, load := range []float64{0.7, 0.85} {
		for seed := range int64(2) {
			ours := outcome{
				Policy: "daybreak", Zones: "2x4", Mix: "mixed", Load: load, Seed: seed + 1,
				OneZonePercent: map[string]float64{"2": 100, "4": 97 + float64(seed)*2},
				Pairs:          1000, BestPairs: 1000,
				MeanWait:         map[string]float64{"fractional": 0, "2": 0.25, "4": 0.5, "8": load},
				AllocatedPercent: 100 * load,
				Measured:         map[string]int{"fractional": 9, "2": 9, "4": 9, "8": 9},
			}
			theirs := ours
			theirs.Policy, theirs.BrokenZones = "hami", 3
			theirs.Pairs, theirs.BestPairs = 99_999, 100_000
			r.Runs = append(r.Runs, ours, theirs)
		}
	}
	none := outcome{
		Policy: "fgd", Zones: "none", Mix: "mixed", Load: 0.5, Seed: 9,
		OneZonePercent: map[string]float64{}, MeanWait: map[string]float64{"8": 2}, AllocatedPercent: 50, Measured: map[string]int{"8": 1},
	}
	r.Runs = append(r.Runs, none)
	return r
}

func TestWriteText(t *testing.T) {
	r := example()
	var b bytes.Buffer
	gputest.Must(t, churnReport(&r).writeText(&b))
	want := `
Jobs that come and go, zones 2x4, mix mixed (4 servers of 8 cards, 1000 jobs, seeds 1 to 2; waits in mean running times)
load  policy    2 cards in one zone, %  4 cards in one zone, %  pairs, % of best  wait, fractional/2/4  wait, 8      allocated, %  zones broken
0.70  daybreak  100.0 ± 0.0             98.0 ± 1.4              100               0.00 / 0.25 / 0.50    0.70 ± 0.00  70.0 ± 0.0    0
0.70  hami      100.0 ± 0.0             98.0 ± 1.4              99.99             0.00 / 0.25 / 0.50    0.70 ± 0.00  70.0 ± 0.0    3
0.85  daybreak  100.0 ± 0.0             98.0 ± 1.4              100               0.00 / 0.25 / 0.50    0.85 ± 0.00  85.0 ± 0.0    0
0.85  hami      100.0 ± 0.0             98.0 ± 1.4              99.99             0.00 / 0.25 / 0.50    0.85 ± 0.00  85.0 ± 0.0    3

Jobs that come and go, zones none, mix mixed (4 servers of 8 cards, 1000 jobs, seed 9; waits in mean running times)
load  policy  pairs, % of best  wait, 8  allocated, %  zones broken
0.50  fgd     -                 2.00     50.0          0
`
	gputest.Equal(t, "text", strings.TrimPrefix(want, "\n"), b.String())
}

func TestFigures(t *testing.T) {
	r := example()
	got := churnReport(&r).Figures
	const note = "4 servers of 8 cards, 1000 jobs, mean over seeds 1 to 2."
	curve := func(name string, y ...float64) line {
		return line{Name: name, X: []float64{0.7, 0.85}, Y: y}
	}
	want := []figure{
		{
			Title: "Jobs of 4 cards that got all cards in one zone (zones 2x4, mix mixed)", XLabel: "load, part of all cards",
			YLabel: "share of the jobs, %", Lines: []line{curve("daybreak", 98, 98), curve("hami", 98, 98)}, Note: note,
		},
		{
			Title: "Wait of 8-card jobs (zones 2x4, mix mixed)", XLabel: "load, part of all cards",
			YLabel: "mean wait, in mean running times", Lines: []line{curve("daybreak", 0.7, 0.85), curve("hami", 0.7, 0.85)}, Note: note,
		},
	}
	gputest.Equal(t, "figures", want, got)
}

// TestReportOfRealRuns: what comes out of a study can be shown, whatever its
// shape.
func TestReportOfRealRuns(t *testing.T) {
	o := small()
	o.Jobs, o.Seeds, o.Loads = 150, 1, []float64{0.5, 0.8}
	o.Policies, o.Zones, o.Mixes = []string{"daybreak", "hami-topology"}, names(shapes), names(mixes)
	s, err := runStudy(t.Context(), &o, ignoreProgress)
	gputest.Must(t, err)
	r := churnReport(&s)
	for _, output := range []string{"html", "json"} {
		gputest.Check(t, r.write(io.Discard, output, s))
	}
	// Three shapes have zones smaller than a server; all have waits.
	if got, want := len(r.Figures), len(mixes)*(3+6); got != want {
		t.Errorf("%d figures, want %d", got, want)
	}
}

func TestWriteTextFails(t *testing.T) {
	r := example()
	broken := errors.New("disk full")
	if err := churnReport(&r).writeText(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
