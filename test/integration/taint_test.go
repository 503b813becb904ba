package integration

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
)

// TestAdvisedTaint: pods with cards reach nodes with the advised taint by
// themselves, and other pods do not.
func TestAdvisedTaint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(1)
	address := w.FreeAddress()
	w.Must(w.Webhook(w.Ctx, address))
	w.startManager("manager", address, manager.Admission{Rules: webhook.Rules{Taint: webhook.Taint{Key: "metax-tech.com/gpu", Effect: corev1.TaintEffectNoSchedule}}})
	w.admits()
	w.Kubectl("taint", "node", "--all", "metax-tech.com/gpu=:NoSchedule")
	w.Scheduler("scheduler")
	w.Create(pod("with", "sgpu=1"), pod("without"))
	w.Bound("with")
	w.Eventually("the pod without cards is refused", time.Minute, func() error {
		p := w.Pod("without")
		refused := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
		if !refused || p.Spec.NodeName != "" {
			return errors.New("it is on node " + p.Spec.NodeName)
		}
		return nil
	})
}
