package request

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestCheckBounds: a pod that is yet to be placed is not compared with any node when
// it is too large for that; one that is bound is read as before.
func TestCheckBounds(t *testing.T) {
	const rules = "spec: Forbidden: nodeSelector, required node affinity and tolerations of a pod with GPUs have at most 1024 entries together, values included, and those of this one have 1025: use labels that several nodes have"
	for name, tc := range map[string]struct {
		n    int
		add  func(spec *corev1.PodSpec, i int)
		want string
	}{
		"containers": {1023, func(s *corev1.PodSpec, _ int) { s.Containers = append(s.Containers, corev1.Container{}) },
			"spec: Forbidden: a pod with GPUs has at most 1024 containers, init containers included, and this one has 1025: split it into several pods"},
		"init containers": {1023, func(s *corev1.PodSpec, _ int) { s.InitContainers = append(s.InitContainers, corev1.Container{}) },
			"spec: Forbidden: a pod with GPUs has at most 1024 containers, init containers included, and this one has 1025: split it into several pods"},
		"tolerations":  {1024, func(s *corev1.PodSpec, _ int) { s.Tolerations = append(s.Tolerations, corev1.Toleration{}) }, rules},
		"nodeSelector": {1024, func(s *corev1.PodSpec, i int) { s.NodeSelector[strconv.Itoa(i)] = "" }, rules},
		"expressions": {1024, func(s *corev1.PodSpec, _ int) {
			term := &s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{})
		}, rules},
		"values": {1024, func(s *corev1.PodSpec, i int) {
			term := &s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
			if i == 0 {
				term.MatchFields = make([]corev1.NodeSelectorRequirement, 1)
				return
			}
			term.MatchFields[0].Values = append(term.MatchFields[0].Values, "")
		}, rules},
	} {
		t.Run(name, func(t *testing.T) {
			pod := app("gpu: 1").Obj()
			pod.UID, pod.Spec.NodeSelector = "u", map[string]string{}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)},
			}}
			for i := range tc.n {
				tc.add(&pod.Spec, i)
			}
			if ask, problems := ReadPending(pod); ask == nil {
				t.Fatalf("as large as it may be: %v", problems)
			}
			tc.add(&pod.Spec, tc.n)
			if ask, problems := ReadPending(pod); ask != nil || strings.Join(sentences(problems), "; ") != tc.want {
				t.Errorf("problems %v, want %s", problems, tc.want)
			}
			if ask, asks := ReadBound(pod); ask == nil || !asks {
				t.Error("bound, its request is not read")
			}
		})
	}
}
