package noderesource

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write makes the node as decided: the mark comes before what it stands for, and
// goes after it, so that nothing of ours is ever without it. Each patch holds
// only for the node as it was read.
func (r *reconciler) write(ctx context.Context, node *corev1.Node, d decision) error {
	first, second := r.writeMetadata, r.writeStatus
	if d.verdict == withdraw {
		first, second = second, first
	}
	if err := first(ctx, node, d); err != nil {
		return err
	}
	return second(ctx, node, d)
}

func (r *reconciler) writeMetadata(ctx context.Context, node *corev1.Node, d decision) error {
	patch := patchOf(node)
	if !d.setMetadata(node) {
		return nil
	}
	return r.count("patch labels and annotations", r.client.Patch(ctx, node, patch, fieldOwner))
}

func (r *reconciler) writeStatus(ctx context.Context, node *corev1.Node, d decision) error {
	patch := patchOf(node)
	if !d.setStatus(node) {
		return nil
	}
	return r.count("patch status", r.client.Status().Patch(ctx, node, patch, fieldOwner))
}

// patchOf returns a merge patch from the node as it is to what it will be. The
// caches must hold labels, annotations and resources of nodes whole.
func patchOf(node *corev1.Node) client.Patch {
	return client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

// count counts how a patch ended, and wraps the error with the step.
func (r *reconciler) count(step string, err error) error {
	switch {
	case err == nil:
		r.metrics.patches.WithLabelValues(resultApplied).Inc()
		return nil
	case apierrors.IsConflict(err):
		r.metrics.patches.WithLabelValues(resultConflict).Inc()
	default:
		r.metrics.patches.WithLabelValues(resultFailed).Inc()
	}
	return fmt.Errorf("%s: %w", step, err)
}
