package nodelock

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	timeout = time.Minute
	expiry  = 5 * time.Minute
)

// world is an API server with nodes and pods, informers that follow when they
// are made to, and the locks of a scheduler called "ours".
type world struct {
	*testing.T
	*Locks
	clock *clocktesting.FakeClock

	// What the informers show.
	nodeStore, podStore cache.Indexer

	mu sync.Mutex
	// What the API server has.
	nodes map[string]*corev1.Node
	pods  map[string]*corev1.Pod
	// late keeps node changes from the informer.
	late bool
	// answers are given to the next writes in place of the API server's own;
	// lost ones are carried out all the same.
	answers []answer
	// values has every lock that was written, "" for none.
	values []string
	// reads counts pods that were asked for.
	reads int
	// binding has the pods that this process is binding.
	binding map[types.UID]string
	stale   error
	version int
}

type answer struct {
	err  error
	lost bool
}

// inBubble runs a test in a bubble, where goroutines can be waited for.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, clock: clocktesting.NewFakeClock(noon), nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}, binding: map[types.UID]string{}, version: 100,
		nodeStore: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		podStore:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	client := fake.NewClientset()
	client.PrependReactor("patch", "nodes", w.onPatch)
	client.PrependReactor("get", "pods", w.onGet)
	w.Locks = New(Config{
		Clock: w.clock, Client: client, Expiry: expiry,
		Nodes: corelisters.NewNodeLister(w.nodeStore), Pods: corelisters.NewPodLister(w.podStore),
		MayWrite: func() error { w.mu.Lock(); defer w.mu.Unlock(); return w.stale },
		Ours:     func(name string) bool { return name == "ours" },
		Binding: func(uid types.UID, node string) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.binding[uid] == node
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Locks.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) onPatch(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, ok := action.(clienttesting.PatchAction)
	if !ok {
		return true, nil, errors.New("no patch")
	}
	var body struct {
		Metadata struct {
			ResourceVersion string             `json:"resourceVersion"`
			UID             types.UID          `json:"uid"`
			Annotations     map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
		return true, nil, err
	}
	w.mu.Lock()
	var next answer
	if len(w.answers) > 0 {
		next, w.answers = w.answers[0], w.answers[1:]
	}
	node := w.nodes[patch.GetName()]
	switch {
	case next.err != nil && !next.lost:
		w.mu.Unlock()
		return true, nil, next.err
	case node == nil:
		w.mu.Unlock()
		return true, nil, apierrors.NewNotFound(corev1.Resource("nodes"), patch.GetName())
	case body.Metadata.ResourceVersion != node.ResourceVersion || body.Metadata.UID != node.UID:
		w.mu.Unlock()
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), node.Name, errors.New("modified"))
	}
	value := body.Metadata.Annotations[wire.AnnotationLock]
	w.mu.Unlock()
	after := w.setNode(node.Name, func(n *corev1.Node) {
		delete(n.Annotations, wire.AnnotationLock)
		if value != nil {
			n.Annotations[wire.AnnotationLock] = *value
		}
	})
	w.mu.Lock()
	w.values = append(w.values, after.Annotations[wire.AnnotationLock])
	w.mu.Unlock()
	return true, after, next.err
}

func (w *world) onGet(action clienttesting.Action) (bool, runtime.Object, error) {
	get, ok := action.(clienttesting.GetAction)
	if !ok {
		return true, nil, errors.New("no get")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if pod := w.pods[get.GetNamespace()+"/"+get.GetName()]; pod != nil {
		return true, pod, nil
	}
	return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), get.GetName())
}

// asked returns how often the API server was asked for a pod.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// setNode changes a node, which is made if it is not there, and updates the
// informer unless that is late.
func (w *world) setNode(name string, change func(*corev1.Node)) *corev1.Node {
	w.mu.Lock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{wire.AnnotationNodeCards: "[]"}}}
	if before := w.nodes[name]; before != nil {
		node = before.DeepCopy()
	}
	change(node)
	w.version++
	node.ResourceVersion = strconv.Itoa(w.version)
	w.nodes[name] = node
	late := w.late
	w.mu.Unlock()
	if !late {
		w.show(name)
	}
	return node
}

// show lets the informer come to the node's latest version.
func (w *world) show(name string) {
	w.mu.Lock()
	node := w.nodes[name]
	w.mu.Unlock()
	if err := w.nodeStore.Update(node); err != nil {
		w.Error(err)
	}
	w.Check(name)
}

// addNode makes a node, with a lock if one is given.
func (w *world) addNode(name, lock string) {
	w.setNode(name, func(n *corev1.Node) {
		if lock != "" {
			n.Annotations[wire.AnnotationLock] = lock
		}
	})
}

// unlock is what the plugin does.
func (w *world) unlock(name string) {
	w.setNode(name, func(n *corev1.Node) { delete(n.Annotations, wire.AnnotationLock) })
}

// lock returns the node's lock at the API server.
func (w *world) lock(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name].Annotations[wire.AnnotationLock]
}

// setPod makes or changes a pod of the scheduler called "ours".
func (w *world) setPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	w.mu.Lock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{SchedulerName: "ours"}}
	if before := w.pods["ns/"+name]; before != nil {
		pod = before.DeepCopy()
	}
	if change != nil {
		change(pod)
	}
	w.pods["ns/"+name] = pod
	w.mu.Unlock()
	if err := w.podStore.Update(pod); err != nil {
		w.Error(err)
	}
	w.PodChanged(pod)
	return pod
}

func (w *world) deletePod(name string) {
	w.mu.Lock()
	pod := w.pods["ns/"+name]
	delete(w.pods, "ns/"+name)
	w.mu.Unlock()
	if err := w.podStore.Delete(pod); err != nil {
		w.Error(err)
	}
	w.PodGone(pod)
}

// acquire makes a pod and has it wait; the channel has the outcome.
func (w *world) acquire(node, podName string) <-chan error {
	w.Helper()
	return w.acquireWith(w.Context(), node, w.setPod(podName, nil))
}

func (w *world) acquireWith(ctx context.Context, node string, pod *corev1.Pod) <-chan error {
	w.mu.Lock()
	w.binding[pod.UID] = node
	w.mu.Unlock()
	got := make(chan error, 1)
	go func() { got <- w.Acquire(ctx, node, pod, timeout) }()
	synctest.Wait() // it waits for its turn, or is through already
	return got
}

// release is what Unreserve does.
func (w *world) release(node, podName string) {
	w.mu.Lock()
	delete(w.binding, types.UID("uid-"+podName))
	w.mu.Unlock()
	w.Check(node)
}

// waiting returns how many pods wait for the node.
func (w *world) waiting(name string) int {
	w.Locks.mu.Lock()
	defer w.Locks.mu.Unlock()
	if n := w.Locks.nodes[name]; n != nil {
		return len(n.waiters)
	}
	return 0
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	for range 5000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.Fatalf("not %s; the locks that were written: %q", what, w.written())
}

func (w *world) written() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.values...)
}

// granted waits for a pod's turn.
func (w *world) granted(got <-chan error) {
	w.Helper()
	select {
	case err := <-got:
		if err != nil {
			w.Fatalf("Acquire() = %v, want the lock", err)
		}
	case <-time.After(5 * time.Second):
		w.Fatal("not granted")
	}
}

// failed waits until a pod gives up, and returns why.
func (w *world) failed(got <-chan error) string {
	w.Helper()
	select {
	case err := <-got:
		if err == nil {
			w.Fatal("Acquire() = nil, want an error")
		}
		return err.Error()
	case <-time.After(5 * time.Second):
		w.Fatal("it does not give up")
		return ""
	}
}

// stillWaits checks that the pod has no answer.
func (w *world) stillWaits(got <-chan error) {
	w.Helper()
	synctest.Wait()
	if len(got) > 0 {
		w.Fatalf("Acquire() = %v, want that it waits", <-got)
	}
}

// forgotten waits until nothing is kept of any node.
func (w *world) forgotten() {
	w.Helper()
	w.eventually("forgotten", func() bool {
		w.Locks.mu.Lock()
		defer w.Locks.mu.Unlock()
		return len(w.Locks.nodes) == 0
	})
}
