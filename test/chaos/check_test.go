package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// settled waits until everything adds up: no fault is at work any more, so what
// is wrong now has to be put right by Daybreak itself within the limit.
func (w *world) settled(limit time.Duration) error {
	_, err := w.settle(limit)
	return err
}

// settle is settled, and also returns what was wrong last before nothing was.
func (w *world) settle(limit time.Duration) (waited error, err error) {
	err = machine.Until(w.Ctx, limit, func() error {
		w.pods.replaceFailed(w.Ctx)
		ctx, cancel := context.WithTimeout(w.Ctx, 20*time.Second)
		defer cancel()
		now := harness.Problems(w.check(ctx))
		if now != nil {
			waited = now
		}
		return now
	})
	return waited, err
}

// check returns everything that is wrong at this moment.
func (w *world) check(ctx context.Context) []string {
	list := w.checkParts(ctx)
	objects, err := harness.Read(ctx, w.config)
	if err != nil {
		return append(list, err.Error())
	}
	for _, v := range audit.Check(objects.Snapshot(), time.Now()).Violations {
		list = append(list, fmt.Sprintf("audit: %s: %s (pods %v)", v.Rule, v.Message, v.Pods))
	}
	list = append(list, checkReady(objects)...)
	list = append(list, w.checkPods(objects)...)
	for _, s := range w.all() {
		list = append(list, s.CheckLeaks(objects)...)
	}
	list = append(list, w.checkLocks(objects)...)
	list = append(list, w.vendor.Faults()...)
	return append(list, w.checkFigures(ctx)...)
}

// checkParts: everyone runs, someone leads, every machine is served.
func (w *world) checkParts(ctx context.Context) []string {
	var list []string
	for _, p := range w.parts {
		if ended(p.process) {
			list = append(list, p.name+" does not run")
		}
	}
	for _, parts := range [][]*part{w.schedulers, w.managers} {
		if l := leader(parts); time.Since(l.proxy.leaseWritten()) > w.lease {
			list = append(list, fmt.Sprintf("there is no leader: %s was the last", l.name))
		}
	}
	for _, s := range w.all() {
		if err := w.served(ctx, s); err != nil {
			list = append(list, err.Error())
		}
	}
	return list
}

// checkReady: no node is given up.
func checkReady(objects *cluster.Objects) []string {
	var list []string
	for _, n := range objects.Nodes {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				list = append(list, fmt.Sprintf("node %s is not ready: %s", n.Name, c.Message))
			}
		}
	}
	return list
}

// checkPods: every pod that was acknowledged is there unless we deleted it, and
// runs with its cards or fits nowhere.
func (w *world) checkPods(objects *cluster.Objects) []string {
	byUID := map[types.UID]*corev1.Pod{}
	for _, pod := range objects.Pods {
		if pod.Namespace == namespace {
			byUID[pod.UID] = pod
		}
	}
	snapshot := w.withoutProbes(objects).Snapshot()
	var list []string
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	for name, k := range w.pods.known {
		pod := byUID[k.uid]
		switch {
		case k.deleted && pod != nil:
			list = append(list, fmt.Sprintf("pod %s was deleted and is still there: %s", name, stateOf(pod)))
		case k.deleted:
		case pod == nil:
			list = append(list, lostPod+name)
		case pod.Spec.NodeName == "":
			list = append(list, stuck(snapshot, pod)...)
		case pod.Status.Phase != corev1.PodRunning:
			list = append(list, fmt.Sprintf("pod %s does not run: %s", name, stateOf(pod)))
		}
	}
	return list
}

// lostPod begins what is said of a pod that the API server took and has not any
// more.
const lostPod = "lost without a delete: pod "

func stateOf(pod *corev1.Pod) string {
	return fmt.Sprintf("%s on %q, reason %q, deletion %v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.DeletionTimestamp)
}

// withoutProbes leaves out the machine that other pods may not use.
func (w *world) withoutProbes(objects *cluster.Objects) *cluster.Objects {
	less := &cluster.Objects{Pods: objects.Pods, Devices: map[string]cluster.Device{}}
	for _, n := range objects.Nodes {
		if n.Name != probeServer {
			less.Nodes = append(less.Nodes, n)
		}
	}
	for name, d := range objects.Devices {
		if name != probeServer {
			less.Devices[name] = d
		}
	}
	return less
}

// stuck reports a pending pod without a true reason.
func stuck(snapshot *cluster.Snapshot, pod *corev1.Pod) []string {
	e := view.Explain(snapshot, pod, place.Default)
	said := ""
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			said = c.Message
		}
	}
	switch {
	case e.State != view.StatePending:
		return []string{fmt.Sprintf("pod %s has no node, and explain says %s: %s", pod.Name, e.State, e.Error)}
	case e.Fits != "":
		return []string{fmt.Sprintf("stuck: pod %s is pending but fits on %s; the scheduler last said %q", pod.Name, e.Fits, said)}
	case said == "":
		return []string{fmt.Sprintf("pod %s is pending, and the scheduler has not said why", pod.Name)}
	}
	return nil
}

// checkLocks: no lock is held when nothing is being bound.
func (*world) checkLocks(objects *cluster.Objects) []string {
	var list []string
	for _, n := range objects.Nodes {
		if lock, ok := n.Annotations[wire.AnnotationLock]; ok {
			list = append(list, fmt.Sprintf("node %s is locked: %s", n.Name, lock))
		}
	}
	return list
}

// never are the rules that hold at every moment, whatever is going on.
var never = []audit.Rule{
	audit.MemoryOverbooked, audit.ComputeOverbooked, audit.SlicesOverbooked, audit.QoSMixed, audit.ClassMixed, audit.ExclusiveShared,
}

// watchdog audits again and again while faults are at work, and returns what it
// found when the context ends. As the command does, it believes what it sees
// twice: objects are read one by one.
func (w *world) watchdog(ctx context.Context) (found []string) {
	seen := map[string]string{}
	var before *audit.Report
	for machine.Sleep(ctx, time.Second) {
		objects, err := harness.Read(ctx, w.config)
		if err != nil {
			continue // the API server is away
		}
		now := audit.Check(objects.Snapshot(), time.Now())
		if before != nil {
			for _, v := range now.Confirmed(before).Violations {
				if slices.Contains(never, v.Rule) {
					seen[v.Key()] = fmt.Sprintf("audit while it went on: %s: %s (pods %v)", v.Rule, v.Message, v.Pods)
				}
			}
		}
		before = now
	}
	for _, text := range seen {
		found = append(found, text)
	}
	slices.Sort(found)
	return found
}

// empty deletes all pods and waits until nothing is left of them anywhere.
func (w *world) empty(limit time.Duration) error {
	for _, name := range w.pods.live() {
		w.pods.remove(w.Ctx, name, false)
	}
	return machine.Until(w.Ctx, limit, func() error {
		ctx, cancel := context.WithTimeout(w.Ctx, 20*time.Second)
		defer cancel()
		list := w.check(ctx)
		for _, s := range w.all() {
			n, err := s.Leftovers()
			if err != nil || n > 0 {
				list = append(list, fmt.Sprintf("%s: %d records, slices and specs are left (%v)", s.Node, n, err))
			}
		}
		for _, p := range w.schedulers {
			if n, err := w.metric(ctx, p, seriesReservations); err != nil || n > 0 {
				list = append(list, fmt.Sprintf("%s: %v reservations are left (%v)", p.name, n, err))
			}
		}
		return harness.Problems(list)
	})
}
