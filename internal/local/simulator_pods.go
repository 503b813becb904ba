package local

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Exit codes of containers that a signal ends.
const (
	exitKilled     = 137 // SIGKILL
	exitTerminated = 143 // SIGTERM
)

// needsKubelet reports whether a kubelet has something to do for the pod, now or
// later.
func needsKubelet(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodPending {
		return true
	}
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	return resized(pod) || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		_, ends := runTime(pod, &c)
		return ends
	})
}

// sync does what a kubelet would do for the pod now. It returns after how long
// there is more to do; zero is when the pod changes.
func (s *Simulator) sync(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return s.terminate(ctx, pod)
	case pod.Status.Phase == corev1.PodRunning:
		return s.attendPod(ctx, pod)
	case pod.Status.Phase == corev1.PodPending && !s.leaves(pod):
		return 0, s.start(ctx, pod)
	}
	return 0, nil
}

// Run starts a pod that has its cards, if it asks for any. What fails is tried
// again after a second.
func (s *Simulator) Run(ctx context.Context, pod *corev1.Pod) {
	if err := s.start(ctx, pod); failed(ctx, pod, err) {
		time.AfterFunc(time.Second, func() {
			if ctx.Err() == nil {
				s.Run(ctx, pod)
			}
		})
	}
}

// failed reports whether what was to be done for the pod has to be tried again,
// and logs why.
func failed(ctx context.Context, pod *corev1.Pod, err error) bool {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return false
	}
	klog.FromContext(ctx).Error(err, "Simulated kubelet", "pod", klog.KObj(pod))
	return true
}

// start starts the pod's containers. One whose run time is not valid does not
// start, as a container with a configuration that kubelet rejects.
func (s *Simulator) start(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.Now()
	status := pod.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.PodIP, status.HostIP = "10.244.0.1", "127.0.0.1"
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	invalid := checkRunTime(pod)
	if invalid == nil {
		status.Phase = corev1.PodRunning
		for i := range pod.Spec.InitContainers {
			status.InitContainerStatuses = append(status.InitContainerStatuses, initStatus(pod, &pod.Spec.InitContainers[i], now))
		}
	}
	for i := range pod.Spec.Containers {
		c := containerStatus(pod, &pod.Spec.Containers[i], now)
		if invalid != nil {
			c.Ready, c.Started = false, new(false)
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: invalid.Error()}}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, c)
	}
	setConditions(pod, status)
	return s.patchPod(ctx, pod, status)
}

// containerStatus returns the status of a container that has been started.
func containerStatus(pod *corev1.Pod, c *corev1.Container, now metav1.Time) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, ContainerID: "simulated://" + string(pod.UID) + "/" + c.Name,
		Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
	allocate(&status, c)
	return status
}

// allocate records that the container has the resources of its specification.
func allocate(status *corev1.ContainerStatus, c *corev1.Container) {
	status.AllocatedResources = maps.Clone(c.Resources.Requests)
	status.Resources = &corev1.ResourceRequirements{Requests: maps.Clone(c.Resources.Requests), Limits: maps.Clone(c.Resources.Limits)}
}

// initStatus returns the status of an init container: a sidecar runs, any other
// has ended.
func initStatus(pod *corev1.Pod, c *corev1.Container, now metav1.Time) corev1.ContainerStatus {
	status := containerStatus(pod, c, now)
	if !podutil.IsRestartableInitContainer(c) {
		end(&status, now, 0)
		status.Ready = true
	}
	return status
}

// end ends a running container.
func end(status *corev1.ContainerStatus, at metav1.Time, code int32) {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, StartedAt: status.State.Running.StartedAt, FinishedAt: at, ContainerID: status.ContainerID,
	}}
	status.Ready, status.Started = false, new(false)
}

// restart starts a container again that has ended.
func restart(status *corev1.ContainerStatus, now metav1.Time) {
	status.LastTerminationState = status.State
	status.RestartCount++
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	status.Ready, status.Started = true, new(true)
}

// attendPod ends the containers whose time is up, restarts them where the pod
// asks for it, and resizes those whose resources were changed.
func (s *Simulator) attendPod(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	now := metav1.Now()
	status := pod.Status.DeepCopy()
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		at, ends := endOf(pod, c)
		if !ends {
			continue
		}
		if left := at.Sub(now.Time); left > 0 {
			again = sooner(again, left)
			continue
		}
		end(c, metav1.NewTime(at), 0)
		if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			restart(c, now)
		}
	}
	finish(status, now)
	if status.Phase == corev1.PodRunning {
		retry, err := s.resize(ctx, pod, status, now)
		if err != nil {
			return 0, err
		}
		again = sooner(again, retry)
	}
	setConditions(pod, status)
	return again, s.patchPod(ctx, pod, status)
}

// sooner returns the shorter of two times to wait, of which zero is no wait.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// finish ends the pod when all of its containers have ended: its sidecars end
// with it.
func finish(status *corev1.PodStatus, now metav1.Time) {
	phase := corev1.PodSucceeded
	for i := range status.ContainerStatuses {
		ended := status.ContainerStatuses[i].State.Terminated
		if ended == nil {
			return
		}
		if ended.ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}
	if len(status.ContainerStatuses) == 0 {
		return
	}
	status.Phase = phase
	for i := range status.InitContainerStatuses {
		if c := &status.InitContainerStatuses[i]; c.State.Running != nil {
			end(c, now, 0)
		}
	}
}

// setConditions sets the conditions that follow from the phase and the
// containers.
func setConditions(pod *corev1.Pod, status *corev1.PodStatus) {
	set := func(kind corev1.PodConditionType, is bool, reason string) {
		value := corev1.ConditionTrue
		if !is {
			value = corev1.ConditionFalse
		}
		podutil.UpdatePodCondition(status, &corev1.PodCondition{Type: kind, Status: value, Reason: reason, ObservedGeneration: pod.Generation})
	}
	ready := !slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready })
	initialized, unready := "", "ContainersNotReady"
	switch {
	case status.Phase == corev1.PodSucceeded:
		initialized, unready = "PodCompleted", "PodCompleted"
	case status.Phase == corev1.PodFailed:
		unready = "PodFailed"
	case ready:
		unready = ""
	}
	set(corev1.PodInitialized, true, initialized)
	set(corev1.ContainersReady, ready, unready)
	set(corev1.PodReady, ready, unready)
	status.ObservedGeneration = pod.Generation
}

// terminate ends a pod that is being deleted: it goes when its containers have
// stopped, at the end of its grace period at the latest.
func (s *Simulator) terminate(ctx context.Context, pod *corev1.Pod) (again time.Duration, err error) {
	now := metav1.Now()
	status := pod.Status.DeepCopy()
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		if c.State.Running == nil {
			continue
		}
		at, code := stopOf(pod, c)
		if left := at.Sub(now.Time); left > 0 {
			again = max(again, left)
			continue
		}
		end(c, now, code)
	}
	if again > 0 {
		return again, nil
	}
	// Without finalizers the pod is gone with the next request, and its last status
	// with it.
	if len(pod.Finalizers) > 0 && !podutil.IsPodTerminal(pod) {
		status.Phase = corev1.PodFailed // also when none of its containers was started
		finish(status, now)
		setConditions(pod, status)
		if err := s.patchPod(ctx, pod, status); err != nil {
			return 0, err
		}
	}
	if grace := pod.DeletionGracePeriodSeconds; len(pod.Finalizers) > 0 && grace != nil && *grace == 0 {
		return 0, nil // its finalizers hold it
	}
	return 0, s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// patchPod writes the difference between the pod's status and the wanted one.
func (s *Simulator) patchPod(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus) error {
	if apiequality.Semantic.DeepEqual(&pod.Status, want) {
		return nil
	}
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return err
	}
	// The UID is in the patch as a precondition.
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *want})
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// checkRunTime returns what is wrong with the pod's [wire.AnnotationRunTime].
func checkRunTime(pod *corev1.Pod) error {
	text, ok := pod.Annotations[wire.AnnotationRunTime]
	if !ok {
		return nil
	}
	if d, err := time.ParseDuration(text); err != nil || d < 0 {
		return fmt.Errorf("annotation %s: %.40q is not a duration: write 90s, 5m or 1h30m", wire.AnnotationRunTime, text)
	}
	return nil
}
