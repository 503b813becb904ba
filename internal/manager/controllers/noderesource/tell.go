package noderesource

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Reasons of the Events on nodes.
const (
	reasonAdvertised = "CardsAdvertised"
	reasonUnhealthy  = "CardsUnhealthy"
	reasonRestored   = "CardsRestored"
	reasonWithdrawn  = "CardsWithdrawn"
	reasonBad        = "BadInventory"
)

// told remembers what is wrong with which node, so that it is said once and not
// every time the node is looked at, and what each node advertised, which tells
// a kubelet that reset it from cards that became well.
type told struct {
	mu         sync.Mutex
	problems   map[string]string
	advertised map[string]corev1.ResourceList
}

func newTold() *told {
	return &told{problems: map[string]string{}, advertised: map[string]corev1.ResourceList{}}
}

// settled takes down that the node advertises the amounts, and returns what it
// did before.
func (t *told) settled(node string, amounts corev1.ResourceList) (before corev1.ResourceList) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.advertised[node]
	if len(amounts) == 0 {
		delete(t.advertised, node)
	} else {
		t.advertised[node] = amounts
	}
	return before
}

// news says whether this problem of the node has not been told yet; an empty
// one is that there is none.
func (t *told) news(node, problem string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem == "" {
		delete(t.problems, node)
		return false
	}
	if t.problems[node] == problem {
		return false
	}
	t.problems[node] = problem
	return true
}

// forget drops what is remembered of a node that is gone.
func (t *told) forget(node string) {
	t.news(node, "")
	t.settled(node, nil)
}

// maxNote is what the API server takes for an Event's text, and a bit less.
const maxNote = 1000

// tellProblem says on the node that its Device can't be read.
func (r *reconciler) tellProblem(ctx context.Context, node *corev1.Node, d decision) {
	text := ""
	if d.problem != nil {
		text = d.problem.Error()
	}
	if !r.told.news(node.Name, text) {
		return
	}
	klog.FromContext(ctx).Info("Device can't be read, its cards take no new pods", "problem", text)
	stays := "the node goes on advertising what it did before"
	if d.verdict == ignore {
		stays = "the node advertises no cards"
	}
	r.event(node, corev1.EventTypeWarning, reasonBad, fmt.Sprintf("the Device can't be read, so %s: %s", stays, text))
}

// tellChange says on the node what it advertises from now on, and why. Labels
// alone are not worth an Event.
func (r *reconciler) tellChange(ctx context.Context, node *corev1.Node, d decision, c changes) {
	before := r.told.settled(node.Name, d.amounts)
	if len(c.amounts) == 0 {
		return
	}
	kind, reason, text := describe(node, d, before)
	klog.FromContext(ctx).V(2).Info("Node advertises its cards", "reason", reason, "healthy", d.healthy, "unhealthy", d.unhealthy)
	r.event(node, kind, reason, text)
}

// describe returns the Event about what a node advertises from now on. The node
// is as it was found; before is what we know it to have advertised.
func describe(node *corev1.Node, d decision, before corev1.ResourceList) (kind, reason, text string) {
	switch {
	case d.verdict == withdraw:
		return corev1.EventTypeNormal, reasonWithdrawn, "there is no MetaX Device of this node any more: it advertises no cards"
	case wasReset(node, before):
		kind, reason = corev1.EventTypeNormal, reasonRestored
		text = "kubelet had reset what the node advertises to zero: "
	case d.unhealthy > 0:
		kind, reason = corev1.EventTypeWarning, reasonUnhealthy
	default:
		kind, reason = corev1.EventTypeNormal, reasonAdvertised
	}
	if d.verdict != keep {
		text += fmt.Sprintf("%d of %d cards healthy: ", d.healthy, d.healthy+d.unhealthy)
	}
	text += "the node advertises " + listAmounts(d.amounts)
	if len(d.held) > 0 {
		text += fmt.Sprintf("; that is as much of %s as the pods on it ask for, and more than its healthy cards have", listNames(d.held))
	}
	return kind, reason, text
}

// wasReset says whether something was found to be zero that was more before.
func wasReset(node *corev1.Node, before corev1.ResourceList) bool {
	for _, name := range resources {
		have, has := node.Status.Capacity[name]
		if was, ok := before[name]; has && ok && have.IsZero() && !was.IsZero() {
			return true
		}
	}
	return false
}

func listAmounts(amounts corev1.ResourceList) string {
	var out []string
	for _, name := range []corev1.ResourceName{wire.KoordCore, wire.KoordMemory} {
		if q, ok := amounts[name]; ok {
			out = append(out, fmt.Sprintf("%s %s", name, q.String()))
		}
	}
	return strings.Join(out, ", ")
}

func listNames(names []corev1.ResourceName) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = string(name)
	}
	return strings.Join(out, ", ")
}

func (r *reconciler) event(node *corev1.Node, kind, reason, text string) {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + "…"
	}
	r.events.Eventf(node, nil, kind, reason, "Advertise", "%s", text)
}
