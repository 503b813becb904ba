package place

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// randomPod makes up a pod that asks for cards, of a kind that others may share.
func randomPod(r *rand.Rand) *gpu.PodRequest {
	p := &gpu.PodRequest{QoS: gpu.QoSClasses()[r.IntN(3)], CPU: gpu.MilliCPU(r.IntN(9) * 4000)}
	cards := []int{1, 1, 1, 2, 3, 4, 8}[r.IntN(7)]
	req := gpu.Request{Container: "c", Cards: cards}
	switch r.IntN(5) {
	case 0:
		req.Whole, req.Exclusive, req.Compute, req.Memory = true, true, gpu.FullCompute, gpu.AllMemory()
	case 1:
		req.Exclusive, req.Compute, req.Memory = true, gpu.FullCompute, gpu.Memory{Amount: gpu.MiB(1+r.IntN(80)) << 10}
	case 2:
		req.Cards = 1
		p.Class = []gpu.Class{gpu.Online, gpu.Offline}[r.IntN(2)]
		req.Memory = gpu.Memory{Amount: gpu.MiB(1+r.IntN(20)) << 10}
		if p.Class == gpu.Offline {
			req.Compute = gpu.Percent(r.IntN(100))
		}
	case 3:
		req.Compute, req.Memory = gpu.Percent(r.IntN(100)), gpu.Memory{Ratio: gpu.Percent(1 + r.IntN(100))}
	default:
		req.Compute, req.Memory = gpu.Percent(r.IntN(100)), gpu.Memory{Amount: gpu.MiB(1+r.IntN(500)) * 128}
	}
	if r.IntN(4) == 0 {
		p.Models = [][]string{{"C500"}, {"C550"}, {"C500", "N260"}}[r.IntN(3)]
	}
	p.Requests = []gpu.Request{req}
	return p
}

// randomNode makes up a node with things booked on it.
func randomNode(r *rand.Rand) *ledger.Node {
	plan := gputest.Random(r, 1+r.IntN(9))
	for i := range plan.Cards {
		c := &plan.Cards[i]
		c.Healthy = r.IntN(10) > 0
		c.Model = []string{"C500", "C500", "C550", "N260"}[r.IntN(4)]
		c.Slots = []int{16, 16, 4}[r.IntN(3)]
		c.Memory = []gpu.MiB{64 << 10, 64 << 10, 32 << 10, 63 << 10}[r.IntN(4)]
	}
	n := ledger.NewNode("n", plan.Topology(), ledger.Serves{Whole: r.IntN(4) > 0, Slices: r.IntN(4) > 0})
	n.CPUKnown, n.FreeCPU = r.IntN(4) > 0, gpu.MilliCPU(r.IntN(40_000))
	for i := range r.IntN(20) {
		p := randomPod(r)
		p.Models = nil
		if offer, refusal := Fit(n, p, &Preference{}); refusal.Code == Fits {
			n.Book(n.Holding(&offer, ledger.Holder(strconv.Itoa(i)), p))
		}
	}
	return n
}

// spelledOut is the definition of fragmentation, without tables: every class
// that can't use a card counts the card's value.
func spelledOut(census *Census, n *ledger.Node, usage []ledger.Usage, cpu gpu.MilliCPU) int64 {
	t := n.Topology()
	widest := t.Healthy().Len()
	if len(t.Zones()) > 0 {
		widest = 1
		for _, z := range t.Zones() {
			widest = max(widest, (z & t.Healthy()).Len())
		}
	}
	free := idle(t, usage)
	value := func(c int) int64 {
		u, card := &usage[c], t.Card(c)
		if u.Exclusive {
			return 0
		}
		return int64(max(0, 100-u.Compute))*100 + int64(max(0, card.Memory-u.Memory))*10_000/int64(card.Memory)
	}
	var sum, total, count, allCPU, allValue, joint int64
	for c := range t.Healthy().All() {
		total += value(c)
	}
	for i := range census.basis {
		s := &census.basis[i]
		weight := s.share
		count += weight
		allCPU += s.share * int64(s.cpu) / int64(s.cards)
		allValue += weight * (int64(s.compute)*100 + min(10_000, int64(s.memory.Of(64<<10))*10_000/(64<<10)))
		if s.models != "" && census.cards > 0 {
			weight = dear(census, s)
			if weight == 0 {
				continue
			}
		}
		if s.exclusive && s.cards > 1 {
			joint += weight
		}
		usable := usableCards(&s.class, n, usage)
		for c := range t.Healthy().All() {
			room := usable
			if s.exclusive {
				if zone, ok := t.ZoneOf(c); ok && s.cards <= widest {
					room = usable & t.Zones()[zone-1]
					if (free & t.Zones()[zone-1]).Len() < s.cards {
						room = 0
					}
				} else if len(t.Zones()) > 0 && s.cards <= widest {
					if s.cards > 1 {
						room = 0
					}
				} else if free.Len() < s.cards {
					room = 0
				}
			} else if usable.Len() < s.cards {
				room = 0
			}
			switch {
			case n.CPUKnown && s.cpu > cpu || !room.Has(c):
				sum += weight * value(c)
			case !s.exclusive:
				sum += weight * whenFull(&s.class, t.Card(c), usage[c])
			}
		}
	}
	for _, z := range t.Zones() {
		idle := int64((z & free).Len())
		sum -= joint * 20_000 / pairPart * idle * (idle - 1) / 2
	}
	if n.CPUKnown && allCPU > 0 {
		rate := (allValue << 12) / (allCPU * 4 / 5)
		if int64(cpu) < total<<12/rate {
			sum += 4 * count * (total - int64(cpu)*rate>>12)
		}
	}
	return sum
}

// whenFull is what is left of a card's value when slices of the class fill it.
func whenFull(s *class, card *gpu.Card, u ledger.Usage) int64 {
	memory := s.memory.Of(card.Memory)
	for int(u.Slots) < card.Slots && (s.compute == 0 || u.Compute+s.compute <= gpu.FullCompute) && u.Memory+memory <= card.Memory {
		u.Slots++
		u.Compute += s.compute
		u.Memory += memory
	}
	return int64(max(0, gpu.FullCompute-u.Compute))*100 + int64(max(0, card.Memory-u.Memory))*10_000/int64(card.Memory)
}

// dear is what a class that needs certain models weighs.
func dear(census *Census, s *weighed) int64 {
	var all, compute, weight, asked, cards int64
	for i := range census.basis {
		o := &census.basis[i]
		all += o.share
		compute += o.share * int64(o.compute)
		if o.models == s.models {
			weight += o.share
			asked += o.share * int64(o.compute)
		}
	}
	for m := range strings.SplitSeq(s.models, "|") {
		cards += census.supply[m]
	}
	if cards == 0 {
		return 0
	}
	own := s.share
	pressure := min(1024, 1024*asked/compute*census.cards/cards)
	return max(own, own*all/weight*(4*pressure)/1024)
}

// usableCards returns the cards that could each take one share of the class, as
// the rules for a pod of the class say.
func usableCards(s *class, n *ledger.Node, usage []ledger.Usage) gpu.Set {
	pod := gpu.PodRequest{Class: s.podClass, QoS: s.qos.Only(), Requests: []gpu.Request{{
		Cards: s.cards, Whole: s.whole, Exclusive: s.exclusive, Compute: s.compute, Memory: s.memory,
	}}}
	var usable gpu.Set
	if !Served(n.Serves, &pod) {
		return 0
	}
	for c := range n.Topology().Len() {
		card := n.Topology().Card(c)
		share := s.share()
		check := check{card: card, usage: &usage[c], pod: &pod, request: &pod.Requests[0], share: &share}
		code, _, _ := check.run()
		if code == Fits && runsOn(s.models, card.Model) {
			usable |= gpu.SetOf(c)
		}
	}
	return usable
}

func runsOn(models, model string) bool {
	return models == "" || slices.Contains(strings.Split(models, "|"), model)
}

// TestFragmentationIsTheDefinition: tables and shortcuts give what the
// definition gives, on nodes and workloads of all kinds.
func TestFragmentationIsTheDefinition(t *testing.T) {
	for seed := range uint64(30) {
		r := gputest.Rand(seed)
		census := NewCensus()
		if seed%3 > 0 {
			census.SetSupply(map[string]int{"C500": 100, "C550": 7})
		}
		for range 40 + r.IntN(200) {
			census.Add(KindsOf(randomPod(r)), 1)
		}
		d := census.Demand()
		for range 40 {
			n := randomNode(r)
			var o outlook
			o.load(d, n, n.Now().Usage)
			for _, cpu := range []gpu.MilliCPU{n.FreeCPU, n.FreeCPU / 2, 0} {
				if got, want := o.fragmentation(cpu, o.running(cpu), 0, nil), spelledOut(census, n, n.Now().Usage, cpu); got != want {
					t.Fatalf("seed %d: fragmentation %d at %d CPU, want %d; %d classes, node %+v", seed, got, cpu, want, len(census.basis), n)
				}
			}
		}
	}
}

// TestGrowthIsTheDifference: what an offer says it costs is what booking it
// costs.
func TestGrowthIsTheDifference(t *testing.T) {
	for seed := range uint64(60) {
		r := gputest.Rand(seed)
		census := NewCensus()
		for range 40 + r.IntN(100) {
			census.Add(KindsOf(randomPod(r)), 1)
		}
		p := Preference{Demand: census.Demand()}
		if p.Demand == nil {
			t.Fatal("40 pods are not enough")
		}
		for range 40 {
			n, pod := randomNode(r), randomPod(r)
			if r.IntN(3) == 0 {
				pod.Requests = append(pod.Requests, randomPod(r).Requests...)
			}
			offer, refusal := Fit(n, pod, &p)
			if refusal.Code != Fits {
				continue
			}
			before := spelledOut(census, n, n.Now().Usage, n.FreeCPU)
			n.Book(n.Holding(&offer, "pod", pod))
			if got, want := offer.Growth, spelledOut(census, n, n.Now().Usage, max(0, n.FreeCPU-pod.CPU))-before; got != want {
				t.Fatalf("seed %d: growth %d, want %d, for %+v", seed, got, want, pod)
			}
		}
	}
}
