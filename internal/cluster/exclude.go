package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// Exclusion is why a pod may not use a node; the zero value means that it may.
type Exclusion struct {
	Kind    place.Exclusion
	Message string
}

// NodeFilter decides which nodes a pod may use at all, whatever their cards. It
// decides as kube-scheduler does, whose helpers it calls.
type NodeFilter struct {
	// Compares allows comparison operators in tolerations, an alpha feature of
	// Kubernetes.
	Compares bool
	pod      *corev1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// NewNodeFilter returns the filter of the pod's nodeSelector, required node
// affinity and tolerations.
func NewNodeFilter(pod *corev1.Pod) *NodeFilter {
	return &NodeFilter{pod: pod, affinity: nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// Exclusion returns why the pod may not use the node. A node of which only the
// Device was read has no labels and no taints.
func (f *NodeFilter) Exclusion(facts *Facts) Exclusion {
	node := facts.Node
	if node == nil {
		node = &corev1.Node{}
		node.Name = facts.Name
	}
	if !f.Selects(node) {
		return f.unmatched(node)
	}
	taint, excluded := f.untolerated(append(stateTaints(node), node.Spec.Taints...), corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	if !excluded {
		return Exclusion{}
	}
	switch taint.Key {
	case corev1.TaintNodeUnschedulable:
		return Exclusion{place.Cordoned, place.Cordoned.Message()}
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return Exclusion{place.NotReady, place.NotReady.Message()}
	}
	return Exclusion{place.Tainted, "the pod does not tolerate the node's taint " + taint.ToString()}
}

// Selects reports whether nodeSelector and required node affinity admit the node.
// kube-scheduler, too, takes a selector that can't be parsed for one that does not
// match.
func (f *NodeFilter) Selects(node *corev1.Node) bool {
	ok, _ := f.affinity.Match(node)
	return ok
}

// Taint returns the node's first taint that keeps the pod off, or nothing.
func (f *NodeFilter) Taint(facts *Facts) string {
	if facts.Node == nil {
		return ""
	}
	taint, excluded := f.untolerated(facts.Node.Spec.Taints, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	if !excluded {
		return ""
	}
	return taint.ToString()
}

// Avoids reports whether the pod may use the node but should not while another
// node has room: the node has a PreferNoSchedule taint that the pod does not
// tolerate.
func (f *NodeFilter) Avoids(facts *Facts) bool {
	if facts.Node == nil {
		return false
	}
	_, avoids := f.untolerated(facts.Node.Spec.Taints, corev1.TaintEffectPreferNoSchedule)
	return avoids
}

// untolerated returns the first taint with one of the effects that the pod does not
// tolerate.
func (f *NodeFilter) untolerated(taints []corev1.Taint, effects ...corev1.TaintEffect) (corev1.Taint, bool) {
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, f.pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return slices.Contains(effects, t.Effect)
	}, f.Compares)
}

// unmatched says which label of the nodeSelector the node does not have, or that
// the affinity is what does not match.
func (f *NodeFilter) unmatched(node *corev1.Node) Exclusion {
	for _, key := range slices.Sorted(maps.Keys(f.pod.Spec.NodeSelector)) {
		want := f.pod.Spec.NodeSelector[key]
		have, ok := node.Labels[key]
		switch {
		case !ok:
			return Exclusion{place.NotSelected, fmt.Sprintf("the pod's nodeSelector wants %s=%s, the node has no such label", key, want)}
		case have != want:
			return Exclusion{place.NotSelected, fmt.Sprintf("the pod's nodeSelector wants %s=%s, the node has %s=%s", key, want, key, have)}
		}
	}
	return Exclusion{place.NotAffine, place.NotAffine.Message()}
}

// stateTaints returns the taints that the control plane gives a node in its
// state. It does so with some delay, and files need not have them.
func stateTaints(node *corev1.Node) []corev1.Taint {
	var keys []string
	if node.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	switch Ready(node) {
	case corev1.ConditionFalse:
		keys = append(keys, corev1.TaintNodeNotReady)
	case corev1.ConditionUnknown:
		keys = append(keys, corev1.TaintNodeUnreachable)
	}
	taints := make([]corev1.Taint, 0, len(keys)+len(node.Spec.Taints))
	for _, key := range keys {
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return taints
}

// Ready returns the status of the node's Ready condition. A node without one
// counts as ready: files need not say.
func Ready(node *corev1.Node) corev1.ConditionStatus {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return cmp.Or(c.Status, corev1.ConditionUnknown)
		}
	}
	return corev1.ConditionTrue
}
