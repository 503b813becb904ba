package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/utils/ptr"
)

// EnvConfig is the environment variable that names the configuration.
const EnvConfig = "FAKE_METAX_CONFIG"

// Machine is a server with cards.
type Machine struct {
	// SMI is the version of mx-smi, Driver of the kernel driver, MACA of the
	// user-space stack.
	SMI, Driver, MACA string
	// Count is what the library says is the number of cards, if it lies.
	Count *int
	// Reserve is the memory that slices may not use, in MiB.
	Reserve int
	Cards   []Card
	Links   []Link
	Faults  []Fault
	// InUse are slices that a process works with: card, slice.
	InUse [][2]int
}

// Card is one card, or a virtual function of one.
type Card struct {
	BDF, UUID, Model, BIOS string
	// MemoryKiB and UsedKiB are the driver's figures.
	MemoryKiB, UsedKiB int64
	// NUMA is -1 where the kernel does not know it.
	NUMA int
	// Path is the place in the PCI tree: the root, then bridges down to the
	// card's own address: "pci0000:3a/0000:3a:01.0/0000:3b:00.0".
	Path string
	// Switch is the upstream port of the switch that the card is behind.
	Switch string
	// DRMCard and Render are the numbers of the device nodes.
	DRMCard, Render int
	// Virtual functions name the card that they are of; Physical is a card that
	// is handed out as such, and is none itself.
	VirtualOf *int
	Physical  bool
	// SGPU: slicing is switched on from the start.
	SGPU bool

	// Reason makes the card unavailable; Lost takes it off the bus.
	Reason string
	Lost   bool
	// ECC counts errors: SRAM correctable, uncorrectable, DRAM the same, pages.
	ECC [5]int
	// LinkState is the library's number for the state of all links.
	LinkState int

	CentiCelsius, Milliwatt, Usage int
}

// Link is a MetaXLink from port to port.
type Link struct {
	A, APort, B, BPort int
	Down               bool
}

// Fault makes a function of the library misbehave.
type Fault struct {
	// Kind is "error", "crash", "abort", "hang" or "noise" (it prints); for the
	// fake mx-smi "error", "hang" or "truncate". The others are of slices that are
	// made: they get Code as their "vram", "compute" or "minor" whatever is ordered,
	// "step" rounds the memory up to multiples of it, "alias" keeps as many letters of
	// the name, "id" returns it as the number, and "unlisted" makes none.
	Kind string
	// Function is the library's name of it, or the arguments of mx-smi.
	Function string
	// Code is what an "error" of the library returns, or how much of an output
	// "truncate" leaves, in percent; Card limits the fault to one.
	Code int
	Card *int
}

// NewMachine returns a server with n cards in zones of the given size, each
// linked to each, four to a NUMA node and two to a switch. A size of 0 is none.
func NewMachine(n, zone int) *Machine {
	m := &Machine{SMI: "2.2.12", Driver: "3.8.30", MACA: "3.2.1.10"}
	for i := range n {
		bus := 0x10 + 4*(i/2)
		c := Card{
			BDF: fmt.Sprintf("0000:%02x:00.0", bus+2+i%2), UUID: fmt.Sprintf("GPU-%08x-169c-6d31-f9dc-c2a90a44%04x", 0x3fd4ee00+i, i),
			Model: "MXC500", BIOS: "1.27.5.0", MemoryKiB: 64 << 20, UsedKiB: 826 << 10, NUMA: i / 4 % 8,
			Switch: fmt.Sprintf("0000:%02x:00.0", bus), DRMCard: i + 1, Render: 128 + i,
			CentiCelsius: 3850 + 25*i, Milliwatt: 60000 + 300*i, Usage: i,
		}
		c.Path = fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/%s/0000:%02x:%02x.0/%s", bus-1, bus-1, c.Switch, bus+1, i%2, c.BDF)
		m.Cards = append(m.Cards, c)
	}
	ports := make([]int, n)
	for a := range n {
		for b := a + 1; b < n; b++ {
			if zone > 1 && a/zone == b/zone && ports[a] < 7 && ports[b] < 7 {
				m.Links = append(m.Links, Link{A: a, APort: ports[a], B: b, BPort: ports[b]})
				ports[a]++
				ports[b]++
			}
		}
	}
	return m
}

// NewVirtualMachine returns a server with n cards that are handed out as virtual
// functions, four of each.
func NewVirtualMachine(n int) *Machine {
	const functions = 4
	m := NewMachine(n, 0)
	for p := range n {
		m.Cards[p].Physical = true
		for v := range functions {
			c := m.Cards[p]
			c.Physical, c.VirtualOf, c.Model, c.MemoryKiB = false, new(p), "MXC500 VF", 16<<20
			c.BDF = fmt.Sprintf("%s.%d", c.BDF[:len(c.BDF)-2], v+1)
			c.Path = strings.TrimSuffix(c.Path, m.Cards[p].BDF) + c.BDF
			c.UUID = fmt.Sprintf("GPU-%d-%d", p, v)
			c.DRMCard, c.Render = 8+functions*p+v, 136+functions*p+v
			m.Cards = append(m.Cards, c)
		}
	}
	return m
}

// Trigger makes the fake library, once, at the next moment before or after a
// function of it runs, kill the process that started the one it is loaded in,
// or hang: Trigger(path, "kill", "after", "mxSmlCreateSgpu"). The path is that
// of the configuration.
func Trigger(path, action, moment, function string) error {
	return os.WriteFile(path+".trigger", []byte(action+" "+moment+" "+function+"\n"), 0o600)
}

// Next to the configuration are the machine as [Read] reads it, and the slices.
const machineSuffix, slicesSuffix = ".json", ".slices"

// Write writes the configuration; a reader sees all of it or none. State of
// slices is kept next to it.
func (m *Machine) Write(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	machine, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return errors.Join(replace(path+machineSuffix, machine), replace(path, []byte(m.text(path+slicesSuffix))))
}

func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// text is the configuration of the library: one fact a line, "card 3 bdf
// 0000:0e:00.0". Bytes that would end a line are written \xNN.
func (m *Machine) text(state string) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(escape(fmt.Sprintf(format, args...)) + "\n")
	}
	line("driver %s", m.Driver)
	line("maca %s", m.MACA)
	line("state %s", state)
	line("reserve %d", m.Reserve)
	if m.Count != nil {
		line("count %d", *m.Count)
	}
	for i := range m.Cards {
		for _, fact := range m.Cards[i].facts() {
			line("card %d %s %v", i, fact.key, fact.value)
		}
	}
	for _, l := range m.Links {
		line("link %d %d %d %d %d", l.A, l.APort, l.B, l.BPort, number(l.Down))
	}
	for _, f := range m.Faults {
		line("fault %s %s %d %d", f.Kind, strings.ReplaceAll(f.Function, " ", "+"), f.Code, ptr.Deref(f.Card, -1))
	}
	for _, s := range m.InUse {
		line("inuse %d %d", s[0], s[1])
	}
	return b.String()
}

type fact struct {
	key   string
	value any
}

func (c *Card) facts() []fact {
	mode := 0
	switch {
	case c.Physical:
		mode = 1
	case c.VirtualOf != nil:
		mode = 2
	}
	return []fact{
		{"bdf", c.BDF}, {"uuid", c.UUID}, {"model", c.Model}, {"bios", c.BIOS}, {"switch", c.Switch}, {"reason", c.Reason},
		{"ecc", strings.Trim(fmt.Sprint(c.ECC), "[]")}, {"memory", c.MemoryKiB}, {"used", c.UsedKiB}, {"numa", c.NUMA},
		{"lost", number(c.Lost)}, {"mode", mode},
		{"physical", ptr.Deref(c.VirtualOf, -1)}, {"sgpu", number(c.SGPU)}, {"linkstate", c.LinkState},
		{"temperature", c.CentiCelsius}, {"power", c.Milliwatt}, {"usage", c.Usage},
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// escape writes control characters as \xNN.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c == 0x7f || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
