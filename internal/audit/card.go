package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// booked is what one pod has booked on one card.
type booked struct {
	holding *ledger.Holding
	pod     string
	usage   ledger.Usage
}

// card is the audit of one card.
type card struct {
	*node
	index  int
	facts  *gpu.Card
	shares []booked // by pod
	names  []string // of their pods
	pods   map[string]*corev1.Pod
}

// cards checks the rules that the pods on each card must keep together.
func (n *node) cards(pods map[string]*corev1.Pod) {
	t := n.ledger.Topology()
	on := make([][]booked, t.Len())
	for k := range n.ledger.Holdings() {
		h := &n.ledger.Holdings()[k]
		for i := range (h.Cards() & t.All()).All() {
			usage := h.On(i)
			if usage.Memory == 0 {
				usage.QoS = 0 // a seat has no amounts to divide
			}
			on[i] = append(on[i], booked{holding: h, pod: string(h.Holder), usage: usage})
		}
	}
	for i, shares := range on {
		slices.SortFunc(shares, func(a, b booked) int { return cmp.Compare(a.pod, b.pod) })
		c := card{node: n, index: i, facts: t.Card(i), shares: shares, pods: pods}
		c.names = c.podsWhere(func(*booked) bool { return true })
		c.check()
	}
}

func (c *card) check() {
	if foreign := &c.ledger.WithoutPods().Usage[c.index]; foreign.Slots > 0 {
		c.note(ForeignSlices, nil, "%s carries %d slices of %v that belong to no pod: they count as used", c.name(), foreign.Slots, foreign.Memory)
	}
	if len(c.shares) == 0 {
		return
	}
	if !c.facts.Healthy {
		c.note(UnhealthyInUse, c.names, "%s is unhealthy and in use by %s: they keep it until they end", c.name(), strings.Join(c.names, ", "))
	}
	var sum ledger.Usage
	for i := range c.shares {
		u := &c.shares[i].usage
		sum.Memory += u.Memory
		sum.Compute += u.Compute
		sum.Slots += u.Slots
	}
	if sum.Memory > c.facts.Memory {
		c.violation(MemoryOverbooked, c.names, "%v of memory are booked on %s, which has %v: %s", sum.Memory, c.name(), c.facts.Memory,
			c.list(func(u *ledger.Usage) string { return u.Memory.String() }))
	}
	if sum.Compute > gpu.FullCompute {
		c.violation(ComputeOverbooked, c.names, "%d%% of the compute of %s are booked: %s", sum.Compute, c.name(),
			c.list(func(u *ledger.Usage) string { return fmt.Sprintf("%d%%", u.Compute) }))
	}
	if int(sum.Slots) > c.facts.Slots {
		c.violation(SlicesOverbooked, c.names, "%d shares are on %s, which takes %d: %s", sum.Slots, c.name(), c.facts.Slots,
			c.list(func(u *ledger.Usage) string { return strconv.Itoa(int(u.Slots)) }))
	}
	conflict := c.conflict()
	if conflict&ledger.QoSConflict != 0 {
		c.mixedQoS()
	}
	if conflict&ledger.ClassConflict != 0 {
		c.mixedClass()
	}
	c.joinedOnline()
	c.exclusive(conflict&ledger.ExclusiveConflict != 0)
}

// conflict returns why the pods may not be on the card together, whichever of
// them came first.
func (c *card) conflict() (found ledger.Conflict) {
	for i := range c.shares {
		for j := range i {
			a, b := &c.shares[i].usage, &c.shares[j].usage
			found |= a.Conflict(b) & b.Conflict(a)
		}
	}
	return found
}

func (c *card) mixedQoS() {
	var parts, pods []string
	for _, class := range gpu.QoSClasses() {
		of := c.podsWhere(func(b *booked) bool { return b.usage.QoS&class.Set() != 0 })
		if len(of) > 0 {
			parts = append(parts, fmt.Sprintf("%s (%s)", class, strings.Join(of, ", ")))
			pods = append(pods, of...)
		}
	}
	slices.Sort(pods)
	c.violation(QoSMixed, slices.Compact(pods), "%s runs several QoS classes at once: %s", c.name(), strings.Join(parts, ", "))
}

func (c *card) mixedClass() {
	classed := append(c.podsOf(gpu.Online), c.podsOf(gpu.Offline)...)
	c.violation(ClassMixed, c.names, "%s is shared by pods with a class (%s) and pods without (%s)", c.name(),
		strings.Join(classed, ", "), strings.Join(c.podsOf(gpu.Normal), ", "))
}

// joinedOnline: an offline pod does not join an online one. The other way round is
// allowed, so the times decide; where one is not known, nothing is reported.
func (c *card) joinedOnline() {
	for _, offline := range c.podsOf(gpu.Offline) {
		joined, known := c.decided(offline)
		for _, online := range c.podsOf(gpu.Online) {
			if there, ok := c.decided(online); known && ok && there.Before(joined) {
				c.violation(ClassMixed, []string{offline, online}, "pod %s (offline) joined pod %s (online) on %s %s later: it is suspended whenever that works",
					offline, online, c.name(), joined.Sub(there).Round(time.Millisecond))
				break
			}
		}
	}
}

func (c *card) decided(name string) (time.Time, bool) {
	pod, ok := c.pods[name]
	if !ok {
		return time.Time{}, false
	}
	return allocation.PredicateTime(pod)
}

// exclusive: a container that has the card to itself is the only one there, within
// its own pod too.
func (c *card) exclusive(shared bool) {
	i := slices.IndexFunc(c.shares, func(b booked) bool { return b.usage.Exclusive })
	if i < 0 {
		return
	}
	alone := &c.shares[i]
	if shared {
		others := c.podsWhere(func(b *booked) bool { return b.pod != alone.pod })
		c.violation(ExclusiveShared, c.names, "pod %s has %s to itself, but %s is on it too", alone.pod, c.name(), strings.Join(others, ", "))
		return
	}
	if container, other, ok := crowded(alone.holding, c.index); ok {
		c.violation(ExclusiveShared, c.names, "container %s of pod %s has %s to itself, but container %s is on it at the same time",
			container, alone.pod, c.name(), other)
	}
}

// crowded finds two containers of one pod that are on the card at the same time
// while one of them is to be alone.
func crowded(h *ledger.Holding, card int) (alone, other string, found bool) {
	var running []*ledger.Part // sidecars so far, and at the end the app containers
	for i := range h.Parts {
		part := &h.Parts[i]
		if share(part, card) == nil {
			continue
		}
		for _, p := range running {
			a, b := share(p, card), share(part, card)
			switch {
			case b.Exclusive:
				return part.Container, p.Container, true
			case a.Exclusive:
				return p.Container, part.Container, true
			}
		}
		if part.Phase != gpu.Init {
			running = append(running, part)
		}
	}
	return "", "", false
}

// share returns what the container has of the card, or nil.
func share(p *ledger.Part, card int) *ledger.Share {
	for i := range p.Shares {
		if p.Shares[i].Card == card {
			return &p.Shares[i]
		}
	}
	return nil
}

func (c *card) podsOf(class gpu.Class) []string {
	return c.podsWhere(func(b *booked) bool { return b.holding.Class == class })
}

func (c *card) podsWhere(is func(*booked) bool) []string {
	var pods []string
	for i := range c.shares {
		if is(&c.shares[i]) {
			pods = append(pods, c.shares[i].pod)
		}
	}
	return pods
}

// list renders an amount of each pod.
func (c *card) list(amount func(*ledger.Usage) string) string {
	parts := make([]string, len(c.shares))
	for i := range c.shares {
		parts[i] = c.shares[i].pod + " " + amount(&c.shares[i].usage)
	}
	return strings.Join(parts, ", ")
}

func (c *card) name() string {
	if c.facts.ID == "" {
		return fmt.Sprintf("card %d of %s", c.index, c.ledger.Name)
	}
	return fmt.Sprintf("card %d of %s (%s)", c.index, c.ledger.Name, c.facts.ID)
}

func (c *card) violation(rule Rule, pods []string, format string, args ...any) {
	c.locate(c.node.violation(rule, pods, format, args...))
}

func (c *card) note(rule Rule, pods []string, format string, args ...any) {
	c.locate(c.node.note(rule, pods, format, args...))
}

func (c *card) locate(f *Finding) { f.Card, f.Index = string(c.facts.ID), new(c.index) }
