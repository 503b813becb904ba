package audit

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// maxReported is how many findings become Events at once: a cluster in which
// thousands of nodes are wrong in the same way needs no Event of each to be
// noticed. The next audits report the others.
const maxReported = 20

// notify reports and returns the violations that are new: each has Events once for
// as long as it lasts.
func (a *auditor) notify(ctx context.Context, r *audit.Report, o *cluster.Objects) (fresh []audit.Finding) {
	logger := klog.FromContext(ctx)
	lasting := make(map[string]bool, len(r.Violations))
	for i := range r.Violations {
		f := &r.Violations[i]
		if !a.reported[f.Key()] {
			if len(fresh) == maxReported {
				continue
			}
			logger.Info("Violation found", "rule", f.Rule, "node", f.Node, "card", f.Card, "pods", f.Pods, "message", f.Message)
			a.report(f, o)
			fresh = append(fresh, *f)
		}
		lasting[f.Key()] = true
	}
	for key := range a.reported {
		if !lasting[key] {
			logger.Info("Violation resolved", "finding", key)
		}
	}
	a.reported = lasting
	return fresh
}

// warn writes Events on ResourceQuotas that pods can escape or exceed, or whose amounts
// are invalid: each once for as long as it lasts.
func (a *auditor) warn(n *view.Namespaces, o *cluster.Objects) {
	lasting, fresh := map[string]bool{}, 0
	for i := range n.Namespaces {
		for _, w := range n.Namespaces[i].Warnings {
			k := slices.IndexFunc(o.Quotas, func(q *corev1.ResourceQuota) bool { return q.Namespace == n.Namespaces[i].Name && q.Name == w.Quota })
			if k < 0 {
				continue
			}
			key := strings.Join([]string{n.Namespaces[i].Name, w.Quota, w.Reason, w.Limit}, " ")
			if !a.warned[key] {
				fresh++
				if fresh > maxReported {
					continue
				}
				a.events.Eventf(o.Quotas[k], nil, corev1.EventTypeWarning, w.Reason, "Audit", "%s", wire.EventNote(w.Message))
			}
			lasting[key] = true
		}
	}
	a.warned = lasting
}

// report writes the Events: on each pod that has a part in it, and on the node.
// They name no pods that their readers may not see: those of a Node are in a
// namespace that many read.
func (a *auditor) report(f *audit.Finding, o *cluster.Objects) {
	for _, name := range f.Pods {
		for _, pod := range o.Pods {
			if pod.Namespace+"/"+pod.Name == name {
				a.events.Eventf(pod, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", wire.EventNote(f.MessageFor(pod.Namespace)))
			}
		}
	}
	for _, node := range o.Nodes {
		if node.Name == f.Node {
			a.events.Eventf(node, nil, corev1.EventTypeWarning, string(f.Rule), "Audit", "%s", wire.EventNote(f.MessageFor("")))
		}
	}
}
