package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PreEnqueue keeps pods with cards out of the queue until the fence is open, so
// that every decision begins with a snapshot from after that. The fence makes
// kube-scheduler try them again; nothing is written about them meanwhile.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if wire.Asks(pod) && !p.shared.term.admits(pod) {
		return notYet()
	}
	return p.DefaultPreemption.PreEnqueue(ctx, pod)
}

func notYet() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "a scheduler that led before may still bind pods: waiting until that is ruled out")
}
