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
	// maxTold is how many findings are told at once: a cluster in which
	// thousands of nodes are wrong in the same way needs no Event of each to be
	// noticed. Those left over are told by the next audits.
	maxTold = 20
	// maxNote is what the API server takes for an Event's text, and a bit less.
	maxNote = 1000
)

// teller tells of violations, each once for as long as it lasts.
type teller struct {
	events events.EventRecorder
	told   map[string]bool
}

// tell tells what is new, and returns that.
func (t *teller) tell(ctx context.Context, r *audit.Report, o *cluster.Objects) (fresh []audit.Finding) {
	still := make(map[string]bool, len(r.Violations))
	for i := range r.Violations {
		f := &r.Violations[i]
		switch {
		case t.told[f.Key()]:
		case len(fresh) == maxTold:
			continue
		default:
			klog.FromContext(ctx).Info("A rule is broken", "rule", f.Rule, "node", f.Node, "card", f.Card, "pods", f.Pods, "message", f.Message)
			t.finding(f, o)
			fresh = append(fresh, *f)
		}
		still[f.Key()] = true
	}
	for key := range t.told {
		if !still[key] {
			klog.FromContext(ctx).Info("What was wrong is right again", "finding", key)
		}
	}
	t.told = still
	return fresh
}

// finding writes the Events: on each pod that has a part in it, and on the node.
// They name no pods that their readers may not see: those of a Node are in a
// namespace that many read.
func (t *teller) finding(f *audit.Finding, o *cluster.Objects) {
	for _, name := range f.Pods {
		if pod := find(o.Pods, name); pod != nil {
			t.events.Eventf(pod, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", short(f.MessageFor(pod.Namespace)))
		}
	}
	for _, node := range o.Nodes {
		if node.Name == f.Node {
			t.events.Eventf(node, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", short(f.MessageFor("")))
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

// find returns the pod that a finding names.
func find(pods []*corev1.Pod, name string) *corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	for _, p := range pods {
		if p.Name == name && p.Namespace == namespace {
			return p
		}
	}
	return nil
}
