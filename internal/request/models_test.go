package request_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestModels(t *testing.T) {
	type terms [][]corev1.NodeSelectorRequirement
	one := func(key string, op corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}
	}
	const in = corev1.NodeSelectorOpIn
	tests := map[string]struct {
		selector map[string]string
		terms    terms
		want     []string
	}{
		"nothing said":        {},
		"another label":       {selector: map[string]string{"zone": "a"}},
		"Koordinator's label": {selector: map[string]string{wire.LabelModel: "C550"}, want: []string{"C550"}},
		"the vendor's label, with the vendor's name": {selector: map[string]string{wire.LabelProduct: "MXC500"}, want: []string{"C500"}},
		"one of several":      {terms: terms{one(wire.LabelModel, in, "N260", "C500", "C500")}, want: []string{"C500", "N260"}},
		"either of two terms": {terms: terms{one(wire.LabelModel, in, "N260"), one(wire.LabelProduct, in, "MXC500")}, want: []string{"C500", "N260"}},
		"a term that says nothing of it is a way around": {terms: terms{one(wire.LabelModel, in, "N260"), one("zone", in, "a")}},
		"both conditions of a term": {
			terms: terms{append(one(wire.LabelModel, in, "N260", "C500"), one(wire.LabelProduct, in, "MXC500", "MXC550")...)},
			want:  []string{"C500"},
		},
		"the selector narrows the affinity": {
			selector: map[string]string{wire.LabelModel: "C500"},
			terms:    terms{one(wire.LabelModel, in, "N260", "C500")},
			want:     []string{"C500"},
		},
		"what is forbidden is not listed": {terms: terms{one(wire.LabelModel, corev1.NodeSelectorOpNotIn, "N260")}},
		"no term at all":                  {terms: terms{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := gputest.MakePod("p").App("gpu: 1").Obj()
			pod.Spec.NodeSelector = tt.selector
			if tt.terms != nil {
				required := &corev1.NodeSelector{}
				for _, term := range tt.terms {
					required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: term})
				}
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
			}
			gputest.Equal(t, "models", tt.want, request.Models(pod))
		})
	}
}
