package place

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Excluded returns the refusal of a node that the pod may not use.
func Excluded(why Exclusion) Refusal {
	return Refusal{Code: NodeExcluded, Permanent: true, WhenEmpty: Shortage{Code: NodeExcluded}, Exclusion: why}
}

// Budget is a limit of a namespace, which a ResourceQuota sets.
type Budget struct {
	// Quota is the name of the ResourceQuota, and Limit that of the amount in it.
	Quota, Limit string
	Unit         Unit
	Hard         int64
	// Problem, unless it is empty, is why the amount can't be read. Then nothing is
	// allowed.
	Problem string
}

// OverBudget returns the refusal of a pod that wants more than what is left of the
// budget of its namespace. It is permanent if it wants more than all of it.
func OverBudget(b Budget, want, used int64) Refusal {
	r := Refusal{Code: QuotaExceeded, Want: want, Have: max(0, b.Hard-used), Budget: &b}
	if r.Permanent = want > b.Hard; r.Permanent {
		r.WhenEmpty = Shortage{Code: QuotaExceeded, Want: want, Have: b.Hard}
	}
	return r
}

// Refusal is why a node can't take a request. It is a value: events, tables and
// metrics render it.
type Refusal struct {
	// Code is the latest reason that a card gave, in the order of the checks: that of
	// the card nearest to fitting. [Fits] means there is no refusal.
	Code Code
	// Want and Have are in the unit of the code, or of the budget: MiB, percent, slots
	// or cards. For an amount, Have is the best card among those refused for this code.
	Want, Have int64
	// Idle reports that the cards must be idle: the pod wants them for itself.
	Idle bool
	// Total reports that Want and Have are those of all containers of the pod and of
	// the node as a whole. Of [TooFewCards], what fits is what the containers
	// got in the order of the spec before one got none: the node has enough, but no
	// arrangement was found.
	Total bool
	// Permanent means that evicting every pod of the node would not help.
	Permanent bool
	// WhenEmpty is the reason of a permanent refusal: why the node refuses without
	// any pods. It may differ from Code.
	WhenEmpty Shortage
	// Paused is, of [Unhealthy], whether the node takes no pods for now, however
	// its cards are.
	Paused bool
	// Exclusion is, of [NodeExcluded], why the pod may not use the node.
	Exclusion Exclusion
	// Incomplete reports that the search for an arrangement of the pod's
	// containers ended at its budget: there may be one.
	Incomplete bool
	// Absent is, of [CardExcluded], the first of the Listed cards that the pod names
	// as the only ones, if the node has none of them.
	Absent gpu.CardID
	Listed int
	// Budget is, of [QuotaExceeded], the limit that is exceeded.
	Budget *Budget
	// Container is the position of the request that could not be met.
	Container int
	// Cards counts the node's cards by the reason each gave.
	Cards [codes]uint8
}

// Shortage is a code with its numbers, as in a [Refusal].
type Shortage struct {
	Code        Code
	Want, Have  int64
	Idle, Total bool
}

// cause returns the refusal to report: there is no use in waiting for cards to
// become free when they would not do.
func (r *Refusal) cause() Refusal {
	c := *r
	if r.WhenEmpty.Code != Fits {
		e := &r.WhenEmpty
		c.Code, c.Want, c.Have, c.Idle, c.Total = e.Code, e.Want, e.Have, e.Idle, e.Total
	}
	return c
}

// Reason is what several nodes have in common that refused a pod.
type Reason struct {
	Code Code `json:"code"`
	// Nodes is how many of them gave the code.
	Nodes int `json:"nodes"`
	// Want and Have are those of the nearest miss among them.
	Want int64 `json:"want"`
	Have int64 `json:"have"`
	// The others are that miss's as well.
	Idle   bool       `json:"idle,omitempty"`
	Total  bool       `json:"total,omitempty"`
	Paused bool       `json:"paused,omitempty"`
	Absent gpu.CardID `json:"absent,omitempty"`
	Listed int        `json:"listed,omitempty"`
	Budget *Budget    `json:"-"`
}

// nearer reports whether a node came nearer to taking the pod than another one that
// refused with the same code.
func (r *Refusal) nearer(o *Refusal) bool {
	switch {
	case r.Total != o.Total:
		return r.Total // each of the pod's containers would fit
	case (r.Absent == "") != (o.Absent == ""):
		return r.Absent == ""
	}
	return r.Want-r.Have < o.Want-o.Have
}

// Reasons groups the refusals of all nodes of a cluster by what stands behind
// them. The reason that most nodes gave comes first. Nodes that the pod may not
// use come after those that it may, and nodes without cards last: they are no
// news.
func Reasons(refusals []Refusal) []Reason {
	var count counts
	var best [codes]Refusal
	for i := range refusals {
		r := refusals[i].cause()
		if count[r.Code] == 0 || r.nearer(&best[r.Code]) {
			best[r.Code] = r
		}
		count[r.Code]++
	}
	var reasons []Reason
	for _, c := range count.order() {
		if n := count[c]; n > 0 {
			b := &best[c]
			reasons = append(reasons, Reason{Code: c, Nodes: n, Want: b.Want, Have: b.Have, Idle: b.Idle, Total: b.Total, Paused: b.Paused, Absent: b.Absent, Listed: b.Listed, Budget: b.Budget})
		}
	}
	return reasons
}

// Summarize says in one sentence why no node of a cluster took the pod:
//
//	0/12 nodes: 9 need 8 GiB more card memory (best has 4 GiB free), 3 run another QoS class
//
// The list is that of [ListReasons].
func Summarize(refusals []Refusal) string {
	if len(refusals) == 0 {
		return "0/0 nodes"
	}
	return fmt.Sprintf("0/%d nodes: %s", len(refusals), ListReasons(refusals, nil))
}

// ListReasons returns the reasons of [Reasons] as a list in their order, each with
// its number of nodes. It includes other reasons, which are not about cards: their
// text, and how many nodes gave it. These come before nodes without cards.
func ListReasons(refusals []Refusal, others map[string]int) string {
	type item struct {
		aside, nodes int
		text         string
	}
	var items []item
	reasons := Reasons(refusals)
	for _, r := range reasons {
		miss := Refusal{Code: r.Code, Want: r.Want, Have: r.Have, Idle: r.Idle, Total: r.Total, Paused: r.Paused, Absent: r.Absent, Listed: r.Listed, Budget: r.Budget}
		texts := []string{miss.summary(r.Nodes)}
		switch {
		case r.Code == NodeExcluded:
			texts = summarizeExcluded(refusals)
		case r.Code == QuotaExceeded: // of the namespace, not of a number of nodes
			texts = []string{miss.message(nil)}
		case r.Absent != "" && len(others) == 0 && !slices.ContainsFunc(reasons, func(o Reason) bool { return o.Code != CardExcluded && o.Code != NoCards }):
			texts = []string{miss.fill("no card in the cluster has {uuids}", nil)}
		}
		for _, text := range texts {
			items = append(items, item{aside: r.Code.aside(), nodes: r.Nodes, text: text})
		}
	}
	for _, text := range slices.Sorted(maps.Keys(others)) {
		items = append(items, item{aside: NodeExcluded.aside(), nodes: others[text], text: fmt.Sprintf("%d %s", others[text], text)})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.aside, b.aside), cmp.Compare(b.nodes, a.nodes))
	})
	parts := make([]string, len(items))
	for i := range items {
		parts[i] = items[i].text
	}
	return strings.Join(parts, ", ")
}

// Foremost returns the code that a summary of the refusals begins with, or Fits
// if there are none.
func Foremost(refusals iter.Seq[Refusal]) Code {
	var count counts
	for r := range refusals {
		count[r.cause().Code]++
	}
	if first := count.order()[0]; count[first] > 0 {
		return first
	}
	return Fits
}

// counts is how many nodes refused for each code.
type counts [codes]int

// order returns the codes in the order in which they are listed.
func (t *counts) order() []Code {
	order := Codes()
	slices.SortStableFunc(order, func(a, b Code) int {
		if (t[a] > 0) != (t[b] > 0) {
			return cmp.Compare(t[b], t[a])
		}
		return cmp.Or(cmp.Compare(a.aside(), b.aside()), cmp.Compare(t[b], t[a]))
	})
	return order
}
