package nodelock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	// workers write to the API at once, each for another node.
	workers = 32
	// writeTimeout bounds one request.
	writeTimeout = 10 * time.Second
	// minBackoff and maxBackoff bound the time between two tries after errors.
	minBackoff = 2 * time.Millisecond
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
	// is asked after everything that a write depends on was read.
	MayWrite func() error
	// Ours reports whether it is for this process to bind pods of that
	// scheduler.
	Ours func(schedulerName string) bool
	// Binding reports whether this process is binding the pod to the node.
	Binding func(pod types.UID, node string) bool
}

// Locks are the locks of all nodes. It may be used by several goroutines.
type Locks struct {
	cfg  Config
	work workqueue.TypedInterface[string]

	mu    sync.Mutex
	nodes map[string]*node
	// owners has, for each pod that a lock names, the nodes it is on.
	owners map[types.NamespacedName]map[string]bool
}

// New returns the locks. Nothing is written before Run.
func New(cfg Config) *Locks {
	return &Locks{
		cfg: cfg, work: workqueue.NewTyped[string](),
		nodes: map[string]*node{}, owners: map[types.NamespacedName]map[string]bool{},
	}
}

// Run works until the context ends.
func (l *Locks) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for l.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	l.work.ShutDown()
	group.Wait()
}

func (l *Locks) next(ctx context.Context) bool {
	name, shutdown := l.work.Get()
	if shutdown {
		return false
	}
	defer l.work.Done(name)
	err := l.look(ctx, name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Lock is looked at again", "node", name, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.nodes[name]; {
	case n == nil:
	case err == nil:
		n.failures = 0
	default:
		n.failures = min(n.failures+1, 20)
		l.later(name, n, min(minBackoff<<n.failures, maxBackoff))
	}
	return true
}

// later has the node looked at again after a while, or sooner if something
// happens; a node has one timer. The caller holds the mutex.
func (l *Locks) later(name string, n *node, after time.Duration) {
	if n.timer != nil {
		n.timer.Stop()
	}
	n.timer = l.cfg.Clock.AfterFunc(after, func() { l.work.Add(name) })
}

// Acquire waits until the node's lock is the pod's own. It gives up when the
// lock has not changed hands for the given time, and returns when the context
// ends, the pod is deleted or the node goes away. After an error the lock may
// still be written; Check sees to that once the pod is no longer being bound.
func (l *Locks) Acquire(ctx context.Context, nodeName string, pod *corev1.Pod, wait time.Duration) error {
	w := &waiter{pod: pod, turn: make(chan error, 1)}
	start := l.cfg.Clock.Now()
	l.mu.Lock()
	n := l.node(nodeName)
	n.queue = append(n.queue, w)
	l.mu.Unlock()
	l.work.Add(nodeName)

	timer := l.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case err := <-w.turn:
			return err
		case <-ctx.Done():
			return l.giveUp(n, w, context.Cause(ctx))
		case <-timer.C():
			if left := l.patience(n, start, wait); left > 0 {
				timer.Reset(left)
				continue
			}
			return l.giveUp(n, w, l.timedOut(ctx, n, nodeName, wait))
		}
	}
}

// giveUp takes the waiter out of the queue, unless it has just got its answer.
func (l *Locks) giveUp(n *node, w *waiter, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.remove(w, why)
	return <-w.turn
}

// patience returns how long a pod that waits since the given time still does.
func (l *Locks) patience(n *node, start time.Time, wait time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.moved.After(start) {
		start = n.moved
	}
	return wait - l.cfg.Clock.Since(start)
}

// timedOut notes that the node is stuck and says on what. The owner of the lock
// may be of another namespace than the pod with the event.
func (l *Locks) timedOut(ctx context.Context, n *node, name string, wait time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.stuck = true
	if n.seen == nil {
		return fmt.Errorf("node %s: its lock could not be written for %s", name, wait)
	}
	klog.FromContext(ctx).Info("Lock does not change", "node", name, "lock", n.seen.value, "waited", wait)
	owner := "which can't be read"
	if !n.seen.unreadable {
		owner = "which another pod holds since " + n.seen.lock.Since.Format(time.RFC3339)
	}
	return fmt.Errorf("node %s: waited %s for %s, %s and which does not change; it is taken over when its pod is gone, or %s after it was put on",
		name, wait, wire.AnnotationLock, owner, l.cfg.Expiry)
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
	known := l.nodes[name] != nil
	l.mu.Unlock()
	if known || l.locked(name) {
		l.work.Add(name)
	}
}

// locked reports whether the informer shows a lock on the node.
func (l *Locks) locked(name string) bool {
	n, err := l.cfg.Nodes.Get(name)
	if err != nil {
		return false
	}
	_, locked := n.Annotations[wire.AnnotationLock]
	return locked
}

// PodChanged looks again at the locks that name the pod.
func (l *Locks) PodChanged(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.owners[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] {
		l.work.Add(name)
	}
}

// PodGone ends the pod's waiting and looks again at the locks that name it.
func (l *Locks) PodGone(pod *corev1.Pod) {
	l.mu.Lock()
	for _, n := range l.nodes {
		for _, w := range n.queue {
			if w.pod.UID == pod.UID {
				n.remove(w, errPodGone)
				break
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
		n = &node{}
		l.nodes[name] = n
	}
	return n
}

// current is a node's lock as of its latest known version.
type current struct {
	node    *corev1.Node
	version string
	value   string
	locked  bool
}

// look looks at a node and does what is to be done, at most one write.
func (l *Locks) look(ctx context.Context, name string) error {
	object, err := l.cfg.Nodes.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		l.forget(name, errNodeGone)
		return nil
	case err != nil:
		return err
	}
	now := l.cfg.Clock.Now()
	l.mu.Lock()
	n := l.node(name)
	cur := n.latest(object)
	l.observe(name, n, &cur, now)
	w := n.next()
	l.mu.Unlock()

	own := w != nil && cur.locked && n.seen.lock.Names(w.pod) // written before, by us or an earlier process
	switch {
	case w != nil && !wire.UsesLock(object):
		l.grant(name, n, w) // served by someone who needs none, since it came
		return nil
	case w == nil && (!cur.locked || !wire.ServesSlices(object)):
		l.tidy(name)
		return nil
	case cur.locked && !own:
		over, err := l.over(ctx, name, n, now)
		if err != nil || !over {
			return err
		}
	}
	return l.write(ctx, n, &cur, w)
}

// latest returns the newer of what the informer shows and what was written.
func (n *node) latest(object *corev1.Node) current {
	c := current{node: object, version: object.ResourceVersion}
	c.value, c.locked = object.Annotations[wire.AnnotationLock]
	if v, err := parseVersion(object.ResourceVersion); err == nil && n.written.version > v {
		c.version, c.value, c.locked = strconv.FormatUint(n.written.version, 10), n.written.value, n.written.locked
	}
	return c
}

// observe notes the lock and who owns it. The caller holds the mutex.
func (l *Locks) observe(name string, n *node, cur *current, now time.Time) {
	before := n.seen
	n.observe(cur.value, cur.locked, now)
	if before == n.seen {
		return
	}
	if before != nil {
		key := ownerOf(before)
		delete(l.owners[key], name)
		if len(l.owners[key]) == 0 {
			delete(l.owners, key)
		}
	}
	if n.seen == nil || n.seen.lock.Name == "" {
		return
	}
	key := ownerOf(n.seen)
	if l.owners[key] == nil {
		l.owners[key] = map[string]bool{}
	}
	l.owners[key][name] = true
}

func ownerOf(s *sighting) types.NamespacedName {
	return types.NamespacedName{Namespace: s.lock.Namespace, Name: s.lock.Name}
}

// tidy forgets a node without lock and queue.
func (l *Locks) tidy(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[name]; n != nil && n.idle() {
		l.drop(name, n)
	}
}

// drop keeps nothing of the node any more. The caller holds the mutex.
func (l *Locks) drop(name string, n *node) {
	if n.timer != nil {
		n.timer.Stop()
	}
	delete(l.nodes, name)
}

// forget ends all waiting for a node.
func (l *Locks) forget(name string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[name]
	if n == nil {
		return
	}
	for w := n.head(); w != nil; w = n.head() {
		n.remove(w, why)
	}
	l.observe(name, n, &current{}, l.cfg.Clock.Now())
	l.drop(name, n)
}
