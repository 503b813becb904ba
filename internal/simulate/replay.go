package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Trace is a cluster and the pods that arrive there.
type Trace struct {
	Nodes []Node
	Pods  []Pod
}

// capacity returns the cards of the cluster in thousandths.
func (t *Trace) capacity() int64 {
	var sum int64
	for i := range t.Nodes {
		sum += int64(t.Nodes[i].Cards) * wholeCard
	}
	return sum
}

// result is what became of one policy at one seed.
type result struct {
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`
	Nodes  int    `json:"nodes"`
	Cards  int    `json:"cards"`
	Pods   int    `json:"pods"`
	// AllocatedPercentAt is the part of all cards in use when the pods that had
	// arrived asked for so many percent of them.
	AllocatedPercentAt map[string]float64 `json:"allocatedPercentAt"`
	// FirstFailurePercent is what had arrived when the first pod with cards was
	// refused; null when none was.
	FirstFailurePercent *float64 `json:"firstFailurePercent"`
	// FailedAt100 counts the pods refused up to the point where what has
	// arrived asks for all cards, by their size; "cpu" is pods without cards.
	FailedAt100 map[string]int `json:"failedAt100"`
	// Failed counts them over the whole run.
	Failed map[string]int `json:"failed"`
	// Curve has the allocation at every whole percent arrived.
	Curve []point `json:"curve"`
}

type point struct {
	ArrivedPercent   int     `json:"arrivedPercent"`
	AllocatedPercent float64 `json:"allocatedPercent"`
}

// marks are the points of the curve that are reported by themselves.
var marks = []int{80, 90, 95, 100, 110, 130}

// Placement is where one pod went.
type Placement struct {
	Placed bool
	Node   string
	Cards  gpu.Set
}

// replayAll replays the trace under every policy at every seed. The results are
// in the order of policies, then seeds. With an [interruptedError] they are those
// of the runs that were completed.
func replayAll(ctx context.Context, t *Trace, o *Options, progress func(done, total int64)) ([]result, error) {
	if t.capacity() == 0 {
		return nil, errors.New("no server of the trace has a card: gpu is 0 in every row")
	}
	kinds, jobs := kindsOf(t.Pods, o.OneQoS)
	orders := make([][]int, o.Seeds)
	var total int64
	for i := range orders {
		var err error
		if orders[i], err = arrivals(t.Pods, t.capacity(), o.Inflate, o.Seed+int64(i)); err != nil {
			return nil, err
		}
		total += int64(len(orders[i]) * len(o.Policies))
	}
	return runAll(ctx, len(o.Policies)*o.Seeds, total, progress, func(ctx context.Context, i int, arrived func(int)) (result, error) {
		name, seed := o.Policies[i/o.Seeds], o.Seed+int64(i%o.Seeds)
		var arriving []job
		for _, pod := range orders[i%o.Seeds] {
			arriving = append(arriving, jobs[pod])
		}
		m := newTraceMeter(t.capacity())
		w := &world{kinds: kinds, ties: o.Ties, rng: random(seed, tieStream)}
		if err := w.replay(ctx, permuted(t.Nodes, seed), arriving, name, m, arrived); err != nil {
			return result{}, fmt.Errorf("policy %s at seed %d: %w", name, seed, err)
		}
		m.Policy, m.Seed, m.Nodes, m.Pods, m.Cards = name, seed, len(t.Nodes), len(arriving), int(t.capacity()/wholeCard)
		return m.finish(), nil
	})
}

// Place runs the pods of the trace once, in the order they have there, on the
// nodes as they are ordered there, and returns where each went, in the same order.
func Place(ctx context.Context, t *Trace, policy string, o Options) ([]Placement, error) {
	kinds, jobs := kindsOf(t.Pods, o.OneQoS)
	m := newTraceMeter(t.capacity())
	m.placements = make([]Placement, len(jobs))
	w := &world{kinds: kinds, ties: o.Ties, rng: random(o.Seed, tieStream)}
	return m.placements, w.replay(ctx, t.Nodes, jobs, policy, m, func(int) {})
}

// replay is one run of one policy on the given nodes.
func (w *world) replay(ctx context.Context, nodes []Node, jobs []job, name string, m meter, arrived func(int)) (err error) {
	if w.servers, err = traceServers(nodes); err != nil {
		return err
	}
	return newEngine(w, find(tracePolicies, name).make(w), jobs, 0, m).run(ctx, arrived)
}

// traceServers returns the nodes of a trace with nothing on them.
func traceServers(nodes []Node) ([]*server, error) {
	topologies := map[string]*gpu.Topology{}
	var servers []*server
	for i := range nodes {
		n := &nodes[i]
		key := fmt.Sprint(n.Model, n.Cards, n.Zones)
		if topologies[key] == nil {
			var zones []int
			for z, size := range n.Zones {
				zones = append(zones, slices.Repeat([]int{z + 1}, size)...)
			}
			t, err := newTopology(n.Cards, n.Model, gpu.ZoneLinks(zones))
			if err != nil {
				return nil, fmt.Errorf("server %s: %w", n.Name, err)
			}
			topologies[key] = t
		}
		s := newServer(i, n.Name, topologies[key])
		s.model, s.memory = n.Model, n.Memory
		s.FreeCPU, s.CPUKnown = gpu.MilliCPU(n.CPU), true
		servers = append(servers, s)
	}
	return servers, nil
}

// traceMeter measures what is allocated as pods arrive.
type traceMeter struct {
	result
	// placements has an entry for each job, unless it is nil.
	placements []Placement

	capacity     int64
	asked, given int64
	sum          map[int]float64 // by percent arrived: of the allocation
	count        map[int]int
	last         int
}

func newTraceMeter(capacity int64) *traceMeter {
	m := &traceMeter{
		result:   result{AllocatedPercentAt: map[string]float64{}, FailedAt100: map[string]int{}, Failed: map[string]int{}},
		capacity: capacity, sum: map[int]float64{}, count: map[int]int{},
	}
	for _, size := range []string{sizeCPU, sizeFractional, "1", "2", "4", "8"} {
		m.Failed[size], m.FailedAt100[size] = 0, 0
	}
	return m
}

// pass has nothing to do: a trace has no time.
func (m *traceMeter) pass(_, _, _ float64) {}

func (m *traceMeter) start(j int, k *kind, _ float64, s *server, cards gpu.Set) {
	if m.placements != nil {
		m.placements[j] = Placement{Placed: true, Node: s.name, Cards: cards}
	}
	m.arrived(k, true)
}

func (m *traceMeter) refuse(k *kind) { m.arrived(k, false) }

// arrived notes the next pod and whether it found a place.
func (m *traceMeter) arrived(k *kind, placed bool) {
	m.asked += k.demand()
	if placed {
		m.given += k.demand()
	} else {
		m.Failed[k.size]++
		if m.asked <= m.capacity {
			m.FailedAt100[k.size]++
		}
		if k.cards > 0 && m.FirstFailurePercent == nil {
			m.FirstFailurePercent = new(m.percent(m.asked))
		}
	}
	m.last = int(math.Round(m.percent(m.asked)))
	m.sum[m.last] += m.percent(m.given)
	m.count[m.last]++
}

func (m *traceMeter) percent(milli int64) float64 { return 100 * float64(milli) / float64(m.capacity) }

// finish reads the curve off: the mean allocation over the pods whose arrival
// rounds to a percent. A percent that a large pod jumps over is as the one
// before it.
func (m *traceMeter) finish() result {
	value := 0.0
	for x := 0; x <= m.last; x++ {
		if m.count[x] > 0 {
			value = m.sum[x] / float64(m.count[x])
		}
		m.Curve = append(m.Curve, point{ArrivedPercent: x, AllocatedPercent: value})
	}
	for _, x := range marks {
		if x < len(m.Curve) {
			m.AllocatedPercentAt[strconv.Itoa(x)] = m.Curve[x].AllocatedPercent
		}
	}
	return m.result
}

// stream names a source of random numbers of a run. Each has its own, so that
// what one draws does not change the others: all policies see the same pods on
// the same nodes.
type stream uint64

const (
	arrivalStream stream = iota + 1
	nodeStream
	tieStream
	// Those of the topology study.
	jobStream      stream = 0xda7b4ea4
	studyTieStream stream = 0x7ee5
)

// random returns the numbers of a stream at a seed.
func random(seed int64, s stream) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), uint64(s)))
}

// arrivals returns the pods in the order in which they arrive at a seed: the
// trace shuffled, then pods drawn from it with replacement until the next would
// take the demand past inflate times the capacity. A trace that is larger than
// that loses pods at random. The result has positions in pods.
func arrivals(pods []Pod, capacity int64, inflate float64, seed int64) ([]int, error) {
	rng := random(seed, arrivalStream)
	order := make([]int, 0, len(pods))
	var demand int64
	for i := range pods {
		order = append(order, i)
		demand += pods[i].Demand()
	}
	if demand == 0 {
		return nil, errors.New("no pod of the trace asks for a card: num_gpu is 0 in every row")
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pods[a].Name, pods[b].Name) })
	rng.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })

	limit := int64(inflate * float64(capacity))
	for demand > limit && len(order) > 0 {
		i := rng.IntN(len(order))
		demand -= pods[order[i]].Demand()
		order = slices.Delete(order, i, i+1)
	}
	trace := len(order)
	for trace > 0 {
		p := order[rng.IntN(trace)]
		if demand+pods[p].Demand() > limit {
			break
		}
		if len(order) > maxRows*10 {
			return nil, fmt.Errorf("more than %d arrivals: a smaller --inflate, or a trace whose pods ask for more of the cards", maxRows*10)
		}
		demand += pods[p].Demand()
		order = append(order, p)
	}
	return order, nil
}

// permuted returns the nodes in the order of a seed.
func permuted(nodes []Node, seed int64) []Node {
	out := slices.Clone(nodes)
	random(seed, nodeStream).Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}
