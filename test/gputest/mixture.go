package gputest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Mixture draws states of nodes and pods of every kind: both dialects, slices and
// whole cards, QoS and classes, policies, lists of cards, node selectors,
// affinities, tolerations and priorities.
type Mixture struct {
	*rand.Rand
	// Cards are the UUIDs that pods name.
	Cards []string
}

// The labels and taints that nodes have and pods name.
const (
	labelPool = "pool"
	labelRank = "rank"
	taintTeam = "team"
)

// The priority classes that pods name.
const (
	PriorityLow  = "low"
	PriorityHigh = "high"
)

// Often reports true in so many of a hundred cases.
func (m *Mixture) Often(percent int) bool { return m.IntN(100) < percent }

// pick returns one of the values.
func pick[T any](m *Mixture, values ...T) T { return values[m.IntN(len(values))] }

// State gives the node labels and, to some nodes, a reason why pods may not or
// should not use them: cordoned, not ready, tainted. The taints of a state are
// those that the control plane gives it.
func (m *Mixture) State(node *corev1.Node) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if m.Often(90) {
		node.Labels[labelPool] = pick(m, "a", "b", "c")
	}
	if m.Often(50) {
		node.Labels[labelRank] = pick(m, "1", "5", "9")
	}
	taint := func(key, value string, effect corev1.TaintEffect) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
	if m.Often(15) {
		taint(taintTeam, pick(m, "x", "y"), pick(m, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute))
	}
	if m.Often(15) {
		taint("quiet", "", corev1.TaintEffectPreferNoSchedule)
	}
	if m.Often(12) {
		node.Spec.Unschedulable = true
		taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	if m.Often(12) {
		ready.Status = pick(m, corev1.ConditionFalse, corev1.ConditionUnknown)
		key := corev1.TaintNodeNotReady
		if ready.Status == corev1.ConditionUnknown {
			key = corev1.TaintNodeUnreachable
		}
		taint(key, "", corev1.TaintEffectNoSchedule)
	}
	node.Status.Conditions = append(node.Status.Conditions, ready)
}

// Pod returns a pod of the default namespace. A few are invalid.
func (m *Mixture) Pod(name string) *corev1.Pod {
	b := MakePod(name)
	switch {
	case m.Often(8):
		b.App(m.slice()).App(m.slice())
	case m.Often(4):
		b.Init(m.slice()).App(m.slice())
	default:
		b.App(pick(m, m.slice, m.slice, m.whole, m.koordinator)())
	}
	pod := b.Obj()
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = "none"
	}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Image = "none"
	}
	m.wishes(b)
	m.nodes(&pod.Spec)
	m.cpu(&pod.Spec.Containers[0].Resources)
	if m.Often(25) {
		pod.Spec.PriorityClassName = pick(m, PriorityLow, PriorityHigh)
	}
	return pod
}

// slice is a request for slices in HAMi's words.
func (m *Mixture) slice() string {
	memory := fmt.Sprintf("vmemory: %d", pick(m, 1, 4, 8, 16, 24, 32, 48, 60, 64, 80))
	switch {
	case m.Often(10):
		return "sgpu: 1, " + memory // the whole of its compute
	case m.Often(5):
		return fmt.Sprintf("sgpu: 2, vcore: %d, %s", pick(m, 20, 50), memory)
	}
	return fmt.Sprintf("sgpu: 1, vcore: %d, %s", pick(m, 1, 5, 10, 20, 25, 30, 35, 50, 60, 80, 95), memory)
}

func (m *Mixture) whole() string { return fmt.Sprintf("gpu: %d", pick(m, 1, 1, 2, 3, 4, 8, 16)) }

// koordinator is a request in Koordinator's words.
func (m *Mixture) koordinator() string {
	percent := pick(m, 5, 10, 25, 40, 50, 75)
	switch m.IntN(5) {
	case 0:
		return fmt.Sprintf("gpu-memory-ratio: %d", 100*pick(m, 1, 2, 4))
	case 1:
		return fmt.Sprintf("gpu.shared: 1, gpu-core: %d, gpu-memory: %dGi", percent, pick(m, 2, 8, 16, 40))
	case 2:
		return fmt.Sprintf("koordinator.sh/gpu: %d", pick(m, percent, percent, 100, 200))
	}
	return fmt.Sprintf("gpu-core: %d, gpu-memory-ratio: %d", percent, pick(m, 5, 20, 50, 80))
}

// wishes adds annotations.
func (m *Mixture) wishes(b *PodBuilder) {
	if m.Often(30) {
		b.Annotate(wire.AnnotationQoS, string(pick(m, gpu.QoSClasses()...)))
	}
	if m.Often(10) {
		b.Annotate(wire.AnnotationClass, string(pick(m, gpu.Online, gpu.Offline)))
	}
	if m.Often(20) {
		b.Annotate(wire.AnnotationNodePolicy, pick(m, "binpack", "spread"))
	}
	if m.Often(20) {
		b.Annotate(wire.AnnotationCardPolicy, pick(m, "binpack", "spread", "numa", "mutex"))
	}
	if m.Often(5) {
		b.Annotate(wire.AnnotationTopologyAware, "false")
	}
	if key := pick(m, wire.AnnotationUseCards, wire.AnnotationNoUseCards); m.Often(10) {
		list := []string{"GPU-of-no-node"}
		for range m.IntN(4) {
			list = append(list, pick(m, m.Cards...))
		}
		b.Annotate(key, strings.Join(list, ","))
	}
}

// nodes says which nodes the pod may use.
func (m *Mixture) nodes(spec *corev1.PodSpec) {
	if m.Often(20) {
		spec.NodeSelector = map[string]string{labelPool: pick(m, "a", "b", "c", "of-no-node")}
	}
	if m.Often(20) {
		wants := pick(m,
			corev1.NodeSelectorRequirement{Key: labelPool, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
			corev1.NodeSelectorRequirement{Key: labelPool, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
			corev1.NodeSelectorRequirement{Key: labelPool, Operator: corev1.NodeSelectorOpExists},
			corev1.NodeSelectorRequirement{Key: labelRank, Operator: corev1.NodeSelectorOpDoesNotExist},
			corev1.NodeSelectorRequirement{Key: labelRank, Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
		)
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{wants}}},
		}}}
	}
	if m.Often(30) {
		spec.Tolerations = append(spec.Tolerations, pick(m,
			corev1.Toleration{Key: taintTeam, Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: taintTeam, Value: "x", Effect: corev1.TaintEffectNoSchedule},
			corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
			corev1.Toleration{Operator: corev1.TolerationOpExists},
		))
	}
}

// cpu makes the container ask for CPU. A few ask for more than any node has.
func (m *Mixture) cpu(r *corev1.ResourceRequirements) {
	amount := pick(m, "", "500m", "2")
	if m.Often(2) {
		amount = "1000"
	}
	if amount != "" {
		r.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
}

// ServedNode returns a node of Daybreak's with the resources of its cards, of which
// so many are healthy.
func ServedNode(name string, cards, healthy int) *corev1.Node {
	percent := *resource.NewQuantity(int64(100*healthy), resource.DecimalSI)
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("256"),
		wire.ResourceGPU: *resource.NewQuantity(int64(cards), resource.DecimalSI), wire.ResourceSGPU: *resource.NewQuantity(int64(cards*gpu.MaxSlices), resource.DecimalSI),
		wire.KoordShared: percent, wire.KoordCore: percent, wire.KoordMemoryRatio: percent, wire.KoordGPU: percent,
		wire.KoordMemory: *resource.NewQuantity(int64(healthy)*int64(Memory)<<20, resource.BinarySI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: list},
	}
}
