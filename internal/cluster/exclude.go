package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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
	selector labels.Selector // the pod's nodeSelector
	selected []string        // its keys, in order
	required *corev1.NodeSelector
	// terms are those of required that a node can match: all parts of one must.
	terms [][]*nodeaffinity.NodeSelector
}

// maxPart bounds the expressions that kube-scheduler's helper parses at once: its time
// grows with their square.
const maxPart = 32

// NewNodeFilter returns the filter of the pod's nodeSelector, required node
// affinity and tolerations.
func NewNodeFilter(pod *corev1.Pod) *NodeFilter {
	f := &NodeFilter{
		pod: pod, selector: labels.SelectorFromSet(pod.Spec.NodeSelector), selected: slices.Sorted(maps.Keys(pod.Spec.NodeSelector)),
		required: wire.RequiredNodes(&pod.Spec),
	}
	if f.required == nil {
		return f
	}
	for i := range f.required.NodeSelectorTerms {
		if parts := partsOf(&f.required.NodeSelectorTerms[i]); len(parts) > 0 {
			f.terms = append(f.terms, parts)
		}
	}
	return f
}

// partsOf parses a term of node affinity. It returns nothing for one that no node
// matches: an empty one, or one that can't be parsed, as kube-scheduler has it.
func partsOf(term *corev1.NodeSelectorTerm) (parts []*nodeaffinity.NodeSelector) {
	part := func(term corev1.NodeSelectorTerm) bool {
		parsed, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}})
		parts = append(parts, parsed)
		return err == nil
	}
	for expressions := range slices.Chunk(term.MatchExpressions, maxPart) {
		if !part(corev1.NodeSelectorTerm{MatchExpressions: expressions}) {
			return nil
		}
	}
	if len(term.MatchFields) > 0 && !part(corev1.NodeSelectorTerm{MatchFields: term.MatchFields}) {
		return nil
	}
	return parts
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
	taint, excluded := f.untolerated(append(stateTaints(node), node.Spec.Taints...))
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
func (f *NodeFilter) Selects(node *corev1.Node) bool {
	if !f.selector.Matches(labels.Set(node.Labels)) {
		return false
	}
	return f.required == nil || slices.ContainsFunc(f.terms, func(parts []*nodeaffinity.NodeSelector) bool {
		return !slices.ContainsFunc(parts, func(p *nodeaffinity.NodeSelector) bool { return !p.Match(node) })
	})
}

// Taint returns the first of the node's taints that keeps the pod off, or nothing.
func (f *NodeFilter) Taint(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	taint, excluded := f.untolerated(node.Spec.Taints)
	if !excluded {
		return ""
	}
	return taint.ToString()
}

// untolerated returns the first taint that keeps the pod off.
func (f *NodeFilter) untolerated(taints []corev1.Taint) (corev1.Taint, bool) {
	return untolerated(f.pod, taints, f.Compares, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
}

// Avoids reports whether the pod may use the node but should not while another
// node has room: the node has a PreferNoSchedule taint that the pod does not
// tolerate. For compares, see [NodeFilter].
func Avoids(pod *corev1.Pod, node *corev1.Node, compares bool) bool {
	if node == nil {
		return false
	}
	_, avoids := untolerated(pod, node.Spec.Taints, compares, corev1.TaintEffectPreferNoSchedule)
	return avoids
}

// untolerated returns the first taint with one of the effects that the pod does not
// tolerate.
func untolerated(pod *corev1.Pod, taints []corev1.Taint, compares bool, effects ...corev1.TaintEffect) (corev1.Taint, bool) {
	return corev1helpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return slices.Contains(effects, t.Effect)
	}, compares)
}

// unmatched says which label of the nodeSelector the node does not have, or that
// the affinity is what does not match.
func (f *NodeFilter) unmatched(node *corev1.Node) Exclusion {
	for _, key := range f.selected {
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
