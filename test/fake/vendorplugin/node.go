package vendorplugin

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// event is a change of a pod of the node, or a function to run between two such
// changes.
type event struct {
	pod  *corev1.Pod
	gone bool // deleted or ended
	do   func()
}

// node is the plugin on one node. kubelet calls it for one pod at a time,
// in the order of their events.
type node struct {
	vendor *Plugin
	name   string
	books  *books
	events *workqueue.Typed[*event]
	done   chan struct{}

	running sync.WaitGroup // of pods that are being started
}

func newNode(v *Plugin, name string, mode gpu.Mode, t *gpu.Topology) *node {
	return &node{vendor: v, name: name, books: newBooks(mode, t), events: workqueue.NewTyped[*event](), done: make(chan struct{})}
}

func (n *node) run(ctx context.Context) {
	defer close(n.done)
	defer n.running.Wait()
	context.AfterFunc(ctx, n.events.ShutDown)
	for e, ended := n.events.Get(); !ended && ctx.Err() == nil; e, ended = n.events.Get() {
		n.events.Done(e)
		if e.do != nil {
			e.do()
			continue
		}
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := n.handle(ctx, e)
			done := err == nil || over(err) || ctx.Err() != nil
			if !done {
				klog.FromContext(ctx).Error(err, "Simulated plugin", "node", n.name, "pod", klog.KObj(e.pod))
			}
			return done, nil
		})
	}
}

// handle processes an event; its caller retries after an error.
func (n *node) handle(ctx context.Context, e *event) error {
	has := n.books.has(e.pod.UID)
	switch {
	case e.gone && has:
		n.books.release(e.pod.UID)
		return n.publish(ctx, nil, false)
	case e.gone, has, e.pod.DeletionTimestamp != nil:
		return nil
	case e.pod.Status.Phase == corev1.PodRunning: // since before this process
		n.book(e.pod)
		return n.publish(ctx, nil, false)
	case e.pod.Status.Phase != corev1.PodPending:
		return nil
	}
	return n.allocate(ctx, e.pod)
}

// allocate is kubelet's call for a pod.
func (n *node) allocate(ctx context.Context, pod *corev1.Pod) error {
	for {
		alive, deaths := n.vendor.life()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive:
		}
		done, err := n.try(ctx, pod, deaths)
		if done || err != nil {
			return err
		}
	}
}

// try is one attempt at a call; it is not done when the plugin died meanwhile.
func (n *node) try(ctx context.Context, pod *corev1.Pod, deaths int) (done bool, err error) {
	over := time.After(n.vendor.delay()) // in all, what it asks the API server for included
	var node *corev1.Node
	if wire.HasSlices(pod) {
		if node, err = n.vendor.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		if why := mayServe(node, pod); why != "" {
			return true, n.vendor.reject(ctx, pod, why)
		}
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-over:
	}
	if _, died := n.vendor.life(); died != deaths {
		return false, nil
	}
	n.book(pod)
	if err := n.unlock(ctx, node); err != nil {
		return false, err
	}
	n.running.Go(func() { n.vendor.simulator.Run(ctx, pod) })
	return true, nil
}

// mayServe returns why the pod must not be served; the lock must name it.
func mayServe(node *corev1.Node, pod *corev1.Pod) (why string) {
	value, locked := node.Annotations[wire.AnnotationLock]
	read, err := allocation.ParseLock(value)
	switch {
	case !locked:
		return "the node has no lock"
	case err != nil:
		return fmt.Sprintf("the node's lock %.80q can't be read", value)
	case !read.Names(pod):
		return fmt.Sprintf("the node's lock names %s/%s", read.Namespace, read.Name)
	}
	return ""
}

// book books the pod's cards and records what is wrong with them.
func (n *node) book(pod *corev1.Pod) {
	for _, problem := range n.books.add(pod) {
		n.vendor.fault("%s: pod %s/%s: %s", n.name, pod.Namespace, pod.Name, problem)
	}
	n.vendor.mu.Lock()
	defer n.vendor.mu.Unlock()
	n.vendor.served = append(n.vendor.served, Served{
		Node: n.name, Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
		Allocated: pod.Annotations[wire.AnnotationAllocated],
	})
}

// unlock publishes what is left and takes the lock off that the node was seen
// with, unless the plugin dies on it.
func (n *node) unlock(ctx context.Context, seen *corev1.Node) error {
	v := n.vendor
	unlock := seen != nil
	v.mu.Lock()
	if unlock && v.unlocks == 0 {
		v.die()
		unlock = false
	}
	if v.unlocks > 0 {
		v.unlocks--
	}
	v.mu.Unlock()
	return n.publish(ctx, seen, unlock)
}

// publish writes what is left of the node's cards and takes the lock off, if it
// still is what it was on the node as seen.
func (n *node) publish(ctx context.Context, seen *corev1.Node, unlock bool) error {
	published, err := n.books.annotations()
	if err != nil {
		return err
	}
	for node := seen; ; node = nil {
		if node == nil {
			if node, err = n.vendor.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		annotations := map[string]any{}
		for key, value := range published {
			annotations[key] = value
		}
		if unlock && node.Annotations[wire.AnnotationLock] == seen.Annotations[wire.AnnotationLock] {
			annotations[wire.AnnotationLock] = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations}})
		if err != nil {
			return err
		}
		_, err = n.vendor.client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}
