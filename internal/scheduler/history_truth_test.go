package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// account returns the node as it truly is.
func (w *world) account(name string) *ledger.Node {
	node, _ := allocation.NewNode(readInventory(w.api.node(name), w.api.device(name), w.api.everHad[name] == nil), w.podsOn(name))
	return node
}

// podsOn returns the pods that were bound to the node and have not come to their end.
func (w *world) podsOn(node string) (pods []*corev1.Pod) {
	for _, name := range w.api.names(kindPod) {
		if pod := w.api.pod(name); pod.Spec.NodeName == node && isShown(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// waitingPods lists the pods that wait although they fit on a node, each with the
// node.
func (w *world) waitingPods() (out []string) {
	accounts := map[string]*ledger.Node{}
	for _, name := range w.api.names(kindNode) {
		accounts[name] = w.account(name)
	}
	for _, name := range w.api.names(kindPod) {
		pod := w.api.pod(name)
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || w.api.untouchable[name] || !isShown(pod) {
			continue
		}
		ask, _ := request.Read(pod)
		if wire.Asks(pod) && w.exceeds(pod, ask, accounts) {
			continue
		}
		for _, node := range w.api.names(kindNode) {
			if w.admits(node, pod) && !w.isPromised(node, pod) && (!wire.Asks(pod) || fits(accounts[node], ask)) {
				out = append(out, fmt.Sprintf("pod %s waits although it fits on node %s", name, node))
				break
			}
		}
	}
	return out
}

// isPromised reports whether the node is promised to a pod that can't be touched, and so
// not placed, and is no less important: kube-scheduler keeps its room as long as it waits.
func (w *world) isPromised(node string, pod *corev1.Pod) bool {
	for name := range w.api.untouchable {
		other := w.api.pod(name)
		if other != nil && other.Spec.NodeName == "" && other.Status.NominatedNodeName == node && corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod) {
			return true
		}
	}
	return false
}

// fits reports whether the node has cards for the pod.
func fits(node *ledger.Node, ask *request.PodRequest) bool {
	_, refusal := place.Fit(node, &ask.Request, &ask.Prefer)
	return refusal.Code == place.Fits
}

// admits reports whether the pod may use the node, whatever its cards: its selector,
// the node's taints and the pods there allow it.
func (w *world) admits(name string, pod *corev1.Pod) bool {
	facts := &cluster.Facts{Name: name, Node: w.api.node(name)}
	return cluster.NewNodeFilter(pod).Exclusion(facts).Kind == 0 && w.isNear(name, pod) && w.isApart(name, pod) && w.isEven(name, pod)
}

// selects reports whether the term, whose topology is the host, is about the pod.
func selects(term *corev1.PodAffinityTerm, of, pod *corev1.Pod) bool {
	return of.Namespace == pod.Namespace && matchesLabels(term.LabelSelector, pod)
}

func matchesLabels(s *metav1.LabelSelector, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// isNear reports whether the node has the pods that the pod wants to be near. The
// first of an app that wants to be near its own kind may be anywhere, but
// kube-scheduler's hint does not wake it when the last other one ends, so that it is
// not expected to be placed.
func (w *world) isNear(node string, pod *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return true
	}
	for i := range pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		term := &pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
		if !slices.ContainsFunc(w.podsOn(node), func(other *corev1.Pod) bool { return selects(term, pod, other) }) {
			return false
		}
	}
	return true
}

// isApart reports whether no pod of the node is one that the pod wants to be away
// from, or wants to be away from the pod. If one of another node does, the node may be
// new: kube-scheduler's hint wakes only pods with affinity of their own for that.
func (w *world) isApart(node string, pod *corev1.Pod) bool {
	for _, name := range w.api.names(kindNode) {
		for _, other := range w.podsOn(name) {
			if shuns(other, pod) || name == node && shuns(pod, other) {
				return false
			}
		}
	}
	return true
}

// shuns reports whether the pod wants to be away from the other one.
func shuns(pod, other *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for i := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if selects(&pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i], pod, other) {
			return true
		}
	}
	return false
}

// isEven reports whether the pods that the pod wants to be spread are, with it on the
// node. Nodes that its selector leaves out do not count.
func (w *world) isEven(node string, pod *corev1.Pod) bool {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		least, here := -1, 0
		for _, name := range w.api.names(kindNode) {
			if !cluster.NewNodeFilter(pod).Selects(w.api.node(name)) {
				continue
			}
			count := 0
			for _, other := range w.podsOn(name) {
				if other.DeletionTimestamp == nil && other.Namespace == pod.Namespace && matchesLabels(c.LabelSelector, other) {
					count++
				}
			}
			if least < 0 || count < least {
				least = count
			}
			if name == node {
				here = count
			}
		}
		if matchesLabels(c.LabelSelector, pod) {
			here++
		}
		if here-max(0, least) > int(c.MaxSkew) {
			return false
		}
	}
	return true
}
