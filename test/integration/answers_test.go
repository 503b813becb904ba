package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/agreement"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestAnswersAgree: place, explain, status and the page say of a pod, before it is
// created, what the scheduler then does with it. Pods are random and come one at a
// time to nodes of which some are cordoned, tainted or not ready. Of each pod are
// compared:
//
//   - a pod that is bound: the node and the cards are those of place. Once pods have
//     ended from which the scheduler has learned, the node may be another one,
//     unless the pod names a policy.
//   - a pod that is refused: the event is the condition's text, and its list of
//     reasons is that of explain, word by word.
//   - a pod that preempts: its event has the reasons of explain.
//   - a pod that asks for more CPU than there is: that is the condition's reason.
func TestAnswersAgree(t *testing.T) {
	t.Parallel()
	w := &askedWorld{world: newOpenWorld(t, local.WithoutAgents()), Mixture: gputest.Mixture{Rand: gputest.Rand(23)}, sentences: map[string]string{}, preempting: map[string]*agreement.Answers{}}
	for i := range 18 {
		w.addNode(fmt.Sprintf("node-%02d", i))
	}
	w.priorities()
	w.Scheduler("scheduler")
	// No pod ends: those that are refused wait.
	for i := range 140 {
		w.ask(fmt.Sprintf("first-%03d", i), false)
	}
	w.deletePending()
	// Pods preempt, and those that are refused go.
	for i := range 100 {
		w.ask(fmt.Sprintf("second-%03d", i), true)
	}
	w.compareEvents()
	w.Audit()
	t.Logf("%d pods bound where place says, %d elsewhere, %d refused, %d preempted, %d for CPU", w.exact, w.elsewhere, len(w.sentences), len(w.preempting), w.otherwise)
	if w.exact < 60 || len(w.sentences) < 60 || len(w.preempting) < 3 || w.otherwise == 0 {
		t.Error("too little was compared")
	}
}

// askedWorld is a cluster that is asked about pods.
type askedWorld struct {
	*world
	gputest.Mixture
	// ended is true once pods have ended that the scheduler has seen.
	ended bool
	// sentences are the conditions of the pods that were refused, and preempting the
	// answers about the pods that preempted, by name.
	sentences  map[string]string
	preempting map[string]*agreement.Answers

	exact, elsewhere, otherwise int
}

// addNode adds a node in a random state.
func (w *askedWorld) addNode(name string) {
	w.Helper()
	profile := &discover.Profile{Model: "C500", MemoryMiB: gputest.Memory, Cards: []int{2, 4, 8}[w.IntN(3)], Mode: gpu.ModeSGPU, Driver: "3.8.30"}
	if w.Often(15) {
		profile.Mode = gpu.ModeNative
	}
	if w.Often(20) {
		profile.Unhealthy = []int{0}
	}
	topology, err := profile.Topology(name)
	w.Must(err)
	for i := range topology.Len() {
		w.Cards = append(w.Cards, string(topology.Card(i).ID))
	}
	wanted := &corev1.Node{}
	w.State(wanted)
	if cluster.Ready(wanted) != corev1.ConditionTrue {
		w.addUnready(name, wanted, topology)
		return
	}
	w.Must(w.Simulator.AddNode(w.Ctx, name, profile))
	w.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node := w.Node(name)
		maps.Copy(node.Labels, wanted.Labels)
		node.Spec.Taints, node.Spec.Unschedulable = wanted.Spec.Taints, wanted.Spec.Unschedulable
		_, err = w.Client.CoreV1().Nodes().Update(w.Ctx, node, metav1.UpdateOptions{})
		return err
	}))
}

// addUnready adds a node without a kubelet: the simulator would make it ready.
func (w *askedWorld) addUnready(name string, wanted *corev1.Node, t *gpu.Topology) {
	w.Helper()
	node := gputest.ServedNode(name, t.Len(), t.Len())
	maps.Copy(node.Labels, wanted.Labels)
	node.Spec, node.Status.Conditions = wanted.Spec, wanted.Status.Conditions
	_, err := w.Client.CoreV1().Nodes().Create(w.Ctx, node, metav1.CreateOptions{})
	w.Must(err)
	w.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		created := w.Node(name)
		created.Status = node.Status
		_, err = w.Client.CoreV1().Nodes().UpdateStatus(w.Ctx, created, metav1.UpdateOptions{})
		return err
	}))
	device := gputest.MakeDevice()
	for i := range t.Len() {
		device.Spec.Devices = append(device.Spec.Devices, gputest.CardInfo(string(t.Card(i).ID), int32(i)))
	}
	device.Name = name
	device.APIVersion, device.Kind = "scheduling.koordinator.sh/v1alpha1", "Device"
	w.Must(w.Simulator.CreateDevice(w.Ctx, device))
}

// ask compares the answers about a pod with what becomes of it.
func (w *askedWorld) ask(name string, priorities bool) {
	w.Helper()
	p := w.Pod(name)
	p.Spec.TerminationGracePeriodSeconds = new(int64(0))
	if !priorities {
		p.Spec.PriorityClassName = ""
	}
	objects := w.Objects()
	// As the API server will store it.
	p, err := w.Client.CoreV1().Pods(p.Namespace).Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	w.Must(err)
	given, err := agreement.Ask(objects, p)
	w.Must(err)
	for _, err := range []error{given.Agree(), given.AgreeWithPage(objects, p)} {
		if err != nil {
			w.Fatalf("pod %s: %v", name, err)
		}
	}
	p.ResourceVersion, p.UID = "", ""
	w.Create(p)
	decided := w.outcome(name)
	if err := w.compare(decided, given); err != nil {
		w.Fatalf("pod %s: %v\n%+v", name, err, p.Spec)
	}
	if decided.Spec.NodeName == "" && priorities {
		w.Delete(name)
	}
}

// outcome waits until the pod is bound or refused, and evictions for it are over.
func (w *askedWorld) outcome(name string) *corev1.Pod {
	w.Helper()
	var p *corev1.Pod
	w.Eventually("decision on pod "+name, time.Minute, func() error {
		var err error
		if p, err = w.Client.CoreV1().Pods("default").Get(w.Ctx, name, metav1.GetOptions{}); err != nil || p.Spec.NodeName != "" {
			return err
		}
		if said := sentence(p); said == "" || strings.Contains(said, evicts) || strings.Contains(said, "preemption: waiting") {
			return fmt.Errorf("%+v", p.Status.Conditions)
		}
		return nil
	})
	return p
}

// evicts is in the sentence about a pod for which others are evicted.
const evicts = " of lower priority from "

// sentence returns why the scheduler refuses the pod, if it does.
func sentence(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// compare compares what became of the pod with the answers.
func (w *askedWorld) compare(p *corev1.Pod, given *agreement.Answers) error {
	cards, said := p.Annotations[wire.AnnotationAllocated], sentence(p)
	switch {
	case p.Spec.NodeName == "" && given.Fits() != "":
		w.otherwise++
		if !strings.Contains(said, "Insufficient cpu") {
			return fmt.Errorf("explain names node %s, the scheduler refuses: %q", given.Fits(), said)
		}
	case p.Spec.NodeName == "":
		w.sentences[p.Name] = said
		return given.AgreeWithScheduler(said)
	case given.Fits() == "" && p.Spec.PriorityClassName != "": // its event shows whether it preempted
		w.preempting[p.Name], w.ended = given, true
	case p.Spec.NodeName == given.Place.Node && cards == given.Place.Annotations[wire.AnnotationAllocated]:
		w.exact++
	case given.Fits() != "" && w.ended && p.Annotations[wire.AnnotationNodePolicy] == "":
		w.elsewhere++
	default:
		return fmt.Errorf("bound to %s, cards %s; place: %q %v %s", p.Spec.NodeName, cards, given.Place.Node, given.Place.Annotations, given.Place.Summary)
	}
	return nil
}

// deletePending deletes the pods that wait.
func (w *askedWorld) deletePending() {
	w.Helper()
	w.ended = true
	for _, p := range w.Pods() {
		if p.Spec.NodeName == "" {
			w.Delete(p.Name)
		}
	}
}

// compareEvents compares the events with the conditions, which they must equal, and
// with the answers about the pods that preempted.
func (w *askedWorld) compareEvents() {
	w.Helper()
	said := map[string][]string{}
	w.Eventually("events of all pods", time.Minute, func() error {
		clear(said)
		list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "FailedScheduling" {
				said[e.InvolvedObject.Name] = append(said[e.InvolvedObject.Name], e.Message)
			}
		}
		for name, want := range w.sentences {
			if !slices.Contains(said[name], want) {
				return fmt.Errorf("pod %s has the condition %q and the events %q", name, want, said[name])
			}
		}
		for name := range w.preempting {
			if len(said[name]) == 0 {
				return fmt.Errorf("pod %s has no event", name)
			}
		}
		return nil
	})
	for name, given := range w.preempting {
		if first := said[name][0]; !strings.Contains(first, evicts) {
			w.Errorf("pod %s is bound, and place finds no node: %q; events %q", name, given.Place.Summary, said[name])
		} else if err := given.AgreeWithScheduler(first); err != nil {
			w.Errorf("pod %s: %v", name, err)
		}
	}
}
