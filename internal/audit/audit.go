package audit

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Rule is what a finding is about. The names are stable: they are metric labels,
// event reasons and JSON.
type Rule string

// The rules whose breach is a violation. docs/reference is made from these
// comments: a line that begins with "Do:" fills a column of its table.
const (
	// MemoryOverbooked: more memory is booked on a card than it has.
	// Do: see the runbook double-booking.
	MemoryOverbooked Rule = "MemoryOverbooked"
	// ComputeOverbooked: more compute is booked on a card than it has.
	// Do: see the runbook double-booking.
	ComputeOverbooked Rule = "ComputeOverbooked"
	// SlicesOverbooked: a card has more shares than it supports.
	// Do: see the runbook double-booking.
	SlicesOverbooked Rule = "SlicesOverbooked"
	// QoSMixed: slices of several QoS classes are on one card.
	// Do: find the scheduler that bound the pods, and delete the pods of one class.
	QoSMixed Rule = "QoSMixed"
	// ClassMixed: pods with and without a class are on one card, or an offline
	// pod joined an online one.
	// Do: find the scheduler that bound the pods, and delete the pods of one class.
	ClassMixed Rule = "ClassMixed"
	// ExclusiveShared: an exclusive card is shared.
	// Do: see the runbook double-booking.
	ExclusiveShared Rule = "ExclusiveShared"
	// CardMissing: a pod holds a card that its node does not have.
	// Do: delete the pod if the card was removed; otherwise check why the node does not list the card.
	CardMissing Rule = "CardMissing"
	// CardDuplicated: two nodes claim to have the same card.
	// Do: find the machine that has the card, and delete the Node of the other: its Device is deleted with it.
	CardDuplicated Rule = "CardDuplicated"
	// NodeMissing: a pod holds cards of a node that does not exist.
	// Do: delete the pod.
	NodeMissing Rule = "NodeMissing"
	// FormatsDisagree: the annotations for the vendor's, HAMi's and Koordinator's
	// readers differ.
	// Do: find the other writer of allocations; the larger allocation is booked until the pod ends.
	FormatsDisagree Rule = "FormatsDisagree"
	// LimitsMismatch: a pod's allocation differs from its limits.
	// Do: delete the pod; its controller creates a new one.
	LimitsMismatch Rule = "LimitsMismatch"
	// Unaccounted: the cards of a pod are unknown.
	// Do: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod.
	Unaccounted Rule = "Unaccounted"
	// BadInventory: the cards of a node cannot be read.
	// Do: correct the Device or the annotation named in the message; until then, no pods are placed on the node.
	BadInventory Rule = "BadInventory"
	// LockStuck: a node's lock is held for longer than any allocation takes.
	// Do: see the runbook lock-stuck.
	LockStuck Rule = "LockStuck"
)

// The rules of notes.
const (
	// UnhealthyInUse: an unhealthy card has pods.
	// Do: see the runbook card-unhealthy.
	UnhealthyInUse Rule = "UnhealthyInUse"
	// ForeignSlices: a card has slices that belong to no pod.
	// Do: none if the slices are intended; they count as used.
	ForeignSlices Rule = "ForeignSlices"
	// RequestUnclear: a running pod has an invalid request.
	// Do: correct the request with the next change of the pod.
	RequestUnclear Rule = "RequestUnclear"
	// NoAllocation: a pod is bound to a node that Daybreak serves without an
	// allocation that can be read, and holds no cards.
	// Do: delete the pod, which does not start, and find the scheduler that bound it.
	NoAllocation Rule = "NoAllocation"
	// CardLeftOut: a card is in only one of the two inventories of its node.
	// Do: wait for the update of the other inventory; if the note persists, check why it does not list the card.
	CardLeftOut Rule = "CardLeftOut"
	// DeviceMissing: Daybreak serves a node that has no Device, so none of its cards
	// is known and the node takes no pods.
	// Do: install the CustomResourceDefinition of Device if it is missing; otherwise check why the node's agent does not publish its cards.
	DeviceMissing Rule = "DeviceMissing"
)

// Violations lists the rules whose breach is a violation, in the order of reports.
func Violations() []Rule {
	return []Rule{
		MemoryOverbooked, ComputeOverbooked, SlicesOverbooked, QoSMixed, ClassMixed, ExclusiveShared, CardMissing,
		CardDuplicated, NodeMissing, FormatsDisagree, LimitsMismatch, Unaccounted, BadInventory, LockStuck,
	}
}

// Notes lists the rules of notes.
func Notes() []Rule {
	return []Rule{UnhealthyInUse, ForeignSlices, RequestUnclear, NoAllocation, CardLeftOut, DeviceMissing}
}

// Finding is one breach of one rule.
type Finding struct {
	Node string `json:"node"`
	// Card is the UUID of the card it is about, Index its position; a finding
	// about a node or a pod has neither.
	Card  string `json:"card"`
	Index *int   `json:"index,omitempty"`
	Rule  Rule   `json:"rule"`
	// Pods have a part in it, as namespace/name.
	Pods    []string `json:"pods"`
	Message string   `json:"message"`
}

// Key identifies the finding: the same key in two audits is the same finding, even
// if numbers in its message have changed.
func (f *Finding) Key() string {
	return strings.Join([]string{string(f.Rule), f.Node, f.Card, strings.Join(f.Pods, ",")}, " ")
}

// MessageFor returns the message as readers of a namespace may see it, such as
// those of its Events: pods of other namespaces are not named. An empty namespace
// is that of readers who may see none.
func (f *Finding) MessageFor(namespace string) string {
	text := f.Message
	for _, pod := range f.Pods {
		if of, _, _ := strings.Cut(pod, "/"); of != namespace {
			text = hidePod(text, pod)
		}
	}
	return text
}

// hidePod replaces the name of a pod, unless it is part of a longer name.
func hidePod(text, pod string) string {
	name := regexp.MustCompile(`(^|[^-./a-z0-9])(pod )?` + regexp.QuoteMeta(pod) + `([^-./a-z0-9]|$)`)
	for name.MatchString(text) { // two names with one space between them take two rounds
		text = name.ReplaceAllString(text, "${1}another pod${3}")
	}
	return text
}

// Report is the outcome of an audit. Its JSON form is a contract: fields may be
// added, none renamed or removed.
type Report struct {
	Violations []Finding `json:"violations"`
	Notes      []Finding `json:"notes"`
	// Nodes and Cards were looked at; Pods hold cards.
	Nodes int `json:"nodes"`
	Cards int `json:"cards"`
	Pods  int `json:"pods"`
}

// Check audits a whole cluster. Locks are judged by the given time.
func Check(s *cluster.Snapshot, now time.Time) *Report {
	r := &Report{Violations: []Finding{}, Notes: []Finding{}, Nodes: len(s.Nodes)}
	owners := cardOwners(s)
	parts := make([]Report, len(s.Nodes))
	cluster.InParallel(len(s.Nodes), func(i int) {
		node := node{ledger: s.Nodes[i], inventory: s.Inventories[i], facts: &s.Facts[i], owners: owners, noDevice: s.MissingDevice(i), report: &parts[i]}
		node.check(now)
	})
	for i, n := range s.Nodes {
		r.Cards += n.Topology().Len()
		for k := range n.Holdings() {
			if len(n.Holdings()[k].Parts) > 0 {
				r.Pods++
			}
		}
		r.Pods += len(n.Unknown())
		r.Violations = append(r.Violations, parts[i].Violations...)
		r.Notes = append(r.Notes, parts[i].Notes...)
	}
	r.duplicates(owners)
	r.strays(s.Strays)
	r.sort()
	return r
}

// Confirmed returns the report without the violations that an earlier one does
// not have; nil is one without any. A live cluster is read object by object: what
// moved in between may look wrong once, and not twice.
func (r *Report) Confirmed(earlier *Report) *Report {
	seen := map[string]bool{}
	if earlier != nil {
		for i := range earlier.Violations {
			seen[earlier.Violations[i].Key()] = true
		}
	}
	confirmed := *r
	confirmed.Violations = slices.DeleteFunc(slices.Clone(r.Violations), func(f Finding) bool { return !seen[f.Key()] })
	return &confirmed
}

// cardOwners returns which nodes have a card, by its UUID.
func cardOwners(s *cluster.Snapshot) map[gpu.CardID][]string {
	owners := make(map[gpu.CardID][]string, 8*len(s.Nodes))
	for _, n := range s.Nodes {
		t := n.Topology()
		for i := range t.Len() {
			if id := t.Card(i).ID; id != "" {
				owners[id] = append(owners[id], n.Name)
			}
		}
	}
	return owners
}

// duplicates reports cards that several nodes claim.
func (r *Report) duplicates(owners map[gpu.CardID][]string) {
	for id, nodes := range owners {
		if len(nodes) > 1 {
			r.Violations = append(r.Violations, Finding{
				Node: nodes[0], Card: string(id), Rule: CardDuplicated, Pods: []string{},
				Message: fmt.Sprintf("card %s is in the inventories of %s: a card is in one server, so one of them is stale or two agents publish the same name", id, strings.Join(nodes, " and ")),
			})
		}
	}
}

func (r *Report) strays(pods []*corev1.Pod) {
	for _, pod := range pods {
		r.Pods++
		r.Violations = append(r.Violations, Finding{
			Node: pod.Spec.NodeName, Rule: NodeMissing, Pods: []string{string(allocation.HolderOf(pod))},
			Message: fmt.Sprintf("pod %s holds cards of node %s, which is not there: delete the pod if the server is gone", allocation.HolderOf(pod), pod.Spec.NodeName),
		})
	}
}

// sort puts the findings in a total order: by rule, then by where they are.
func (r *Report) sort() {
	order := map[Rule]int{}
	for i, rule := range slices.Concat(Violations(), Notes()) {
		order[rule] = i
	}
	compare := func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(order[a.Rule], order[b.Rule]), cluster.CompareNames(a.Node, b.Node), cmp.Compare(index(&a), index(&b)),
			cmp.Compare(a.Card, b.Card), slices.Compare(a.Pods, b.Pods), cmp.Compare(a.Message, b.Message))
	}
	slices.SortFunc(r.Violations, compare)
	slices.SortFunc(r.Notes, compare)
}

func index(f *Finding) int {
	if f.Index == nil {
		return -1
	}
	return *f.Index
}

// node is the audit of one node.
type node struct {
	ledger    *ledger.Node
	inventory *inventory.Inventory
	facts     *cluster.Facts
	owners    map[gpu.CardID][]string
	// noDevice says why none of the cards is known, though Daybreak serves the node.
	noDevice string
	report   *Report
}

func (n *node) violation(rule Rule, pods []string, format string, args ...any) *Finding {
	return n.add(&n.report.Violations, rule, pods, fmt.Sprintf(format, args...))
}

func (n *node) note(rule Rule, pods []string, format string, args ...any) *Finding {
	return n.add(&n.report.Notes, rule, pods, fmt.Sprintf(format, args...))
}

func (n *node) add(list *[]Finding, rule Rule, pods []string, message string) *Finding {
	if pods == nil {
		pods = []string{}
	}
	*list = append(*list, Finding{Node: n.ledger.Name, Rule: rule, Pods: pods, Message: message})
	return &(*list)[len(*list)-1]
}

// check goes through the node: its inventory, its lock, each pod, each card.
func (n *node) check(now time.Time) {
	if n.ledger.Problem != nil {
		n.violation(BadInventory, nil, "the cards of node %s can't be read: %v", n.ledger.Name, n.ledger.Problem)
		return // without cards to look them up in, nothing true is said of pods
	}
	if n.noDevice != "" {
		n.note(DeviceMissing, nil, "no card of node %s is known: %s", n.ledger.Name, n.noDevice)
	}
	for _, text := range n.inventory.Notes {
		n.note(CardLeftOut, nil, "%s", text)
	}
	n.lock(now)
	asking := make(map[string]*corev1.Pod, len(n.facts.Pods))
	for _, pod := range n.facts.Pods {
		if n.pod(pod) {
			asking[string(allocation.HolderOf(pod))] = pod
		}
	}
	n.cards(asking)
}

// stuckAfter is when HAMi itself stops waiting for a lock.
const stuckAfter = 5 * time.Minute

func (n *node) lock(now time.Time) {
	if n.facts.Node == nil {
		return
	}
	// What can't be read as a lock blocks nothing: it is overwritten.
	lock, err := allocation.ParseLock(n.facts.Node.Annotations[wire.AnnotationLock])
	age := now.Sub(lock.Since)
	if err != nil || age <= stuckAfter {
		return
	}
	var pods []string
	owner := "an unknown pod"
	if lock.Name != "" {
		owner = lock.Namespace + "/" + lock.Name
		pods = []string{owner}
	}
	n.violation(LockStuck, pods, "node %s is locked for %s by %s: no pod gets cards there; remove the annotation %s from the node, in the scheduler's name where policies guard it",
		n.ledger.Name, age.Round(time.Second), owner, wire.AnnotationLock)
}
