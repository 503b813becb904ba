package request

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Models returns the card models that the pod may run on as its node selector
// and its required node affinity say, in ascending order, or nil when they rule
// none out. Only lists of what is allowed count; what they forbid is left to
// kube-scheduler, which sees to all of it anyway.
func Models(pod *corev1.Pod) []string {
	var models []string
	for _, label := range modelLabels {
		if value, ok := pod.Spec.NodeSelector[label]; ok {
			models = both(models, []string{gpu.ModelName(value)})
		}
	}
	required := wire.RequiredNodes(&pod.Spec)
	if required == nil {
		return models
	}
	var either []string
	for _, term := range required.NodeSelectorTerms {
		of := modelsOf(&term)
		if of == nil {
			return models // one way around is enough
		}
		either = append(either, of...)
	}
	if either == nil {
		return models
	}
	slices.Sort(either)
	return both(models, slices.Compact(either))
}

// modelLabels are the labels with a node's card model.
var modelLabels = []string{wire.LabelModel, wire.LabelProduct}

// modelsOf returns the models that one term allows, or nil for all.
func modelsOf(term *corev1.NodeSelectorTerm) []string {
	var models []string
	for _, e := range term.MatchExpressions {
		if e.Operator != corev1.NodeSelectorOpIn || !slices.Contains(modelLabels, e.Key) {
			continue
		}
		var listed []string
		for _, value := range e.Values {
			listed = append(listed, gpu.ModelName(value))
		}
		slices.Sort(listed)
		models = both(models, slices.Compact(listed))
	}
	return models
}

// both returns what is in both lists; nil stands for everything. Where the two
// have nothing in common the pod fits nowhere, and the second list is as good
// as any.
func both(a, b []string) []string {
	if a == nil {
		return b
	}
	var common []string
	for _, m := range a {
		if slices.Contains(b, m) {
			common = append(common, m)
		}
	}
	if common == nil {
		return b
	}
	return common
}
