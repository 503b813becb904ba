package skew

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const (
	// residents are the pods that run from before the first upgrade to the end.
	residents = 200
	// settlers are those of them that came before Daybreak, besides.
	settlers = machineCount - 1
	// guests is how many others run at a time; the oldest goes when one arrives.
	guests   = 12
	arrivals = 250 * time.Millisecond
	// visits is how many come at least between two checks.
	visits = 5
	// runLimit is how long a pod may wait: for an agent that is replaced, and for
	// the next leader of the schedulers.
	runLimit = 90 * time.Second
)

// load is the pods of users.
type load struct {
	world *world

	mu sync.Mutex
	// seen is what a watch shows.
	seen map[string]*corev1.Pod
	// kept are the residents as they were when all of them ran.
	kept map[string]*corev1.Pod
	// came are the guests in the order of their arrival, each with its time.
	came []guest
	// count is how many came, and checked how many had at the last check.
	count, checked int
	// retried is how often a pod had to be created again.
	retried int
	// open is held while pods come and go.
	open sync.Mutex
}

type guest struct {
	name string
	at   time.Time
}

func newLoad(w *world) *load {
	return &load{world: w, seen: map[string]*corev1.Pod{}, kept: map[string]*corev1.Pod{}}
}

// watch follows the pods until the world ends. Nothing that runs may fail.
func (l *load) watch() {
	machine.WatchPods(l.world.Ctx, l.world.Client, metav1.NamespaceDefault, fields.Everything(), func(pod *corev1.Pod) {
		l.mu.Lock()
		before := l.seen[pod.Name]
		l.seen[pod.Name] = pod
		l.mu.Unlock()
		if pod.Status.Phase == corev1.PodFailed && (before == nil || before.Status.Phase != corev1.PodFailed) {
			l.world.Fault("pod %s failed on %s: %s %s", pod.Name, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
		}
	}, func(pod *corev1.Pod) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.seen, pod.Name)
	})
}

// order returns the pod of a number: both dialects, slices and whole cards.
func order(name string, number int) *corev1.Pod {
	b := gputest.MakePod(name)
	switch number % 30 {
	case 0:
		b.App("gpu: 1")
	case 1:
		b.App("sgpu: 1, gpu-core: 100, gpu-memory-ratio: 100")
	case 2:
		b.App("sgpu: 1, vcore: 5, vmemory: 3").App("sgpu: 1, vcore: 5, vmemory: 2")
	case 3:
		b.App("sgpu: 1, vmemory: 3")
	case 4:
		b.App("sgpu: 1, vcore: 5, vmemory: 3").Annotate(wire.AnnotationQoS, "fixed-share")
	case 5:
		spec := &b.App("sgpu: 1, vcore: 5, vmemory: 3").Obj().Spec
		spec.NodeSelector = map[string]string{corev1.LabelHostname: vendorNode}
		spec.Tolerations = []corev1.Toleration{{Key: vendorTaint, Operator: corev1.TolerationOpExists}}
	case 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17:
		b.App("sgpu: 1, gpu.shared: 1, gpu-core: 5, gpu-memory: 3Gi")
	default:
		b.App("sgpu: 1, vcore: 5, vmemory: 3")
	}
	return harness.Runnable(b, 5)
}

// create creates a pod, which no version may reject. As its owner would, it tries
// again when the API server's connection to a manager ended with the manager, but not
// for long: another manager answers.
func (l *load) create(ctx context.Context, pod *corev1.Pod) error {
	for deadline := time.Now().Add(2 * time.Second); ; {
		_, err := l.world.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsInternalError(err) || time.Now().After(deadline) || !machine.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
		l.retried++
	}
}

// settlers creates a pod on each machine but the last that the vendor's plugin served
// before Daybreak came: the cards of such pods stand on the Device.
func (l *load) settlers() error {
	for _, m := range l.world.Machines[:settlers] {
		cards, _, err := fake.Read(m.Driver())
		if err != nil {
			return err
		}
		pod := order("settler-"+m.Node, 0)
		pod.Spec.NodeName = m.Node
		m.Grant(pod.Name, cards.Cards[cardCount-1].UUID)
		if err := l.create(l.world.Ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

// settle creates the residents and waits until they run.
func (l *load) settle() error {
	ctx := l.world.Ctx
	for i := range residents {
		if err := l.create(ctx, order(fmt.Sprintf("resident-%03d", i), i)); err != nil {
			return err
		}
	}
	err := machine.Until(l.world.Ctx, 2*time.Minute, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.seen) < residents+settlers {
			return fmt.Errorf("%d of %d pods are there", len(l.seen), residents+settlers)
		}
		for name, pod := range l.seen {
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s does not run: %s", name, describe(pod))
			}
		}
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.kept, l.seen)
	for _, m := range l.world.Machines {
		var failed error
		_, l.world.slices[m.Node], failed = fake.Read(m.Driver())
		err = errors.Join(err, failed)
	}
	return err
}

// residentOn returns one of the residents of a node, empty if it has none.
func (l *load) residentOn(node string) types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range l.kept {
		if pod.Spec.NodeName == node && !strings.HasPrefix(pod.Name, "settler-") {
			return pod.UID
		}
	}
	return ""
}

// come lets guests come and go until the world ends.
func (l *load) come() {
	for machine.Sleep(l.world.Ctx, arrivals) {
		l.open.Lock()
		l.arrive()
		l.open.Unlock()
	}
}

func (l *load) arrive() {
	ctx := l.world.Ctx
	name := fmt.Sprintf("guest-%05d", l.count)
	if err := l.create(ctx, order(name, l.count)); err != nil {
		if ctx.Err() == nil {
			l.world.Fault("%v", err)
		}
		return
	}
	l.count++
	l.came = append(l.came, guest{name, time.Now()})
	if len(l.came) <= guests {
		return
	}
	// It leaves when it has run. One that has not waits for its turn.
	oldest := l.came[0]
	if state := l.stateOf(oldest.name); state != corev1.PodRunning {
		if time.Since(oldest.at) > runLimit {
			l.world.Fault("pod %s does not run after %s: %s", oldest.name, runLimit, state)
			l.came = l.came[1:]
		}
		return
	}
	l.came = l.came[1:]
	if err := l.world.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, oldest.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		l.world.Fault("delete pod %s: %v", oldest.name, err)
	}
}

func (l *load) stateOf(name string) corev1.PodPhase {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pod := l.seen[name]; pod != nil {
		return pod.Status.Phase
	}
	return ""
}

// visited waits until as many have come as should between two checks.
func (l *load) visited() error {
	l.open.Lock()
	want := l.checked + visits
	l.open.Unlock()
	return machine.Until(l.world.Ctx, runLimit, func() error {
		l.open.Lock()
		defer l.open.Unlock()
		if l.count < want {
			return fmt.Errorf("%d pods came, %d should", l.count, want)
		}
		return nil
	})
}

// quiet waits until every new pod runs and every deleted one is gone. None
// comes or goes until the returned function is called.
func (l *load) quiet() (reopen func(), err error) {
	l.open.Lock()
	l.checked = l.count
	want := map[string]bool{}
	for _, g := range l.came {
		want[g.name] = true
	}
	err = machine.Until(l.world.Ctx, runLimit, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for name := range want {
			if pod := l.seen[name]; pod == nil || pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s does not run: %s", name, describe(pod))
			}
		}
		for name := range l.seen {
			if _, resident := l.kept[name]; !resident && !want[name] {
				return fmt.Errorf("pod %s was deleted and is still there", name)
			}
		}
		return nil
	})
	return l.open.Unlock, err
}

// describe returns how far a pod has come, with what the scheduler said of it.
func describe(pod *corev1.Pod) string {
	if pod == nil {
		return "it is not there"
	}
	text := fmt.Sprintf("%s on %q", pod.Status.Phase, pod.Spec.NodeName)
	at := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue
	})
	if at >= 0 {
		text += ", " + pod.Status.Conditions[at].Message
	}
	return text
}

// untouched returns what became of residents that do not run as they did.
func (l *load) untouched() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for name, was := range l.kept {
		now := l.seen[name]
		switch {
		case now == nil || now.UID != was.UID:
			list = append(list, fmt.Sprintf("pod %s is gone", name))
		case now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning:
			list = append(list, fmt.Sprintf("pod %s does not run: %s", name, describe(now)))
		case !reflect.DeepEqual(now.Status.ContainerStatuses, was.Status.ContainerStatuses):
			list = append(list, fmt.Sprintf("pod %s: its containers were %+v and are %+v", name, was.Status.ContainerStatuses, now.Status.ContainerStatuses))
		case !reflect.DeepEqual(now.Annotations, was.Annotations):
			list = append(list, fmt.Sprintf("pod %s: its annotations were %v and are %v", name, was.Annotations, now.Annotations))
		}
	}
	return list
}
