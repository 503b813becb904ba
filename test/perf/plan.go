package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Plan is what is measured.
type Plan struct {
	// Rounds is how often each scheduler has its turn.
	Rounds int `json:"rounds"`
	// Profile is the kind of the nodes.
	Profile string `json:"profile"`
	// Kinds are pods by name, Workloads mixes of them.
	Kinds     map[string]Kind     `json:"kinds"`
	Workloads map[string]Workload `json:"workloads"`
	// Peers are measured too, in clusters whose nodes the vendor's plugin serves:
	// they run nowhere else.
	Peers []side `json:"peers,omitempty"`
	// Clusters are measured one after the other.
	Clusters []ClusterPlan `json:"clusters"`
	// Core is measured without a cluster.
	Core   *CorePlan `json:"core,omitempty"`
	Bounds Bounds    `json:"bounds"`
}

// Kind is pods that are all alike.
type Kind struct {
	Resources   map[string]string `json:"resources"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// HAMi is the same in HAMi's words; needed only for that peer.
	HAMi map[string]string `json:"hami,omitempty"`
	// PriorityClass is one that every cluster has; empty is the lowest priority here.
	PriorityClass string `json:"priorityClass,omitempty"`
	// Apart pods prefer nodes without others of their kind.
	Apart bool `json:"apart,omitempty"`
}

// Workload is the pods that are bound in one run.
type Workload struct {
	// Mix is how many of each kind there are in a hundred pods, or of any other
	// number that they come to.
	Mix map[string]int `json:"mix"`
	// Policy is what Daybreak is started with; empty is its default.
	Policy string `json:"policy,omitempty"`
	// Unfit pods of one kind, which no node can take, have been tried when the
	// others come.
	Unfit *Group `json:"unfit,omitempty"`
	// Beside names the workload that differs only in having no unfit pods.
	Beside string `json:"beside,omitempty"`
	// Shapes is how many different slices the pods ask for, 500 at most; 0 are the
	// requests of their kinds.
	Shapes int `json:"shapes,omitempty"`
	// Rare is how many further kinds of slices there are: every tenth pod is of one of
	// them.
	Rare int `json:"rare,omitempty"`
	// Churns means that pods end in the order in which they came, one for each that is
	// bound, once half of them are.
	Churns bool `json:"churns,omitempty"`
	// Quota is a budget that the pods' namespace has meanwhile.
	Quota *Budget `json:"quota,omitempty"`
	// RewriteDevices has a Device written again after each binding, as agents do.
	RewriteDevices bool `json:"rewriteDevices,omitempty"`
	// Preempts means that pods find room only where residents are evicted, which come
	// back after the run.
	Preempts bool `json:"preempts,omitempty"`
	// Rounds stands in for those of the plan; 0 are the plan's.
	Rounds int `json:"rounds,omitempty"`
}

// Budget is the spec of a ResourceQuota.
type Budget struct {
	Hard   map[string]string `json:"hard"`
	Scopes []string          `json:"scopes,omitempty"`
}

// Group is a number of pods of one kind.
type Group struct {
	Kind string `json:"kind"`
	Pods int    `json:"pods"`
}

// ClusterPlan is what is measured in one cluster.
type ClusterPlan struct {
	Nodes int `json:"nodes"`
	// Residents are there all the time, bound with their cards.
	Residents *Residents `json:"residents,omitempty"`
	// Pods is how many pods a run of a workload binds.
	Pods      int      `json:"pods,omitempty"`
	Workloads []string `json:"workloads,omitempty"`
	// Start measures the time to the first decision.
	Start bool `json:"start,omitempty"`
	// Wake measures what a freed card does.
	Wake *WakePlan `json:"wake,omitempty"`
}

// Residents are pods of one kind on some of the nodes.
type Residents struct {
	Kind    string `json:"kind"`
	PerNode int    `json:"perNode"`
	// Percent of the nodes have them, the others are empty.
	Percent int `json:"percent"`
}

// WakePlan is pods that wait in a full cluster while residents end.
type WakePlan struct {
	// Waiting pods are not helped by a resident's end; Helped pods are, each by
	// one.
	Waiting Group `json:"waiting"`
	Helped  Group `json:"helped"`
}

// Bounds are what must hold. Those that are zero are not looked at.
type Bounds struct {
	// Ratio is pods a second of Daybreak to those of plain kube-scheduler, and
	// RatioFull the same where residents fill most of the cluster.
	Ratio     float64 `json:"ratio"`
	RatioFull float64 `json:"ratioFull"`
	// RatioOrdinary is for workloads without cards.
	RatioOrdinary float64 `json:"ratioOrdinary"`
	// PostFilter is how many times as long as plain kube-scheduler's a search for
	// victims may take.
	PostFilter float64 `json:"postFilter"`
	// ExtraCalls is by how much calls of the API a pod may differ.
	ExtraCalls float64 `json:"extraCalls"`
	// Unfit is what must be left of the speed when unfit pods wait.
	Unfit float64 `json:"unfit"`
	// Growth is how much longer the 99th percentile of a scheduling cycle may
	// be with ten times the nodes.
	Growth float64 `json:"growth"`
	// PeakMiB bounds the memory of the scheduler in every run but of starts.
	PeakMiB float64 `json:"peakMiB"`
	// StartSeconds bounds the time to the first decision, WakeSeconds that from
	// a resident's end to the binding of the pod that it helps.
	StartSeconds float64 `json:"startSeconds"`
	WakeSeconds  float64 `json:"wakeSeconds"`
}

// loadPlan reads a plan, with HAMi as one more peer if there is a checkout. Unknown
// fields and names are errors.
func loadPlan(file string) (*Plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	var p Plan
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return nil, fmt.Errorf("plan %s: %w", file, err)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("plan %s: %w", file, err)
	}
	if os.Getenv(envHAMi) != "" && len(p.Peers) > 0 {
		p.Peers = append(p.Peers, hami)
	}
	return &p, nil
}

func (p *Plan) validate() error {
	if p.Rounds < 1 {
		return fmt.Errorf("rounds: %d: write 1 or more", p.Rounds)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Kinds)) {
		for _, list := range []map[string]string{p.Kinds[name].Resources, p.Kinds[name].HAMi} {
			if err := validateAmounts(list); err != nil {
				return fmt.Errorf("kind %s: %w", name, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Workloads)) {
		w := p.Workloads[name]
		if err := p.validateWorkload(&w); err != nil {
			return fmt.Errorf("workload %s: %w", name, err)
		}
	}
	if err := p.validateCore(); err != nil {
		return err
	}
	for _, s := range p.Peers {
		if s != koordinator && s != hami {
			return fmt.Errorf("peers: %q: write %s or %s", s, koordinator, hami)
		}
	}
	for i := range p.Clusters {
		if err := p.validateCluster(&p.Clusters[i]); err != nil {
			return fmt.Errorf("cluster %d: %w", i, err)
		}
	}
	return nil
}

func validateAmounts(list map[string]string) error {
	for res, amount := range list {
		if _, err := resource.ParseQuantity(amount); err != nil {
			return fmt.Errorf("%s: %q: write a quantity such as 1 or 4Gi", res, amount)
		}
	}
	return nil
}

func (p *Plan) validateWorkload(w *Workload) error {
	if len(w.Mix) == 0 {
		return errors.New("mix: name at least one kind")
	}
	for kind, n := range w.Mix {
		if err := p.validateGroup(&Group{Kind: kind, Pods: n}); err != nil {
			return err
		}
	}
	if w.Shapes < 0 || w.Shapes > 500 || w.Rare < 0 || w.Rare > 500 || w.Rounds < 0 {
		return fmt.Errorf("shapes: %d, rare: %d, rounds: %d: write 1 or more, at most 500 shapes and rare kinds, or leave them out", w.Shapes, w.Rare, w.Rounds)
	}
	if w.Quota != nil {
		if err := validateAmounts(w.Quota.Hard); err != nil {
			return fmt.Errorf("quota: %w", err)
		}
	}
	if _, ok := p.Workloads[w.Beside]; w.Beside != "" && !ok {
		return fmt.Errorf("beside: there is no workload %q", w.Beside)
	}
	if w.Unfit != nil {
		return p.validateGroup(w.Unfit)
	}
	return nil
}

func (p *Plan) validateGroup(g *Group) error {
	if _, ok := p.Kinds[g.Kind]; !ok {
		return fmt.Errorf("there is no kind %q", g.Kind)
	}
	if g.Pods < 1 {
		return fmt.Errorf("%d pods of kind %s: write 1 or more", g.Pods, g.Kind)
	}
	return nil
}

func (p *Plan) validateCluster(c *ClusterPlan) error {
	if c.Nodes < 1 {
		return fmt.Errorf("nodes: %d: write 1 or more", c.Nodes)
	}
	if err := p.validateWorkloads(c); err != nil {
		return err
	}
	if r := c.Residents; r != nil {
		if err := p.validateGroup(&Group{Kind: r.Kind, Pods: r.PerNode}); err != nil {
			return fmt.Errorf("residents: %w", err)
		}
		if r.Percent < 1 || r.Percent > 100 {
			return fmt.Errorf("residents: percent: %d: write 1 to 100", r.Percent)
		}
	}
	if c.Wake == nil {
		return nil
	}
	if c.Residents == nil {
		return errors.New("wake: there must be residents to end")
	}
	for _, g := range []*Group{&c.Wake.Waiting, &c.Wake.Helped} {
		if err := p.validateGroup(g); err != nil {
			return fmt.Errorf("wake: %w", err)
		}
	}
	return nil
}

func (p *Plan) validateWorkloads(c *ClusterPlan) error {
	for _, w := range c.Workloads {
		if _, ok := p.Workloads[w]; !ok {
			return fmt.Errorf("there is no workload %q", w)
		}
		if p.Workloads[w].Preempts && c.Residents == nil {
			return fmt.Errorf("workload %s: there must be residents to evict", w)
		}
	}
	if len(c.Workloads) > 0 && c.Pods < 2 {
		return fmt.Errorf("pods: %d: write 2 or more", c.Pods)
	}
	return nil
}

// keep drops all measurements that the expression does not match.
func (p *Plan) keep(filter *regexp.Regexp) error {
	var kept []ClusterPlan
	for _, c := range p.Clusters {
		matches := func(name string) bool { return filter.MatchString(fmt.Sprintf("%d/%s", c.Nodes, name)) }
		c.Workloads = slices.DeleteFunc(slices.Clone(c.Workloads), func(w string) bool { return !matches(w) })
		c.Start = c.Start && matches("start")
		if !matches("wake") {
			c.Wake = nil
		}
		if len(c.Workloads) > 0 || c.Start || c.Wake != nil {
			kept = append(kept, c)
		}
	}
	if !filter.MatchString("core") {
		p.Core = nil
	}
	if len(kept) == 0 && p.Core == nil {
		return fmt.Errorf("-run %q: nothing in the plan matches", filter)
	}
	p.Clusters = kept
	return nil
}
