package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// TestOneWrite counts, at the API server, what the scheduler writes for pods
// that it schedules.
func TestOneWrite(t *testing.T) {
	t.Parallel()
	policy := writeYAML(t, "audit.yaml", map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []any{
			map[string]any{"level": "None", "resources": []any{map[string]any{"group": "coordination.k8s.io"}}}, // the election
			map[string]any{"level": "Metadata", "users": []string{local.SchedulerUser}, "verbs": []string{"create", "update", "patch", "delete"}},
			map[string]any{"level": "None"},
		},
	})
	w := newOwnWorld(t, harness.Audited(t.TempDir(), policy))
	w.AddNodes(4)
	w.Scheduler("scheduler")
	// What is pending when the scheduler starts is touched once; this test is
	// about what comes after.
	w.Create(pod("first", "sgpu=1", "vcore=10", "vmemory=4"))
	w.Bound("first")
	const slices, ordinary = 40, 20
	for i := range slices {
		w.Create(pod(fmt.Sprintf("slice-%d", i), "sgpu=1", "vcore=10", "vmemory=4"))
	}
	for i := range ordinary {
		w.Create(pod(fmt.Sprintf("ordinary-%d", i)))
	}
	for _, p := range w.AllBound(time.Minute) {
		ours := 0
		for key := range p.Annotations {
			if strings.Contains(key, "metax-tech.com/") || strings.Contains(key, "hami.io/") {
				ours++
			}
		}
		if asks := wire.Asks(&p); asks != (ours > 0) {
			t.Errorf("pod %s asks for cards: %v, but has %d annotations of ours", p.Name, asks, ours)
		}
	}
	w.Audit()

	writes := map[string]int{}
	w.Eventually("audit log", time.Minute, func() error {
		clear(writes)
		for _, e := range w.auditLog() {
			if strings.HasPrefix(e.ObjectRef.Name, "first") {
				continue
			}
			what := e.Verb + " " + e.ObjectRef.Resource
			if e.ObjectRef.Subresource != "" {
				what += "/" + e.ObjectRef.Subresource
			}
			writes[what]++
		}
		if n := writes["create pods/binding"]; n < slices+ordinary {
			return fmt.Errorf("%d bindings so far", n)
		}
		return nil
	})
	t.Logf("writes of the scheduler for %d pods: %v", slices+ordinary, writes)
	for what, n := range writes {
		switch {
		case what == "create events" && n <= slices+ordinary+1: // as kube-scheduler always does, and one about the election
		case what == "create pods/binding" && n == slices+ordinary:
		default:
			t.Errorf("%d x %s for %d pods: want one binding a pod and no other write", n, what, slices+ordinary)
		}
	}
}

type auditEvent struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource, Name string }
}

func (w *world) auditLog() []auditEvent {
	w.Helper()
	f, err := os.Open(w.AuditLog())
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []auditEvent
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			out = append(out, e)
		}
	}
	return out
}

// priorities creates the classes "low" and "high".
func (w *world) priorities() {
	w.Helper()
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		_, err := w.Client.SchedulingV1().PriorityClasses().Create(w.Ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		w.Must(err)
	}
}

func withPriority(p *corev1.Pod, class string) *corev1.Pod {
	p.Spec.PriorityClassName = class
	return p
}

func annotated(p *corev1.Pod, key, value string) *corev1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
	return p
}

// twoCards is a server with two cards.
func (w *world) twoCards() {
	w.Helper()
	w.Must(w.Simulator.AddNode(w.Ctx, "metax-1", &discover.Profile{Model: "C500", MemoryMiB: 65536, Cards: 2, Mode: "sgpu", Driver: "3.8.30"}))
}

// olderSlice is a pod that takes most of a card.
func olderSlice() *corev1.Pod {
	return withPriority(pod("older", "sgpu=1", "vcore=90", "vmemory=4"), "low")
}

// occupy fills card 0 with one older slice and card 1 with three younger ones.
func (w *world) occupy(older *corev1.Pod) {
	w.Helper()
	w.Create(older)
	w.Bound(older.Name)
	time.Sleep(1100 * time.Millisecond) // start times have whole seconds
	for i := range 3 {
		name := fmt.Sprintf("younger-%d", i)
		w.Create(withPriority(pod(name, "sgpu=1", "vcore=30", "vmemory=4"), "low"))
		w.Bound(name)
	}
}

func (w *world) names() []string {
	w.Helper()
	list, err := w.Client.CoreV1().Pods("default").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	slices.Sort(out)
	return out
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoCards()
	w.priorities()
	w.Scheduler("scheduler")

	// Card 0 holds one older slice, card 1 three younger ones. kube-scheduler
	// by itself spares the older pod and evicts three.
	w.occupy(olderSlice())
	w.Create(withPriority(pod("whole", "gpu=1"), "high"))
	if cards := w.CardsOf(w.Bound("whole")); !slices.Equal(cards, []int{0}) {
		t.Errorf("the preemptor got card %v, want 0", cards)
	}
	gputest.Equal(t, "left after preemption", []string{"whole", "younger-0", "younger-1", "younger-2"}, w.names())
	w.Eventually("event", time.Minute, func() error {
		const want = "0/1 nodes are available: 1 has no idle card; preemption: evicting 1 pod of lower priority from metax-1."
		if said := w.Refusals("whole"); !slices.Contains(said, want) {
			return fmt.Errorf("events so far: %q", said)
		}
		return nil
	})
	w.Audit()
	w.Delete(w.names()...)
	w.Eventually("all gone", time.Minute, func() error {
		if n := w.names(); len(n) > 0 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})

	// The same, but a budget protects the older one: then the three go.
	older := olderSlice()
	older.Labels = map[string]string{"app": "protected"}
	_, err := w.Client.PolicyV1().PodDisruptionBudgets("default").Create(w.Ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "protected"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: older.Labels}},
	}, metav1.CreateOptions{})
	w.Must(err)
	w.occupy(older)
	w.Eventually("the budget counts the pod", time.Minute, func() error {
		budget, err := w.Client.PolicyV1().PodDisruptionBudgets("default").Get(w.Ctx, "protected", metav1.GetOptions{})
		if err == nil && budget.Status.ExpectedPods != 1 {
			err = fmt.Errorf("status %+v", budget.Status)
		}
		return err
	})
	w.Create(withPriority(pod("whole", "gpu=1"), "high"))
	w.Bound("whole")
	gputest.Equal(t, "left after preemption with a budget", []string{"older", "whole"}, w.names())
	w.Audit()
}

// TestPreemptorIsNotStarved: while slices keep arriving, a pod that made room
// for itself gets it.
func TestPreemptorIsNotStarved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoCards()
	w.priorities()
	w.Scheduler("scheduler")
	w.occupy(olderSlice())
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { stopped <- n }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				p := withPriority(pod(fmt.Sprintf("stream-%d", n), "sgpu=1", "vcore=5", "vmemory=1"), "low")
				if _, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{}); err == nil {
					n++
				}
			}
		}
	}()
	time.Sleep(500 * time.Millisecond)
	w.Create(withPriority(pod("whole", "gpu=1"), "high"))
	start := time.Now()
	w.Bound("whole")
	took := time.Since(start)
	close(stop)
	t.Logf("the preemptor was bound after %s while %d slices arrived", took.Round(time.Millisecond), <-stopped)
	w.Audit()
}

// TestTwoPreemptors: the second of two preemptors leaves the room of the first
// alone and evicts no more pods than it needs.
func TestTwoPreemptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Simulator.AddNode(w.Ctx, "metax-1", &discover.Profile{Model: "C500", MemoryMiB: 65536, Cards: 3, Mode: "sgpu", Driver: "3.8.30"}))
	w.priorities()
	w.Scheduler("scheduler")
	for _, name := range []string{"large-0", "large-1"} {
		w.Create(withPriority(pod(name, "sgpu=1", "vcore=90", "vmemory=4"), "low"))
		w.Bound(name)
	}
	for _, name := range []string{"small-0", "small-1", "small-2"} {
		w.Create(withPriority(pod(name, "sgpu=1", "vcore=30", "vmemory=4"), "low"))
		w.Bound(name)
	}
	w.Create(withPriority(pod("whole-0", "gpu=1"), "high"))
	w.Create(withPriority(pod("whole-1", "gpu=1"), "high"))
	w.Bound("whole-0")
	w.Bound("whole-1")
	gputest.Equal(t, "left after preemption", []string{"small-0", "small-1", "small-2", "whole-0", "whole-1"}, w.names())
	w.Audit()
}

// TestStaleNomination: a nomination that preemption can't fulfil is cleared.
func TestStaleNomination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.twoCards()
	w.Create(pod("pending", "gpu=3"))
	p := w.Pod("pending")
	p.Status.NominatedNodeName = "metax-1"
	_, err := w.Client.CoreV1().Pods("default").UpdateStatus(w.Ctx, p, metav1.UpdateOptions{})
	w.Must(err)
	w.Scheduler("scheduler")
	w.Eventually("the nomination is cleared", time.Minute, func() error {
		p, err := w.Client.CoreV1().Pods("default").Get(w.Ctx, "pending", metav1.GetOptions{})
		if err == nil && p.Status.NominatedNodeName != "" {
			err = fmt.Errorf("status %+v", p.Status)
		}
		return err
	})
}

// TestReasons: a pending pod's event and condition are one sentence with the
// reasons of all nodes, and a pod's end wakes the pods that it makes room for.
func TestReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(12)
	w.Scheduler("scheduler")
	// Nine nodes have 4 GiB left on every card, three run another QoS class.
	for n := range 12 {
		memory, qos := "60", "best-effort"
		if n >= 9 {
			memory, qos = "4", "fixed-share"
		}
		for c := range 8 {
			p := annotated(pod(fmt.Sprintf("filler-%d-%d", n, c), "sgpu=1", "vcore=10", "vmemory="+memory), wire.AnnotationQoS, qos)
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("metax-%d", n+1)}
			w.Create(annotated(p, wire.AnnotationCardPolicy, "mutex"))
		}
	}
	w.AllBound(time.Minute)
	w.saysWhy(pod("pending", "sgpu=1", "vcore=10", "vmemory=12"),
		"0/12 nodes are available: 9 need 8 GiB more card memory (best has 4 GiB free), 3 run another QoS class.")
	w.saysWhy(pod("busy", "sgpu=1", "vcore=95", "vmemory=4"),
		"0/12 nodes are available: 9 need 5% more card compute (best has 90% free), 3 run another QoS class.")
	elsewhere := annotated(pod("elsewhere", "sgpu=1", "vcore=10", "vmemory=4"), wire.AnnotationQoS, "fixed-share")
	elsewhere.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "metax-1"}
	w.saysWhy(elsewhere, "0/12 nodes are available: 1 runs another QoS class, 11 do not match the pod's nodeSelector.")
	w.saysWhy(annotated(pod("mistyped", "sgpu=1", "vcore=10", "vmemory=4"), wire.AnnotationUseCards, "GPU-mistyped"),
		"0/12 nodes are available: no card in the cluster has the UUID GPU-mistyped of use-gpuuuid.")
	w.Delete("busy", "elsewhere", "mistyped")

	// A card that becomes free wakes it, if it helps.
	w.Delete("filler-3-5")
	if got := w.Bound("pending"); got.Spec.NodeName != "metax-4" || len(w.CardsOf(got)) != 1 {
		t.Errorf("the pod got cards %v of %s, want the one that became free on metax-4", w.CardsOf(got), got.Spec.NodeName)
	}
	w.Audit()
}

// saysWhy creates the pod and waits until its events and its condition say why it
// is pending, in the same words.
func (w *world) saysWhy(p *corev1.Pod, want string) {
	w.Helper()
	w.Create(p)
	w.Eventually("the reason of "+p.Name, time.Minute, func() error {
		got := w.Pod(p.Name)
		said := w.Refusals(p.Name)
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Message == want && slices.Contains(said, want) {
				return nil
			}
		}
		return fmt.Errorf("events so far: %q, conditions %+v", said, got.Status.Conditions)
	})
}

// TestOlderServers: API servers as of earlier minor versions. The policies hold on all,
// and the API server finds nothing wrong with them.
func TestOlderServers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.33", "1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newOwnWorld(t, local.Config{APIServerArgs: []string{"--emulated-version=" + version}})
			w.policiesCompile()
			w.AddNodes(2)
			w.Scheduler("scheduler")
			if v, err := w.Client.Discovery().ServerVersion(); err != nil || v.EmulationMajor+"."+v.EmulationMinor != version {
				t.Fatalf("the server says it is %v (%v), want %s", v, err, version)
			}
			w.Create(pod("slice", "sgpu=1", "vcore=60", "vmemory=4"))
			w.Bound("slice")
			w.Audit()
		})
	}
}

// TestDeviceGone: while a node's Device is missing nothing new goes there, and
// what is there stays booked.
func TestDeviceGone(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents())
	w.twoCards()
	w.Scheduler("scheduler")
	w.Create(pod("before", "gpu=1"))
	w.Bound("before")
	w.Kubectl("delete", "device", "metax-1")
	const want = "0/1 nodes are available: 1 has no MetaX cards."
	// The scheduler has heard of it when one that fits nowhere has its event.
	huge := 0
	w.Eventually("the scheduler knows", time.Minute, func() error {
		huge++
		name := fmt.Sprintf("huge-%d", huge)
		w.Create(pod(name, "gpu=3"))
		w.Refused(name, "")
		if said := w.Refusals(name); !strings.Contains(strings.Join(said, "\n"), want) {
			return fmt.Errorf("events of %s: %q", name, said)
		}
		return nil
	})
	w.Create(pod("after", "gpu=1"))
	w.Refused("after", want)
	w.twoCards() // the Device comes back, and with it the pod is woken
	if cards := w.CardsOf(w.Bound("after")); !slices.Equal(cards, []int{1}) {
		t.Errorf("got card %v, want 1: card 0 is the other pod's", cards)
	}
	w.Audit()
}
