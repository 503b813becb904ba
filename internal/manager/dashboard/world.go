package dashboard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// world is everything there is to show at one moment, to all viewers. It is never
// changed once it is made.
type world struct {
	revision uint64
	snapshot *cluster.Snapshot
	// pods are those that ask for cards, by holder.
	pods map[ledger.Holder]*corev1.Pod

	status   *view.Status
	findings []Finding
	budgets  []view.NamespaceStatus
	// audited has all violations, and unconfirmed is set while some are not shown.
	audited     *audit.Report
	unconfirmed bool
	// namespaces are all that are named above.
	namespaces []string

	// whole is the projection for a viewer who sees everything.
	whole func() (*projection, error)
}

// newWorld makes a world of the objects. A violation is shown when the earlier
// audit had it too: caches of different kinds are filled one after the other, and
// a half-read change may look wrong for a moment.
func newWorld(objects *cluster.Objects, revision uint64, earlier *audit.Report, now time.Time) *world {
	w := &world{revision: revision, pods: map[ledger.Holder]*corev1.Pod{}}
	for _, pod := range objects.Pods {
		if wire.Asks(pod) {
			w.pods[allocation.HolderOf(pod)] = pod
		}
	}
	w.snapshot = objects.Snapshot()
	w.status = view.NewStatus(w.snapshot, "")
	w.status.ForPage(w.snapshot)
	w.audited = audit.Check(w.snapshot, now)
	w.show(earlier)
	w.budgets = view.NewNamespaces(w.snapshot, "").Namespaces
	w.namespaces = w.namedNamespaces()
	w.whole = sync.OnceValues(func() (*projection, error) { return w.project(everything) })
	return w
}

// show lists the findings: the violations that the earlier audit confirms, and
// the notes.
func (w *world) show(earlier *audit.Report) {
	w.findings = []Finding{}
	for _, f := range w.audited.Confirmed(earlier).Violations {
		w.findings = append(w.findings, Finding{Finding: f})
	}
	w.unconfirmed = len(w.findings) < len(w.audited.Violations)
	for _, f := range w.audited.Notes {
		w.findings = append(w.findings, Finding{Finding: f, Note: true})
	}
}

// namedNamespaces lists every namespace that is named, or of which a pod is.
func (w *world) namedNamespaces() []string {
	seen := map[string]bool{}
	for holder := range w.pods {
		seen[namespaceOf(string(holder))] = true
	}
	for i := range w.budgets {
		seen[w.budgets[i].Name] = true
	}
	for i := range w.findings {
		for _, pod := range w.findings[i].Pods {
			seen[namespaceOf(pod)] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// namespaceOf returns the namespace of a pod that is named as namespace/name.
func namespaceOf(pod string) string {
	namespace, _, _ := strings.Cut(pod, "/")
	return namespace
}
