package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// namespace is where the pods of the test live.
const namespace = metav1.NamespaceDefault

// pods is every pod that the test has created: what the API server said of it,
// and what we have done with it since.
type pods struct {
	world *world

	mu sync.Mutex
	// known are the pods whose creation was acknowledged, by name. One that we
	// have asked to be deleted is marked so.
	known map[string]*known
	// latest is what a watch shows.
	latest map[string]*corev1.Pod
	probes int
}

// known is a pod that the API server has acknowledged.
type known struct {
	uid     types.UID
	deleted bool
	probe   bool
}

func newPods(w *world) *pods {
	return &pods{world: w, known: map[string]*known{}, latest: map[string]*corev1.Pod{}}
}

// watch follows all pods until the world ends.
func (p *pods) watch() {
	machine.WatchPods(p.world.Ctx, p.world.Client, namespace, fields.Everything(), func(pod *corev1.Pod) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.latest[pod.Name] = pod
	}, func(pod *corev1.Pod) {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.latest, pod.Name)
	})
}

// seen returns the pod as the watch shows it, nil if it does not.
func (p *pods) seen(name string) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest[name]
}

// acknowledged reports whether the API server has confirmed the pod.
func (p *pods) acknowledged(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[name] == nil {
		return errNone
	}
	return nil
}

// count returns how many pods were ever created.
func (p *pods) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.known)
}

// live returns the names of the pods that we have not deleted, probes left out,
// in the order of their names.
func (p *pods) live() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name, k := range p.known {
		if !k.deleted && !k.probe {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// create creates the pod, and retries until the API server has confirmed it,
// as its creator would.
func (p *pods) create(ctx context.Context, pod *corev1.Pod) error {
	client := p.world.quick.CoreV1().Pods(namespace)
	for {
		got, err := client.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // an earlier try went through
			got, err = client.Get(ctx, pod.Name, metav1.GetOptions{})
		}
		if err == nil {
			p.acknowledge(got)
			return nil
		}
		if !isAway(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
		if !machine.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
	}
}

// acknowledge notes that the API server has the pod.
func (p *pods) acknowledge(pod *corev1.Pod) {
	_, probe := pod.Spec.NodeSelector[corev1.LabelHostname]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.Name] = &known{uid: pod.UID, probe: probe}
}

// remove asks the API server to delete the pod, and again until it has heard
// it. Forced means that kubelet is not waited for.
func (p *pods) remove(ctx context.Context, name string, forced bool) {
	p.mu.Lock()
	k := p.known[name]
	if k != nil {
		k.deleted = true
	}
	p.mu.Unlock()
	if k == nil {
		return
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(k.uid))}
	if forced {
		options.GracePeriodSeconds = new(int64(0))
	}
	for {
		err := p.world.quick.CoreV1().Pods(namespace).Delete(ctx, name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		if !machine.Sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// replaceFailed deletes the pods that kubelet has failed for good, as what
// owns them would.
func (p *pods) replaceFailed(ctx context.Context) {
	for _, name := range p.live() {
		if pod := p.seen(name); pod != nil && pod.Status.Phase == corev1.PodFailed {
			p.remove(ctx, name, true)
		}
	}
}

// newProbe returns a pod that has a machine of its own.
func (p *pods) newProbe() *corev1.Pod {
	p.mu.Lock()
	p.probes++
	pod := newPod(fmt.Sprintf("probe-%05d", p.probes), sliceOf(1, 1))
	p.mu.Unlock()
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: probeServer}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: probeTaint, Operator: corev1.TolerationOpExists}}
	return pod
}

// newPod returns a pod with containers of these limits.
func newPod(name string, containers ...string) *corev1.Pod {
	b := gputest.MakePod(name)
	for _, limits := range containers {
		b.App(limits)
	}
	return harness.Runnable(b, 5)
}

// sliceOf are the limits of a slice; memory is in GiB.
func sliceOf(core, memory int) string {
	return fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %d", core, memory)
}

// order is the number of a pod and what it asks for. It is a function of the
// seed and the number.
func order(seed uint64, number int) *corev1.Pod {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	one := func(list ...int) int { return list[r.IntN(len(list))] }
	name := fmt.Sprintf("pod-%06d", number)
	core, memory := one(5, 10, 10, 20, 25, 30, 50), one(1, 2, 4, 8, 16, 16, 24)
	var pod *corev1.Pod
	switch n := r.IntN(100); {
	case n < 40:
		pod = newPod(name, sliceOf(core, memory))
	case n < 48:
		pod = newPod(name, sliceOf(core, memory), sliceOf(one(5, 10), one(1, 2)))
	case n < 56:
		pod = newPod(name, fmt.Sprintf("gpu: %d", one(1, 1, 2, 2, 4)))
	case n < 60:
		pod = newPod(name, fmt.Sprintf("sgpu: 1, vmemory: %d", memory))
	case n < 92:
		pod = newPod(name, fmt.Sprintf("gpu.shared: 1, gpu-core: %d, gpu-memory: %dGi, sgpu: 1", core, memory))
	default:
		n := one(1, 1, 2)
		pod = newPod(name, fmt.Sprintf("gpu-core: %d, gpu-memory-ratio: %d, sgpu: %d", 100*n, 100*n, n))
	}
	if r.IntN(5) == 0 {
		pod.Annotations = map[string]string{wire.AnnotationQoS: []string{"fixed-share", "burst-share"}[r.IntN(2)]}
	}
	return pod
}

var errNone = errors.New("there is no such pod")

// pick returns one of the live pods that is as wanted.
func (p *pods) pick(r *rand.Rand, wanted func(*corev1.Pod) bool) (string, error) {
	var names []string
	for _, name := range p.live() {
		if pod := p.seen(name); pod != nil && wanted(pod) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", errNone
	}
	return names[r.IntN(len(names))], nil
}
