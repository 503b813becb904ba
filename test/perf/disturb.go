package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// callRewrite is a rewriter's call, as calls are counted.
const callRewrite = "PATCH devices"

// rewriters write Devices at once: about as fast as pods are bound.
const rewriters = 8

// rewriteDevices returns what has the next Device written again, if the workload
// wants that, and what ends it: after each binding, unless all are busy. Nothing of the Device changes that a scheduler reads.
func (r *runner) rewriteDevices(ctx context.Context, workload *Workload) (next, stop func()) {
	if !workload.RewriteDevices {
		return func() {}, func() {}
	}
	due, failed := make(chan int, rewriters), atomic.Int64{}
	var group sync.WaitGroup
	for range rewriters {
		group.Go(func() {
			for i := range due {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, labelRole, i)
				name := fmt.Sprintf("metax-%d", i%r.plan.Nodes+1)
				_, err := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource("devices")).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil && ctx.Err() == nil && failed.Add(1) == 1 {
					r.logf("rewrite the Device of %s: %v", name, err)
				}
			}
		})
	}
	count := 0
	return func() {
			select {
			case due <- count:
				count++
			default: // the API server is slower than the scheduler
			}
		}, func() {
			close(due)
			group.Wait()
		}
}

// addQuota gives the pods' namespace a budget, if the workload has one, and returns
// what takes it away. The API server counts none of HAMi's keys.
func (w *world) addQuota(ctx context.Context, b *Budget) (remove func() error, err error) {
	if b == nil {
		return func() error { return nil }, nil
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "perf"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts(b.Hard)}}
	for _, scope := range b.Scopes {
		quota.Spec.Scopes = append(quota.Spec.Scopes, corev1.ResourceQuotaScope(scope))
	}
	quotas := w.client.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
	if _, err := quotas.Create(ctx, quota, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the quota: %w", err)
	}
	return func() error { return quotas.Delete(ctx, quota.Name, metav1.DeleteOptions{}) }, nil
}
