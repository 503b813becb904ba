package place

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Code is a reason why cards are not given. The words that codes print as are
// stable: they are metric labels, event reasons and JSON.
type Code uint8

// The codes, in the order in which a card is checked: the first that applies
// is the card's. docs/reference is made from these comments: a line that begins
// with "Numbers:" or "Do:" fills a column of its table.
const (
	// Fits is no refusal.
	Fits Code = iota
	// NodeExcluded: the pod may not use the node: nodeSelector, required node affinity, a taint, a cordon, or not ready.
	// Numbers: none.
	// Do: read the message, it says which; uncordon or repair the node, or change the pod. kube-scheduler's own plugins check this, so events do not have this code and the scheduler's metric of it stays 0.
	NodeExcluded
	// NoCards: the node has none.
	// Numbers: none.
	// Do: nothing, it is no news; if the node has cards, see whether its agent runs.
	NoCards
	// BadInventory: the node's cards can't be read.
	// Numbers: none.
	// Do: read the message, it says what is wrong in the Device or the node's annotation; daybreak audit tells it too.
	BadInventory
	// Unaccounted: a pod on the node holds cards that are not known.
	// Numbers: none.
	// Do: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod that daybreak audit names.
	Unaccounted
	// ModeConflict: the node serves the other kind, whole cards or slices.
	// Numbers: none.
	// Do: ask for the other kind, or change the node's mode in metax-device-config.
	ModeConflict
	// Unhealthy: the card is unhealthy, or the node's agent allocates nothing now.
	// Numbers: cards wanted, cards that fit.
	// Do: daybreak status shows the fault; new pods go there again when the card is healthy.
	Unhealthy
	// CardExcluded: the pod's lists of cards leave it out.
	// Numbers: cards wanted, cards that fit.
	// Do: change use-gpuuuid or nouse-gpuuuid.
	CardExcluded
	// ClassConflict: online, offline and ordinary pods keep apart.
	// Numbers: cards wanted, cards that fit.
	// Do: wait, or leave the class out.
	ClassConflict
	// QoSConflict: the card runs another QoS class.
	// Numbers: cards wanted, cards that fit.
	// Do: ask for the class that the cards run, or wait until one is idle.
	QoSConflict
	// ExclusiveConflict: wanted alone but in use, or held by one who is alone.
	// Numbers: cards wanted, cards that fit.
	// Do: wait, or ask for a share with vcore instead of a card alone.
	ExclusiveConflict
	// SlicesFull: the card carries as many shares as it can.
	// Numbers: slots wanted, slots free on the best card.
	// Do: wait, or ask for a card with fewer, larger shares on it.
	SlicesFull
	// MemoryShort: too little memory left.
	// Numbers: MiB wanted of a card, MiB free on the best card.
	// Do: ask for less; daybreak explain tells the most that fits now.
	MemoryShort
	// ComputeShort: too little compute left.
	// Numbers: percent wanted of a card, percent free on the best card.
	// Do: ask for less; daybreak explain tells the most that fits now.
	ComputeShort
	// TooFewCards: the card would do, but not enough others would.
	// Numbers: cards wanted, cards that fit.
	// Do: ask for fewer, or make room: daybreak explain names the pods in the way.
	TooFewCards

	codes
)

var codeNames = [codes]string{
	"", "NodeExcluded", "NoCards", "BadInventory", "Unaccounted", "ModeConflict", "Unhealthy", "CardExcluded", "ClassConflict",
	"QoSConflict", "ExclusiveConflict", "SlicesFull", "MemoryShort", "ComputeShort", "TooFewCards",
}

// Codes lists all codes in order.
func Codes() []Code {
	var all []Code
	for c := NodeExcluded; c < codes; c++ {
		all = append(all, c)
	}
	return all
}

// String returns the stable name of the code.
func (c Code) String() string { return codeNames[c] }

// MarshalText returns the stable name of the code.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Exclusion is why a pod may not use a node, whatever its cards.
type Exclusion uint8

// The exclusions, in the order in which they are checked.
const (
	// NotSelected: the pod's nodeSelector does not match the node.
	NotSelected Exclusion = iota + 1
	// NotAffine: the pod's required node affinity does not match the node.
	NotAffine
	// Cordoned: the node is marked unschedulable.
	Cordoned
	// NotReady: the node is not ready or does not report.
	NotReady
	// Tainted: the pod does not tolerate a taint of the node.
	Tainted

	exclusions
)

var exclusionNames = [exclusions]string{"", "NotSelected", "NotAffine", "Cordoned", "NotReady", "Tainted"}

// String returns the stable name of the exclusion.
func (x Exclusion) String() string { return exclusionNames[x] }

// Excluded returns the refusal of a node that the pod may not use.
func Excluded(why Exclusion) Refusal {
	return Refusal{Code: NodeExcluded, Permanent: true, WhenEmpty: Shortage{Code: NodeExcluded}, Exclusion: why}
}

// Refusal says why a node can't take a request. It is a value: whoever shows
// it, an event, a table or a metric, renders it.
type Refusal struct {
	// Code is the reason most cards gave; [Fits] means there is no refusal.
	Code Code
	// Want and Have are in the unit of the code: MiB, percent, slots or cards.
	// For an amount, Have is the best card among those refused for this code.
	Want, Have int64
	// Permanent means that evicting every pod of the node would not help.
	Permanent bool
	// WhenEmpty is the reason of a permanent refusal: why the node refuses without
	// any pods. It may differ from Code.
	WhenEmpty Shortage
	// Paused tells of [Unhealthy] that the node takes no pods for now, however
	// its cards are.
	Paused bool
	// Exclusion is, of [NodeExcluded], why the pod may not use the node.
	Exclusion Exclusion
	// Incomplete reports that the search for an arrangement of the pod's
	// containers ended at its budget: there may be one.
	Incomplete bool
	// Container is the position of the request that could not be met.
	Container int
	// Cards counts the node's cards by the reason each gave.
	Cards [codes]uint8
}

// Shortage is a code with its numbers.
type Shortage struct {
	Code       Code
	Want, Have int64
}

// cause returns the refusal to tell of: there is no use in waiting for cards
// to become free when they would not do.
func (r *Refusal) cause() Refusal {
	c := *r
	if r.WhenEmpty.Code != Fits {
		c.Code, c.Want, c.Have = r.WhenEmpty.Code, r.WhenEmpty.Want, r.WhenEmpty.Have
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
	// Paused is that miss's as well.
	Paused bool `json:"paused,omitempty"`
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
		if count[r.Code] == 0 || r.Want-r.Have < best[r.Code].Want-best[r.Code].Have {
			best[r.Code] = r
		}
		count[r.Code]++
	}
	var reasons []Reason
	for _, c := range count.order() {
		if n := count[c]; n > 0 {
			reasons = append(reasons, Reason{Code: c, Nodes: n, Want: best[c].Want, Have: best[c].Have, Paused: best[c].Paused})
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
	for _, r := range Reasons(refusals) {
		miss := Refusal{Code: r.Code, Want: r.Want, Have: r.Have, Paused: r.Paused}
		texts := []string{miss.summary(r.Nodes)}
		if r.Code == NodeExcluded {
			texts = summarizeExcluded(refusals)
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

// order returns the codes in the order in which they are told.
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

// aside says how little a code has to say of the cards: codes with less come
// later.
func (c Code) aside() int {
	switch c {
	case NodeExcluded:
		return 1
	case NoCards:
		return 2
	}
	return 0
}
