package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// forgers is a world with a forger and a victim.
type forgers struct {
	*harness.Forger
	world *world
}

// operatorUser may create bound pods, as the vendor's operator does.
const operatorUser = "system:serviceaccount:metax-operator:validator"

func newForgers(t *testing.T, g guards) *forgers {
	w := newOpenWorld(t)
	params := w.Policies()
	params.DirectBinders = []string{operatorUser}
	w.guard(g, params)
	w.AddNodes(2)
	w.Scheduler("scheduler")
	f := &forgers{w.forger(), w}
	f.NoConditions = g == byManagerAlone
	f.Settle()
	return f
}

// forger is one that has not settled, in a world with nodes.
func (w *world) forger() *harness.Forger {
	w.Helper()
	return &harness.Forger{
		World: w.World, Agent: w.AgentOf("metax-1"), Scheduler: w.RESTAs("scheduler"), Manager: w.RESTAs("manager"), Node: "metax-1", Other: "metax-2",
	}
}

// clientAs returns a client of a user.
func (f *forgers) clientAs(user string, groups ...string) kubernetes.Interface {
	f.Helper()
	return f.ClientOf(f.ConfigAs(user, groups...))
}

// state returns everything that must not change.
func (f *forgers) state() map[string]any {
	f.Helper()
	out := map[string]any{}
	for _, namespace := range []string{"default", "victims"} {
		list, err := f.Client.CoreV1().Pods(namespace).List(f.Ctx, metav1.ListOptions{})
		f.Must(err)
		for i := range list.Items {
			p := &list.Items[i]
			out["pod "+p.Name] = []any{p.Annotations, p.Spec.NodeName, allocation.TermOf(p)}
		}
	}
	nodes, err := f.Client.CoreV1().Nodes().List(f.Ctx, metav1.ListOptions{})
	f.Must(err)
	for i := range nodes.Items {
		out["node "+nodes.Items[i].Name] = nodes.Items[i].Annotations
	}
	devices, err := f.Devices(f.REST()).List(f.Ctx, metav1.ListOptions{})
	f.Must(err)
	for i := range devices.Items {
		out["device "+devices.Items[i].GetName()] = devices.Items[i].Object["spec"]
	}
	return out
}

// settled returns the state once it stays: agents and manager write what follows
// from the pods a moment after the pods run.
func (f *forgers) settled() map[string]any {
	f.Helper()
	last, since := f.state(), time.Now()
	f.Eventually("the state stays", time.Minute, func() error {
		if now := f.state(); !cmp.Equal(last, now) {
			last, since = now, time.Now()
		}
		if age := time.Since(since); age < 2*time.Second {
			return fmt.Errorf("it is %s old", age)
		}
		return nil
	})
	return last
}

// eachGuards runs the test with each of those who may evaluate the policies.
func eachGuards(t *testing.T, test func(t *testing.T, g guards)) {
	t.Helper()
	t.Parallel()
	for _, g := range []guards{byServer, byManager, byManagerAlone} {
		t.Run(string(g), func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
}

// TestForgery: no user takes another pod's cards, in any way, and what others write
// passes.
func TestForgery(t *testing.T) {
	eachGuards(t, func(t *testing.T, g guards) {
		f := newForgers(t, g)
		for _, part := range []struct {
			name string
			test func(*testing.T, *forgers)
		}{{"rejected", testForgery}, {"without effect", testForgeryHasNoEffect}, {"ordinary writes", testOrdinaryWrites}} {
			t.Run(part.name, func(t *testing.T) {
				forger := *f.Forger
				forger.World = f.Part(t)
				part.test(t, &forgers{&forger, &world{forger.World}})
			})
		}
	})
}

func testForgery(t *testing.T, f *forgers) {
	before := f.settled()
	f.Play()
	gputest.Equal(t, "state before and after", before, f.state())
	f.Audit()
}

// testForgeryHasNoEffect has ways that the API server takes without a word, and
// that change nothing.
func testForgeryHasNoEffect(t *testing.T, f *forgers) {
	before := f.settled()
	pods := f.Mallory.CoreV1().Pods("default")

	p := f.Changed("bound", f.Loot)
	p.Annotations[wire.AnnotationQoS] = "fixed-share"
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "none"}}}
	if _, err := pods.UpdateEphemeralContainers(f.Ctx, "bound", p, metav1.UpdateOptions{}); err != nil {
		t.Errorf("an ephemeral container: %v", err)
	}
	// Status is written back with the scheduler's condition, by kubelet above all.
	again := f.Changed("touched", nil)
	again.Status.Conditions = append(again.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse})
	if _, err := pods.UpdateStatus(f.Ctx, again, metav1.UpdateOptions{}); err != nil {
		t.Errorf("status with the scheduler's condition as it was: %v", err)
	}
	// A kubelet that can resize says so by telling what its containers have.
	_, err := f.Client.CoreV1().Pods("default").Patch(f.Ctx, "bound", types.StrategicMergePatchType,
		[]byte(`{"status":{"containerStatuses":[{"name":"c","resources":{"limits":{"metax-tech.com/sgpu":"1"}}}]}}`), metav1.PatchOptions{}, "status")
	f.Must(err)
	if _, err := pods.UpdateResize(f.Ctx, "bound", f.Changed("bound", f.Loot), metav1.UpdateOptions{}); err != nil {
		t.Errorf("resize: %v", err)
	}
	for key, value := range map[corev1.ResourceName]string{wire.ResourceSGPU: "2", wire.ResourceVCore: "100", wire.ResourceVMemory: "64"} {
		p := f.Changed("bound", nil)
		for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests} {
			list[key] = resource.MustParse(value)
		}
		if _, err := pods.UpdateResize(f.Ctx, "bound", p, metav1.UpdateOptions{}); err == nil {
			t.Errorf("resize took %s: %s", key, value)
		}
		if _, err := pods.Update(f.Ctx, p, metav1.UpdateOptions{}); err == nil {
			t.Errorf("an update took %s: %s", key, value)
		}
	}
	gputest.Equal(t, "state before and after", before, f.state())

	f.Copied()
	f.Audit()
}

// TestBoundPastTheWebhook: what no policy may leave to the webhook holds without
// it, as with failurePolicy Ignore and a manager that is down; and a pod that is
// bound past every scheduler does not close its node.
func TestBoundPastTheWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // only the policies
	w.AddNodes(1)
	w.Scheduler("scheduler")
	f := w.forger()
	f.Mallory = w.Tenant(harness.ForgerName, "default")
	pods := f.Mallory.CoreV1().Pods("default")
	for name, p := range map[string]*corev1.Pod{
		"a slice": harness.PodFor("forged", "", "sgpu: 1"), "whole cards, a foreign scheduler": harness.PodFor("forged", "volcano", "gpu: 1"),
		"Koordinator's words": harness.PodFor("forged", "", "gpu-core: 10, gpu-memory: 1Gi"), "a static pod": annotated(harness.PodFor("forged", "", "sgpu: 1"), corev1.MirrorPodAnnotationKey, "x"),
	} {
		p.Spec.NodeName = "metax-1"
		_, err := pods.Create(f.Ctx, p, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-pods'") ||
			!strings.Contains(err.Error(), "spec.nodeName: the scheduler chooses the cards together with the node: leave it out, and to choose the node write nodeSelector: {kubernetes.io/hostname: metax-1}") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Koordinator's words alone, for another scheduler, are none of our business,
	// and hold none of our cards.
	closer := harness.PodFor("closer", "another", "gpu-core: 1")
	closer.Spec.NodeName = "metax-1"
	_, err := pods.Create(f.Ctx, closer, metav1.CreateOptions{})
	f.Must(err)
	// A scheduler that writes no allocation binds a pod: the agent starts nothing
	// without one.
	_, err = pods.Create(f.Ctx, harness.PodFor("volcanos", "volcano", "sgpu: 1, vcore: 10, vmemory: 1"), metav1.CreateOptions{})
	f.Must(err)
	binding := f.Binding(nil)
	binding.Name = "volcanos"
	f.Must(f.Client.CoreV1().Pods("default").Bind(f.Ctx, binding, metav1.CreateOptions{}))
	w.Create(pod("honest", "sgpu=1", "vcore=10", "vmemory=1"))
	w.Bound("honest")
	w.Eventually("the vendor's annotation shows what is free", time.Minute, func() error {
		node := w.Node("metax-1")
		cards, err := inventory.DecodeNodeCards(node.Annotations[wire.AnnotationNodeCards])
		if err == nil && (len(cards) == 0 || *cards[len(cards)-1].AvailableVRam == 0) {
			err = fmt.Errorf("nothing is free: %s", node.Annotations[wire.AnnotationNodeCards])
		}
		return err
	})
}
