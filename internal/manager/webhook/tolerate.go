package webhook

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Taint is the taint that keeps other pods off nodes with cards, with any value.
// The zero value is none. It is the value of a flag.
type Taint struct {
	Key    string
	Effect corev1.TaintEffect
}

// String returns the taint as KEY:EFFECT.
func (t *Taint) String() string {
	if t.Key == "" {
		return ""
	}
	return t.Key + ":" + string(t.Effect)
}

// Set reads the taint from KEY:EFFECT.
func (t *Taint) Set(text string) error {
	if text == "" {
		*t = Taint{}
		return nil
	}
	key, effect, _ := strings.Cut(text, ":")
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("key %q: %s", key, strings.Join(problems, "; "))
	}
	switch e := corev1.TaintEffect(effect); e {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		*t = Taint{Key: key, Effect: e}
		return nil
	}
	return fmt.Errorf("effect %q: write KEY:NoSchedule, KEY:PreferNoSchedule or KEY:NoExecute", effect)
}

// Type names the value in help texts.
func (t *Taint) Type() string { return "KEY:EFFECT" }

// tolerate lets a pod with cards on nodes with the taint, if Daybreak places
// the pod: the taint keeps other schedulers off.
func (r *Rules) tolerate(pod *corev1.Pod) {
	if r.Taint.Key == "" || !slices.Contains(r.Schedulers, pod.Spec.SchedulerName) {
		return
	}
	covered := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == r.Taint.Key) && (t.Effect == "" || t.Effect == r.Taint.Effect)
	})
	if !covered {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: r.Taint.Key, Operator: corev1.TolerationOpExists, Effect: r.Taint.Effect})
	}
}
