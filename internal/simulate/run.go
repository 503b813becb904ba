package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

var errNoDemand = errors.New("no pod of the trace asks for a card: num_gpu is 0 in every row")

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

// Options say what to run over a trace.
type Options struct {
	Policies []string
	// Seed is the first of Seeds seeds.
	Seed    int64
	Seeds   int
	Inflate float64
	Ties    Ties
	// OneQoS makes a card in use take shares of one QoS class only.
	OneQoS bool
}

// Result is what became of one policy at one seed.
type Result struct {
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
	Curve []Point `json:"curve"`
}

// Point is a point of a curve.
type Point struct {
	ArrivedPercent   int     `json:"arrivedPercent"`
	AllocatedPercent float64 `json:"allocatedPercent"`
}

// marks are the points of the curve that are told by themselves.
var marks = []int{80, 90, 95, 100, 110, 130}

// Placement is where one pod of a run went.
type Placement struct {
	// Pod is the position of the pod in the trace.
	Pod    int
	Placed bool
	Node   string
	Cards  gpu.Set
}

// Run replays the trace under every policy at every seed, on all cores. The
// results are in the order of policies, then seeds. Progress is told how many
// pods were placed of how many in all; it may be called by several goroutines.
func Run(ctx context.Context, t *Trace, o Options, progress func(done, total int64)) ([]Result, error) {
	type job struct {
		policy string
		order  []int
		seed   int64
	}
	if t.capacity() == 0 {
		return nil, errors.New("no server of the trace has a card: gpu is 0 in every row")
	}
	orders := make([][]int, o.Seeds)
	var total int64
	for i := range orders {
		var err error
		if orders[i], err = arrivals(t.Pods, t.capacity(), o.Inflate, o.Seed+int64(i)); err != nil {
			return nil, err
		}
		total += int64(len(orders[i]) * len(o.Policies))
	}
	var jobs []job
	for _, p := range o.Policies {
		for i := range o.Seeds {
			jobs = append(jobs, job{policy: p, order: orders[i], seed: o.Seed + int64(i)})
		}
	}
	var mu sync.Mutex
	var done int64
	tell := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += int64(n)
		if progress != nil {
			progress(done, total)
		}
	}
	results := make([]Result, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, j := range jobs {
		group.Go(func() error {
			r := replay{trace: t, options: &o, seed: j.seed, order: j.order, tell: tell}
			if err := r.run(ctx, j.policy); err != nil {
				return fmt.Errorf("policy %s at seed %d: %w", j.policy, j.seed, err)
			}
			results[i] = r.result
			return nil
		})
	}
	return results, group.Wait()
}

// Place runs the pods of the trace once, in the order they have there, on the
// nodes as they are ordered there, and tells where each went.
func Place(ctx context.Context, t *Trace, policy string, o Options) ([]Placement, error) {
	order := make([]int, len(t.Pods))
	for i := range order {
		order[i] = i
	}
	o.Policies = []string{policy}
	r := replay{trace: t, options: &o, seed: o.Seed, order: order, asOrdered: true, keep: true}
	err := r.run(ctx, policy)
	return r.placements, err
}

// replay is one run of one policy at one seed.
type replay struct {
	trace   *Trace
	options *Options
	seed    int64
	order   []int
	// asOrdered leaves the nodes in the order of the trace.
	asOrdered bool
	tell      func(pods int)

	keep       bool
	placements []Placement
	result     Result
}

// tellEvery is how many pods are placed between two words about progress.
const tellEvery = 512

func (r *replay) run(ctx context.Context, name string) error {
	nodes := r.trace.Nodes
	if !r.asOrdered {
		nodes = permuted(nodes, r.seed)
	}
	kinds, of := kindsOf(r.trace.Pods, r.options.OneQoS)
	s := newState(nodes, kinds, r.options.OneQoS)
	p, err := newPolicy(name, &setting{state: s, trace: of, ties: r.options.Ties, rng: random(r.seed, tieStream)})
	if err != nil {
		return err
	}
	m := newMeter(r.trace.capacity())
	for i, pod := range r.order {
		k := &kinds[of[pod]]
		node, cards, ok := p.place(k)
		if ok {
			if err := s.book(node, cards, k); err != nil {
				return err
			}
		}
		m.arrived(k, ok)
		if r.keep {
			placement := Placement{Pod: pod, Placed: ok, Cards: cards}
			if ok {
				placement.Node = s.nodes[node].Name
			}
			r.placements = append(r.placements, placement)
		}
		if (i+1)%tellEvery == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if r.tell != nil {
				r.tell(tellEvery)
			}
		}
	}
	if r.tell != nil {
		r.tell(len(r.order) % tellEvery)
	}
	r.result = m.result()
	r.result.Policy, r.result.Seed = name, r.seed
	r.result.Nodes, r.result.Pods = len(nodes), len(r.order)
	r.result.Cards = int(r.trace.capacity() / wholeCard)
	return nil
}

// meter measures a run.
type meter struct {
	capacity           int64
	asked, given       int64
	sum                map[int]float64 // by percent arrived: of the allocation
	count              map[int]int
	last               int
	first              *float64
	failed, failedFull map[string]int
}

func newMeter(capacity int64) *meter {
	m := &meter{capacity: capacity, sum: map[int]float64{}, count: map[int]int{}, failed: map[string]int{}}
	for _, size := range []string{"cpu", "fractional", "1", "2", "4", "8"} {
		m.failed[size] = 0
	}
	m.failedFull = map[string]int{}
	for size := range m.failed {
		m.failedFull[size] = 0
	}
	return m
}

// arrived notes the next pod and whether it found a place.
func (m *meter) arrived(k *kind, placed bool) {
	m.asked += k.Demand()
	if placed {
		m.given += k.Demand()
	} else {
		m.failed[sizeOf(&k.Pod)]++
		if m.asked <= m.capacity {
			m.failedFull[sizeOf(&k.Pod)]++
		}
		if k.Cards > 0 && m.first == nil {
			m.first = new(m.percent(m.asked))
		}
	}
	m.last = int(math.Round(m.percent(m.asked)))
	m.sum[m.last] += m.percent(m.given)
	m.count[m.last]++
}

func (m *meter) percent(milli int64) float64 { return 100 * float64(milli) / float64(m.capacity) }

// sizeOf names the size of a pod in reports.
func sizeOf(p *Pod) string {
	switch {
	case p.Cards == 0:
		return "cpu"
	case p.fractional():
		return "fractional"
	default:
		return strconv.Itoa(p.Cards)
	}
}

// result reads the curve off: the mean allocation over the pods whose arrival
// rounds to a percent. A percent that a large pod jumps over is as the one
// before it.
func (m *meter) result() Result {
	r := Result{AllocatedPercentAt: map[string]float64{}, FirstFailurePercent: m.first, FailedAt100: m.failedFull, Failed: m.failed}
	value := 0.0
	for x := 0; x <= m.last; x++ {
		if m.count[x] > 0 {
			value = m.sum[x] / float64(m.count[x])
		}
		r.Curve = append(r.Curve, Point{ArrivedPercent: x, AllocatedPercent: value})
	}
	for _, x := range marks {
		if x < len(r.Curve) {
			r.AllocatedPercentAt[strconv.Itoa(x)] = r.Curve[x].AllocatedPercent
		}
	}
	return r
}
