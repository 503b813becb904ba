package integration

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestSimulator: simulated nodes do what the controllers of a real control plane
// expect of kubelets.
func TestSimulator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(2)
	w.Scheduler("scheduler")
	w.jobCompletes()
	w.jobDeleted()
	w.graceHonoured()
	w.podResized()
	w.nodeCreatedAgain()
}

func (w *world) jobCompletes() {
	w.Helper()
	w.job("short", "sleep", "1")
	w.Eventually("the Job completes", time.Minute, func() error {
		job, err := w.Client.BatchV1().Jobs("default").Get(w.Ctx, "short", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 2 {
			err = fmt.Errorf("%+v", job.Status)
		}
		return err
	})
}

// jobDeleted: the Job's finalizer holds its pods until they have ended.
func (w *world) jobDeleted() {
	w.Helper()
	w.job("long", "serve")
	w.Eventually("the Job runs", time.Minute, func() error {
		job, err := w.Client.BatchV1().Jobs("default").Get(w.Ctx, "long", metav1.GetOptions{})
		if err == nil && (job.Status.Ready == nil || *job.Status.Ready != 2) {
			err = fmt.Errorf("%+v", job.Status)
		}
		return err
	})
	w.Must(w.Client.CoreV1().Pods("default").DeleteCollection(w.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "job-name=long"}))
	w.Eventually("the Job counts the pods as failed", time.Minute, func() error {
		job, err := w.Client.BatchV1().Jobs("default").Get(w.Ctx, "long", metav1.GetOptions{})
		if err == nil && job.Status.Failed != 2 {
			err = fmt.Errorf("%+v", job.Status)
		}
		return err
	})
	w.Must(w.Client.BatchV1().Jobs("default").Delete(w.Ctx, "long", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
}

// job creates a Job of two pods with four cards each.
func (w *world) job(name string, command ...string) {
	w.Helper()
	template := pod(name, "gpu=4").Spec
	template.RestartPolicy, template.Containers[0].Command = corev1.RestartPolicyNever, command
	_, err := w.Client.BatchV1().Jobs("default").Create(w.Ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: template}},
	}, metav1.CreateOptions{})
	w.Must(err)
}

func (w *world) graceHonoured() {
	w.Helper()
	sleeper := pod("sleeper", "sgpu=1", "vcore=10", "vmemory=1")
	sleeper.Spec.Containers[0].Command = []string{"sleep", "infinity"}
	w.Create(sleeper)
	w.running(time.Minute, "sleeper")
	const grace = 3
	begin := time.Now()
	w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, "sleeper", metav1.DeleteOptions{GracePeriodSeconds: new(int64(grace))}))
	w.Eventually("the pod is gone", time.Minute, func() error {
		_, err := w.Client.CoreV1().Pods("default").Get(w.Ctx, "sleeper", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("there: %w", err)
	})
	// The API server writes times in whole seconds.
	if took := time.Since(begin); took < (grace-1)*time.Second {
		w.Errorf("it was gone after %s, within its grace period", took)
	}
}

// podResized: a resize that fits is done in place; one that does not waits until
// other pods are gone.
func (w *world) podResized() {
	w.Helper()
	with := func(name, cpu string) *corev1.Pod {
		p := pod(name, "sgpu=1", "vcore=10", "vmemory=1")
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "metax-1"}
		return p
	}
	w.Create(with("resized", "1"), with("other", "100"))
	w.running(time.Minute, "resized", "other")
	resize := func(cpu string) {
		w.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
		_, err := w.Client.CoreV1().Pods("default").Patch(w.Ctx, "resized", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
		w.Must(err)
	}
	has := func(cpu, pending string) {
		w.Helper()
		w.Eventually("the container has "+cpu+" CPUs", time.Minute, func() error {
			p := w.Pod("resized")
			reason := ""
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodResizePending {
					reason = c.Reason
				}
			}
			c := p.Status.ContainerStatuses[0]
			if c.Resources == nil || c.Resources.Requests.Cpu().String() != cpu || c.AllocatedResources.Cpu().String() != cpu || reason != pending || c.RestartCount > 0 {
				return fmt.Errorf("%+v, resize pending: %q", c, reason)
			}
			return nil
		})
	}
	resize("2")
	has("2", "")
	resize("50")
	has("2", corev1.PodReasonDeferred)
	w.Delete("other")
	has("50", "")
	w.Delete("resized")
}

// nodeCreatedAgain: the Node comes back with all that it had, and takes pods.
func (w *world) nodeCreatedAgain() {
	w.Helper()
	nodes := w.Client.CoreV1().Nodes()
	w.Must(nodes.Delete(w.Ctx, "metax-2", metav1.DeleteOptions{}))
	_, err := nodes.Create(w.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "metax-2"}}, metav1.CreateOptions{})
	w.Must(err)
	w.Eventually("the node is registered again", time.Minute, func() error {
		node, err := nodes.Get(w.Ctx, "metax-2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		slices := node.Status.Allocatable[wire.ResourceSGPU]
		if node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak || slices.Value() != 128 || len(node.Spec.Taints) > 0 {
			return fmt.Errorf("annotations %v, %v, taints %v", node.Annotations, node.Status.Allocatable, node.Spec.Taints)
		}
		return nil
	})
	back := pod("back", "gpu=8")
	back.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "metax-2"}
	w.Create(back)
	w.running(time.Minute, "back")
	w.Audit()

	patch := []byte(`{"status":{"capacity":{"metax-tech.com/sgpu":null},"allocatable":{"metax-tech.com/sgpu":"1"}}}`)
	_, err = nodes.Patch(w.Ctx, "metax-1", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.Must(err)
	w.Eventually("the counts are restored", time.Minute, func() error {
		node, err := nodes.Get(w.Ctx, "metax-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		capacity, allocatable := node.Status.Capacity[wire.ResourceSGPU], node.Status.Allocatable[wire.ResourceSGPU]
		if capacity.Value() != 128 || allocatable.Value() != 128 {
			return fmt.Errorf("capacity %s, allocatable %s", &capacity, &allocatable)
		}
		return nil
	})
}
