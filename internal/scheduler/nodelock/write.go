package nodelock

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// over judges the lock that is on the node. While it is not over, the node is
// looked at again when that may change by itself.
func (l *Locks) over(ctx context.Context, name string, n *node, now time.Time) (bool, error) {
	s := n.seen
	who, uid, err := l.findOwner(ctx, name, s, n.uid)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.uid == "" {
		n.uid = uid
	}
	if who == served && s.running.IsZero() {
		s.running = now
	}
	v := judge(s, who, l.cfg.Expiry, now)
	logger := klog.FromContext(ctx)
	if v.over {
		logger.V(2).Info("Lock is over", "node", name, "lock", s.value, "why", v.why)
		return true, nil
	}
	logger.V(4).Info("Lock is held", "node", name, "lock", s.value, "why", v.why)
	if !v.until.IsZero() {
		l.later(name, n, v.until.Sub(now))
	}
	return false, nil
}

// findOwner finds out what became of the pod that the lock names, and its UID
// where the informer shows it. A pod that the informer does not show and never
// did may be about to appear there, so the API server is asked.
func (l *Locks) findOwner(ctx context.Context, nodeName string, s *sighting, known types.UID) (o owner, seen types.UID, err error) {
	if s.lock.Name == "" {
		return nobody, "", nil
	}
	pod, err := l.cfg.Pods.Pods(s.lock.Namespace).Get(s.lock.Name)
	switch {
	case err == nil:
		seen = pod.UID
	case !apierrors.IsNotFound(err):
		return nobody, "", err
	case known != "":
		return gone, "", nil
	default:
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		pod, err = l.cfg.Client.CoreV1().Pods(s.lock.Namespace).Get(ctx, s.lock.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return gone, "", nil
		}
		if err != nil {
			return nobody, "", fmt.Errorf("look for the pod that the lock names: %w", err)
		}
	}
	if known != "" && pod.UID != known {
		return gone, seen, nil
	}
	return l.classify(pod, nodeName), seen, nil
}

// classify says what the pod is to a lock of the node that names it.
func (l *Locks) classify(pod *corev1.Pod, nodeName string) owner {
	switch {
	case finished(pod):
		return gone
	case l.cfg.Binding(pod.UID, nodeName):
		return binding
	case pod.Spec.NodeName == "" && l.cfg.Ours(pod.Spec.SchedulerName):
		return left
	case pod.Spec.NodeName == "":
		return pending
	case pod.Spec.NodeName != nodeName:
		return elsewhere
	case started(pod):
		return served
	}
	return bound
}

// write puts the lock of the waiter whose turn it is on the node, or takes the
// old one off when nobody waits. It holds for the version that was looked at: after
// a conflict the informer will show what came in between.
func (l *Locks) write(ctx context.Context, n *node, cur *current, w *waiter) error {
	name := cur.node.Name
	next := written{}
	if w != nil {
		next.value, next.locked = wire.LockFor(w.pod, l.cfg.Clock.Now()).String(), true
	}
	if err := l.cfg.MayWrite(); err != nil {
		return err
	}
	after, err := l.patch(ctx, cur, &next)
	switch {
	case apierrors.IsConflict(err):
		l.mu.Lock()
		n.written = written{} // there is a newer version, and the informer will show it
		l.mu.Unlock()
		return nil
	case apierrors.IsNotFound(err): // the informer will tell
		return nil
	case w != nil && apierrors.IsForbidden(err):
		l.fail(n, w, fmt.Errorf("write %s on node %s: %w; give this scheduler's account the verb patch on nodes", wire.AnnotationLock, name, err))
		l.work.Add(name)
		return nil
	case w != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		l.fail(n, w, fmt.Errorf("write %s on node %s: %w", wire.AnnotationLock, name, err))
		l.work.Add(name)
		return nil
	case err != nil:
		return fmt.Errorf("write %s: %w", wire.AnnotationLock, err)
	}
	version, err := parseVersion(after.ResourceVersion)
	if err != nil {
		return err
	}
	next.version = version
	l.mu.Lock()
	n.written = next
	l.observe(name, n, &current{value: next.value, locked: next.locked}, l.cfg.Clock.Now())
	if w != nil {
		n.uid = w.pod.UID
	}
	l.mu.Unlock()
	klog.FromContext(ctx).V(4).Info("Lock is written", "node", name, "lock", next.value)
	if w != nil {
		l.grant(name, n, w)
	}
	return nil
}

// patch is a compare-and-swap on the node's version.
func (l *Locks) patch(ctx context.Context, cur *current, next *written) (*corev1.Node, error) {
	var value any // null removes the annotation
	if next.locked {
		value = next.value
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": cur.version, "uid": cur.node.UID,
		"annotations": map[string]any{wire.AnnotationLock: value},
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return l.cfg.Client.CoreV1().Nodes().Patch(ctx, cur.node.Name, types.MergePatchType, text, metav1.PatchOptions{})
}

// grant lets the waiter go on. If it gave up in the meantime the lock is left
// for the next look, by when it is known whether the pod is still being bound.
func (l *Locks) grant(name string, n *node, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.remove(w, nil)
	if len(n.queue) > 0 {
		l.work.Add(name)
	}
}

// fail ends the waiter's waiting.
func (l *Locks) fail(n *node, w *waiter, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.remove(w, why)
}

// parseVersion reads a resourceVersion, which the API promises to be a number.
func parseVersion(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is no number", v)
	}
	return n, nil
}
