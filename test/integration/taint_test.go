package integration

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
)

// TestAdvisedTaint: pods with cards reach nodes with the advised taint by
// themselves, and other pods do not.
func TestAdvisedTaint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.nodes(1)
	address := freeAddress(t)
	w.must(w.cluster.Webhook(w.ctx, address))
	w.startManager("manager", address, manager.Admission{Rules: webhook.Rules{Taint: webhook.Taint{Key: "metax-tech.com/gpu", Effect: corev1.TaintEffectNoSchedule}}})
	w.admits()
	w.kubectl("taint", "node", "--all", "metax-tech.com/gpu=:NoSchedule")
	w.scheduler("scheduler")
	w.create(pod("with", "sgpu=1"), pod("without"))
	w.bound("with")
	w.eventually("the pod without cards is refused", time.Minute, func() error {
		p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "without", metav1.GetOptions{})
		if err != nil {
			return err
		}
		refused := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
		if !refused || p.Spec.NodeName != "" {
			return errors.New("it is on node " + p.Spec.NodeName)
		}
		return nil
	})
}
