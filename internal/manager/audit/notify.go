package audit

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

const (
	// maxReported is how many findings become Events at once: a cluster in which
	// thousands of nodes are wrong in the same way needs no Event of each to be
	// noticed. The next audits report the others.
	maxReported = 20
	// maxNote is a bit less than the API server accepts as an Event's text.
	maxNote = 1000
)

// notifier writes Events about violations, once for as long as each lasts.
type notifier struct {
	events   events.EventRecorder
	reported map[string]bool
}

// notify reports and returns the violations that are new.
func (n *notifier) notify(ctx context.Context, r *audit.Report, o *cluster.Objects) (fresh []audit.Finding) {
	logger := klog.FromContext(ctx)
	lasting := make(map[string]bool, len(r.Violations))
	for i := range r.Violations {
		f := &r.Violations[i]
		if !n.reported[f.Key()] {
			if len(fresh) == maxReported {
				continue
			}
			logger.Info("Violation found", "rule", f.Rule, "node", f.Node, "card", f.Card, "pods", f.Pods, "message", f.Message)
			n.finding(f, o)
			fresh = append(fresh, *f)
		}
		lasting[f.Key()] = true
	}
	for key := range n.reported {
		if !lasting[key] {
			logger.Info("Violation resolved", "finding", key)
		}
	}
	n.reported = lasting
	return fresh
}

// finding writes the Events: on each pod that has a part in it, and on the node.
// They name no pods that their readers may not see: those of a Node are in a
// namespace that many read.
func (n *notifier) finding(f *audit.Finding, o *cluster.Objects) {
	for _, name := range f.Pods {
		for _, pod := range o.Pods {
			if pod.Namespace+"/"+pod.Name == name {
				n.events.Eventf(pod, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", short(f.MessageFor(pod.Namespace)))
			}
		}
	}
	for _, node := range o.Nodes {
		if node.Name == f.Node {
			n.events.Eventf(node, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", short(f.MessageFor("")))
		}
	}
}

// short cuts a text to what an Event takes.
func short(text string) string {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + "…"
	}
	return text
}
