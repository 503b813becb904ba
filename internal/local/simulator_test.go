package local

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestRevive: a node whose lease expired becomes Ready again, and its other
// conditions stay.
func TestRevive(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
	}}}
	s := &Simulator{client: fake.NewClientset(node)}
	if err := s.keep(t.Context(), &simulated{want: node}); err != nil {
		t.Fatal(err)
	}
	got, err := s.client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, c := range got.Status.Conditions {
		status[c.Type] = c.Status
	}
	if len(status) != 2 || status[corev1.NodeReady] != corev1.ConditionTrue || status[corev1.NodeDiskPressure] != corev1.ConditionFalse {
		t.Errorf("conditions are %v", got.Status.Conditions)
	}
}
