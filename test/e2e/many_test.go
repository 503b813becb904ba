package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestFiftyAtOnce: fifty pods that are created at once each get exactly the
// cards of their annotation, without a lock and without a warning.
func TestFiftyAtOnce(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	random := rand.New(rand.NewPCG(7, 50))
	var pods []*corev1.Pod
	var names []string
	add := func(p *corev1.Pod) { pods, names = append(pods, p), append(names, p.Name) }
	for i := range 2 {
		add(pod(fmt.Sprintf("whole-%d", i), "gpu=1"))
	}
	for i := range 4 {
		p := pod(fmt.Sprintf("pair-%d", i), "sgpu=1", "vcore=15", "vmemory=4")
		p.Spec.Containers = append(p.Spec.Containers, container("second", "sgpu=1", "vcore=10", "vmemory=2"), container("third"))
		add(p)
	}
	for i := range 44 {
		p := pod(fmt.Sprintf("slice-%d", i), "sgpu=1", fmt.Sprintf("vcore=%d", 2+random.IntN(5)), fmt.Sprintf("vmemory=%dMi", 256*(1+random.IntN(16))))
		p.Annotations[wire.AnnotationQoS] = []string{"best-effort", "fixed-share", "burst-share"}[i%3]
		add(p)
	}
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	locks := w.watchLock()
	before := w.metrics()
	start := time.Now()
	w.create(pods...)
	running := w.running(4*time.Minute, names...)
	t.Logf("%d pods run after %s", len(running), time.Since(start).Round(10*time.Millisecond))
	w.inspect(c, running...)
	w.slicesAre(c, 0, running...)
	w.noWarnings(names...)
	if seen := locks(); len(seen) > 0 {
		t.Errorf("the node was locked: %q", seen)
	}
	if n := w.logPreStarts(before); n != 2+4*2+44 {
		t.Errorf("%d containers with cards were started", n)
	}
}
