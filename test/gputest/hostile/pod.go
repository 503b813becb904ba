package hostile

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What an API server takes of one object.
const (
	// LargestRequest is the most that it reads of a request, before any admission.
	LargestRequest = 3 << 20
	// LargestStored is a little less than etcd takes.
	LargestStored = 1400 << 10
	// LargestAnnotations is the most that an object's annotations may have in all.
	LargestAnnotations = 256 << 10
)

// Pod is a pod that has too much of something. Any tenant can create it, and nothing
// is wrong with it otherwise.
type Pod struct {
	// Name says of what, as part of an object's name.
	Name string
	// Most is how many bytes are admitted at most; 0 is [LargestStored].
	Most int
	// fill puts so many of it into the pod.
	fill func(pod *corev1.Pod, n int)
}

// each returns a fill that adds one after the other.
func each(add func(pod *corev1.Pod, i int)) func(*corev1.Pod, int) {
	return func(pod *corev1.Pod, n int) {
		for i := range n {
			add(pod, i)
		}
	}
}

// Make returns the pod, with as much as fits into a number of bytes of JSON. It asks
// for one card.
func (p *Pod) Make(bytes int) *corev1.Pod {
	const sample = 1000
	few, more := sizeOf(p.with(sample)), sizeOf(p.with(2*sample))
	return p.with(max(1, sample+(bytes-few)*sample/(more-few)))
}

// MakeWithoutCards returns the same pod, which asks for CPU instead.
func (p *Pod) MakeWithoutCards(bytes int) *corev1.Pod {
	pod := p.Make(bytes)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		}
	}
	return pod
}

// Bound returns the same pod on a node, where it holds a card.
func (p *Pod) Bound(bytes int, node, card string) *corev1.Pod {
	pod := p.Make(bytes)
	pod.Spec.NodeName = node
	pod.Annotations["metax-tech.com/gpu-devices-allocated"] = fmt.Sprintf(`[[{"uuid":%q,"compute":100,"vRam":65536}]]`, card)
	return pod
}

func (p *Pod) with(n int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "hostile-" + p.Name, UID: "uid", Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"metax-tech.com/gpu": resource.MustParse("1")}},
		}}},
	}
	p.fill(pod, n)
	return pod
}

// Stored returns the pod, as large as an API server stores it.
func (p *Pod) Stored() int {
	if p.Most > 0 {
		return p.Most
	}
	return LargestStored
}

func sizeOf(object any) int {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // the collection is ours
	}
	return len(text)
}

// Pods returns the collection.
func Pods() []Pod {
	return append(affinePods(), wordyPods()...)
}

// affinePods may run on no node, which takes long to find out.
func affinePods() []Pod {
	absent := func(i int) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: fmt.Sprintf("k%07d", i), Operator: corev1.NodeSelectorOpDoesNotExist}
	}
	// oneTerm returns a fill of requirements that every node meets, but for the last.
	oneTerm := func(add func(term *corev1.NodeSelectorTerm, i int)) func(*corev1.Pod, int) {
		return func(pod *corev1.Pod, n int) {
			var term corev1.NodeSelectorTerm
			for i := range n {
				add(&term, i)
			}
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: "z", Operator: corev1.NodeSelectorOpExists})
			*terms(pod) = []corev1.NodeSelectorTerm{term}
		}
	}
	return []Pod{
		{Name: "expressions", fill: oneTerm(func(term *corev1.NodeSelectorTerm, i int) {
			term.MatchExpressions = append(term.MatchExpressions, absent(i))
		})},
		{Name: "same-expressions", fill: oneTerm(func(term *corev1.NodeSelectorTerm, _ int) {
			term.MatchExpressions = append(term.MatchExpressions, absent(0))
		})},
		{Name: "values", fill: oneTerm(func(term *corev1.NodeSelectorTerm, i int) {
			if i == 0 {
				term.MatchExpressions = []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpNotIn}}
			}
			term.MatchExpressions[0].Values = append(term.MatchExpressions[0].Values, fmt.Sprintf("v%07d", i))
		})},
		{Name: "fields", fill: oneTerm(func(term *corev1.NodeSelectorTerm, i int) {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{fmt.Sprintf("x%07d", i)},
			})
		})},
		{Name: "terms", fill: each(func(pod *corev1.Pod, i int) {
			terms := terms(pod)
			*terms = append(*terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: fmt.Sprintf("k%07d", i), Operator: corev1.NodeSelectorOpExists}}})
		})},
		{Name: "selector", fill: each(func(pod *corev1.Pod, i int) {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[fmt.Sprintf("k%07d", i)] = "v"
		})},
		{Name: "preferred-nodes", fill: each(func(pod *corev1.Pod, i int) {
			affinity(pod).NodeAffinity = preferring(affinity(pod).NodeAffinity, absent(i))
		})},
		{Name: "preferred-pods", fill: each(func(pod *corev1.Pod, i int) {
			if affinity(pod).PodAffinity == nil {
				affinity(pod).PodAffinity = &corev1.PodAffinity{}
			}
			a := affinity(pod).PodAffinity
			a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{
				Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("a%07d", i)}},
				},
			})
		})},
		{Name: "tolerations", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprintf("k%07d", i), Operator: corev1.TolerationOpExists})
		})},
	}
}

// wordyPods have more of everything else.
func wordyPods() []Pod {
	limits := func(name corev1.ResourceName, amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	return []Pod{
		{Name: "containers", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: limits("metax-tech.com/gpu", "64")})
		})},
		{Name: "sidecars", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("i%d", i), RestartPolicy: &always, Resources: limits("metax-tech.com/sgpu", "1")})
		})},
		{Name: "wrong-containers", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: limits("metax-tech.com/vcore", "101")})
		})},
		{Name: "ordinary-containers", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: limits("cpu", "1m")})
		})},
		{Name: "privileged-containers", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), SecurityContext: &corev1.SecurityContext{Privileged: new(true)}})
		})},
		{Name: "unknown-resources", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(fmt.Sprintf("metax-tech.com/x%07d", i))] = resource.MustParse("1")
		})},
		{Name: "mistyped-resources", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers[0].Resources.Limits[corev1.ResourceName(fmt.Sprintf("metax-tech.com/vmemor%d", i))] = resource.MustParse("1")
		})},
		{Name: "unknown-annotations", Most: LargestAnnotations, fill: each(func(pod *corev1.Pod, i int) {
			pod.Annotations[fmt.Sprintf("metax-tech.com/sgpu-qos-polic%d", i)] = ""
		})},
		{Name: "annotation", Most: LargestAnnotations, fill: func(pod *corev1.Pod, n int) { pod.Annotations["note"] = strings.Repeat("x", n) }},
		{Name: "listed-cards", Most: LargestAnnotations, fill: func(pod *corev1.Pod, n int) {
			pod.Annotations["metax-tech.com/use-gpuuuid"] = strings.Repeat("GPU-0,", n)
		}},
		{Name: "policies", Most: LargestAnnotations, fill: func(pod *corev1.Pod, n int) {
			pod.Annotations["hami.io/gpu-scheduler-policy"] = strings.Repeat("topology-aware,binpack,", n) + "spread"
		}},
		{Name: "labels", fill: each(func(pod *corev1.Pod, i int) { pod.Labels[fmt.Sprintf("k%07d", i)] = "v" })},
		{Name: "gates", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: fmt.Sprintf("g%07d", i)})
		})},
		{Name: "environment", fill: each(func(pod *corev1.Pod, i int) {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("E%07d", i), Value: "v"})
		})},
	}
}

func affinity(pod *corev1.Pod) *corev1.Affinity {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	return pod.Spec.Affinity
}

// terms returns where the required terms are.
func terms(pod *corev1.Pod) *[]corev1.NodeSelectorTerm {
	a := affinity(pod)
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}
	}
	return &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func preferring(a *corev1.NodeAffinity, x corev1.NodeSelectorRequirement) *corev1.NodeAffinity {
	if a == nil {
		a = &corev1.NodeAffinity{}
	}
	a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{x}},
	})
	return a
}
