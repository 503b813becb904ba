package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// doubled are the rules of the audit that say that a card was given twice. The
// others may be broken by an inventory that changes.
var doubled = []audit.Rule{
	audit.MemoryOverbooked, audit.ComputeOverbooked, audit.SlicesOverbooked, audit.ExclusiveShared, audit.QoSMixed, audit.ClassMixed,
}

// check looks at what the API server has after a step.
func (w *world) check() {
	if w.problem != "" {
		return
	}
	for _, p := range w.slots {
		if p == nil {
			continue
		}
		if found := p.reported.Load(); found != nil {
			w.problem = *found
			return
		}
	}
	if w.checked == w.api.version {
		return
	}
	var found []string
	for _, c := range w.api.log[kindPod] {
		if c.version > w.checked && c.now != nil {
			if pod, ok := c.now.(*corev1.Pod); ok {
				found = append(found, w.checkBound(pod)...)
			}
		}
	}
	w.checked = w.api.version
	found = append(found, w.overbooked()...)
	if len(found) > 0 {
		w.problem = strings.Join(found, "; ")
	}
}

// checkBound looks at a pod by itself: a pod with a node has cards of that node.
func (w *world) checkBound(pod *corev1.Pod) (found []string) {
	if pod.Spec.NodeName == "" || pod.Spec.SchedulerName != DefaultProfile || !wire.Asks(pod) || w.api.everHad[pod.Spec.NodeName] == nil {
		return nil
	}
	text := pod.Annotations[wire.AnnotationAllocated]
	if text == "" {
		return []string{fmt.Sprintf("pod %s is bound to %s without cards", pod.Name, pod.Spec.NodeName)}
	}
	if !w.bound[pod.UID] && !w.rescoped[pod.UID] {
		found = append(found, w.overBudget(pod)...)
	}
	w.bound[pod.UID] = true
	cards := strings.Count(text, `"uuid"`)
	for card := range w.api.everHad[pod.Spec.NodeName] {
		cards -= strings.Count(text, `"`+card+`"`)
	}
	if cards != 0 {
		found = append(found, fmt.Sprintf("pod %s is bound to %s with cards that the node never had: %s", pod.Name, pod.Spec.NodeName, text))
	}
	return found
}

// overbooked asks the audit of the nodes that have Devices, and counts the cards
// of the others. What other schedulers gave away meanwhile is not held against ours.
func (w *world) overbooked() (found []string) {
	objects := &cluster.Objects{Devices: map[string]cluster.Device{}}
	counted := map[string]int64{}
	for _, name := range w.api.names(kindNode) {
		if dev := w.api.device(name); dev != nil {
			objects.Nodes = append(objects.Nodes, w.api.node(name))
			objects.Devices[name] = cluster.Device{Device: dev.spec}
		} else if w.api.everHad[name] == nil {
			counted[name] = 0
		}
	}
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		if !wire.Holds(pod) || w.intruders[pod.UID] {
			continue
		}
		if _, ok := counted[pod.Spec.NodeName]; ok {
			q := pod.Spec.Containers[0].Resources.Limits[wire.ResourceGPU]
			counted[pod.Spec.NodeName] += q.Value()
		} else if objects.Devices[pod.Spec.NodeName].Device != nil {
			objects.Pods = append(objects.Pods, pod)
		}
	}
	for _, f := range audit.Check(objects.Snapshot(), start).Violations {
		if slices.Contains(doubled, f.Rule) {
			found = append(found, fmt.Sprintf("%s: %s", f.Rule, f.Message))
		}
	}
	for _, name := range w.api.names(kindNode) {
		has := w.api.node(name).Status.Allocatable[wire.ResourceGPU]
		if n, ok := counted[name]; ok && n > has.Value() {
			found = append(found, fmt.Sprintf("%d cards of node %s are given, it has %d", n, name, has.Value()))
		}
	}
	return found
}
