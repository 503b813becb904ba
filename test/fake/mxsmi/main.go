// Mx-smi prints what the vendor's command of that name would, for a machine of
// package fake. The version in its configuration decides about the format.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-gpu/daybreak/test/fake"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	path := os.Getenv(fake.EnvConfig)
	if path == "" {
		return errors.New("no device found")
	}
	machine, slices, err := fake.Read(path)
	if err != nil {
		return err
	}
	p := newPrinter(machine, slices)
	command := strings.Join(args, " ")
	output, ok := p.commands()[command]
	if !ok {
		return fmt.Errorf("PARSE ERROR: Argument: %s\n             Couldn't find match for argument", command)
	}
	text := output()
	for _, f := range machine.Faults {
		if f.Function != command {
			continue
		}
		switch f.Kind {
		case "hang":
			time.Sleep(time.Hour)
		case "error":
			return errors.New("MetaX Sysfs Error")
		case "truncate":
			text = text[:len(text)*f.Code/100]
		}
	}
	_, err = io.WriteString(stdout, text)
	return err
}

// printer prints one machine. Cards are numbered like the driver does: those
// that are lost are not there.
type printer struct {
	strings.Builder
	machine *fake.Machine
	slices  []fake.Slice
	cards   []int
}

func newPrinter(m *fake.Machine, s []fake.Slice) *printer {
	p := &printer{machine: m, slices: s}
	for i := range m.Cards {
		if !m.Cards[i].Lost && !m.Cards[i].Physical {
			p.cards = append(p.cards, i)
		}
	}
	return p
}

func (p *printer) commands() map[string]func() string {
	return map[string]func() string{
		"-L":                 p.list,
		"topo -m":            p.topo,
		"--show-memory":      func() string { return p.log(p.memory) },
		"--count-ecc":        func() string { return p.log(p.ecc) },
		"--show-temperature": func() string { return p.log(p.temperature) },
		"--show-board-power": func() string { return p.log(p.power) },
		"--show-usage":       func() string { return p.log(p.usage) },
	}
}

// add and line print; a Builder takes everything.
func (p *printer) add(format string, args ...any)  { _, _ = fmt.Fprintf(p, format, args...) }
func (p *printer) line(format string, args ...any) { p.add(format+"\n", args...) }

func (p *printer) card(id int) *fake.Card { return &p.machine.Cards[p.cards[id]] }

// usable cards are those that the --show commands list.
func (p *printer) usable() []int {
	var ids []int
	for id := range p.cards {
		if c := p.card(id); c.Reason == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func (p *printer) list() string {
	for id := range p.cards {
		c := p.card(id)
		switch {
		case c.Reason != "":
			p.line("GPU#%-4d %-11s %s   Not Available(%s)", id, c.Model, c.BDF, c.Reason)
		default:
			p.line("GPU#%-4d %-11s %s   Available (UUID: %s)", id, c.Model, c.BDF, c.UUID)
		}
		for _, s := range p.slices {
			if s.Card == p.cards[id] {
				p.line("  SGPU#%-3d %d%% %ggb   Available (UUID: %s) %s", s.ID, s.Compute, float64(s.MiB)/1024, s.UUID, s.Alias)
			}
		}
	}
	return p.String()
}

// banner starts everything but the list.
func (p *printer) banner() {
	p.line("mx-smi  version: %s", p.machine.SMI)
	p.line("\n=================== MetaX System Management Interface Log ===================")
	p.line("%-50s: %s", "Timestamp", time.Now().UTC().Format(time.ANSIC))
	p.line("\n%-50s: %d", "Attached GPUs", len(p.usable()))
}

func (p *printer) log(card func(id int, c *fake.Card)) string {
	p.banner()
	for _, id := range p.usable() {
		c := p.card(id)
		if p.tabs() {
			p.line("GPU#%d\t%s\t%s", id, c.Model, c.BDF)
		} else {
			p.line("GPU#%d  %s  %s", id, c.Model, c.BDF)
		}
		card(id, c)
		p.line("")
	}
	p.line("End of Log")
	return p.String()
}

func (p *printer) tabs() bool { return p.machine.SMI == "2.2.9" }

func (p *printer) section(name string) {
	if p.tabs() {
		p.line("\t%s", name)
	} else {
		p.line("    %s", name)
	}
}

func (p *printer) pair(key, format string, args ...any) {
	value := fmt.Sprintf(format, args...)
	if p.tabs() {
		p.line("\t\t%s\t\t: %s", key, value)
	} else {
		p.line("        %-42s: %s", key, value)
	}
}

func (p *printer) memory(_ int, c *fake.Card) {
	p.section("Memory")
	for _, kind := range []string{"vis_vram", "vram", "xtt"} {
		p.pair(kind+" total", "%d KB", c.MemoryKiB)
		p.pair(kind+" used", "%d KB", c.UsedKiB)
		p.pair(kind+" usage", "%.1f %%", 100*float64(c.UsedKiB)/float64(max(c.MemoryKiB, 1)))
	}
}

func (p *printer) ecc(_ int, c *fake.Card) {
	p.section("ECC Errors")
	for i, key := range []string{"SRAM Correctable", "SRAM Uncorrectable", "DRAM Correctable", "DRAM Uncorrectable"} {
		p.pair(key, "%d", c.ECC[i])
	}
	p.section("Retired Pages")
	p.pair("Double Bit ECC", "%d", c.ECC[4])
}

func (p *printer) temperature(_ int, c *fake.Card) {
	p.section("Chip Temperature")
	p.pair("hotspot(sensor5)", " %.2f C", float64(c.CentiCelsius)/100)
	p.section("Board Temperature")
	p.pair("DrMOS_soc", " %.2f C", 35.0)
}

func (p *printer) power(_ int, c *fake.Card) {
	p.section("Board Voltage")
	p.pair("Way 0", "12.000 V")
	p.section("Board Power")
	for way := range 3 {
		p.pair(fmt.Sprintf("Way %d", way), "%.3f W", float64(c.Milliwatt)/3000)
	}
	p.pair("Total", "%.3f W", float64(c.Milliwatt)/1000)
	p.pair("Limit", "350.000 W")
}

func (p *printer) usage(_ int, c *fake.Card) {
	p.section("Utilization")
	p.pair("GPU", "%d %%", c.Usage)
	p.pair("VPUE", "0 %%")
	p.pair("VPUD", "0 %%")
}

func (p *printer) topo() string {
	p.banner()
	p.line("Device link type matrix")
	ids := p.usable()
	affinity := p.machine.SMI != "2.2.8"
	p.add("%-8s", "")
	for _, id := range ids {
		p.add("%-8s", fmt.Sprintf("GPU%d", id))
	}
	if affinity {
		p.add("Node Affinity  CPU Affinity")
	}
	p.line("")
	for _, a := range ids {
		p.add("%-8s", fmt.Sprintf("GPU%d", a))
		for _, b := range ids {
			p.add("%-8s", p.cell(a, b))
		}
		if numa := p.card(a).NUMA; affinity && numa >= 0 {
			p.add("%-15d%d-%d,%d-%d", numa, 32*numa, 32*numa+31, 32*numa+128, 32*numa+159)
		} else if affinity {
			p.add("%-15s%s", "N/A", "N/A")
		}
		p.line("")
	}
	p.line("\nLegend:\n  X    = Self\n  SYS  = Connection across NUMA nodes\n  MX   = Connection by MetaXLink")
	return p.String()
}

func (p *printer) cell(a, b int) string {
	if a == b {
		return "X"
	}
	for _, l := range p.machine.Links {
		if !l.Down && slices.Contains([]int{l.A, l.B}, p.cards[a]) && slices.Contains([]int{l.A, l.B}, p.cards[b]) {
			return "MX"
		}
	}
	switch x, y := p.card(a), p.card(b); {
	case x.Switch != "" && x.Switch == y.Switch:
		return "PXB"
	case x.NUMA == y.NUMA:
		return "NODE"
	default:
		return "SYS"
	}
}
