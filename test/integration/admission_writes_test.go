package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestOrdinaryWrites: what others write on pods, nodes and Devices passes.
func TestOrdinaryWrites(t *testing.T) { eachGuards(t, testOrdinaryWrites) }

func testOrdinaryWrites(t *testing.T, g guards) {
	f := newForgers(t, g)
	pods := f.mallory.CoreV1().Pods("default")
	node := f.clientOf(f.agentOf("metax-1"))
	writes := map[string]func() error{
		"a label":       func() error { return f.patch(f.mallory, "bound", []byte(`{"metadata":{"labels":{"a":"b"}}}`)) },
		"an annotation": func() error { return f.patch(f.mallory, "bound", annotate(map[string]string{"a": "b"})) },
		"the status":    func() error { return f.patch(f.mallory, "bound", []byte(`{"status":{"message":"x"}}`), "status") },
		"the same allocation again": func() error {
			_, err := pods.Update(f.ctx, f.changed("bound", nil), metav1.UpdateOptions{})
			return err
		},
		"another QoS before it is bound": func() error {
			return f.patch(f.mallory, "pending", annotate(map[string]string{wire.AnnotationQoS: "fixed-share"}))
		},
		"what a pod asks for, before it is bound": func() error {
			return f.patch(f.mallory, "pending", annotate(map[string]string{wire.AnnotationNodePolicy: "spread", wire.AnnotationCardPolicy: "spread", wire.AnnotationClass: "offline"}))
		},
		"HAMi's policy on another vendor's pod, once bound": func() error {
			return f.patch(f.mallory, "ordinary", annotate(map[string]string{wire.AnnotationNodePolicy: "spread", wire.AnnotationCardPolicy: "x"}))
		},
		"HAMi's policy on a bound pod in Koordinator's words": func() error {
			p := podFor("koordinated", "koord-scheduler", "gpu-core: 1")
			p.Spec.NodeName = "metax-1"
			if _, err := pods.Create(f.ctx, p, metav1.CreateOptions{}); err != nil {
				return err
			}
			return f.patch(f.mallory, "koordinated", annotate(map[string]string{wire.AnnotationCardPolicy: "x"}))
		},
		"a pod of Volcano's": func() error {
			_, err := pods.Create(f.ctx, podFor("volcanos", "volcano", "sgpu: 1, vcore: 1, vmemory: 1"), metav1.CreateOptions{})
			return err
		},
		"a validator of the vendor's operator": func() error {
			p := podFor("validator", "", "gpu: 1")
			p.Spec.NodeName = "metax-1"
			made, err := f.as(operatorUser).CoreV1().Pods("default").Create(f.ctx, p, metav1.CreateOptions{})
			if err == nil && made.Spec.SchedulerName != corev1.DefaultSchedulerName {
				return fmt.Errorf("given to %s", made.Spec.SchedulerName)
			}
			return err
		},
		"a bound pod that asks for none": func() error {
			p := pod("debugger")
			p.Spec.NodeName = "metax-1"
			_, err := pods.Create(f.ctx, p, metav1.CreateOptions{})
			return err
		},
		"a bound pod that asks for none, in a template's way": func() error {
			p := podFor("template", "", "sgpu: 0")
			p.Spec.NodeName = "metax-1"
			_, err := pods.Create(f.ctx, p, metav1.CreateOptions{})
			return err
		},
		"a static pod, shown by its kubelet": func() error {
			p := annotated(podFor("static", "", "sgpu: 1"), corev1.MirrorPodAnnotationKey, "x")
			p.Annotations["kubernetes.io/config.source"] = "file"
			p.Spec.NodeName = "metax-1"
			_, err := f.as("system:node:metax-1", "system:nodes", "system:masters").CoreV1().Pods("default").Create(f.ctx, p, metav1.CreateOptions{})
			return err
		},
		"the tolerations of a bound pod": func() error {
			p := f.changed("bound", nil)
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists})
			_, err := pods.Update(f.ctx, p, metav1.UpdateOptions{})
			return err
		},
		"Koordinator's allocation of other devices": func() error {
			return f.patch(f.mallory, "ordinary", annotate(map[string]string{wire.AnnotationKoordAllocated: `{"rdma":[]}`}))
		},
		"HAMi's node of another vendor's pod": func() error {
			return f.patch(f.mallory, "ordinary", annotate(map[string]string{wire.AnnotationHAMiNode: "n1", "hami.io/vgpu-time": "1"}))
		},
		"a Binding without annotations": func() error {
			return pods.Bind(f.ctx, f.binding(map[string]string{"a": "b"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"a node's label": func() error {
			_, err := f.client.CoreV1().Nodes().Patch(f.ctx, "metax-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
		"a node without cards is locked": func() error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: map[string]string{wire.AnnotationLock: "x"}}}
			_, err := f.client.CoreV1().Nodes().Create(f.ctx, n, metav1.CreateOptions{})
			return err
		},
		"another vendor's Device": func() error { return f.foreignDevice() },
		"an agent, its own node": func() error {
			_, err := node.CoreV1().Nodes().Patch(f.ctx, "metax-1", types.MergePatchType,
				annotate(map[string]string{wire.AnnotationScores: "{}", wire.AnnotationServedBy: wire.ServedByDaybreak}), metav1.PatchOptions{})
			return err
		},
		"the scheduler locks a node": func() error {
			config := f.cluster.REST()
			config.Impersonate = rest.ImpersonationConfig{UserName: local.SchedulerUser, Groups: []string{"system:masters"}}
			_, err := f.clientOf(config).CoreV1().Nodes().Patch(f.ctx, "metax-1", types.MergePatchType, annotate(map[string]string{wire.AnnotationLock: "x"}), metav1.PatchOptions{})
			return err
		},
		"a node goes, with its Device": func() error { return f.deleteNode("metax-2") },
		"deletion":                     func() error { return pods.Delete(f.ctx, "bound", metav1.DeleteOptions{}) },
	}
	last := []string{"a node goes, with its Device", "deletion"}
	for _, name := range slices.Sorted(maps.Keys(writes)) {
		if !slices.Contains(last, name) {
			if err := writes[name](); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, name := range last {
		if err := writes[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (f *forgers) foreignDevice() error {
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Device",
		"metadata": map[string]any{"name": "other", "labels": map[string]any{"node.koordinator.sh/gpu-vendor": "nvidia"}},
		"spec":     map[string]any{"devices": []any{map[string]any{"type": "gpu", "id": "GPU-1", "minor": int64(0), "health": true}}},
	}}
	if _, err := f.devices(f.cluster.REST()).Create(f.ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	return f.devices(f.cluster.REST()).Delete(f.ctx, "other", metav1.DeleteOptions{})
}

// deleteNode deletes a node and waits until the garbage collector has removed
// its Device.
func (f *forgers) deleteNode(name string) error {
	if err := f.client.CoreV1().Nodes().Delete(f.ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err := f.devices(f.cluster.REST()).Get(f.ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		}
	}
	return context.DeadlineExceeded
}

// TestPoliciesComeLater: pods that had allocations before there were policies go
// on as they are.
func TestPoliciesComeLater(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.Config{})
	w.nodes(1)
	old := annotated(pod("old", "sgpu=1"), wire.AnnotationAllocated, `[[{"uuid":"GPU-1","compute":100,"vRam":1024}]]`)
	old.Spec.NodeName = "metax-1"
	annotated(old, wire.AnnotationQoS, "best-effort")
	w.create(old)
	w.must(w.cluster.Guard(w.ctx, w.cluster.Policies()))
	pods := w.client.CoreV1().Pods("default")
	if _, err := pods.Patch(w.ctx, "old", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label: %v", err)
	}
	_, err := pods.Patch(w.ctx, "old", types.MergePatchType, annotate(map[string]string{wire.AnnotationAllocated: "[]"}), metav1.PatchOptions{})
	want := `pods "old" is forbidden: ValidatingAdmissionPolicy 'daybreak-pods' with binding 'daybreak-pods' denied request: ` +
		`metadata.annotations[metax-tech.com/gpu-devices-allocated]: which cards a pod holds is written by the scheduler alone: leave it as it is`
	if err == nil || err.Error() != want {
		t.Errorf("got\n  %v\nwant\n  %s", err, want)
	}

	// Another scheduler is let write as well, as in a migration.
	p := w.cluster.Policies()
	p.OtherSchedulers = []string{"hami-scheduler"}
	w.must(w.cluster.Guard(w.ctx, p))
	config := w.cluster.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "hami-scheduler", Groups: []string{"system:masters"}}
	w.eventually("HAMi's scheduler may write", time.Minute, func() error {
		_, err := w.clientOf(config).CoreV1().Pods("default").Patch(w.ctx, "old", types.MergePatchType, annotate(map[string]string{wire.AnnotationAllocated: "[]"}), metav1.PatchOptions{})
		return err
	})
}
