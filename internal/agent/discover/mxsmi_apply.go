package discover

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// eachCard parses a log and calls f with every card of the picture and its
// part of the log. Both must have the same cards, by number and address; only
// cards that are not available may be left out of the log.
func eachCard(out *Snapshot, text []byte, f func(*Card, *logCard) error) error {
	version, cards, err := parseLog(text)
	if err != nil {
		return err
	}
	out.Source = SourceMXSMI + " " + version
	for i := range cards {
		l := &cards[i]
		at := slices.IndexFunc(out.Cards, func(c Card) bool { return c.Minor == l.number })
		switch {
		case at < 0:
			return fmt.Errorf("it lists GPU#%d at %s, which -L does not", l.number, l.bdf)
		case out.Cards[at].BDF != l.bdf:
			return fmt.Errorf("it lists GPU#%d at %s, -L at %s", l.number, l.bdf, out.Cards[at].BDF)
		}
		if err := f(&out.Cards[at], l); err != nil {
			return err
		}
	}
	for i := range out.Cards {
		c := &out.Cards[i]
		if !c.Unavailable() && !slices.ContainsFunc(cards, func(l logCard) bool { return l.number == c.Minor }) {
			return fmt.Errorf("it does not list GPU#%d at %s, which -L does", c.Minor, c.BDF)
		}
	}
	return nil
}

// applyMemory adds the output of --show-memory.
func applyMemory(out *Snapshot, text []byte) error {
	return eachCard(out, text, func(c *Card, l *logCard) error {
		total, err := l.count("vram total", "KB")
		if err != nil {
			return err
		}
		c.Figures.MemoryTotalKiB = &total
		c.Memory = gpu.MiB(total / 1024).RoundDown()
		if used, err := l.count("vram used", "KB"); err == nil {
			c.Figures.MemoryUsedKiB = &used
		}
		return nil
	})
}

// applyECC adds the output of --count-ecc.
func applyECC(out *Snapshot, text []byte) error {
	return eachCard(out, text, func(c *Card, l *logCard) error {
		if e, ok := l.value("DRAM Uncorrectable"); ok && notKnown(e.value) {
			return nil // a card without it
		}
		var ecc ECC
		for _, count := range []struct {
			key  string
			into *int64
		}{
			{"SRAM Correctable", &ecc.SRAMCorrectable}, {"SRAM Uncorrectable", &ecc.SRAMUncorrectable},
			{"DRAM Correctable", &ecc.DRAMCorrectable}, {"DRAM Uncorrectable", &ecc.DRAMUncorrectable},
			{"Double Bit ECC", &ecc.RetiredPages},
		} {
			n, err := l.count(count.key, "")
			if err != nil {
				return err
			}
			*count.into = n
		}
		c.Vitals.ECC = &ecc
		return nil
	})
}

// notKnown reports whether a value is one of mx-smi's words for unknown.
func notKnown(value string) bool {
	return value == "" || slices.Contains([]string{"N/A", "NA", "Not Support", "Not Supported"}, value)
}

// applyTopology adds the matrix of topo -m, which names cards by their numbers.
func applyTopology(out *Snapshot, text []byte) error {
	t, err := parseTopo(text)
	if err != nil {
		return err
	}
	at := map[int]int{}
	for _, number := range t.numbers {
		if at[number] = slices.IndexFunc(out.Cards, func(c Card) bool { return c.Minor == number }); at[number] < 0 {
			return fmt.Errorf("it lists GPU%d, which -L does not", number)
		}
	}
	for i := range out.Cards {
		if c := &out.Cards[i]; !c.Unavailable() && !slices.Contains(t.numbers, c.Minor) {
			return fmt.Errorf("it does not list the card at %s", c.BDF)
		}
	}
	out.Links, out.LinksKnown = nil, true
	for _, pair := range t.links {
		a, b := at[pair[0]], at[pair[1]]
		if !out.Cards[a].Virtual && !out.Cards[b].Virtual {
			out.Links = append(out.Links, gpu.Link{A: min(a, b), B: max(a, b)})
		}
	}
	out.sort()
	return nil
}

// extras are the commands that not every version has.
var extras = []struct {
	command string
	apply   func(*Snapshot, []byte) error
}{
	{"topo -m", applyTopology},
	{"--count-ecc", applyECC},
	{"--show-temperature", figure{"hotspot", "C", func(c *Card, v float64) { c.Figures.HotspotCelsius = &v }}.apply},
	{"--show-board-power", figure{"Total", "W", func(c *Card, v float64) { c.Figures.PowerMilliwatt = new(int64(math.Round(v * 1000))) }}.apply},
	{"--show-usage", figure{"GPU", "%", func(c *Card, v float64) { c.Figures.UsagePercent = &v }}.apply},
}

// figure is one that has a command of its own.
type figure struct {
	key, unit string
	set       func(*Card, float64)
}

func (f figure) apply(out *Snapshot, text []byte) error {
	return eachCard(out, text, func(c *Card, l *logCard) error {
		for _, e := range l.entries {
			// A sensor's number follows its name: hotspot(sensor5). Totals of
			// other units are those of other sections.
			name, _, _ := strings.Cut(e.key, "(")
			if name != f.key || !strings.HasSuffix(e.value, " "+f.unit) {
				continue
			}
			v, err := l.amount(e, f.unit)
			if err != nil {
				return err
			}
			f.set(c, v)
			return nil
		}
		return nil
	})
}
