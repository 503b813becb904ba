package local

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelpers "k8s.io/component-helpers/resource"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// resizeRetry is how often a resize that has to wait for other pods is tried.
const resizeRetry = 5 * time.Second

// resized reports whether the resources of a container differ from what it has,
// or a resize that was pending no longer is.
func resized(pod *corev1.Pod) bool {
	if _, pending := podutil.GetPodCondition(&pod.Status, corev1.PodResizePending); pending != nil {
		return true
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return differs(pod, &c) })
}

// differs reports whether a running container has other resources than its
// specification asks for.
func differs(pod *corev1.Pod, status *corev1.ContainerStatus) bool {
	c := containerOf(pod, status.Name)
	return c != nil && status.State.Running != nil && status.Resources != nil &&
		(!apiequality.Semantic.DeepEqual(c.Resources.Requests, status.Resources.Requests) || !apiequality.Semantic.DeepEqual(c.Resources.Limits, status.Resources.Limits))
}

// resize gives containers the resources that were written into a running pod, in
// place, or sets the condition that says why not. It returns after how long to
// try again.
func (s *Simulator) resize(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus, now metav1.Time) (again time.Duration, err error) {
	if !resized(pod) {
		return 0, nil
	}
	message, err := s.whyDeferred(ctx, pod)
	if err != nil {
		return 0, err
	}
	if message != "" {
		podutil.UpdatePodCondition(status, &corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: message, ObservedGeneration: pod.Generation,
		})
		return resizeRetry, nil
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if !differs(pod, c) {
			continue
		}
		spec := containerOf(pod, c.Name)
		if restartsToResize(spec, c) {
			end(c, now, exitTerminated)
			restart(c, now)
		}
		allocate(c, spec)
	}
	return 0, nil
}

// restartsToResize reports whether one of the changed resources needs a restart
// of the container.
func restartsToResize(c *corev1.Container, status *corev1.ContainerStatus) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		changed := func(a, b corev1.ResourceList) bool {
			before, after := a[p.ResourceName], b[p.ResourceName]
			return before.Cmp(after) != 0
		}
		return p.RestartPolicy == corev1.RestartContainer &&
			(changed(status.Resources.Requests, c.Resources.Requests) || changed(status.Resources.Limits, c.Resources.Limits))
	})
}

// whyDeferred returns why the node can't give the pod what it asks for now: other
// pods hold too much of it. What the node does not have, the API server rejects.
func (s *Simulator) whyDeferred(ctx context.Context, pod *corev1.Pod) (string, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get node %s: %w", pod.Spec.NodeName, err)
	}
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return "", err
	}
	wanted := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		want, have := wanted[name], node.Status.Allocatable[name]
		for _, other := range pods {
			if other.Spec.NodeName == pod.Spec.NodeName && other.UID != pod.UID && !podutil.IsPodTerminal(other) {
				held := resourcehelpers.PodRequests(other, resourcehelpers.PodResourcesOptions{UseStatusResources: true})[name]
				want.Add(held)
			}
		}
		if want.Cmp(have) > 0 {
			return fmt.Sprintf("Node didn't have enough resource: %s, requested with other pods: %s, capacity: %s", name, &want, &have), nil
		}
	}
	return "", nil
}
