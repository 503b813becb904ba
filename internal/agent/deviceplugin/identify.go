package deviceplugin

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// identify returns the container of the holder that is about to start. Together
// means that several have the ids.
func (s *Server) identify(ctx context.Context, h *holder) (pod *corev1.Pod, container string, together bool, err error) {
	if pod, err = s.podOf(ctx, h); err != nil {
		return nil, "", false, err
	}
	if len(h.containers) == 1 {
		return pod, h.containers[0], false, nil
	}
	container, err = s.nextContainer(ctx, pod, h.containers)
	return pod, container, true, err
}

// podOf returns the pod of a holder. Pod names are reused, so without a UID the API
// server is asked: the watch may show an earlier pod with the name.
func (s *Server) podOf(ctx context.Context, h *holder) (*corev1.Pod, error) {
	held, _ := s.pods.Held()
	if h.uid != "" {
		if pod := uids(held)[h.uid]; pod != nil && metav1.HasAnnotation(pod.ObjectMeta, wire.AnnotationAllocated) {
			return pod, nil
		}
	}
	if h.pod.Name == "" {
		return nil, fmt.Errorf("kubelet gave the ids to pod %s, which the API server has not shown yet", h.uid)
	}
	pod, err := s.pods.Get(ctx, h.pod.Namespace, h.pod.Name)
	switch {
	case err != nil:
		return nil, err
	case pod == nil:
		return nil, fmt.Errorf("pod %s is not there any more", h.pod)
	case h.uid != "" && pod.UID != h.uid:
		return nil, fmt.Errorf("kubelet gave the ids to pod %s with UID %s, there is one with UID %s now", h.pod, h.uid, pod.UID)
	}
	return pod, nil
}

// nextContainer returns which of several containers with the same ids starts: init
// containers run one after the other and each to its end, then the others.
func (s *Server) nextContainer(ctx context.Context, pod *corev1.Pod, containers []string) (string, error) {
	order := inOrder(pod, containers)
	if len(order) == 0 {
		return "", errFinal{fmt.Errorf("kubelet names containers %v, the pod has none of them", containers)}
	}
	d := s.journal.now()
	if !slices.ContainsFunc(order, func(name string) bool { return d.byContainer(containerID{pod.UID, name}) != nil }) {
		return order[0], nil
	}
	live, err := s.pods.Get(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return "", err
	}
	if live == nil || live.UID != pod.UID {
		return "", fmt.Errorf("pod %s/%s is not there any more", pod.Namespace, pod.Name)
	}
	return nextOf(live, order, func(name string) (bool, error) { return s.runtime.succeeded(ctx, pod.UID, name) })
}

// inOrder returns the containers in the order in which they start.
func inOrder(pod *corev1.Pod, containers []string) []string {
	var order []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.Contains(containers, c.Name) {
			order = append(order, c.Name)
		}
	}
	return order
}

// nextOf returns which container starts: the first that has not ended, of those that the
// pod's spec has as init containers. kubelet writes the status a moment later, when a
// short init container may have ended already.
func nextOf(pod *corev1.Pod, order []string, succeeded func(container string) (bool, error)) (string, error) {
	status := map[string]corev1.ContainerStatus{}
	for _, c := range pod.Status.InitContainerStatuses {
		status[c.Name] = c
	}
	for _, name := range order {
		c := status[name]
		switch {
		case !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }):
			return name, nil // all before it have ended
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
		case c.State.Running != nil:
			return "", fmt.Errorf("container %s is reported as running, so it is not known which one starts", name)
		default:
			if ended, err := succeeded(name); err != nil || !ended {
				return name, err
			}
		}
	}
	return order[len(order)-1], nil
}

func uids(pods []*corev1.Pod) map[types.UID]*corev1.Pod {
	out := make(map[types.UID]*corev1.Pod, len(pods))
	for _, p := range pods {
		out[p.UID] = p
	}
	return out
}
