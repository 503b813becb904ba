package nodelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// DefaultExpiry is HAMi's.
	DefaultExpiry = 5 * time.Minute
	// workers look at locks that no pod waits for.
	workers = 8
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// minBackoff and maxBackoff bound the time between two tries after errors; a
	// lock that no pod waits for is tried again after the latter.
	minBackoff = 4 * time.Millisecond
	maxBackoff = time.Second
)

var (
	errPodGone  = errors.New("the pod was deleted while it waited")
	errNodeGone = errors.New("the node is gone")
)

// Config is what the locks depend on.
type Config struct {
	Clock  clock.WithDelayedExecution
	Client kubernetes.Interface
	Nodes  corelisters.NodeLister
	Pods   corelisters.PodLister
	// Expiry is how old a lock gets.
	Expiry time.Duration

	// MayWrite returns an error when this process must not decide any more. It
	// is called after everything that a write depends on was read.
	MayWrite func() error
	// Ours reports whether this process binds pods of that scheduler.
	Ours func(schedulerName string) bool
	// Binding reports whether this process is binding the pod to the node.
	Binding func(pod types.UID, node string) bool
}

// Locks are the locks of all nodes. It may be used by several goroutines.
type Locks struct {
	cfg Config
	// unawaited has the nodes whose lock is to be looked at and that no pod waits
	// for.
	unawaited workqueue.TypedInterface[string]

	mu    sync.Mutex
	nodes map[string]*node
}

// node is what is kept of a node that has a lock or pods that wait for one.
type node struct {
	name string
	// turn is the right to write the lock.
	turn    *semaphore.Weighted
	waiters []*waiter
	// changed is closed, and made again, when the lock is to be looked at.
	changed chan struct{}
	// seen is the lock that was seen last, nil when there was none.
	seen *sighting
	// uid is the owner's, once its pod was seen.
	uid types.UID
	// moved is when the lock last changed, and stuck is true when a pod gave up
	// waiting since.
	moved time.Time
	stuck bool
	// written is what this process wrote last; the informer may be behind it.
	written current
	// timer has the lock looked at again when no pod waits for it.
	timer clock.Timer
}

// waiter is a pod that waits for a lock.
type waiter struct {
	pod *corev1.Pod
	// giveUp ends the wait, and skipQueue the wait for the turn.
	giveUp    context.CancelCauseFunc
	skipQueue context.CancelFunc
}

// New returns the locks.
func New(cfg Config) *Locks {
	return &Locks{cfg: cfg, nodes: map[string]*node{}, unawaited: workqueue.NewTyped[string]()}
}

// Run removes locks that are over and that no pod waits for, until the context
// ends.
func (l *Locks) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.unawaited.ShutDown()
	group.Wait()
}

func (l *Locks) next(ctx context.Context) bool {
	name, shutdown := l.unawaited.Get()
	if shutdown {
		return false
	}
	defer l.unawaited.Done(name)
	l.tidy(ctx, name)
	return true
}

// tidy removes the node's lock if it is over. A pod that waits looks itself.
func (l *Locks) tidy(ctx context.Context, name string) {
	l.mu.Lock()
	n := l.node(name)
	l.mu.Unlock()
	if !n.turn.TryAcquire(1) {
		return
	}
	defer n.turn.Release(1)
	look := l.look(ctx, n, nil)
	if look.err != nil && !look.done {
		klog.FromContext(ctx).V(2).Info("Lock is looked at again", "node", name, "err", look.err)
		look.after = maxBackoff
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
	}
	if n.seen == nil && len(n.waiters) == 0 {
		delete(l.nodes, name)
	}
	if look.after > 0 {
		n.timer = l.cfg.Clock.AfterFunc(look.after, func() { l.unawaited.Add(name) })
	}
}

// Acquire waits until the node's lock is the pod's own. It gives up when the
// lock has not changed hands for the given time, and returns when the context
// ends, the pod is deleted or the node goes away. After an error the lock may
// still be written; Check sees to that once the pod is no longer being bound.
func (l *Locks) Acquire(ctx context.Context, nodeName string, pod *corev1.Pod, timeout time.Duration) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	turn, skipQueue := context.WithCancel(ctx)
	defer skipQueue()
	w := &waiter{pod: pod, giveUp: giveUp, skipQueue: skipQueue}
	n := l.join(nodeName, w)
	defer l.leave(n, w)
	go l.limit(ctx, n, l.cfg.Clock.Now(), timeout, giveUp)

	if err := n.turn.Acquire(turn, 1); err == nil {
		defer n.turn.Release(1)
	}
	backoff := wait.Backoff{Duration: minBackoff, Factor: 2, Steps: 10, Cap: maxBackoff}
	for ctx.Err() == nil {
		l.mu.Lock()
		changed := n.changed
		l.mu.Unlock()
		look := l.look(ctx, n, pod)
		if look.done {
			return look.err
		}
		if look.err != nil {
			klog.FromContext(ctx).V(2).Info("Lock is looked at again", "node", nodeName, "err", look.err)
			look.after = backoff.Step()
		}
		var later <-chan time.Time
		if look.after > 0 {
			later = l.cfg.Clock.After(look.after)
		}
		select {
		case <-changed:
		case <-later:
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// join adds a waiter. A pod that the lock already names waits for no turn: all
// others wait for it.
func (l *Locks) join(name string, w *waiter) *node {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.node(name)
	n.waiters = append(n.waiters, w)
	n.callOwner()
	return n
}

// leave removes a waiter. The last one hands the lock to the workers.
func (l *Locks) leave(n *node, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.waiters = slices.DeleteFunc(n.waiters, func(other *waiter) bool { return other == w })
	l.wake(n)
}

// limit ends a wait that began at the given time when the lock has not changed
// hands for so long.
func (l *Locks) limit(ctx context.Context, n *node, start time.Time, timeout time.Duration, giveUp context.CancelCauseFunc) {
	for left := timeout; left > 0; {
		select {
		case <-ctx.Done():
			return
		case <-l.cfg.Clock.After(left):
		}
		l.mu.Lock()
		if n.moved.After(start) {
			start = n.moved
		}
		l.mu.Unlock()
		left = timeout - l.cfg.Clock.Since(start)
	}
	giveUp(l.timedOut(ctx, n, timeout))
}

// timedOut notes that the node is stuck and returns the error. The owner of the
// lock may be of another namespace than the pod with the event, and is not named.
func (l *Locks) timedOut(ctx context.Context, n *node, waited time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.stuck = true
	if n.seen == nil {
		return fmt.Errorf("node %s: its lock could not be written for %s", n.name, waited)
	}
	klog.FromContext(ctx).Info("Lock does not change", "node", n.name, "lock", n.seen.value, "waited", waited)
	owner := "which can't be read"
	if !n.seen.unreadable {
		owner = "which another pod holds since " + n.seen.lock.Since.Format(time.RFC3339)
	}
	return fmt.Errorf("node %s: waited %s for %s, %s and which does not change; it is taken over when its pod is gone, or %s after it was put on",
		n.name, waited, wire.AnnotationLock, owner, l.cfg.Expiry)
}

// Stuck reports whether pods gave up waiting for the node's lock and it has not
// changed since.
func (l *Locks) Stuck(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[name]
	return n != nil && n.stuck
}

// Check looks at the node's lock again. Call it when the node changed, or when
// a pod is no longer being bound there.
func (l *Locks) Check(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[name]; n != nil {
		l.wake(n)
	} else if object, err := l.cfg.Nodes.Get(name); err == nil && lockOn(object).locked {
		l.unawaited.Add(name)
	}
}

// PodChanged looks again at the locks that name the pod.
func (l *Locks) PodChanged(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.nodes {
		if n.seen != nil && n.seen.lock.Names(pod) {
			l.wake(n)
		}
	}
}

// PodGone ends the pod's waiting and looks again at the locks that name it.
func (l *Locks) PodGone(pod *corev1.Pod) {
	l.mu.Lock()
	for _, n := range l.nodes {
		for _, w := range n.waiters {
			if w.pod.UID == pod.UID {
				w.giveUp(errPodGone)
			}
		}
	}
	l.mu.Unlock()
	l.PodChanged(pod)
}

// node returns what is kept of the node. The caller holds the mutex.
func (l *Locks) node(name string) *node {
	n := l.nodes[name]
	if n == nil {
		n = &node{name: name, turn: semaphore.NewWeighted(1), changed: make(chan struct{})}
		l.nodes[name] = n
	}
	return n
}

// wake has the node's lock looked at. The caller holds the mutex.
func (l *Locks) wake(n *node) {
	if len(n.waiters) == 0 {
		l.unawaited.Add(n.name)
		return
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// callOwner lets the waiter go on that the lock names: an earlier process wrote
// it, or this one before the pod gave up. The caller holds the mutex.
func (n *node) callOwner() {
	for _, w := range n.waiters {
		if n.seen != nil && n.seen.lock.Names(w.pod) {
			w.skipQueue()
		}
	}
}

// observe notes the lock that is on the node. The caller holds the mutex.
func (n *node) observe(cur *current, now time.Time) {
	switch {
	case !cur.locked && n.seen == nil, cur.locked && n.seen != nil && n.seen.value == cur.value:
		return
	case cur.locked:
		s := see(cur.value, now)
		n.seen = &s
	default:
		n.seen = nil
	}
	n.uid, n.moved, n.stuck = "", now, false
	n.callOwner()
}
