package noderesource

import (
	"context"
	"fmt"
	"strings"

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

// reportProblem writes an Event on a node whose Device can't be read, once for
// each problem.
func (r *reconciler) reportProblem(ctx context.Context, node *corev1.Node, m *memory, d decision) {
	text := ""
	if d.problem != nil {
		text = d.problem.Error()
	}
	known := m.problem
	m.problem = text
	if text == "" || text == known {
		return
	}
	klog.FromContext(ctx).Info("Device can't be read, its cards take no new pods", "problem", text)
	stays := "the node goes on advertising what it did before"
	if d.verdict == ignore {
		stays = "the node advertises no cards"
	}
	r.event(node, corev1.EventTypeWarning, reasonBad, fmt.Sprintf("the Device can't be read, so %s: %s", stays, text))
}

// reportChange writes an Event about what the node advertises from now on, and
// why.
func (r *reconciler) reportChange(ctx context.Context, node *corev1.Node, m *memory, d decision) {
	kind, reason, text := describe(node, d, m.advertised)
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
		text += fmt.Sprintf("; that is as much of %s as the pods on it ask for, and more than its healthy cards have", strings.Join(d.held, ", "))
	}
	return kind, reason, text
}

// wasReset reports whether an amount that was advertised was found to be zero.
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

func (r *reconciler) event(node *corev1.Node, kind, reason, text string) {
	r.events.Eventf(node, nil, kind, reason, "Advertise", "%s", wire.EventNote(text))
}
