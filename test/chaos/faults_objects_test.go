package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// insist does something until the API server has done it, or says no.
func insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !isAway(err) && !apierrors.IsConflict(err) {
			return err
		}
		if !machine.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// clockKinds are clocks that jump. Linux can't turn the wall clock of one
// process (a time namespace has only the clocks that count from the start), so
// what a part with such a clock would write is written in its place; the times
// that the parts themselves measure stand still for them in "pause".
func clockKinds() []*kind {
	jumps := []time.Duration{-24 * time.Hour, -time.Hour, -time.Minute, time.Minute, time.Hour, 24 * time.Hour}
	return []*kind{
		{name: "clock of a lease", strike: func(ctx context.Context, w *world, f *fault) error {
			space, name := metav1.NamespaceSystem, "kube-scheduler"
			if f.random.IntN(2) == 0 {
				space, name = manager.DefaultNamespace, manager.LeaseName
			}
			at := time.Now().Add(jumps[f.random.IntN(len(jumps))]).UTC().Format(metav1.RFC3339Micro)
			patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q,"acquireTime":%q}}`, at, at)
			err := insist(ctx, func() error {
				_, err := w.quick.CoordinationV1().Leases(space).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
			f.struck()
			return err
		}},
		{name: "clock of a lock", strike: func(ctx context.Context, w *world, f *fault) error {
			lock := allocation.Lock{Since: time.Now().Add(jumps[f.random.IntN(len(jumps))]), Namespace: namespace, Name: fmt.Sprintf("never-there-%d", f.number)}
			err := insist(ctx, func() error { return w.putLock(ctx, vendorNode, lock.String()) })
			f.struck()
			return err
		}, back: func(ctx context.Context, w *world, f *fault) error {
			node, err := w.quick.CoreV1().Nodes().Get(ctx, vendorNode, metav1.GetOptions{})
			if err == nil && lockIs(node, fmt.Sprintf("never-there-%d", f.number)) {
				err = errors.New("still locked")
			}
			return err
		}},
	}
}

func lockIs(node *corev1.Node, pod string) bool {
	lock, err := allocation.ParseLock(node.Annotations[wire.AnnotationLock])
	return err == nil && lock.Name == pod
}

// putLock locks a node as another scheduler does: when it is not locked.
func (w *world) putLock(ctx context.Context, name, value string) error {
	node, err := w.quick.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, locked := node.Annotations[wire.AnnotationLock]; locked {
		return apierrors.NewConflict(corev1.Resource("nodes"), name, errors.New("it is locked"))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": node.ResourceVersion, "annotations": map[string]string{wire.AnnotationLock: value},
	}})
	if err != nil {
		return err
	}
	_, err = w.colleague.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// objectKinds are nodes and Devices that go.
func objectKinds() []*kind {
	return []*kind{
		{name: "node deleted", strike: deleteNode, back: isServed},
		{name: "Device deleted", strike: func(ctx context.Context, w *world, f *fault) error {
			s := f.pickServer(w)
			err := insist(ctx, func() error { return w.publisher.Delete(ctx, s.Node, metav1.DeleteOptions{}) })
			f.struck()
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}, back: isServed},
	}
}

// deleteNode takes a node out of the cluster, and lets it come back: at once,
// with its pods still running, or after they were given up.
func deleteNode(ctx context.Context, w *world, f *fault) error {
	s := f.pickServer(w)
	s.agent.turn.Lock() // one at a time
	defer s.agent.turn.Unlock()
	err := insist(ctx, func() error { return w.quick.CoreV1().Nodes().Delete(ctx, s.Node, metav1.DeleteOptions{}) })
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	f.struck()
	if f.random.IntN(2) == 0 {
		for _, name := range w.pods.live() {
			if pod := w.pods.seen(name); pod != nil && pod.Spec.NodeName == s.Node {
				w.pods.remove(ctx, name, true)
			}
		}
	}
	machine.Sleep(ctx, f.between(200*time.Millisecond, 3*time.Second))
	return insist(ctx, func() error { return s.Join(ctx) })
}

// podKinds are pods that are deleted at each moment of their lives.
func podKinds() []*kind {
	return []*kind{
		{name: "pod deleted while pending", strike: func(ctx context.Context, w *world, f *fault) error {
			name, err := w.fresh(ctx, f)
			w.pods.remove(ctx, name, f.random.IntN(2) == 0)
			f.struck()
			return err
		}, back: nothing},
		{name: "pod deleted while being bound", strike: func(ctx context.Context, w *world, f *fault) error {
			return w.deleteAround(ctx, f, func(do func()) hook { return hook{before: do} })
		}, back: nothing},
		{name: "pod deleted when bound", strike: func(ctx context.Context, w *world, f *fault) error {
			return w.deleteAround(ctx, f, func(do func()) hook { return hook{after: do} })
		}, back: nothing},
		{name: "pod deleted while running", strike: func(ctx context.Context, w *world, f *fault) error {
			name, err := w.runningPod(ctx, f)
			w.pods.remove(ctx, name, f.random.IntN(2) == 0)
			f.struck()
			return err
		}, back: nothing},
		{name: "pod forced out while terminating", strike: func(ctx context.Context, w *world, f *fault) error {
			name, err := w.runningPod(ctx, f)
			w.pods.remove(ctx, name, false)
			machine.Sleep(ctx, f.between(0, 300*time.Millisecond))
			w.pods.remove(ctx, name, true)
			f.struck()
			return err
		}, back: nothing},
	}
}

// nothing has to come back.
func nothing(context.Context, *world, *fault) error { return nil }

// fresh creates a pod of its own for the fault.
func (w *world) fresh(ctx context.Context, f *fault) (string, error) {
	pod := order(f.random.Uint64(), 0)
	pod.Name = fmt.Sprintf("victim-%06d", f.number)
	return pod.Name, w.pods.create(ctx, pod)
}

// runningPod returns a pod that runs: one of those that are there, or one of its
// own if none does.
func (w *world) runningPod(ctx context.Context, f *fault) (string, error) {
	isRunning := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil }
	var name string
	err := machine.Until(ctx, time.Minute, func() (err error) {
		name, err = w.pods.pick(f.random, isRunning)
		return err
	})
	return name, err
}

// deleteAround creates a pod that is deleted just before its Binding reaches the
// API server, or just after. It has a machine of its own, so there is room.
func (w *world) deleteAround(ctx context.Context, f *fault, around func(do func()) hook) error {
	pod := w.pods.newProbe()
	done := make(chan struct{})
	h := around(sync.OnceFunc(func() {
		// The Binding may be quicker than the answer to who created the pod.
		_ = machine.Until(ctx, 5*time.Second, func() error { return w.pods.acknowledged(pod.Name) })
		w.pods.remove(ctx, pod.Name, f.number%2 == 0)
		close(done)
	}))
	for _, p := range w.schedulers {
		remove := p.proxy.around(pod.Name, h)
		defer remove() //nolint:gocritic // there are two
	}
	if err := w.pods.create(ctx, pod); err != nil {
		return err
	}
	select {
	case <-done:
		f.struck()
		return nil
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	w.pods.remove(ctx, pod.Name, true)
	return fmt.Errorf("pod %s was not bound within a minute", pod.Name)
}
