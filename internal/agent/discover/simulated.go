package discover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Simulated shows the cards of a profile. A profile that is a file is read
// again at every look, so that what is written there happens to the cards.
type Simulated struct {
	profile, node string
}

// NewSimulated returns the source. The profile is a built-in one's name or a
// file, and must be that of one kind of node; the ids of its cards depend on
// the name of the node.
func NewSimulated(profile, node string) (*Simulated, error) {
	s := &Simulated{profile: profile, node: node}
	_, err := s.read()
	return s, err
}

// Name implements [Source].
func (s *Simulated) Name() string { return SourceSimulated }

// Look implements [Source].
func (s *Simulated) Look(context.Context) (*Snapshot, error) { return s.read() }

func (s *Simulated) read() (*Snapshot, error) {
	kinds, err := LoadProfiles(s.profile)
	if err != nil {
		return nil, err
	}
	if len(kinds) != 1 {
		return nil, fmt.Errorf("profile %s: it is of %d kinds of nodes: write the profile of one", s.profile, len(kinds))
	}
	p := &kinds[0]
	out := p.snapshot(s.node)
	var left []int
	for i := range out.Cards {
		if !slices.Contains(p.Lost, out.Cards[i].Minor) {
			left = append(left, i)
		}
	}
	out.arrange(left)
	return out, nil
}

// snapshot is the node of a profile, lost cards included but not available.
func (p *Profile) snapshot(node string) *Snapshot {
	out := &Snapshot{Source: SourceSimulated, Driver: p.Driver, Cards: []Card{}, LinksKnown: true}
	for i := range p.Cards {
		out.Cards = append(out.Cards, p.card(node, i))
	}
	p.addLinks(out)
	return out
}

func (p *Profile) card(node string, i int) Card {
	c := Card{
		UUID: cardUUID(node, i), Minor: i, BDF: simulatedBDF(i), Model: gpu.ModelName(p.Model), Memory: p.MemoryMiB.RoundDown(),
		PCIeRoot: fmt.Sprintf("pci0000:%02x", 0x10+i), Sliced: new(p.Mode == gpu.ModeSGPU),
	}
	for n, set := range p.Switches {
		if slices.Contains(set, i) {
			c.PCIeSwitch, c.PCIeRoot = fmt.Sprintf("0000:%02x:00.0", 0x80+n%0x40), fmt.Sprintf("pci0000:%02x", 0xc0+n%0x40)
		}
	}
	for n, set := range p.NUMA {
		if slices.Contains(set, i) {
			c.NUMA = new(n)
		}
	}
	c.Vitals = Vitals{Available: new(true), ECC: &ECC{DRAMUncorrectable: p.ECC[i]}, Ports: []Port{}}
	switch {
	case slices.Contains(p.Lost, i):
		c.fail("lost in the profile")
	case slices.Contains(p.Unhealthy, i):
		c.fail("unhealthy in the profile")
	}
	c.Figures = Figures{UsagePercent: new(0.0), MemoryTotalKiB: new(int64(p.MemoryMiB) * 1024), MemoryUsedKiB: new(int64(0))}
	return c
}

// addLinks adds the links and a port at each of their ends.
func (p *Profile) addLinks(out *Snapshot) {
	for _, l := range p.links() {
		up := !slices.Contains(p.Lost, l.A) && !slices.Contains(p.Lost, l.B)
		if up || l.A == l.B { // the latter is rejected by the check
			out.Links = append(out.Links, l)
		}
		for _, end := range []gpu.Link{l, {A: l.B, B: l.A}} {
			v := &out.Cards[end.A].Vitals
			v.Ports = append(v.Ports, Port{Number: len(v.Ports), Up: up, Peer: simulatedBDF(end.B), SpeedGT: 32, Width: 16})
		}
	}
}

func simulatedBDF(i int) string { return fmt.Sprintf("0000:%02x:00.0", 0x11+i) }

// cardUUID makes an id of the shape that the driver's have. It depends on the
// node and the card and nothing else, so that a cluster looks the same every
// time.
func cardUUID(node string, card int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, card))
	h := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
