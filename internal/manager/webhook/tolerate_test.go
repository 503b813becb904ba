package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestTolerate(t *testing.T) {
	added := corev1.Toleration{Key: "metax-tech.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Toleration{Key: "team", Value: "a"}
	one := corev1.Toleration{Key: "metax-tech.com/gpu", Operator: corev1.TolerationOpEqual, Value: "x", Effect: corev1.TaintEffectNoSchedule}
	every := corev1.Toleration{Operator: corev1.TolerationOpExists}
	tolerating := func(b *gputest.PodBuilder, list ...corev1.Toleration) *gputest.PodBuilder {
		b.Obj().Spec.Tolerations = list
		return b
	}
	cases := map[string]struct {
		pod   *gputest.PodBuilder
		taint string
		want  []corev1.Toleration
	}{
		"a pod with a slice":                  {pod: ask("sgpu: 1"), want: []corev1.Toleration{added}},
		"a pod with cards":                    {pod: ask("gpu: 2"), want: []corev1.Toleration{added}},
		"Koordinator's words":                 {pod: ask("gpu-core: 10, gpu-memory: 1Gi"), want: []corev1.Toleration{added}},
		"next to its own":                     {pod: tolerating(ask("sgpu: 1"), other), want: []corev1.Toleration{other, added}},
		"it tolerates one value":              {pod: tolerating(ask("sgpu: 1"), one), want: []corev1.Toleration{one, added}},
		"it tolerates it already":             {pod: tolerating(ask("sgpu: 1"), added), want: []corev1.Toleration{added}},
		"it tolerates everything":             {pod: tolerating(ask("sgpu: 1"), every), want: []corev1.Toleration{every}},
		"another scheduler's pod":             {pod: scheduler(ask("sgpu: 1"), "volcano")},
		"no card":                             {pod: ask("cpu: 1")},
		"no card after all":                   {pod: ask("sgpu: 0")},
		"no taint":                            {pod: ask("sgpu: 1"), taint: "-"},
		"another taint":                       {pod: ask("sgpu: 1"), taint: "gpus:NoExecute", want: []corev1.Toleration{{Key: "gpus", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}},
		"everything of another effect is not": {pod: tolerating(ask("sgpu: 1"), added), taint: "metax-tech.com/gpu:NoExecute", want: []corev1.Toleration{added, {Key: "metax-tech.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := rules()
			text := map[string]string{"": "metax-tech.com/gpu:NoSchedule", "-": ""}[tc.taint]
			if len(tc.taint) > 1 {
				text = tc.taint
			}
			gputest.Must(t, r.Taint.Set(text))
			pod := tc.pod.Obj()
			for range 2 { // admitting twice is admitting once
				if v := r.Admit(pod, user); len(v.Problems) > 0 {
					t.Fatal(v.Problems)
				}
			}
			gputest.Equal(t, "tolerations", tc.want, pod.Spec.Tolerations, cmpopts.EquateEmpty())
		})
	}
}

func TestTaint(t *testing.T) {
	for text, ok := range map[string]bool{
		"": true, "metax-tech.com/gpu:NoSchedule": true, "gpu:NoExecute": true, "gpu:PreferNoSchedule": true,
		"gpu": false, "gpu:": false, ":NoSchedule": false, "gpu=x:NoSchedule": false, "gpu:Never": false, "a b:NoSchedule": false,
	} {
		var taint Taint
		err := taint.Set(text)
		if (err == nil) != ok {
			t.Errorf("%q: %v, want it read: %v", text, err, ok)
		}
		if err == nil && taint.String() != text {
			t.Errorf("%q is read as %q", text, taint.String())
		}
	}
}
