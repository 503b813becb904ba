package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/agreement"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var answersSeed = flag.Int("answers.seed", -1, "the only cluster that TestAnswersAgree makes")

// TestAnswersAgree: place, explain, status and the page say of a pod what the
// scheduler then does with it, and give the same reasons as its event and its
// condition. Clusters and pods are random. Of each pod are compared:
//
//   - a pod that is bound: the node and the cards are those of place, whatever pods
//     the scheduler has seen that have ended since.
//   - a pod that is refused: node by node, the code, the numbers and the kind of
//     exclusion are those of place and explain; the reasons, their order and the
//     words are the same in the event, in the condition, in explain, in status and
//     on the page.
//   - a pod that only other plugins refuse, for CPU: explain names a node, and the
//     event a reason that is not about cards.
//   - an invalid pod: every problem is in the event.
//
// A cluster is made from its seed. In odd ones pods preempt, and kube-scheduler
// breaks ties between nodes to preempt on at random: these may have to be made
// several times to see a failure again.
func TestAnswersAgree(t *testing.T) {
	const clusters, pods = 60, 52
	all := tally{}
	for seed := range clusters {
		if *answersSeed >= 0 && seed != *answersSeed {
			continue
		}
		w := newAskedCluster(t, uint64(seed))
		w.tally = all
		for i := range pods {
			if err := w.next(t, i); err != nil {
				t.Fatalf("-answers.seed=%d, pod %d: %v\n%s", seed, i, err, w.describe())
			}
		}
	}
	t.Log(all)
	if *answersSeed < 0 {
		all.check(t)
	}
}

// tally counts what was compared, refusals of nodes by code and exclusion.
type tally map[string]int

// check fails where too little was compared.
func (a tally) check(t *testing.T) {
	t.Helper()
	want := tally{"pods": 3000, "exact": 900, "refused": 900, "preempting": 30, "reserved": 15, "meanwhile": 40, "otherwise": 6, "invalid": 30, "pages": 300}
	for _, code := range []place.Code{
		place.NodeExcluded, place.NoCards, place.ModeConflict, place.Unhealthy, place.CardExcluded, place.ClassConflict, place.QoSConflict,
		place.ExclusiveConflict, place.MemoryShort, place.ComputeShort, place.TooFewCards, place.QuotaExceeded,
	} {
		want[code.String()] = 5
	}
	for _, kind := range place.Exclusions() {
		want[kind.String()] = 60
	}
	for what, least := range want {
		if a[what] < least {
			t.Errorf("%s: %d are too few to compare, want %d at least", what, a[what], least)
		}
	}
}

// askedCluster is a cluster with its scheduler.
type askedCluster struct {
	*benched
	gputest.Mixture
	ctx     context.Context
	objects cluster.Objects
	tally   tally
	// ended is true when the scheduler has seen pods that are gone.
	ended bool
	// leaving are pods that were evicted for another one and terminate for a while.
	leaving *leaving
	// What became of the last pod: a Binding, or an event and a condition, with the
	// nodes' statuses.
	bindings         chan *corev1.Binding
	evicted          chan string
	trying           string
	event, condition string
	failure          error
}

// leaving is a preemptor and the pods that it waits for while some more pods come.
type leaving struct {
	preemptor *corev1.Pod
	evicted   []string
	more      int
	// reserved is true while no pod of a higher priority has come, which may take the
	// room.
	reserved bool
}

// newAskedCluster makes a cluster. In every other one pods end and preempt.
func newAskedCluster(t *testing.T, seed uint64) *askedCluster {
	t.Helper()
	w := &askedCluster{benched: newUnfilled(t, "daybreak"), Mixture: gputest.Mixture{Rand: gputest.Rand(seed)}, bindings: make(chan *corev1.Binding, 1), evicted: make(chan string, 100)}
	w.ctx = klog.NewContext(t.Context(), klog.Logger{})
	w.ended = seed%2 == 1
	w.benched.bound = func(b *corev1.Binding) { w.bindings <- b }
	w.recorder = answerRecorder{w}
	w.client.PrependReactor("patch", "pods", w.patched)
	w.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if deletion, ok := action.(clienttesting.DeleteAction); ok {
			w.evicted <- deletion.GetName()
		}
		return true, nil, nil
	})
	handle := w.FailureHandler
	w.FailureHandler = func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		w.failure = status.AsError()
		handle(ctx, f, pod, status, nominating, start)
	}
	w.objects = cluster.Objects{Live: true, Devices: map[string]cluster.Device{}}
	for i := range 2 + w.IntN(11) {
		w.node(t, fmt.Sprintf("n%02d", i))
	}
	if seed%3 == 0 {
		w.quota(t)
	}
	if len(w.Cards) == 0 {
		w.Cards = []string{"GPU-none"}
	}
	return w
}

// quota gives the namespace of the pods a budget with HAMi's keys.
func (w *askedCluster) quota(t *testing.T) {
	t.Helper()
	rq := makeQuota("team", map[corev1.ResourceName]string{
		quota.LimitVCore: strconv.Itoa(100 * (2 + w.IntN(20))), quota.LimitVMemory: strconv.Itoa(64 * (2 + w.IntN(20))), quota.LimitSGPU: strconv.Itoa(5 + w.IntN(20)),
	})
	rq.Namespace = metav1.NamespaceDefault
	if w.Often(25) {
		rq.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopePriorityClass}
	}
	gputest.Must(t, w.informers.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(rq))
	w.objects.Quotas = append(w.objects.Quotas, rq)
}

// node adds a node.
func (w *askedCluster) node(t *testing.T, name string) {
	t.Helper()
	cards := []int{1, 2, 4, 8, 8}[w.IntN(5)]
	device := makeDevice(name, cards)
	healthy := cards
	for i := range device.Spec.Devices {
		d := &device.Spec.Devices[i]
		d.UUID = fmt.Sprintf("GPU-%s-%d", name, i)
		w.Cards = append(w.Cards, d.UUID)
		if w.Often(8) {
			d.Health = false
			healthy--
		}
		if i >= 4 && w.Often(90) {
			d.Labels[wire.LabelLinkZone] = "2"
		}
	}
	if w.Often(12) {
		metav1.SetMetaDataAnnotation(&device.ObjectMeta, wire.AnnotationMode, string(gpu.ModeNative))
	}
	node := gputest.ServedNode(name, cards, healthy)
	if w.Often(10) {
		device = nil
		node.Status.Capacity, node.Annotations = nil, nil
		for _, resource := range wire.Resources() {
			delete(node.Status.Allocatable, resource)
		}
	}
	w.State(node)
	w.objects.Nodes = append(w.objects.Nodes, node)
	if device != nil {
		w.objects.Devices[name] = cluster.Device{Device: device}
	}
	w.addNode(t, node, device)
}

// next makes up a pod and compares the answers.
func (w *askedCluster) next(t *testing.T, i int) error {
	t.Helper()
	if w.ended && w.leaving == nil && w.Often(25) { // what else ends meanwhile has the preemptor tried
		w.end(t)
	}
	if l := w.leaving; l != nil {
		w.tally["meanwhile"]++
		l.more--
		if l.more < 0 {
			w.leaving = nil
			if err := w.fulfil(t, l); err != nil {
				return err
			}
		}
	}
	pod := w.pod(i)
	given, err := agreement.Ask(&w.objects, pod)
	if err != nil {
		return err
	}
	if err := given.Agree(); err != nil {
		return err
	}
	w.tally["pods"]++
	if given.Fits() == "" && w.Often(25) {
		w.tally["pages"]++
		if err := given.AgreeWithPage(&w.objects, pod); err != nil {
			return err
		}
	}
	w.pending(t, pod)
	binding := w.try(pod)
	if binding != nil {
		return w.compareBound(t, pod, given, binding)
	}
	return w.compareRefused(t, pod, given)
}

func (w *askedCluster) pod(i int) *corev1.Pod {
	pod := w.Mixture.Pod(fmt.Sprintf("p%03d", i))
	pod.UID, pod.ResourceVersion, pod.Spec.SchedulerName = types.UID("uid-"+pod.Name), "7", DefaultProfile
	pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(i) * time.Second))
	if class := pod.Spec.PriorityClassName; class != "" && w.ended {
		pod.Spec.Priority = new(map[string]int32{gputest.PriorityLow: 10, gputest.PriorityHigh: 1000}[class])
	}
	if w.leaving != nil {
		pod.Spec.PreemptionPolicy = new(corev1.PreemptNever)
		w.leaving.reserved = w.leaving.reserved && corev1helpers.PodPriority(pod) <= corev1helpers.PodPriority(w.leaving.preemptor)
	}
	return pod
}

// pending makes the scheduler see a pod without a node.
func (w *askedCluster) pending(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	gputest.Must(t, w.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	w.objects.Pods = append(w.objects.Pods, pod)
}

// try schedules the pod and returns its Binding, or nil for a pod that is refused.
func (w *askedCluster) try(pod *corev1.Pod) *corev1.Binding {
	w.trying, w.event, w.condition, w.failure = pod.Name, "", "", nil
	w.SchedulingQueue.Add(w.ctx, pod)
	w.ScheduleOne(w.ctx)
	if w.failure != nil {
		return nil
	}
	return <-w.bindings
}

// compareBound compares the Binding with the answer of place.
func (w *askedCluster) compareBound(t *testing.T, pod *corev1.Pod, given *agreement.Answers, binding *corev1.Binding) error {
	t.Helper()
	w.run(t, pod, binding)
	cards, want := binding.Annotations[wire.AnnotationAllocated], given.Place.Annotations[wire.AnnotationAllocated]
	switch {
	case given.Fits() == "":
		return fmt.Errorf("bound to %s, place finds no node: %s", binding.Target.Name, given.Place.Summary)
	case binding.Target.Name == given.Place.Node && cards == want:
		w.tally["exact"]++
	default:
		return fmt.Errorf("bound to %s, cards %s; place chooses %s, cards %s", binding.Target.Name, cards, given.Place.Node, want)
	}
	return nil
}

// run makes the scheduler see that the pod is bound.
func (w *askedCluster) run(t *testing.T, pod *corev1.Pod, binding *corev1.Binding) {
	t.Helper()
	bound := pod.DeepCopy()
	bound.Spec.NodeName = binding.Target.Name
	for key, value := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&bound.ObjectMeta, key, value)
	}
	w.settle(t, bound)
	w.objects.Pods[w.find(pod.Name)] = bound
}

func (w *askedCluster) find(name string) int {
	return slices.IndexFunc(w.objects.Pods, func(p *corev1.Pod) bool { return p.Name == name })
}

// compareRefused compares the event, the condition and the nodes' statuses with
// the answers.
func (w *askedCluster) compareRefused(t *testing.T, pod *corev1.Pod, given *agreement.Answers) error {
	t.Helper()
	if w.event == "" || w.event != w.condition {
		return fmt.Errorf("the event is %q, the condition %q", w.event, w.condition)
	}
	var fit *framework.FitError
	if !errors.As(w.failure, &fit) {
		return fmt.Errorf("scheduling fails: %w", w.failure)
	}
	if given.Fits() != "" {
		w.tally["otherwise"]++
		others := otherReasons(fit)
		if nodes := others["Insufficient cpu"]; nodes == 0 || len(others) > 1 {
			return fmt.Errorf("explain names node %s, and CPU is not the reason to refuse it: %q", given.Fits(), w.event)
		}
		return nil
	}
	if err := given.AgreeWithScheduler(w.event); err != nil {
		return err
	}
	if given.Explain.State == view.StateInadmissible {
		w.tally["invalid"]++
		return nil
	}
	w.tally["refused"]++
	if given.Explain.Refusals[0].Code == place.QuotaExceeded.String() { // of the namespace: nodes have no status of their own
		w.tally[place.QuotaExceeded.String()]++
		return nil
	}
	if err := w.compareNodes(fit, given); err != nil {
		return err
	}
	return w.preempt(t, pod)
}

// compareNodes compares the refusal of each node.
func (w *askedCluster) compareNodes(fit *framework.FitError, given *agreement.Answers) error {
	var refused []place.Refusal
	for _, want := range given.Explain.Refusals {
		r, ok := refusalOf(fit.Diagnosis.NodeToStatus.Get(want.Node))
		if !ok {
			return fmt.Errorf("explain reports %s of node %s, the scheduler %v", want.Code, want.Node, fit.Diagnosis.NodeToStatus.Get(want.Node))
		}
		got := want // with the sentence, which is made of the rest
		got.Code, got.Want, got.Have, got.Permanent, got.Exclusion, got.Total, got.Cards = r.Code.String(), r.Want, r.Have, r.Permanent, r.Exclusion.String(), r.Total, map[string]int{}
		for _, code := range place.Codes() {
			if n := r.Cards[code]; n > 0 {
				got.Cards[code.String()] = int(n)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("refusal (-explain +scheduler):\n%s", diff)
		}
		refused = append(refused, r)
		w.tally[r.Code.String()]++
		if r.Code == place.NodeExcluded {
			w.tally[r.Exclusion.String()]++
		}
	}
	if diff := cmp.Diff(given.Explain.Reasons, place.Reasons(refused)); diff != "" {
		return fmt.Errorf("reasons (-explain +scheduler):\n%s", diff)
	}
	return nil
}

// preempt ends the pods that are evicted for the pod, if any are, and has the pod
// bound in their place.
func (w *askedCluster) preempt(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	_, outcome, _ := strings.Cut(w.event, preemptionPrefix)
	var victims int
	var node string
	if n, _ := fmt.Sscanf(strings.Replace(outcome, "pods", "pod", 1), "evicting %d pod of lower priority from %s", &victims, &node); n < 2 {
		return nil
	}
	w.tally["preempting"]++
	evicted := make([]string, victims)
	for i := range evicted {
		evicted[i] = <-w.evicted
	}
	slices.Sort(evicted)
	again := pod.DeepCopy()
	again.Status.NominatedNodeName = strings.TrimSuffix(node, ".")
	w.replace(t, again)
	l := &leaving{preemptor: again, evicted: evicted, reserved: true}
	if w.leaving != nil || w.Often(40) {
		return w.fulfil(t, l)
	}
	for _, name := range evicted {
		terminating := w.objects.Pods[w.find(name)].DeepCopy()
		terminating.DeletionTimestamp = new(metav1.NewTime(start))
		gputest.Must(t, w.Cache.UpdatePod(klog.Background(), w.objects.Pods[w.find(name)], terminating))
		w.replace(t, terminating)
	}
	l.more = 1 + w.IntN(4)
	w.leaving = l
	return nil
}

// replace makes the informers have another version of the pod.
func (w *askedCluster) replace(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	gputest.Must(t, w.informers.Core().V1().Pods().Informer().GetIndexer().Update(pod))
	w.objects.Pods[w.find(pod.Name)] = pod
}

// fulfil ends the pods that were evicted and has the preemptor bound in their place.
func (w *askedCluster) fulfil(t *testing.T, l *leaving) error {
	t.Helper()
	for _, name := range l.evicted {
		if w.find(name) >= 0 {
			w.remove(t, name)
		}
	}
	w.SchedulingQueue.Delete(l.preemptor)
	binding := w.try(l.preemptor)
	switch {
	case binding != nil:
		w.run(t, l.preemptor, binding)
		w.tally["reserved"]++
	case l.reserved:
		return fmt.Errorf("after preemption for %s: %q", l.preemptor.Name, w.event)
	default:
		w.SchedulingQueue.Delete(l.preemptor)
		i := w.find(l.preemptor.Name)
		w.objects.Pods = slices.Delete(w.objects.Pods, i, i+1)
		gputest.Must(t, w.informers.Core().V1().Pods().Informer().GetIndexer().Delete(l.preemptor))
		w.shared.pods.drop(l.preemptor.UID)
	}
	return nil
}

// end ends a random pod that is bound.
func (w *askedCluster) end(t *testing.T) {
	t.Helper()
	var bound []string
	for _, p := range w.objects.Pods {
		if p.Spec.NodeName != "" {
			bound = append(bound, p.Name)
		}
	}
	if len(bound) > 0 {
		w.remove(t, bound[w.IntN(len(bound))])
	}
}

// remove makes the scheduler see that a bound pod is gone.
func (w *askedCluster) remove(t *testing.T, name string) {
	t.Helper()
	i := w.find(name)
	if i < 0 {
		t.Fatalf("pod %s is evicted and is not there", name)
	}
	pod := w.objects.Pods[i]
	w.objects.Pods = slices.Delete(w.objects.Pods, i, i+1)
	gputest.Must(t, w.Cache.RemovePod(klog.Background(), pod))
	gputest.Must(t, w.informers.Core().V1().Pods().Informer().GetIndexer().Delete(pod))
	w.shared.pods.drop(pod.UID)
}

// describe shows the cluster and the last pod.
func (w *askedCluster) describe() string {
	text, err := json.MarshalIndent(map[string]any{"nodes": w.objects.Nodes, "last": w.objects.Pods[max(0, len(w.objects.Pods)-1):]}, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// patched keeps the condition of the pod that is tried.
func (w *askedCluster) patched(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, ok := action.(clienttesting.PatchAction)
	if !ok || patch.GetName() != w.trying {
		return true, nil, nil
	}
	var pod corev1.Pod
	if err := json.Unmarshal(patch.GetPatch(), &pod); err != nil {
		return true, nil, err
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			w.condition = c.Message
		}
	}
	return true, nil, nil
}

// answerRecorder keeps the event of the pod that is tried.
type answerRecorder struct{ *askedCluster }

// WithLogger returns the recorder.
func (r answerRecorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

// Eventf keeps the note of a pod that is refused, as it is recorded.
func (r answerRecorder) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	if reason == "FailedScheduling" {
		r.event = fmt.Sprintf(note, args...)
	}
}
