package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// BenchmarkDecision is kube-scheduler with and without Daybreak, and with a quota of
// the pods' namespace, in one process and without an API server: what is left is
// what deciding costs. It counts CPU
// time, which other users of the machine change little.
//
//	go test -run '^$' -bench Decision -benchtime 1900x ./internal/scheduler
func BenchmarkDecision(b *testing.B) {
	kinds := map[string][]podOption{
		"slice": {requesting(corev1.ResourceCPU, "100m"), requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "10"), requesting(wire.ResourceVMemory, "4Gi")},
		"card":  {requesting(corev1.ResourceCPU, "100m"), requesting(wire.ResourceGPU, "1")},
		"none":  {requesting(corev1.ResourceCPU, "100m")},
	}
	for _, nodes := range []int{500, 5000, 50000} {
		for _, kind := range []string{"slice", "card", "none"} {
			for _, full := range []int{0, 95} {
				if full > 0 && (kind != "card" || nodes != 5000) {
					continue // too few cards would be left
				}
				for _, side := range []string{"plain", "daybreak", "quota"} {
					b.Run(fmt.Sprintf("nodes=%d/pods=%s/full=%d/%s", nodes, kind, full, side), func(b *testing.B) {
						newBenched(b, side, nodes, full).run(b, kinds[kind])
					})
				}
			}
		}
	}
}

// plainBenchConfig is kube-scheduler as it comes, but for what no node counts.
const plainBenchConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: daybreak
  pluginConfig:
  - name: NodeResourcesFit
    args: {ignoredResources: [metax-tech.com/vcore, metax-tech.com/vmemory]}
`

// benched is a scheduler whose binds go nowhere.
type benched struct {
	*kubescheduler.Scheduler
	shared    *State
	informers informers.SharedInformerFactory
	client    *fake.Clientset
	binds     atomic.Int64
	// bound is called with every Binding, unless it is nil.
	bound func(*corev1.Binding)
	// recorder records the events.
	recorder events.EventRecorderLogger
}

// WithLogger returns the recorder.
func (s *benched) WithLogger(klog.Logger) events.EventRecorderLogger { return s }

// Eventf records an event.
func (s *benched) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	s.recorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

// newUnfilled returns kube-scheduler, plain or with Daybreak, without nodes.
func newUnfilled(b testing.TB, side string) *benched {
	b.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
	b.Cleanup(stop)
	client := fake.NewClientset()
	out := &benched{client: client, recorder: &events.FakeRecorder{}}
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		out.binds.Add(1)
		if create, ok := action.(clienttesting.CreateAction); ok && out.bound != nil {
			if binding, ok := create.GetObject().(*corev1.Binding); ok {
				out.bound(binding)
			}
		}
		return true, nil, nil
	})
	factory := kubescheduler.NewInformerFactory(client, 0)
	out.informers = factory
	dynamicFactory := dynamicinformer.NewDynamicSharedInformerFactory(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), map[schema.GroupVersionResource]string{deviceResource: "DeviceList"}), 0)
	shared := NewState(clock.RealClock{})
	shared.devices.store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	shared.term.open(0)
	out.shared = shared
	var cfg *config.KubeSchedulerConfiguration
	registry := frameworkruntime.Registry{}
	if side == "plain" {
		cfg = loadBench(b, plainBenchConfig)
	} else {
		text, err := defaultConfig(configOptions{profiles: []string{DefaultProfile}})
		if err != nil {
			b.Fatal(err)
		}
		cfg = loadBench(b, string(text))
		registry = shared.standIns()
		registry[Name] = shared.Factory()
	}
	var err error
	out.Scheduler, err = kubescheduler.New(ctx, client, factory, dynamicFactory,
		func(string) events.EventRecorderLogger { return out },
		kubescheduler.WithProfiles(cfg.Profiles...), kubescheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		b.Fatal(err)
	}
	if side != "plain" {
		shared.wrapProfiles(out.Scheduler)
	}
	if side == "quota" {
		rq := makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100000000", quota.LimitVMemory: "100000000"})
		if err := factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(rq); err != nil {
			b.Fatal(err)
		}
	}
	go out.SchedulingQueue.Run(klog.FromContext(ctx))
	return out
}

// addNode adds a node with its Device, if it has one.
func (s *benched) addNode(b testing.TB, node *corev1.Node, device *v1alpha1.Device) {
	b.Helper()
	if device != nil {
		if err := s.shared.devices.store.Add(trimmed(b, device)); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.informers.Core().V1().Nodes().Informer().GetIndexer().Add(node); err != nil {
		b.Fatal(err)
	}
	s.Cache.AddNode(klog.Background(), node)
}

func newBenched(b testing.TB, side string, nodes, full int) *benched {
	b.Helper()
	out := newUnfilled(b, side)
	for i := range nodes {
		node := offering(map[corev1.ResourceName]string{
			corev1.ResourceCPU: "128", corev1.ResourceMemory: "1Ti", corev1.ResourcePods: "256",
			wire.ResourceGPU: "8", wire.ResourceSGPU: "128",
		})
		node.Name = fmt.Sprintf("n%d", i)
		node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}
		out.addNode(b, node, makeDevice(node.Name, 8))
		if i*100 < nodes*full {
			for k := range 8 {
				pod := makePod(fmt.Sprintf("q-%d-%d", i, k), requesting(wire.ResourceGPU, "1"), holds(k), boundTo(node.Name))
				if err := out.Cache.AddPod(klog.Background(), pod); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return out
}

func loadBench(b testing.TB, text string) *config.KubeSchedulerConfiguration {
	b.Helper()
	path := filepath.Join(b.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	cfg, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	return cfg
}

// learned is how many pods of a kind have come before: enough that what is expected
// of the next ones changes as seldom as in a cluster that has run for long.
const learned = 5000

func (s *benched) run(b *testing.B, kind []podOption) {
	b.Helper()
	ctx := klog.NewContext(b.Context(), klog.Logger{})
	for i := range learned {
		if err := s.informers.Core().V1().Pods().Informer().GetIndexer().Add(makePod(fmt.Sprintf("q%d", i), kind...)); err != nil {
			b.Fatal(err)
		}
	}
	const warm = 20
	for i := range b.N + warm {
		pod := makePod(fmt.Sprintf("p%d", i), kind...)
		s.SchedulingQueue.Add(ctx, pod)
	}
	for range warm {
		s.ScheduleOne(ctx)
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := usedCPU(b)
	for range b.N {
		s.ScheduleOne(ctx)
	}
	for s.binds.Load() < int64(b.N+warm) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64((usedCPU(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// usedCPU returns the CPU time that this process has used.
func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHint is what it costs to ask one of a thousand pending pods whether the
// end of another helps.
func BenchmarkHint(b *testing.B) {
	r := newRig(b)
	r.setDevice(b, makeDevice("n1", 8))
	pods := []*corev1.Pod{}
	for i := range 8 {
		pods = append(pods, makePod(fmt.Sprintf("q%d", i), whole(1), holds(i)))
	}
	r.shared.nodes.of(nodeInfo(makeNode("n1"), pods...), false)
	r.addNode(b, makeNode("n1"))
	pending := make([]*corev1.Pod, 1000)
	for i := range pending {
		pending[i] = makePod(fmt.Sprintf("p%d", i), whole(8))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if hint, err := r.afterPodDelete(klog.Background(), pending[i%len(pending)], pods[0], nil); err != nil || hint != fwk.QueueSkip {
			b.Fatal(hint, err)
		}
	}
}

// BenchmarkFirstDecision is the first decision with 100 000 bound pods: all their
// annotations are read, and what they ask for is learned. Run it once:
//
//	go test -run '^$' -bench FirstDecision -benchtime 1x ./internal/scheduler
func BenchmarkFirstDecision(b *testing.B) {
	const nodes, perNode = 5000, 20
	for _, side := range []string{"plain", "daybreak"} {
		b.Run(side, func(b *testing.B) {
			ctx := klog.NewContext(b.Context(), klog.Logger{})
			s := newBenched(b, side, nodes, 0)
			for i := range nodes * perNode {
				pod := makePod(fmt.Sprintf("q%d", i), slice(10, 4), holds(i%8), boundTo(fmt.Sprintf("n%d", i%nodes)))
				if err := s.Cache.AddPod(klog.FromContext(ctx), pod); err != nil {
					b.Fatal(err)
				}
				if err := s.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
					b.Fatal(err)
				}
			}
			s.SchedulingQueue.Add(ctx, makePod("p", requesting(corev1.ResourceCPU, "100m"), requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "10"), requesting(wire.ResourceVMemory, "4Gi")))
			heap := usedHeap()
			b.ResetTimer()
			before := usedCPU(b)
			s.ScheduleOne(ctx)
			for s.binds.Load() < 1 {
				time.Sleep(time.Millisecond)
			}
			b.ReportMetric((usedCPU(b) - before).Seconds(), "cpu-s")
			b.ReportMetric(float64(usedHeap()-heap)/(1<<20), "more-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// usedHeap returns the bytes that are reachable.
func usedHeap() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
