package noderesource

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write makes the changes: the mark comes before what it stands for, and goes
// after it, so that nothing of ours is ever without it. Each patch holds only
// for the node as it was read.
func (r *reconciler) write(ctx context.Context, node *corev1.Node, d decision, c changes) error {
	read := node.ResourceVersion
	defer func() {
		if node.ResourceVersion != read {
			r.limiter.wrote(node.Name, node.ResourceVersion)
		}
	}()
	if d.verdict == withdraw {
		if err := r.writeStatus(ctx, node, c); err != nil {
			return err
		}
		return r.writeMetadata(ctx, node, c)
	}
	if err := r.writeMetadata(ctx, node, c); err != nil {
		return err
	}
	return r.writeStatus(ctx, node, c)
}

func (r *reconciler) writeMetadata(ctx context.Context, node *corev1.Node, c changes) error {
	metadata := c.metadata()
	if metadata == nil {
		return nil
	}
	patch, err := patchOf(node, metadata, nil)
	if err == nil {
		err = r.client.Patch(ctx, node, patch, fieldOwner)
	}
	return r.count("patch labels and annotations", err)
}

func (r *reconciler) writeStatus(ctx context.Context, node *corev1.Node, c changes) error {
	if len(c.amounts) == 0 {
		return nil
	}
	patch, err := patchOf(node, map[string]any{}, c.amounts)
	if err == nil {
		err = r.client.Status().Patch(ctx, node, patch, fieldOwner)
	}
	return r.count("patch status", err)
}

// patchOf returns a merge patch that applies to this version of this node.
func patchOf(node *corev1.Node, metadata map[string]any, status map[string]map[string]any) (client.Patch, error) {
	metadata["uid"], metadata["resourceVersion"] = node.UID, node.ResourceVersion
	body := map[string]any{"metadata": metadata}
	if status != nil {
		body["status"] = status
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return client.RawPatch(types.MergePatchType, text), nil
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
