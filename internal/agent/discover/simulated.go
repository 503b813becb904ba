package discover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// maxVirtualFunctions is how many the hardware makes of one card.
const maxVirtualFunctions = 8

// Simulated shows the cards of a profile. A profile that is a file is read
// again at every look, so that what is written there happens to the cards.
type Simulated struct {
	profile, node string
	files
}

// NewSimulated returns the source. The profile is a built-in one's name or a
// file, and must be that of one kind of node; the ids of its cards depend on
// the name of the node.
func NewSimulated(profile, node string) (*Simulated, error) {
	s := &Simulated{profile: profile, node: node, files: newFiles()}
	_, err := s.read()
	return s, err
}

// Name implements [Source].
func (s *Simulated) Name() string { return SourceSimulated }

// Look implements [Source].
func (s *Simulated) Look(ctx context.Context) (*Snapshot, error) { return s.look(ctx, s.read) }

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
		if !slices.Contains(p.Lost, out.Cards[i].Minor/max(p.VirtualFunctions, 1)) {
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
		c := p.card(node, i)
		if p.VirtualFunctions == 0 {
			out.Cards = append(out.Cards, c)
			continue
		}
		for v := range p.VirtualFunctions {
			out.Cards = append(out.Cards, p.virtual(node, &c, v))
		}
	}
	if p.VirtualFunctions == 0 {
		p.addLinks(out)
	}
	return out
}

func (p *Profile) card(node string, i int) Card {
	model, memory := cmp.Or(p.Overrides[i].Model, p.Model), cmp.Or(p.Overrides[i].MemoryMiB, p.MemoryMiB)
	c := Card{
		UUID: cardUUID(node, strconv.Itoa(i)), Minor: i, BDF: simulatedBDF(i), Model: gpu.ModelName(model), Memory: memory.RoundDown(),
		PCIeRoot: fmt.Sprintf("pci0000:%02x", 0x10+i), DRMCard: new(i), DRMRender: new(128 + i), Sliced: new(p.Mode == gpu.ModeSGPU),
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
	c.Figures = Figures{UsagePercent: new(0.0), MemoryTotalKiB: new(int64(memory) * 1024), MemoryUsedKiB: new(int64(0))}
	return c
}

// virtual is the nth virtual function of a card.
func (p *Profile) virtual(node string, c *Card, n int) Card {
	v := *c
	v.Virtual, v.Sliced, v.Vitals.Ports = true, nil, nil
	v.Minor = c.Minor*p.VirtualFunctions + n
	v.UUID = cardUUID(node, fmt.Sprintf("%d.%d", c.Minor, n))
	// Functions 0 to 7 of a device, 0 being the card itself; then the next.
	v.BDF = fmt.Sprintf("0000:%02x:%02x.%d", 0x11+c.Minor, (n+1)/8, (n+1)%8)
	v.Memory = (c.Memory / gpu.MiB(p.VirtualFunctions)).RoundDown()
	v.DRMCard, v.DRMRender = new(v.Minor), new(128+v.Minor)
	v.Figures.MemoryTotalKiB = new(int64(v.Memory) * 1024)
	return v
}

// addLinks adds the links and a port at each of their ends.
func (p *Profile) addLinks(out *Snapshot) {
	dead := func(l gpu.Link) bool {
		return slices.ContainsFunc(p.DeadLinks, func(pair []int) bool {
			return min(pair[0], pair[1]) == min(l.A, l.B) && max(pair[0], pair[1]) == max(l.A, l.B)
		})
	}
	for _, l := range p.links() {
		gone := slices.Contains(p.Lost, l.A) || slices.Contains(p.Lost, l.B)
		up := !gone && !dead(l)
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
func cardUUID(node, card string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", node, card))
	h := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
