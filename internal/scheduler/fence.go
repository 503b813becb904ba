package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// fencer shuts out what an earlier leader still has in flight: a Binding holds
// for one version of its pod, so a pod that was touched since can't be bound by
// it. When the informer has come to the last touch, this process has seen
// everything that an earlier leader did and ever will do.
type fencer struct {
	client     kubernetes.Interface
	schedulers sets.Set[string]
	identity   string
	// seen returns the version that the pod informer has come to.
	seen func() string
}

// run does it, trying again until it is done: without it no pod may be placed.
func (f *fencer) run(ctx context.Context) error {
	var last uint64
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		if last, err = f.touchAll(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Pending pods could not be touched; trying again")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		seen, err := parseVersion(f.seen())
		return err == nil && seen >= last, nil
	})
}

// touchAll touches every pending pod of this scheduler and returns the highest
// version that came of it.
func (f *fencer) touchAll(ctx context.Context) (last uint64, err error) {
	// Without a resourceVersion the answer is from etcd, not from a cache.
	list, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return 0, fmt.Errorf("list pending pods: %w", err)
	}
	var pending []*corev1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if f.schedulers.Has(pod.Spec.SchedulerName) && wire.Asks(pod) {
			pending = append(pending, pod)
		}
	}
	versions, errs := make([]uint64, len(pending)), make([]error, len(pending))
	workqueue.ParallelizeUntil(ctx, 16, len(pending), func(i int) {
		versions[i], errs[i] = f.touch(ctx, pending[i])
	})
	for i, pod := range pending {
		if errs[i] != nil {
			return 0, fmt.Errorf("touch pod %s: %w", klog.KObj(pod), errs[i])
		}
		last = max(last, versions[i])
	}
	return last, ctx.Err()
}

// touch writes the term condition; the version is 0 when the pod is gone.
func (f *fencer) touch(ctx context.Context, pod *corev1.Pod) (version uint64, err error) {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"conditions":[{"type":%q,"status":"True","reason":"SchedulerStarted","message":%q}]}}`,
		pod.UID, wire.ConditionTerm, "waiting for "+f.identity)
	now, err := f.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of this name
		return 0, nil
	case err != nil:
		return 0, err
	}
	return parseVersion(now.ResourceVersion)
}

// parseVersion reads a resourceVersion, which the API promises to be a number.
func parseVersion(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is no number", v)
	}
	return n, nil
}
