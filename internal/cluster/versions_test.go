package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestComponentVersions(t *testing.T) {
	pod := func(component, image string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": component, "app.kubernetes.io/version": "v0.3.0",
			}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
			Status: corev1.PodStatus{Phase: phase},
		}
	}
	const sum = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	got := componentVersions([]corev1.Pod{
		pod("agent", "registry.example:5000/daybreak:v0.2.0", corev1.PodRunning),
		pod("agent", "registry.example:5000/daybreak:v0.1.0", corev1.PodRunning),
		pod("agent", "registry.example:5000/daybreak:v0.2.0"+sum, corev1.PodPending),
		pod("manager", "registry.example:5000/daybreak"+sum, corev1.PodRunning), // the labels show it
		pod("manager", "daybreak:old", corev1.PodFailed),
		pod("scheduler", "daybreak", corev1.PodRunning),
		pod("test", "daybreak:v0.2.0", corev1.PodRunning),
	})
	want := []ComponentVersion{
		{"scheduler", "v0.3.0", 1}, {"manager", "v0.3.0", 1}, {"agent", "v0.1.0", 1}, {"agent", "v0.2.0", 2},
	}
	gputest.Equal(t, "versions", want, got)
}
