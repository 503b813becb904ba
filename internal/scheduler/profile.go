package scheduler

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// wrapProfiles makes the profiles search all nodes, and their events report cards.
func (s *State) wrapProfiles(sched *scheduler.Scheduler) {
	for name, f := range sched.Profiles {
		sched.Profiles[name] = cardProfile{
			Framework: f, shared: s,
			searches: len(sched.Extenders) == 0 && ranksByCards(f.ListPlugins().Score.Enabled),
		}
	}
	sched.FailureHandler = s.undecided(explaining(sched.FailureHandler))
}

// cardProfile is a profile that gives kube-scheduler the best node of all for a pod
// with cards, and whose events report the cards: kube-scheduler writes one for
// every pod that it binds, so no other event is written.
type cardProfile struct {
	framework.Framework
	shared *State
	// searches is true where cards alone decide between nodes: there are no
	// extenders, and no plugins that the profile of this package does not have.
	searches bool
}

// RunPostFilterPlugins runs the profile's plugins. For a pod with cards but
// without resource claims, the answers of other plugins than Daybreak are left
// out: they report that there are no claims.
func (p cardProfile) RunPostFilterPlugins(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, m fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	result, status := p.Framework.RunPostFilterPlugins(ctx, cs, pod, m)
	if !status.IsRejected() || !wire.Asks(pod) {
		return result, status
	}
	var reasons []string
	for _, reason := range status.Reasons() {
		if reason = tidy(reason); reason != "" && (len(pod.Spec.ResourceClaims) > 0 || strings.HasPrefix(reason, preemptionPrefix)) {
			reasons = append(reasons, reason)
		}
	}
	return result, fwk.NewStatus(status.Code(), reasons...).WithPlugin(status.Plugin())
}

// EventRecorder returns the profile's recorder.
func (p cardProfile) EventRecorder() events.EventRecorderLogger {
	return recorder{EventRecorderLogger: p.Framework.EventRecorder(), pods: p.shared.pods}
}

// recorder adds the cards to the event of a pod that was bound.
type recorder struct {
	events.EventRecorderLogger
	pods *pods
}

// WithLogger returns the same recorder with another logger.
func (r recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return recorder{EventRecorderLogger: r.EventRecorderLogger.WithLogger(logger), pods: r.pods}
}

// reasonScheduled is the reason of kube-scheduler's event of a pod that was bound.
const reasonScheduled = "Scheduled"

// Eventf records an event. kube-scheduler passes the message of a pod that was
// not scheduled as the format, and it may contain percent signs.
func (r recorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	if pod, ok := regarding.(*corev1.Pod); ok && reason == reasonScheduled {
		if text := r.pods.takeBindNote(pod.UID); text != "" {
			note += ": %s"
			args = append(args, text)
		}
	}
	if len(args) == 0 {
		note, args = "%s", []any{note}
	}
	r.EventRecorderLogger.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

// maxListed is how many shares are listed one by one: an event has room for a
// thousand characters.
const maxListed = 8

// bindNote returns the cards that the pod gets, and how many nodes had room.
func (c *claim) bindNote() string {
	var alone gpu.Set
	var parts []string
	for card := range c.holding.Cards().All() {
		u := c.holding.On(card)
		if u.Exclusive {
			alone |= gpu.SetOf(card)
			continue
		}
		parts = append(parts, fmt.Sprintf("%d%% and %v of card %d", u.Compute, u.Memory, card))
	}
	if n := len(parts); n > maxListed {
		parts = append(parts[:maxListed], fmt.Sprintf("shares of %d more cards", n-maxListed))
	}
	if alone != 0 {
		parts = append([]string{c.whole(alone)}, parts...)
	}
	from := "the only node with room"
	if c.candidates > 1 {
		from = fmt.Sprintf("picked from %d nodes with room", c.candidates)
	}
	return strings.Join(append(parts, from), ", ")
}

// whole lists cards that the pod has to itself, and how they are linked.
func (c *claim) whole(cards gpu.Set) string {
	numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(cards.Indices()), " ", ", "), "[]")
	if cards.Len() == 1 {
		return "all of card " + numbers
	}
	linked := "not linked"
	switch c.topology.LinkedPairs(cards) {
	case cards.Len() * (cards.Len() - 1) / 2:
		linked = "all linked"
	case 0:
	default:
		linked = "partly linked"
	}
	return fmt.Sprintf("all of cards %s (%s)", numbers, linked)
}
