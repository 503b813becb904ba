package integration

import (
	"bufio"
	"encoding/json"
	"errors"
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
)

// TestOneWrite counts, at the API server, what the scheduler writes for pods
// that it schedules.
func TestOneWrite(t *testing.T) {
	policy := writeYAML(t, "audit.yaml", map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []any{
			map[string]any{"level": "Metadata", "users": []string{local.SchedulerUser}, "verbs": []string{"create", "update", "patch", "delete"}},
			map[string]any{"level": "None"},
		},
	})
	w := newWorld(t, local.Config{AuditPolicy: policy})
	w.nodes(4)
	w.scheduler("scheduler")
	// What is pending when the scheduler starts is touched once; this test is
	// about what comes after.
	w.create(pod("first", "sgpu=1", "vcore=10", "vmemory=4"))
	w.bound("first")
	const slices, ordinary = 40, 20
	for i := range slices {
		w.create(pod(fmt.Sprintf("slice-%d", i), "sgpu=1", "vcore=10", "vmemory=4"))
	}
	for i := range ordinary {
		w.create(pod(fmt.Sprintf("ordinary-%d", i)))
	}
	for _, p := range w.allBound(time.Minute) {
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
	w.audit()

	writes := map[string]int{}
	w.eventually("audit log", time.Minute, func() error {
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
		case what == "create events" && n <= slices+ordinary: // as kube-scheduler always does
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
	f, err := os.Open(w.cluster.AuditLog())
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
		_, err := w.client.SchedulingV1().PriorityClasses().Create(w.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		w.must(err)
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
	w.must(w.simulator.AddNode(w.ctx, "metax-1", &discover.Profile{Model: "C500", MemoryMiB: 65536, Cards: 2, Mode: "sgpu", Driver: "3.8.30"}, nil))
}

// olderSlice is a pod that takes most of a card.
func olderSlice() *corev1.Pod {
	return withPriority(pod("older", "sgpu=1", "vcore=90", "vmemory=4"), "low")
}

// occupy fills card 0 with one older slice and card 1 with three younger ones.
func (w *world) occupy(older *corev1.Pod) {
	w.Helper()
	w.create(older)
	w.bound(older.Name)
	time.Sleep(1100 * time.Millisecond) // start times have whole seconds
	for i := range 3 {
		name := fmt.Sprintf("younger-%d", i)
		w.create(withPriority(pod(name, "sgpu=1", "vcore=30", "vmemory=4"), "low"))
		w.bound(name)
	}
}

func (w *world) names() []string {
	w.Helper()
	list, err := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	slices.Sort(out)
	return out
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.twoCards()
	w.priorities()
	w.scheduler("scheduler")

	// Card 0 holds one older slice, card 1 three younger ones. kube-scheduler
	// by itself spares the older pod and evicts three.
	w.occupy(olderSlice())
	w.create(withPriority(pod("whole", "gpu=1"), "high"))
	if cards := w.cardsOf(w.bound("whole")); !slices.Equal(cards, []int{0}) {
		t.Errorf("the preemptor got card %v, want 0", cards)
	}
	if got, want := w.names(), []string{"whole", "younger-0", "younger-1", "younger-2"}; !slices.Equal(got, want) {
		t.Errorf("left after preemption: %v, want %v", got, want)
	}
	w.eventually("event", time.Minute, func() error {
		const want = "0/1 nodes are available: 1 has no idle card; preemption: evicting 1 pod of lower priority from metax-1."
		if said := w.refusals("whole"); !slices.Contains(said, want) {
			return fmt.Errorf("events so far: %q", said)
		}
		return nil
	})
	w.audit()
	w.delete(w.names()...)
	w.eventually("all gone", time.Minute, func() error {
		if n := w.names(); len(n) > 0 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})

	// The same, but a budget protects the older one: then the three go.
	older := olderSlice()
	older.Labels = map[string]string{"app": "protected"}
	_, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "protected"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: older.Labels}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.occupy(older)
	w.eventually("the budget counts the pod", time.Minute, func() error {
		budget, err := w.client.PolicyV1().PodDisruptionBudgets("default").Get(w.ctx, "protected", metav1.GetOptions{})
		if err == nil && budget.Status.ExpectedPods != 1 {
			err = fmt.Errorf("status %+v", budget.Status)
		}
		return err
	})
	w.create(withPriority(pod("whole", "gpu=1"), "high"))
	w.bound("whole")
	if got, want := w.names(), []string{"older", "whole"}; !slices.Equal(got, want) {
		t.Errorf("left after preemption with a budget: %v, want %v", got, want)
	}
	w.audit()
}

// TestPreemptorIsNotStarved: while slices keep arriving, a pod that made room
// for itself gets it.
func TestPreemptorIsNotStarved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.twoCards()
	w.priorities()
	w.scheduler("scheduler")
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
				if _, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{}); err == nil {
					n++
				}
			}
		}
	}()
	time.Sleep(500 * time.Millisecond)
	w.create(withPriority(pod("whole", "gpu=1"), "high"))
	start := time.Now()
	w.bound("whole")
	took := time.Since(start)
	close(stop)
	t.Logf("the preemptor was bound after %s while %d slices arrived", took.Round(time.Millisecond), <-stopped)
	w.audit()
}

// TestTwoPreemptors: the second of two preemptors leaves the room of the first
// alone and evicts no more pods than it needs.
func TestTwoPreemptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.must(w.simulator.AddNode(w.ctx, "metax-1", &discover.Profile{Model: "C500", MemoryMiB: 65536, Cards: 3, Mode: "sgpu", Driver: "3.8.30"}, nil))
	w.priorities()
	w.scheduler("scheduler")
	for _, name := range []string{"large-0", "large-1"} {
		w.create(withPriority(pod(name, "sgpu=1", "vcore=90", "vmemory=4"), "low"))
		w.bound(name)
	}
	for _, name := range []string{"small-0", "small-1", "small-2"} {
		w.create(withPriority(pod(name, "sgpu=1", "vcore=30", "vmemory=4"), "low"))
		w.bound(name)
	}
	w.create(withPriority(pod("whole-0", "gpu=1"), "high"))
	w.create(withPriority(pod("whole-1", "gpu=1"), "high"))
	w.bound("whole-0")
	w.bound("whole-1")
	if got, want := w.names(), []string{"small-0", "small-1", "small-2", "whole-0", "whole-1"}; !slices.Equal(got, want) {
		t.Errorf("left after preemption: %v, want %v", got, want)
	}
	w.audit()
}

// TestStaleNomination: a nomination that preemption can't fulfil is cleared.
func TestStaleNomination(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.twoCards()
	w.create(pod("pending", "gpu=3"))
	p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "pending", metav1.GetOptions{})
	w.must(err)
	p.Status.NominatedNodeName = "metax-1"
	_, err = w.client.CoreV1().Pods("default").UpdateStatus(w.ctx, p, metav1.UpdateOptions{})
	w.must(err)
	w.scheduler("scheduler")
	w.eventually("the nomination is cleared", time.Minute, func() error {
		p, err := w.client.CoreV1().Pods("default").Get(w.ctx, "pending", metav1.GetOptions{})
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
	w := newWorld(t, local.Config{})
	w.nodes(12)
	w.scheduler("scheduler")
	// Nine nodes have 4 GiB left on every card, three run another QoS class.
	for n := range 12 {
		memory, qos := "60", "best-effort"
		if n >= 9 {
			memory, qos = "4", "fixed-share"
		}
		for c := range 8 {
			p := annotated(pod(fmt.Sprintf("filler-%d-%d", n, c), "sgpu=1", "vcore=10", "vmemory="+memory), wire.AnnotationQoS, qos)
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("metax-%d", n+1)}
			w.create(annotated(p, wire.AnnotationCardPolicy, "mutex"))
		}
	}
	w.allBound(time.Minute)
	w.saysWhy(pod("pending", "sgpu=1", "vcore=10", "vmemory=12"),
		"0/12 nodes are available: 9 need 8 GiB more card memory (best has 4 GiB free), 3 run another QoS class.")
	w.saysWhy(pod("busy", "sgpu=1", "vcore=95", "vmemory=4"),
		"0/12 nodes are available: 9 need 5% more card compute (best has 90% free), 3 run another QoS class.")
	elsewhere := annotated(pod("elsewhere", "sgpu=1", "vcore=10", "vmemory=4"), wire.AnnotationQoS, "fixed-share")
	elsewhere.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "metax-1"}
	w.saysWhy(elsewhere, "0/12 nodes are available: 1 runs another QoS class, 11 do not match the pod's nodeSelector.")
	w.saysWhy(annotated(pod("mistyped", "sgpu=1", "vcore=10", "vmemory=4"), wire.AnnotationUseCards, "GPU-mistyped"),
		"0/12 nodes are available: no card in the cluster has the UUID GPU-mistyped of use-gpuuuid.")
	w.delete("busy", "elsewhere", "mistyped")

	// A card that becomes free wakes it, if it helps.
	w.delete("filler-3-5")
	if got := w.bound("pending"); got.Spec.NodeName != "metax-4" || len(w.cardsOf(got)) != 1 {
		t.Errorf("the pod got cards %v of %s, want the one that became free on metax-4", w.cardsOf(got), got.Spec.NodeName)
	}
	w.audit()
}

// saysWhy creates the pod and waits until its events and its condition say why it
// is pending, in the same words.
func (w *world) saysWhy(p *corev1.Pod, want string) {
	w.Helper()
	w.create(p)
	w.eventually("the reason of "+p.Name, time.Minute, func() error {
		got, err := w.client.CoreV1().Pods("default").Get(w.ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		said := w.refusals(p.Name)
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Message == want && slices.Contains(said, want) {
				return nil
			}
		}
		return fmt.Errorf("events so far: %q, conditions %+v", said, got.Status.Conditions)
	})
}

// TestOlderServers: API servers as of earlier minor versions.
func TestOlderServers(t *testing.T) {
	for _, version := range []string{"1.33", "1.34", "1.35"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, local.Config{EmulatedVersion: version})
			w.nodes(2)
			w.scheduler("scheduler")
			if v, err := w.client.Discovery().ServerVersion(); err != nil || v.EmulationMajor+"."+v.EmulationMinor != version {
				t.Fatalf("the server says it is %v (%v), want %s", v, err, version)
			}
			w.create(pod("slice", "sgpu=1", "vcore=60", "vmemory=4"))
			w.bound("slice")
			w.audit()
		})
	}
}

// TestDeviceGone: while a node's Device is missing nothing new goes there, and
// what is there stays booked.
func TestDeviceGone(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.Config{}, local.WithoutAgents())
	w.twoCards()
	w.scheduler("scheduler")
	w.create(pod("before", "gpu=1"))
	w.bound("before")
	w.kubectl("delete", "device", "metax-1")
	const want = "0/1 nodes are available: 1 has no MetaX cards."
	refused := func(name string) error {
		said := w.refusals(name)
		if slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			return nil
		}
		return fmt.Errorf("events of %s so far: %q", name, said)
	}
	// The scheduler has heard of it when one that fits nowhere has its event.
	huge := 0
	w.eventually("the scheduler knows", time.Minute, func() error {
		huge++
		name := fmt.Sprintf("huge-%d", huge)
		w.create(pod(name, "gpu=3"))
		w.eventually("a reason", time.Minute, func() error {
			if len(w.refusals(name)) == 0 {
				return errors.New("none yet")
			}
			return nil
		})
		return refused(name)
	})
	w.create(pod("after", "gpu=1"))
	w.eventually("refusal", time.Minute, func() error { return refused("after") })
	w.twoCards() // the Device comes back, and with it the pod is woken
	if cards := w.cardsOf(w.bound("after")); !slices.Equal(cards, []int{1}) {
		t.Errorf("got card %v, want 1: card 0 is the other pod's", cards)
	}
	w.audit()
}
