package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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
						newBenched(b, side, nodes, full).run(b, func(int) []podOption { return kinds[kind] }, nil)
					})
				}
			}
		}
	}
}

// BenchmarkPressure is the same where pods are of many kinds, where others would
// rather not have them near, and where Devices change all the time.
//
//	go test -run '^$' -bench Pressure -benchtime 1900x ./internal/scheduler
func BenchmarkPressure(b *testing.B) {
	asking := func(cpu, memory string) []podOption {
		return []podOption{requesting(corev1.ResourceCPU, cpu), requesting(wire.ResourceSGPU, "1"), requesting(wire.ResourceVCore, "10"), requesting(wire.ResourceVMemory, memory)}
	}
	const nodes = 5000
	for _, tt := range []struct {
		name string
		kind func(i int) []podOption
		// running is how many pods are on each node that would rather be without
		// others of their app, and apps how many apps there are.
		running, apps int
		// before is called before each decision.
		before func(s *benched, i int)
	}{
		{name: "none"},
		{name: "preferred-anti-affinity", running: 20, apps: 1},
		{name: "preferred-anti-affinity-of-5000-apps", running: 20, apps: 5000},
		{name: "cpu-sizes=129", kind: func(i int) []podOption { return asking(fmt.Sprintf("%dm", 100+i%129), "4Gi") }},
		{name: "cpu-sizes=500", kind: func(i int) []podOption { return asking(fmt.Sprintf("%dm", 100+i%500), "4Gi") }},
		{name: "memory-sizes=129", kind: func(i int) []podOption { return asking("100m", fmt.Sprintf("%dMi", 4096+128*(i%129))) }},
		{name: "memory-sizes=500", kind: func(i int) []podOption { return asking("100m", fmt.Sprintf("%dMi", 128+128*(i%500))) }},
		{name: "device-rewritten", before: func(s *benched, i int) {
			d := makeDevice(fmt.Sprintf("n%d", i%nodes), 8)
			d.ResourceVersion = strconv.Itoa(i + 2)
			storeDevice(b, s.shared, d)
		}},
	} {
		if tt.kind == nil {
			tt.kind = func(int) []podOption { return asking("100m", "4Gi") }
		}
		for _, side := range []string{"plain", "daybreak"} {
			b.Run(fmt.Sprintf("nodes=%d/%s/%s", nodes, tt.name, side), func(b *testing.B) {
				s := newBenched(b, side, nodes, 0)
				for i := range nodes * tt.running {
					app := fmt.Sprintf("app-%d", i%tt.apps)
					s.runs(b, makePod(fmt.Sprintf("r%d", i), slice(1, 1), holds(i%8), withoutApp(app), ofApp(app), boundTo(fmt.Sprintf("n%d", i%nodes))))
				}
				s.run(b, tt.kind, func(i int) {
					if tt.before != nil {
						tt.before(s, i)
					}
				})
			})
		}
	}
}

// withoutApp would rather be where no pod of the app is.
func withoutApp(app string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		}}}}
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
	leads(shared.term)
	shared.term.open()
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
		gputest.Must(b, factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(rq))
	}
	go out.SchedulingQueue.Run(klog.FromContext(ctx))
	return out
}

// addNode adds a node with its Device, if it has one.
func (s *benched) addNode(b testing.TB, node *corev1.Node, device *v1alpha1.Device) {
	b.Helper()
	if device != nil {
		storeDevice(b, s.shared, device)
	}
	gputest.Must(b, s.informers.Core().V1().Nodes().Informer().GetIndexer().Add(node))
	s.Cache.AddNode(klog.Background(), node)
}

// runs puts a bound pod on its node.
func (s *benched) runs(b testing.TB, pod *corev1.Pod) {
	b.Helper()
	gputest.Must(b, s.Cache.AddPod(klog.Background(), pod))
}

// settle puts a bound pod on its node and into the informer.
func (s *benched) settle(b testing.TB, pod *corev1.Pod) {
	b.Helper()
	s.runs(b, pod)
	gputest.Must(b, s.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
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
				out.runs(b, makePod(fmt.Sprintf("q-%d-%d", i, k), requesting(wire.ResourceGPU, "1"), holds(k), boundTo(node.Name)))
			}
		}
	}
	return out
}

func loadBench(b testing.TB, text string) *config.KubeSchedulerConfiguration {
	b.Helper()
	path := filepath.Join(b.TempDir(), "config.yaml")
	gputest.Must(b, os.WriteFile(path, []byte(text), 0o600))
	cfg, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	return cfg
}

// run decides where b.N pods go. The i-th is of the i-th kind, and before, if it is
// not nil, is called before each decision.
func (s *benched) run(b *testing.B, kind func(i int) []podOption, before func(i int)) {
	b.Helper()
	ctx := klog.NewContext(b.Context(), klog.Logger{})
	known := s.informers.Core().V1().Pods().Informer().GetIndexer()
	gputest.Must(b, s.informers.Core().V1().Namespaces().Informer().GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}))
	const warm = 20
	pods := make([]*corev1.Pod, b.N+warm)
	for i := range pods {
		pods[i] = makePod(fmt.Sprintf("p%d", i), kind(i)...)
		s.SchedulingQueue.Add(ctx, pods[i])
	}
	next := func(i int) {
		if err := known.Add(pods[i]); err != nil {
			b.Fatal(err)
		}
		s.ScheduleOne(ctx)
	}
	for i := range warm {
		next(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	began := usedCPU(b)
	for i := range b.N {
		if before != nil {
			before(i)
		}
		next(warm + i)
	}
	for s.binds.Load() < int64(b.N+warm) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64((usedCPU(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
}

// usedCPU returns the CPU time that this process has used.
func usedCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	gputest.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
