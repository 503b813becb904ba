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
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// testOrdinaryWrites: what others write on pods, nodes and Devices passes.
func testOrdinaryWrites(t *testing.T, f *forgers) {
	pods := f.Mallory.CoreV1().Pods("default")
	node := f.ClientOf(f.Agent)
	writes := map[string]func() error{
		"a label":       func() error { return f.Patch(f.Mallory, "bound", []byte(`{"metadata":{"labels":{"a":"b"}}}`)) },
		"an annotation": func() error { return f.Patch(f.Mallory, "bound", harness.Annotate(map[string]string{"a": "b"})) },
		"the status":    func() error { return f.Patch(f.Mallory, "bound", []byte(`{"status":{"message":"x"}}`), "status") },
		"the same allocation again": func() error {
			_, err := pods.Update(f.Ctx, f.Changed("bound", nil), metav1.UpdateOptions{})
			return err
		},
		"another QoS before it is bound": func() error {
			return f.Patch(f.Mallory, "pending", harness.Annotate(map[string]string{wire.AnnotationQoS: "fixed-share"}))
		},
		"what a pod asks for and no quota counts, before it is bound": func() error {
			return f.Patch(f.Mallory, "pending", harness.Annotate(map[string]string{wire.AnnotationNodePolicy: "spread", wire.AnnotationCardPolicy: "spread", wire.AnnotationTopologyAware: "false"}))
		},
		"HAMi's policy on another vendor's pod, once bound": func() error {
			return f.Patch(f.Mallory, "ordinary", harness.Annotate(map[string]string{wire.AnnotationNodePolicy: "spread", wire.AnnotationCardPolicy: "x"}))
		},
		"HAMi's policy on a bound pod in Koordinator's words": func() error {
			p := harness.PodFor("koordinated", "koord-scheduler", "gpu-core: 1")
			p.Spec.NodeName = "metax-1"
			if _, err := pods.Create(f.Ctx, p, metav1.CreateOptions{}); err != nil {
				return err
			}
			return f.Patch(f.Mallory, "koordinated", harness.Annotate(map[string]string{wire.AnnotationCardPolicy: "x"}))
		},
		"a pod of Volcano's": func() error {
			_, err := pods.Create(f.Ctx, harness.PodFor("volcanos", "volcano", "sgpu: 1, vcore: 1, vmemory: 1"), metav1.CreateOptions{})
			return err
		},
		"a validator of the vendor's operator": func() error {
			p := harness.PodFor("validator", "", "gpu: 1")
			p.Spec.NodeName = "metax-1"
			made, err := f.clientAs(operatorUser).CoreV1().Pods("default").Create(f.Ctx, p, metav1.CreateOptions{})
			if err == nil && made.Spec.SchedulerName != corev1.DefaultSchedulerName {
				return fmt.Errorf("given to %s", made.Spec.SchedulerName)
			}
			return err
		},
		"a bound pod that asks for none": func() error {
			p := pod("debugger")
			p.Spec.NodeName = "metax-1"
			_, err := pods.Create(f.Ctx, p, metav1.CreateOptions{})
			return err
		},
		"a bound pod that asks for none, in a template's way": func() error {
			p := harness.PodFor("template", "", "sgpu: 0")
			p.Spec.NodeName = "metax-1"
			_, err := pods.Create(f.Ctx, p, metav1.CreateOptions{})
			return err
		},
		"a static pod, shown by its kubelet": func() error {
			p := annotated(harness.PodFor("static", "", "sgpu: 1"), corev1.MirrorPodAnnotationKey, "x")
			p.Annotations["kubernetes.io/config.source"] = "file"
			p.Spec.NodeName = "metax-1"
			_, err := f.clientAs("system:node:metax-1", "system:nodes", "system:masters").CoreV1().Pods("default").Create(f.Ctx, p, metav1.CreateOptions{})
			return err
		},
		"the tolerations of a bound pod": func() error {
			p := f.Changed("bound", nil)
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists})
			_, err := pods.Update(f.Ctx, p, metav1.UpdateOptions{})
			return err
		},
		"Koordinator's allocation of other devices": func() error {
			return f.Patch(f.Mallory, "ordinary", harness.Annotate(map[string]string{wire.AnnotationKoordAllocated: `{"rdma":[]}`}))
		},
		"HAMi's node of another vendor's pod": func() error {
			return f.Patch(f.Mallory, "ordinary", harness.Annotate(map[string]string{wire.AnnotationHAMiNode: "n1", "hami.io/vgpu-time": "1"}))
		},
		"a Binding without annotations": func() error {
			return pods.Bind(f.Ctx, f.Binding(map[string]string{"a": "b"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"a node's label": func() error {
			_, err := f.Client.CoreV1().Nodes().Patch(f.Ctx, "metax-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
		"a node without cards is locked": func() error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: map[string]string{wire.AnnotationLock: "x"}}}
			_, err := f.Client.CoreV1().Nodes().Create(f.Ctx, n, metav1.CreateOptions{})
			return err
		},
		"another vendor's Device": func() error { return f.foreignDevice() },
		"an agent, its own node": func() error {
			_, err := node.CoreV1().Nodes().Patch(f.Ctx, "metax-1", types.MergePatchType,
				harness.Annotate(map[string]string{wire.AnnotationScores: "{}", wire.AnnotationServedBy: wire.ServedByDaybreak}), metav1.PatchOptions{})
			return err
		},
		"the scheduler locks a node": func() error {
			config := f.REST()
			config.Impersonate = rest.ImpersonationConfig{UserName: local.SchedulerUser, Groups: []string{"system:masters"}}
			_, err := f.ClientOf(config).CoreV1().Nodes().Patch(f.Ctx, "metax-1", types.MergePatchType, harness.Annotate(map[string]string{wire.AnnotationLock: "x"}), metav1.PatchOptions{})
			return err
		},
		"a node goes, with its Device": func() error { return f.deleteNode("metax-2") },
		"deletion":                     func() error { return pods.Delete(f.Ctx, "bound", metav1.DeleteOptions{}) },
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
	if _, err := f.Devices(f.REST()).Create(f.Ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	return f.Devices(f.REST()).Delete(f.Ctx, "other", metav1.DeleteOptions{})
}

// deleteNode deletes a node and waits until the garbage collector has removed
// its Device.
func (f *forgers) deleteNode(name string) error {
	if err := f.Client.CoreV1().Nodes().Delete(f.Ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err := f.Devices(f.REST()).Get(f.Ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		}
	}
	return context.DeadlineExceeded
}

// TestPoliciesComeLater: pods that had allocations before there were policies go
// on as they are.
func TestPoliciesComeLater(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	w.AddNodes(1)
	old := annotated(pod("old", "sgpu=1"), wire.AnnotationAllocated, `[[{"uuid":"GPU-1","compute":100,"vRam":1024}]]`)
	old.Spec.NodeName = "metax-1"
	annotated(old, wire.AnnotationQoS, "best-effort")
	w.Create(old)
	w.Must(w.Guard(w.Ctx, w.Policies()))
	pods := w.Client.CoreV1().Pods("default")
	if _, err := pods.Patch(w.Ctx, "old", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label: %v", err)
	}
	_, err := pods.Patch(w.Ctx, "old", types.MergePatchType, harness.Annotate(map[string]string{wire.AnnotationAllocated: "[]"}), metav1.PatchOptions{})
	want := `pods "old" is forbidden: ValidatingAdmissionPolicy 'daybreak-pods' with binding 'daybreak-pods' denied request: ` +
		`metadata.annotations[metax-tech.com/gpu-devices-allocated]: which cards a pod holds is written by the scheduler alone: leave it as it is`
	if err == nil || err.Error() != want {
		t.Errorf("got\n  %v\nwant\n  %s", err, want)
	}

	// Another scheduler is let write as well, as in a migration.
	p := w.Policies()
	p.OtherSchedulers = []string{"hami-scheduler"}
	w.Must(w.Guard(w.Ctx, p))
	config := w.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "hami-scheduler", Groups: []string{"system:masters"}}
	w.Eventually("HAMi's scheduler may write", time.Minute, func() error {
		_, err := w.ClientOf(config).CoreV1().Pods("default").Patch(w.Ctx, "old", types.MergePatchType, harness.Annotate(map[string]string{wire.AnnotationAllocated: "[]"}), metav1.PatchOptions{})
		return err
	})
}
