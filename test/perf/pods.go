package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// labelRole separates the pods of a run from those that stay.
const (
	labelRole    = "daybreak-gpu.io/perf"
	roleRun      = "run"
	roleResident = "resident"
)

// labelApart is what pods have in common that prefer to be apart.
const labelApart = "daybreak-gpu.io/perf-apart"

// amounts reads a list of the plan, which was validated.
func amounts(texts map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for res, amount := range texts {
		list[corev1.ResourceName(res)] = resource.MustParse(amount)
	}
	return list
}

// pod returns a pod of the kind. It ends as soon as it is deleted: there is no kubelet.
func (k Kind) pod(name, role string) *corev1.Pod {
	list := amounts(k.Resources)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceDefault, Annotations: maps.Clone(k.Annotations),
			Labels: map[string]string{labelRole: role},
		},
		Spec: corev1.PodSpec{
			PriorityClassName: k.PriorityClass, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Limits: list, Requests: list},
			}},
		},
	}
	if k.Apart {
		others := map[string]string{labelApart: "true"}
		maps.Copy(pod.Labels, others)
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: others}},
			}},
		}}
	}
	return pod
}

// unfit returns the pods that fit nowhere.
func (p *Plan) unfit(w *Workload) (pods []*corev1.Pod) {
	if w.Unfit == nil {
		return nil
	}
	for i := range w.Unfit.Pods {
		pods = append(pods, p.Kinds[w.Unfit.Kind].pod(fmt.Sprintf("unfit-%05d", i), roleRun))
	}
	return pods
}

// backlog returns the pods of a run. Kinds are mixed, and the same way for
// everyone.
func (p *Plan) backlog(w *Workload, n int) (pods []*corev1.Pod) {
	var deck []string
	for _, kind := range slices.Sorted(maps.Keys(w.Mix)) {
		deck = append(deck, slices.Repeat([]string{kind}, w.Mix[kind])...)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
	for i := range n {
		if i%len(deck) == 0 {
			random.Shuffle(len(deck), func(a, b int) { deck[a], deck[b] = deck[b], deck[a] })
		}
		pod := p.Kinds[deck[i%len(deck)]].pod(fmt.Sprintf("pod-%05d", i), roleRun)
		switch {
		case w.Shapes > 0:
			sliceOf(pod, i%w.Shapes)
		case w.Rare > 0 && i%10 == 0:
			sliceOf(pod, i/10%w.Rare)
		}
		pods = append(pods, pod)
	}
	return pods
}

// sliceOf makes the pod ask for a slice, of which the compute and the memory are the
// i-th of 500 combinations.
func sliceOf(pod *corev1.Pod, i int) {
	list := pod.Spec.Containers[0].Resources.Requests // those of the limits, too
	delete(list, wire.ResourceGPU)
	list[wire.ResourceSGPU] = *resource.NewQuantity(1, resource.DecimalSI)
	list[wire.ResourceVCore] = *resource.NewQuantity(int64(1+i%10), resource.DecimalSI)
	list[wire.ResourceVMemory] = *resource.NewQuantity(int64(1+i/10%50)*128<<20, resource.BinarySI)
}

// residents returns the pods that live on one node, with the cards that they
// hold.
func (k Kind) residents(node *corev1.Node, device *v1alpha1.Device, n int) ([]*corev1.Pod, error) {
	account := inventory.ReadInventory(node, device).NewNode()
	var pods []*corev1.Pod
	for i := range n {
		pod := k.pod(fmt.Sprintf("%s-%03d", node.Name, i), roleResident)
		pod.Spec.NodeName = node.Name
		pods = append(pods, pod)
		ask, problems := request.Read(pod)
		if len(problems) > 0 {
			return nil, problems.ToAggregate()
		}
		if ask == nil {
			continue
		}
		offer, refusal := place.Fit(account, &ask.Request, &ask.Prefer)
		if refusal.Code != place.Fits {
			return nil, fmt.Errorf("resident %d of node %s: %s", i+1, node.Name, refusal.Code.Reason())
		}
		holding, err := account.Commit(offer, allocation.HolderOf(pod), &ask.Request)
		if err != nil {
			return nil, err
		}
		annotations, err := allocation.Annotations(account, ask, &holding, time.Now())
		if err != nil {
			return nil, err
		}
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		maps.Copy(pod.Annotations, annotations)
	}
	return pods, nil
}
