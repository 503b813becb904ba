package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// Calls of these disturbances, as calls are counted.
const (
	callRewrite = "PATCH devices"
	callEnd     = "DELETE pods"
)

// hands are how many disturb at once: about as fast as pods are bound.
const hands = 8

// disturb returns what is to be called after each binding, so that something happens
// in the cluster if the workload wants that, and what ends it. Calls never wait.
func (r *runner) disturb(ctx context.Context, workload *Workload) (next, stop func()) {
	switch {
	case workload.RewriteDevices: // left out where the API server is slower than the scheduler
		return r.onBindings(ctx, hands, r.rewriteDevice, func(i int) string { return fmt.Sprintf("metax-%d", i%r.plan.Nodes+1) })
	case workload.Churns:
		return r.onBindings(ctx, r.pods, r.delete, func(i int) string {
			if i < r.pods/2 {
				return ""
			}
			return r.bound.names[i-r.pods/2]
		})
	}
	return func() {}, func() {}
}

// onBindings has something done to what is named for each binding, unless so many are
// yet to be done.
func (r *runner) onBindings(ctx context.Context, most int, do func(ctx context.Context, name string) error, name func(i int) string) (next, stop func()) {
	due, failed := make(chan string, most), atomic.Int64{}
	var group sync.WaitGroup
	for range hands {
		group.Go(func() {
			for name := range due {
				if err := do(ctx, name); err != nil && ctx.Err() == nil && failed.Add(1) == 1 {
					r.logf("after a binding: %v", err)
				}
			}
		})
	}
	count := 0
	return func() {
			if n := name(count); n != "" {
				select {
				case due <- n:
				default:
				}
			}
			count++
		}, func() {
			close(due)
			group.Wait()
		}
}

// rewriteDevice writes a Device again. Nothing of it changes that a scheduler reads.
func (r *runner) rewriteDevice(ctx context.Context, name string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, labelRole, time.Now().UnixNano())
	if _, err := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource("devices")).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("rewrite the Device of %s: %w", name, err)
	}
	return nil
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
