package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Reasons of events. The first four are on pods as well as on the Node.
const (
	eventUnhealthy     = "CardUnhealthy"
	eventHealthy       = "CardHealthy"
	eventLinkDown      = "CardLinkDown"
	eventLinkUp        = "CardLinkUp"
	eventNoSlices      = "SlicesNotSupported"
	eventModePending   = "ModePending"
	eventModeChanged   = "ModeChanged"
	eventBadModes      = "BadModes"
	eventNoModes       = "ModesNotFound"
	eventModesIgnored  = "ModesIgnored"
	eventLookFailed    = "LookFailed"
	eventLookRecovered = "LookRecovered"
	eventYielded       = "DeviceNotOurs"
	eventNameless      = "CardWithoutUUID"
	eventForgotten     = "CardForgotten"
	eventNotForgotten  = "CardNotForgotten"
	eventReplaced      = "CardReplaced"
	eventAnnotations   = "AnnotationsNotOurs"
	eventNotServed     = "NodeNotServed"
	eventForeignSlices = "ForeignSlices"
	eventRuntimeReady  = "RuntimeReady"
	eventChecksPassed  = "ChecksPassed"
)

// recorder is the part of client-go's recorder that is used.
type recorder interface {
	Event(object runtime.Object, kind, reason, message string)
}

type events struct {
	recorder recorder
	node     string
	uid      types.UID
	// last is the state of each subject as it was last reported.
	last map[string]string
}

// changed reports whether a subject has another state than last time.
func (e *events) changed(subject, state string) bool {
	before := e.last[subject]
	e.last[subject] = state
	return state != before
}

func (e *events) onNode(kind, reason, format string, args ...any) {
	e.recorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: e.uid}, kind, reason, fmt.Sprintf(format, args...))
}

// warn reports a state on the Node when it begins or changes; empty is no state.
func (e *events) warn(reason, state, message string) {
	if e.changed(reason, state) && state != "" {
		e.onNode(corev1.EventTypeWarning, reason, "%s", message)
	}
}

// notServed reports why the node is not served when that changes, and when the reason
// is gone, which is the event well.
func (e *events) notServed(well, state string, why fault, message string) {
	switch {
	case !e.changed(well, state):
	case why.reason != "":
		e.onNode(corev1.EventTypeWarning, why.reason, "no pod with cards is placed here: %s", why.message)
	default:
		e.onNode(corev1.EventTypeNormal, well, "%s", message)
	}
}

func (e *events) pod(pod *corev1.Pod, kind, reason, message string) {
	e.recorder.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, kind, reason, message)
}

// news is an event of a card or of the node as a whole.
type news struct {
	kind, reason, message string
	// card is the one whose holders get the event too; empty if none do.
	card gpu.CardID
}

// newsOf returns what changed since a publication; without one, what is wrong.
func newsOf(before, after *inventory.Publication) []news {
	var list []news
	for i := range after.Cards {
		was := &inventory.CardStatus{}
		if before != nil {
			if at, ok := before.Topology.Index(after.Topology.Card(i).ID); ok {
				was = &before.Cards[at]
			}
		}
		list = append(list, cardNews(after, i, was)...)
	}
	return append(list, modeNews(before, after)...)
}

func cardNews(p *inventory.Publication, i int, was *inventory.CardStatus) []news {
	c, s := p.Topology.Card(i), &p.Cards[i]
	name := fmt.Sprintf("card %s (minor %d, %s)", c.ID, c.Minor, s.BusID)
	var list []news
	now, then := conditionOf(s, wire.ConditionHealthy), conditionOf(was, wire.ConditionHealthy)
	switch down, wasDown := now.Status == metav1.ConditionFalse, then.Status == metav1.ConditionFalse; {
	case down && (!wasDown || now.Reason != then.Reason && now.Reason != reasonRecovering):
		list = append(list, news{corev1.EventTypeWarning, eventUnhealthy, fmt.Sprintf("%s: %s", name, now.Message), c.ID})
	case !down && wasDown:
		list = append(list, news{corev1.EventTypeNormal, eventHealthy, name + " is healthy again", c.ID})
	}
	return append(list, linkNews(c, name, conditionOf(s, wire.ConditionLinked), conditionOf(was, wire.ConditionLinked))...)
}

// linkNews reports links that went down or came back, not those that can't be read.
func linkNews(c *gpu.Card, name string, now, before metav1.Condition) []news {
	switch {
	case now.Status == metav1.ConditionUnknown || before.Status == metav1.ConditionUnknown && now.Status == "":
	case now.Status != "" && now.Message != before.Message:
		return []news{{corev1.EventTypeWarning, eventLinkDown, fmt.Sprintf("%s: %s", name, now.Message), c.ID}}
	case now.Status == "" && before.Status != "" && c.Healthy:
		return []news{{corev1.EventTypeNormal, eventLinkUp, name + " has all its links again", c.ID}}
	}
	return nil
}

// modeNews reports changes of the node's mode, once for all cards.
func modeNews(before, after *inventory.Publication) []news {
	var list []news
	if before != nil && before.Mode != after.Mode && before.Mode != "" {
		list = append(list, news{corev1.EventTypeNormal, eventModeChanged, fmt.Sprintf("the node's mode is %s, it was %s", after.Mode, before.Mode), ""})
	}
	for _, c := range []struct{ condition, event string }{{wire.ConditionSlices, eventNoSlices}, {wire.ConditionModePending, eventModePending}} {
		now, then := nodeCondition(after, c.condition), nodeCondition(before, c.condition)
		if now.Status != "" && (then.Reason != now.Reason || before.Pending != after.Pending) {
			list = append(list, news{corev1.EventTypeWarning, c.event, now.Message, ""})
		}
	}
	return list
}

// nodeCondition returns a condition that all cards have alike.
func nodeCondition(p *inventory.Publication, kind string) metav1.Condition {
	if p == nil || len(p.Cards) == 0 {
		return metav1.Condition{}
	}
	return conditionOf(&p.Cards[0], kind)
}

func conditionOf(s *inventory.CardStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// report records what changed: on the Node, and on each pod that holds the card.
func (a *Agent) report(ctx context.Context, p *inventory.Publication, held *holdings) {
	for _, n := range newsOf(a.previous, p) {
		a.events.onNode(n.kind, n.reason, "%s", n.message)
		switch n.reason {
		case eventUnhealthy:
			klog.FromContext(ctx).Info("Card marked unhealthy", "card", n.card, "why", n.message)
		case eventModePending:
			klog.FromContext(ctx).Info("Mode change waits", "why", n.message, "holders", held.kinds)
		}
		if n.card == "" {
			continue
		}
		for _, pod := range held.holders[n.card] {
			a.events.pod(pod, n.kind, n.reason, "this pod holds "+n.message)
		}
	}
}
