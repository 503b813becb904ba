//go:build !race

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// largestPod is how large the API server lets a pod be.
const largestPod = 1400 << 10

// hostile are the ways in which a pod grows as large as it can be.
var hostile = map[string]growth{
	"one long argument": {"cpu: 1", func(p *corev1.Pod, _ int) {
		p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, strings.Repeat("x", 1<<16))
	}},
	"many variables": {"cpu: 1", func(p *corev1.Pod, i int) {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint("E", i)})
	}},
	"many labels":            {"cpu: 1", func(p *corev1.Pod, i int) { p.Labels[fmt.Sprint("label", i)] = "" }},
	"many labels, and a GPU": {"gpu: 1", func(p *corev1.Pod, i int) { p.Labels[fmt.Sprint("label", i)] = "" }},
	"many containers": {"cpu: 1", func(p *corev1.Pod, i int) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "a", TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways})
	}},
	"many tolerations, and a GPU": {"gpu: 1", func(p *corev1.Pod, i int) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("k", i), Operator: corev1.TolerationOpExists})
	}},
	"long terms, and a GPU": {"gpu: 1", func(p *corev1.Pod, i int) {
		required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		required.NodeSelectorTerms[0].MatchExpressions = append(required.NodeSelectorTerms[0].MatchExpressions, corev1.NodeSelectorRequirement{Key: fmt.Sprint("k", i), Operator: corev1.NodeSelectorOpExists})
	}},
	"many node labels, and a GPU": {"gpu: 1", func(p *corev1.Pod, i int) { p.Spec.NodeSelector[fmt.Sprint("k", i)] = "" }},
}

// growth is what a pod asks for, and what it has more of.
type growth struct {
	resources string
	grow      func(p *corev1.Pod, i int)
}

// pod grows a pod until it has the largest size, and returns its JSON.
func (g *growth) pod() string {
	p := gputest.MakePod("NAME").App(g.resources).On("n1").Phase(corev1.PodRunning).Obj()
	p.Labels, p.Spec.NodeSelector = map[string]string{}, map[string]string{}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 1)}}}
	for i := 0; ; i++ {
		g.grow(p, i)
		if i&(i-1) == 0 && i > 0 { // measuring takes long
			size := p.Size()
			for more := i * (largestPod - size) / size; size < largestPod && more > 0 && size > largestPod/8; more-- {
				i++
				g.grow(p, i)
			}
			if size > largestPod/8 {
				text, _ := json.Marshal(p) // no error: it is a pod
				return string(text)
			}
		}
	}
}

// hostileServer serves a node's pods, as a stream of events or only as a list, and
// measures after each pod how much memory is in use.
type hostileServer struct {
	stream bool
	pod    string // its JSON
	pods   int
	mu     sync.Mutex
	most   uint64
	lists  int // how often it was asked for one
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (h *hostileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	list := q.Get("watch") == ""
	if list {
		h.mu.Lock()
		h.lists++
		h.mu.Unlock()
	}
	switch {
	case !list && q.Get("sendInitialEvents") == "":
		<-r.Context().Done()
		return
	case !list && !h.stream:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"sendInitialEvents is forbidden","code":422}`)
		return
	case list:
		_, _ = fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
	}
	for i := range h.pods {
		pod := strings.ReplaceAll(h.pod, "NAME", fmt.Sprint("p", i))
		switch {
		case list && i > 0:
			_, _ = fmt.Fprint(w, ",", pod)
		case list:
			_, _ = fmt.Fprint(w, pod)
		default:
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",%s}`, pod[1:])
		}
		_ = http.NewResponseController(w).Flush()
		if i%10 == 9 {
			now := inUse()
			h.mu.Lock()
			h.most = max(h.most, now)
			h.mu.Unlock()
		}
	}
	if list {
		_, _ = fmt.Fprint(w, `]}`)
		return
	}
	_, _ = fmt.Fprint(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// readPods has an agent read pods, and returns how much memory that takes while it reads
// and afterwards, in MiB.
func readPods(t testing.TB, pod string, pods int, stream bool) (reading, afterwards uint64) {
	t.Helper()
	before := inUse()
	h := &hostileServer{stream: stream, pod: pod, pods: pods}
	server := httptest.NewServer(h)
	clients, err := NewClients(&rest.Config{Host: server.URL})
	gputest.Must(t, err)
	w := newWatcher(&Config{Node: "n1"}, clients)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.pods.RunWithContext(ctx) }()
	defer func() { cancel(); <-done; server.Close() }()
	if !cache.WaitForCacheSync(ctx.Done(), w.pods.HasSynced) {
		t.Fatal("the pods are not known")
	}
	if n := len(w.pods.GetStore().ListKeys()); n != pods {
		t.Errorf("%d pods, want %d", n, pods)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if stream == (h.lists > 0) {
		t.Errorf("streamed %v, but asked for %d lists", stream, h.lists)
	}
	// The last pod is known while buffers of the connection still hold some.
	afterwards = inUse()
	for i := 0; i < 50 && (max(afterwards, before)-before)>>20 > kept; i++ {
		time.Sleep(20 * time.Millisecond)
		afterwards = min(afterwards, inUse())
	}
	return (max(h.most, before) - before) >> 20, (max(afterwards, before) - before) >> 20
}

// kept is how much memory, in MiB, pods may take that were read, of which there are 22
// MiB in JSON alone. Buffers of the connection are as large as a few of them, the larger
// the slower the machine reads.
const kept = 12

// TestCost: whatever the pods of a node are like, reading all of them takes the
// agent a part of its memory, from API servers that stream lists and from others. The
// benchmark has more kinds of pods.
func TestCost(t *testing.T) {
	for _, name := range []string{"many containers", "many labels, and a GPU", "many tolerations, and a GPU"} {
		kind := hostile[name]
		pod := kind.pod()
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed: %v", name, stream), func(t *testing.T) {
				reading, afterwards := readPods(t, pod, 16, stream)
				t.Logf("%d MiB while reading, %d MiB afterwards", reading, afterwards)
				if reading > 64 || afterwards > kept {
					t.Errorf("%d MiB while reading, %d MiB afterwards; want at most 64 and %d", reading, afterwards, kept)
				}
			})
		}
	}
}

// BenchmarkCost measures a node full of the largest pods.
func BenchmarkCost(b *testing.B) {
	for name, kind := range hostile {
		pod := kind.pod()
		for _, stream := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s, streamed: %v", name, stream), func(b *testing.B) {
				for b.Loop() {
					reading, afterwards := readPods(b, pod, 110, stream)
					b.ReportMetric(float64(reading), "MiB-reading")
					b.ReportMetric(float64(afterwards), "MiB-afterwards")
				}
			})
		}
	}
}
