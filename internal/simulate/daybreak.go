package simulate

import (
	"fmt"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// cardMemory is what every card of a trace is taken to have: a C500's. Traces
// say nothing of it, and pods take as much of it as of the card's compute.
const cardMemory gpu.MiB = 64 << 10

// core asks Daybreak itself. It learns of pods as they arrive, and of nothing
// that is still to come.
//
// Pods without cards are none of its business: in a cluster, other plugins of
// kube-scheduler place them. Here they go to the node with the most CPU left for
// each card that is free.
type core struct {
	*setting
	learner  *place.Learner
	accounts []*ledger.Node
	requests []gpu.PodRequest // by kind
	// memo has what was found before, by kind and node. It holds until the node
	// or what is expected changes.
	memo [][]finding
	pods int
}

// finding is what the core said of a node.
type finding struct {
	demand  *place.Demand
	version uint32
	known   bool
	fits    bool
	worth   place.Worth
}

func newDaybreak(s *setting) policy {
	c := &core{setting: s, learner: place.NewLearner(), memo: make([][]finding, len(s.state.kinds))}
	supply := map[string]int{}
	for i := range s.state.nodes {
		n := &s.state.nodes[i]
		c.accounts = append(c.accounts, account(n, i))
		supply[n.Model] += n.Cards
	}
	c.learner.SetSupply(supply)
	for i := range s.state.kinds {
		c.requests = append(c.requests, request(&s.state.kinds[i].Pod))
	}
	return c
}

// account opens the account of a node. Names follow the order of the run, so
// that what is a true tie goes to the first node.
func account(n *server, i int) *ledger.Node {
	cards := make([]gpu.Card, n.Cards)
	var zones []int
	for z, size := range n.Zones {
		for range size {
			zones = append(zones, z+1)
		}
	}
	for c := range cards {
		cards[c] = gpu.Card{ID: gpu.CardID(fmt.Sprintf("%s-%d", n.Name, c)), Minor: c, Model: n.Model, Memory: cardMemory, Slots: gpu.MaxSlices, Healthy: true}
	}
	t, err := gpu.NewTopology(cards, gpu.ZoneLinks(zones))
	if err != nil {
		panic(fmt.Sprintf("a node that was read and checked: %v", err))
	}
	a := ledger.NewNode(fmt.Sprintf("%06d", i), t, ledger.Serves{Whole: true, Slices: true})
	a.FreeCPU, a.CPUKnown = gpu.MilliCPU(n.CPU), true
	return a
}

// request says what a pod of the trace asks for in Daybreak's words. Parts of a
// card are whole percent there, rounded up.
func request(p *Pod) gpu.PodRequest {
	r := gpu.PodRequest{QoS: p.QoS, CPU: gpu.MilliCPU(p.CPU), Models: p.Models}
	if p.Cards == 0 {
		return r
	}
	percent := gpu.Percent((p.Milli + 9) / 10)
	ask := gpu.Request{Container: "main", Cards: p.Cards, Compute: percent, Memory: gpu.Memory{Ratio: percent}}
	if percent == gpu.FullCompute {
		ask.Whole, ask.Exclusive = true, true
	}
	r.Requests = []gpu.Request{ask}
	return r
}

func (c *core) place(k *kind) (int, gpu.Set, bool) {
	if k.Cards == 0 {
		return c.withoutCards(k)
	}
	r := &c.requests[k.id]
	c.learner.Observe(r)
	prefer := place.Preference{Demand: c.learner.Demand()}
	t := tie{Ties: c.ties, rng: c.rng}
	var worth place.Worth
	found := false
	for i := range c.accounts {
		f := c.ask(i, k, &prefer)
		if !f.fits {
			continue
		}
		switch better := f.worth.Compare(worth); {
		case !found || better > 0:
			t.first()
		case better < 0 || !t.another():
			continue
		}
		found, worth, t.at = true, f.worth, i
	}
	if !found {
		return 0, 0, false
	}
	a := c.accounts[t.at]
	offer, _ := place.Fit(a, r, &prefer)
	c.pods++
	if _, err := a.Commit(offer, ledger.Holder(strconv.Itoa(c.pods)), r); err != nil {
		panic(fmt.Sprintf("an offer that was just made: %v", err))
	}
	a.FreeCPU -= r.CPU
	return t.at, offer.Cards(0), true
}

// ask returns what the core says of node i.
func (c *core) ask(i int, k *kind, prefer *place.Preference) *finding {
	if c.memo[k.id] == nil {
		c.memo[k.id] = make([]finding, len(c.accounts))
	}
	f, n := &c.memo[k.id][i], &c.state.nodes[i]
	if f.known && f.version == n.version && (f.demand == prefer.Demand || !f.fits) {
		return f
	}
	*f = finding{known: true, version: n.version, demand: prefer.Demand}
	if !n.admits(k) {
		return f
	}
	offer, refusal := place.Fit(c.accounts[i], &c.requests[k.id], prefer)
	if f.fits = refusal.Code == place.Fits; f.fits {
		f.worth = place.Rank(&offer, prefer)
	}
	return f
}

// withoutCards places a pod that asks for no card.
func (c *core) withoutCards(k *kind) (int, gpu.Set, bool) {
	t := tie{Ties: c.ties, rng: c.rng}
	var most float64
	found := false
	for i := range c.state.nodes {
		n := &c.state.nodes[i]
		if !n.admits(k) {
			continue
		}
		left := float64(n.cpu-k.CPU) / float64(n.free+1)
		switch {
		case !found || left > most:
			t.first()
		case left < most || !t.another():
			continue
		}
		found, most, t.at = true, left, i
	}
	if !found {
		return 0, 0, false
	}
	c.accounts[t.at].FreeCPU -= gpu.MilliCPU(k.CPU)
	return t.at, 0, true
}
