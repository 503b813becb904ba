package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
)

// plugin starts the stand-in for the vendor's plugin on n nodes, vendor-1 and so
// on. When the test ends it must have seen nothing that should not happen, and
// no lock may be left.
func (w *world) plugin(n int, delay func() time.Duration) *vendorplugin.Plugin {
	w.Helper()
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.Must(err)
	v, err := vendorplugin.Start(context.WithoutCancel(w.Ctx), w.RESTAs("simulator"), w.Simulator, delay)
	w.Must(err)
	w.Cleanup(v.Stop)
	w.Must(v.AddNodes(w.Ctx, "vendor", n, kinds))
	return v
}

func constant(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// random takes from nothing to the given time.
func random(most time.Duration) func() time.Duration {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(8, 8))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(source.Int64N(int64(most)))
	}
}

// slicePod is a small slice on the given node.
func slicePod(name, node string) *corev1.Pod {
	p := pod(name, "sgpu=1", "vcore=10", "vmemory=4")
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return p
}

// locks returns the nodes that are locked, with their locks.
func (w *world) locks() map[string]string {
	w.Helper()
	list, err := w.Client.CoreV1().Nodes().List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	out := map[string]string{}
	for i := range list.Items {
		if lock, ok := list.Items[i].Annotations[wire.AnnotationLock]; ok {
			out[list.Items[i].Name] = lock
		}
	}
	return out
}

// lockNames waits until the node's lock names the pod.
func (w *world) lockNames(node, podName string) {
	w.Helper()
	w.Eventually("lock of "+podName, time.Minute, func() error {
		if lock := w.locks()[node]; !strings.HasSuffix(lock, ","+podName) {
			return fmt.Errorf("it is %q", lock)
		}
		return nil
	})
}

// noLocks waits until no node is locked.
func (w *world) noLocks(limit time.Duration) {
	w.Helper()
	w.Eventually("no lock left", limit, func() error {
		if left := w.locks(); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// setLock writes a lock as someone else would.
func (w *world) setLock(node, value string) {
	w.Helper()
	w.Kubectl("annotate", "--overwrite", "node", node, wire.AnnotationLock+"="+value)
}

// running waits until the pods run.
func (w *world) running(patience time.Duration, names ...string) {
	w.Helper()
	w.Eventually("pods run", patience, func() error {
		byName := map[string]corev1.Pod{}
		for _, p := range w.Pods() {
			byName[p.Name] = p
		}
		var not []string
		for _, name := range names {
			p := byName[name]
			if p.Status.Phase != corev1.PodRunning {
				not = append(not, fmt.Sprintf("%s on %q is %s %s", name, p.Spec.NodeName, p.Status.Phase, p.Status.Message))
			}
		}
		if len(not) > 0 {
			return fmt.Errorf("%d of %d do not: %s", len(not), len(names), not[0])
		}
		return nil
	})
}

// quiet checks what must hold once all pods have come to rest: every pod runs
// with the cards that the plugin gave it, nothing was given twice, and no lock
// is left.
func (w *world) quiet(v *vendorplugin.Plugin) {
	w.Helper()
	w.noLocks(20 * time.Second)
	for _, fault := range v.Faults() {
		w.Errorf("the plugin found: %s", fault)
	}
	served := map[types.UID]vendorplugin.Served{}
	for _, s := range v.Served() {
		if before, twice := served[s.UID]; twice {
			w.Errorf("%s was served twice: %+v, %+v", s.Pod, before, s)
		}
		served[s.UID] = s
	}
	for _, p := range w.Pods() {
		if p.Status.Phase != corev1.PodRunning || !strings.HasPrefix(p.Spec.NodeName, "vendor-") || !wire.HasSlices(&p) {
			continue
		}
		if s, ok := served[p.UID]; !ok || s.Node != p.Spec.NodeName || s.Allocated != p.Annotations[wire.AnnotationAllocated] {
			w.Errorf("pod %s runs with %s, the plugin served %+v", p.Name, p.Annotations[wire.AnnotationAllocated], s)
		}
	}
	w.Audit()
}

// noRefusals checks that no pod was turned away, by the scheduler or by the
// plugin. Pods that were deleted are not looked at.
func (w *world) noRefusals(v *vendorplugin.Plugin) {
	w.Helper()
	for _, r := range v.Refused() {
		w.Errorf("the plugin refused %s", r)
	}
	list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
	w.Must(err)
	there := map[types.UID]bool{}
	for _, p := range w.Pods() {
		there[p.UID] = true
	}
	for i := range list.Items {
		if e := &list.Items[i]; there[e.InvolvedObject.UID] {
			w.Errorf("pod %s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}

// lockScheduler starts a scheduler whose pods give up on a lock, and whose locks
// expire, after the given seconds.
func (w *world) lockScheduler(wait, expiry int) {
	w.Helper()
	config := w.schedulerConfig(map[string]any{"lockWaitSeconds": wait, "lockExpirySeconds": expiry})
	w.Run(w.NewScheduler("scheduler", "--config="+config, "-v=4"))
}

// schedulerConfig writes a configuration file of a scheduler and returns its path.
func (w *world) schedulerConfig(args map[string]any) string {
	w.Helper()
	ours := []any{map[string]any{"name": "Daybreak"}}
	cfg := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": w.Kubeconfig("scheduler"), "qps": 1000, "burst": 2000},
		"profiles": []any{map[string]any{
			"schedulerName": "default-scheduler",
			"plugins": map[string]any{
				"multiPoint": map[string]any{"enabled": ours, "disabled": []any{map[string]any{"name": "DefaultPreemption"}}},
				"filter":     map[string]any{"enabled": ours}, "postFilter": map[string]any{"enabled": ours}, "bind": map[string]any{"enabled": ours},
				"score": map[string]any{"disabled": []any{
					map[string]any{"name": "NodeResourcesFit"}, map[string]any{"name": "NodeResourcesBalancedAllocation"}, map[string]any{"name": "ImageLocality"},
				}},
			},
			"pluginConfig": []any{
				map[string]any{"name": "Daybreak", "args": args},
				map[string]any{"name": "NodeResourcesFit", "args": map[string]any{
					"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs",
					"ignoredResources": []string{string(wire.ResourceVCore), string(wire.ResourceVMemory)},
				}},
			},
		}},
	}
	return writeYAML(w.TB, "scheduler.yaml", cfg)
}

// counter returns how many pods of a prefix are bound, from an informer: asking
// the API server again and again would slow down what is being measured.
func (w *world) counter() func(prefix string) int {
	w.Helper()
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	lister := factory.Core().V1().Pods().Lister()
	factory.Start(w.Ctx.Done())
	factory.WaitForCacheSync(w.Ctx.Done())
	return func(prefix string) int {
		pods, err := lister.List(labels.Everything())
		w.Must(err)
		n := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" && strings.HasPrefix(p.Name, prefix) {
				n++
			}
		}
		return n
	}
}

// TestLockTurns: 100 slices on five nodes whose plugin takes 20 ms for each. The
// same again where Daybreak's agent serves shows what scheduling alone takes.
func TestLockTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const nodes, perNode, delay = 5, 20, 20 * time.Millisecond
	v := w.plugin(nodes, constant(delay))
	w.AddNodes(nodes)
	w.Scheduler("scheduler")
	w.Create(slicePod("first", "vendor-1"))
	w.running(time.Minute, "first")
	count := w.counter()
	round := func(prefix string) (bound, ran time.Duration) {
		var pods []*corev1.Pod
		var names []string
		for i := range nodes * perNode {
			p := slicePod(fmt.Sprintf("%s-%d", prefix, i), fmt.Sprintf("%s-%d", prefix, i%nodes+1))
			pods, names = append(pods, p), append(names, p.Name)
		}
		start := time.Now()
		var group sync.WaitGroup
		for k := range 4 {
			group.Go(func() {
				for i := k; i < len(pods); i += 4 {
					if _, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, pods[i], metav1.CreateOptions{}); err != nil {
						w.Error(err)
					}
				}
			})
		}
		group.Wait()
		for deadline := start.Add(time.Minute); count(prefix) < len(pods); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d pods are bound after a minute", count(prefix), len(pods))
			}
		}
		bound = time.Since(start)
		w.running(2*time.Minute, names...)
		return bound, time.Since(start)
	}
	plain, _ := round("metax")
	bound, ran := round("vendor")
	least := plain + perNode*delay
	t.Logf("%d slices: plain %s; under locks %s, run %s; plain + %d x %s = %s, of which this is %.2f", nodes*perNode,
		plain.Round(time.Millisecond), bound.Round(time.Millisecond), ran.Round(time.Millisecond), perNode, delay,
		least.Round(time.Millisecond), float64(bound)/float64(least))
	w.noRefusals(v)
	w.quiet(v)
	if n := len(v.Served()); n != nodes*perNode+1 {
		t.Errorf("%d pods were served, want %d", n, nodes*perNode+1)
	}
}

// TestLockOwnerDeleted: pods are deleted while their Binding is in flight, and
// while the plugin serves them.
func TestLockOwnerDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(1, random(500*time.Millisecond))
	p := w.newProxy()
	release := make(chan struct{})
	var held atomic.Int64
	hold := func() {
		if held.Add(1) == 1 {
			<-release
		}
	}
	p.delay.Store(&hold)
	w.Scheduler("scheduler", "--kubeconfig="+p.kubeconfig(t))
	w.Create(slicePod("in-flight", "vendor-1"))
	w.lockNames("vendor-1", "in-flight")
	w.Create(slicePod("next", "vendor-1"))
	w.Delete("in-flight")
	start := time.Now()
	close(release)
	w.running(time.Minute, "next")
	t.Logf("after its owner was deleted in mid-Binding, the lock's next pod ran within %s", time.Since(start).Round(time.Millisecond))

	// Again and again, at moments of chance.
	source := rand.New(rand.NewPCG(1, 8))
	var stay []string
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		w.Create(slicePod(name, "vendor-1"))
		if i%2 == 0 {
			stay = append(stay, name)
			continue
		}
		time.Sleep(time.Duration(source.IntN(300)) * time.Millisecond)
		w.Delete(name)
	}
	w.running(time.Minute, stay...)
	w.noRefusals(v)
	w.quiet(v)
}

// TestLockPluginDead: the plugin hangs, for less and for more than a lock lives,
// and dies between serving and unlocking.
func TestLockPluginDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(1, constant(20*time.Millisecond))
	const wait, expiry = 2, 14
	w.lockScheduler(wait, expiry)

	// For less: who waits gives up with a sentence, and gets its turn later.
	v.Die()
	w.Create(slicePod("a", "vendor-1"))
	w.lockNames("vendor-1", "a")
	w.Create(slicePod("b", "vendor-1"))
	w.Refused("b", "node vendor-1: waited 2s for hami.io/mutex.lock")
	t.Logf("event: %s", w.Refusals("b")[0])
	v.Return()
	start := time.Now()
	w.running(time.Minute, "a", "b")
	t.Logf("after the plugin returned both ran within %s", time.Since(start).Round(time.Millisecond))

	// It serves c and dies before it takes the lock off: c runs, so d need not
	// wait for the lock to expire, but only for the plugin's grace.
	v.DieInsteadOfUnlocking(0)
	w.Create(slicePod("c", "vendor-1"))
	w.running(time.Minute, "c")
	v.Return()
	start = time.Now()
	w.Create(slicePod("d", "vendor-1"))
	w.running(time.Minute, "d")
	t.Logf("a lock left behind was taken over after %s", time.Since(start).Round(time.Millisecond))
	if len(v.Refused()) > 0 {
		t.Errorf("refused so far: %q", v.Refused())
	}

	// For more: the lock expires and the next pod gets it. When the plugin is
	// back, the first one is refused, rather than served with the other's cards.
	v.Die()
	w.Create(slicePod("e", "vendor-1"))
	w.lockNames("vendor-1", "e")
	w.Bound("e")
	start = time.Now()
	w.Create(slicePod("f", "vendor-1"))
	w.Bound("f")
	t.Logf("an abandoned lock was taken over after %s", time.Since(start).Round(time.Millisecond))
	if took := time.Since(start); took < (expiry-3)*time.Second {
		t.Errorf("it was taken over after %s, before it expired", took)
	}
	v.Return()
	w.running(time.Minute, "f")
	if got := v.Refused(); len(got) != 1 || got[0] != "default/e on vendor-1: the node's lock names default/f" {
		t.Errorf("refused: %q, want e alone", got)
	}
	w.quiet(v)
}

// TestLockSchedulerKilled: the scheduler is killed while it holds locks.
func TestLockSchedulerKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(2, random(100*time.Millisecond))
	p := w.newProxy()
	forever := func() { <-w.Ctx.Done() }
	p.delay.Store(&forever)
	s := w.Scheduler("scheduler", "--kubeconfig="+p.kubeconfig(t))
	w.Create(slicePod("stays", "vendor-1"), slicePod("goes", "vendor-2"))
	w.lockNames("vendor-1", "stays")
	w.lockNames("vendor-2", "goes")
	s.Kill()
	w.Delete("goes")
	if got := len(w.locks()); got != 2 {
		t.Fatalf("locks: %v, want both still there", w.locks())
	}
	p.delay.Store(nil)
	start := time.Now()
	w.Must(s.Start())
	w.running(time.Minute, "stays")
	w.noLocks(time.Minute)
	t.Logf("a new process had both nodes free %s after it was started", time.Since(start).Round(time.Millisecond))

	source := rand.New(rand.NewPCG(2, 8))
	var names []string
	for i := range 40 {
		name := fmt.Sprintf("p%d", i)
		w.Create(slicePod(name, fmt.Sprintf("vendor-%d", i%2+1)))
		names = append(names, name)
		if i%8 == 7 {
			time.Sleep(time.Duration(source.IntN(1500)) * time.Millisecond)
			s.Kill()
			w.Must(s.Start())
		}
	}
	w.running(2*time.Minute, names...)
	w.noRefusals(v)
	w.quiet(v)
}

// TestLockTwoLeaders: the leader is paused with locks and Bindings in flight,
// another one takes over, the old one goes on.
func TestLockTwoLeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(4, random(50*time.Millisecond))
	p := w.newProxy()
	var bindings, patches atomic.Int64
	release := make(chan struct{})
	old := w.Scheduler("old", "--kubeconfig="+p.kubeconfig(t))
	w.Create(slicePod("first", "vendor-4"))
	w.running(time.Minute, "first")
	// Two nodes' locks are written and their Bindings held back; then the
	// writes of other nodes' locks are held back too.
	holdBinding := func() { bindings.Add(1); <-release }
	p.delay.Store(&holdBinding)
	names := []string{"first", "a1", "a2"}
	w.Create(slicePod("a1", "vendor-1"), slicePod("a2", "vendor-2"))
	w.AtLeast("Bindings in flight", 2, &bindings)
	holdPatch := func() { patches.Add(1); <-release }
	p.delayLock.Store(&holdPatch)
	for i := range 12 {
		name := fmt.Sprintf("b%d", i)
		names = append(names, name)
		w.Create(slicePod(name, fmt.Sprintf("vendor-%d", i%4+1)))
	}
	w.AtLeast("locks in flight", 2, &patches)
	w.Must(old.Signal(syscall.SIGSTOP))
	start := time.Now()
	w.Scheduler("new")
	w.Eventually("the new leader's first pod", time.Minute, func() error {
		for _, p := range w.Pods() {
			if p.Name != "first" && p.Spec.NodeName != "" {
				return nil
			}
		}
		return errors.New("none yet")
	})
	t.Logf("the new leader bound its first pod %s after the old one was paused", time.Since(start).Round(time.Millisecond))
	p.delay.Store(nil)
	p.delayLock.Store(nil)
	close(release)
	w.Must(old.Signal(syscall.SIGCONT))
	w.running(time.Minute, names...)
	<-old.Exited() // it lost its lease
	t.Logf("%d Bindings and %d locks of the old leader arrived late", bindings.Load(), patches.Load())
	for _, r := range v.Refused() {
		t.Errorf("the plugin refused %s", r)
	}
	w.quiet(v)
}
