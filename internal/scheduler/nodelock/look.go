package nodelock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// current is a node's lock at one version of the node.
type current struct {
	version string
	value   string
	locked  bool
}

// lockOn returns the lock that the node object has.
func lockOn(object *corev1.Node) current {
	c := current{version: object.ResourceVersion}
	c.value, c.locked = object.Annotations[wire.AnnotationLock]
	return c
}

// latest returns the newer of what the informer shows and what was written.
func (n *node) latest(object *corev1.Node) current {
	if c, err := resourceversion.CompareResourceVersion(n.written.version, object.ResourceVersion); err == nil && c > 0 {
		return n.written
	}
	return lockOn(object)
}

// outcome is what came of a look at a lock. While it is not done, the lock is
// looked at again when it changes, after an error, and after the given time.
type outcome struct {
	done  bool
	err   error
	after time.Duration
}

// look looks at a node and does what is to be done, at most one write: the lock of
// the pod, or none when the pod is nil.
func (l *Locks) look(ctx context.Context, n *node, pod *corev1.Pod) outcome {
	object, err := l.cfg.Nodes.Get(n.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return outcome{err: err}
	}
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	var cur current
	if err == nil {
		cur = n.latest(object)
	}
	n.observe(&cur, now)
	seen := n.seen
	l.mu.Unlock()
	switch {
	case err != nil:
		return outcome{done: true, err: errNodeGone}
	case pod != nil && !inventory.UsesLock(object): // Daybreak's agent took over meanwhile
		return outcome{done: true}
	case pod == nil && (!cur.locked || !inventory.ServesSlices(object)):
		return outcome{done: true}
	case cur.locked && (pod == nil || !seen.lock.Names(pod)):
		if v, err := l.judge(ctx, n, seen, now); err != nil || !v.over {
			return outcome{err: err, after: max(0, v.until.Sub(now))}
		}
	}
	return l.write(ctx, n, object.UID, &cur, pod)
}

// judge judges the lock that is on the node.
func (l *Locks) judge(ctx context.Context, n *node, s *sighting, now time.Time) (verdict, error) {
	l.mu.Lock()
	known := n.uid
	l.mu.Unlock()
	who, uid, err := l.findOwner(ctx, n.name, s, known)
	if err != nil {
		return verdict{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.seen == s && n.uid == "" {
		n.uid = uid
	}
	if who == served && s.running.IsZero() {
		s.running = now
	}
	v := judge(s, who, l.cfg.Expiry, now)
	if v.over {
		klog.FromContext(ctx).V(2).Info("Lock is over", "node", n.name, "lock", s.value, "why", v.why)
	} else {
		klog.FromContext(ctx).V(4).Info("Lock is held", "node", n.name, "lock", s.value, "why", v.why)
	}
	return v, nil
}

// findOwner returns what became of the pod that the lock names, and its UID
// where the informer shows it. A pod that the informer does not show and never
// did may be about to appear there, so the API server is asked.
func (l *Locks) findOwner(ctx context.Context, nodeName string, s *sighting, known types.UID) (o owner, seen types.UID, err error) {
	if s.lock.Name == "" {
		return unnamed, "", nil
	}
	pod, err := l.cfg.Pods.Pods(s.lock.Namespace).Get(s.lock.Name)
	switch {
	case err == nil:
		seen = pod.UID
	case !apierrors.IsNotFound(err):
		return unnamed, "", err
	case known != "":
		return gone, "", nil
	default:
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		pod, err = l.cfg.Client.CoreV1().Pods(s.lock.Namespace).Get(ctx, s.lock.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return gone, "", nil
		}
		if err != nil {
			return unnamed, "", fmt.Errorf("look for the pod that the lock names: %w", err)
		}
	}
	if known != "" && pod.UID != known {
		return gone, seen, nil
	}
	return l.classify(pod, nodeName), seen, nil
}

// classify returns what the pod is to a lock of the node that names it.
func (l *Locks) classify(pod *corev1.Pod, nodeName string) owner {
	switch {
	case wire.HasEnded(pod):
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

// write writes the pod's lock on the node, or removes the old one when the pod is
// nil. It holds for the version that was looked at: after a conflict the informer
// will show what came in between.
func (l *Locks) write(ctx context.Context, n *node, uid types.UID, cur *current, pod *corev1.Pod) outcome {
	next := current{}
	if pod != nil {
		next.value, next.locked = allocation.LockFor(pod, l.cfg.Clock.Now()).String(), true
	}
	if err := l.cfg.MayWrite(); err != nil {
		return outcome{err: err}
	}
	after, err := l.patch(ctx, n.name, uid, cur.version, &next)
	switch {
	case apierrors.IsConflict(err):
		l.mu.Lock()
		n.written = current{}
		l.mu.Unlock()
		return outcome{}
	case apierrors.IsNotFound(err): // the informer will show it
		return outcome{}
	case apierrors.IsForbidden(err):
		return outcome{done: pod != nil, err: fmt.Errorf("write %s on node %s: %w; give this scheduler's account the verb patch on nodes", wire.AnnotationLock, n.name, err)}
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return outcome{done: pod != nil, err: fmt.Errorf("write %s on node %s: %w", wire.AnnotationLock, n.name, err)}
	case err != nil:
		return outcome{err: fmt.Errorf("write %s: %w", wire.AnnotationLock, err)}
	}
	next.version = after.ResourceVersion
	l.mu.Lock()
	defer l.mu.Unlock()
	n.written = next
	n.observe(&next, l.cfg.Clock.Now())
	if pod != nil {
		n.uid = pod.UID
	}
	klog.FromContext(ctx).V(4).Info("Lock is written", "node", n.name, "lock", next.value)
	return outcome{done: true}
}

// patch is a compare-and-swap on the node's version.
func (l *Locks) patch(ctx context.Context, name string, uid types.UID, version string, next *current) (*corev1.Node, error) {
	var value any // null removes the annotation
	if next.locked {
		value = next.value
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": version, "uid": uid,
		"annotations": map[string]any{wire.AnnotationLock: value},
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.cfg.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
}
