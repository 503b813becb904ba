package kueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const gibi gpu.MiB = 1 << 10

// The budget of each team in examples/quota/kueue/queues.yaml.
var budget = ledger.Amounts{Compute: 400, Memory: 256 * gibi, Cards: 4}

// job is a Job of the test, with the amounts that all of its pods together have.
type job struct {
	name string
	pods int32
	spec *corev1.Pod // nil: as in the example
	want ledger.Amounts
}

// jobs are of both dialects. Each amounts to 100 percent, which no sum of the
// resources that their users wrote does.
var jobs = []job{
	{name: "half-cards", pods: 2, want: ledger.Amounts{Compute: 100, Memory: 32 * gibi}},
	{name: "koordinator", pods: 2, want: ledger.Amounts{Compute: 100, Memory: 64 * gibi},
		spec: gputest.MakePod("").App("gpu-core: 50, gpu-memory-ratio: 50").Obj()},
	{name: "several-containers", pods: 2, want: ledger.Amounts{Compute: 100, Memory: 9 * gibi},
		spec: gputest.MakePod("").App("sgpu: 1, vcore: 30, vmemory: 4").App("sgpu: 1, vcore: 20, vmemory: 512Mi").App("cpu: 1").Obj()},
	{name: "init-container", pods: 1, want: ledger.Amounts{Compute: 100, Memory: 64 * gibi, Cards: 1},
		spec: gputest.MakePod("").Init("sgpu: 1, vcore: 100, vmemory: 8").App("sgpu: 1, vcore: 10, vmemory: 2").Obj()},
	{name: "two-cards", pods: 1, want: ledger.Amounts{Compute: 100, Memory: 128 * gibi},
		spec: gputest.MakePod("").App("sgpu: 2, vcore: 50").Obj()},
}

var wholeCard = ledger.Amounts{Compute: 100, Memory: 64 * gibi, Cards: 1}

// TestBudgets: team-a fills its budget and borrows that of team-b, which then takes it
// back. Kueue's figures are those of the ledger, and never does more run than the
// teams have together.
func TestBudgets(t *testing.T) {
	w := newWorld(t)
	most := w.watch()

	want := map[string]ledger.Amounts{}
	for _, j := range jobs {
		w.createJob("team-a", j)
		want[j.name] = j.want
	}
	w.runs("team-a", len(jobs), want)
	pods := []string{"whole-card", "whole-card-2", "whole-card-3", "whole-card-4", "whole-card-5"}
	for i, name := range pods {
		w.createPod("team-a", name)
		if i < 3 { // one after the other, so that it is known which wait
			want[name] = wholeCard
			w.runs("team-a", len(want), want)
		}
	}
	w.Eventually("two pods wait", patience, func() error {
		if u := w.usage("team-a"); u.pending != 2 {
			return fmt.Errorf("%d wait", u.pending)
		}
		return nil
	})
	a := w.runs("team-a", 8, want)
	if a.borrowed.Compute != budget.Compute {
		t.Errorf("team-a borrows %s", text(a.borrowed))
	}
	w.progress("team-a: %d of %d Jobs and %d of %d pods are admitted with %s, of which %s are borrowed; %d pods wait",
		len(jobs), len(jobs), 3, len(pods), text(a.total), text(a.borrowed), a.pending)
	w.check("borrowed")

	// A Job beyond what both have is never admitted.
	w.createJob("team-a", job{name: "too-large", pods: 9, spec: gputest.MakePod("").App("gpu: 1").Obj()})
	w.Eventually("Kueue names the shortage", patience, func() error {
		message := w.workloads("team-a")["too-large"].message("QuotaReserved")
		if !strings.Contains(message, "daybreak-gpu.io/") {
			return fmt.Errorf("message %q", message)
		}
		w.progress("too-large: %s", message)
		return nil
	})

	// The owner's Jobs run, and the borrower keeps its own budget.
	reclaiming := time.Now()
	wantB := map[string]ledger.Amounts{"owner-1": jobs[0].want, "owner-2": jobs[0].want, "owner-3": jobs[0].want, "owner-pod": wholeCard}
	for name, amounts := range wantB {
		if name == "owner-pod" {
			w.createPod("team-b", name)
		} else {
			w.createJob("team-b", job{name: name, pods: 2, want: amounts})
		}
	}
	b := w.runs("team-b", len(wantB), wantB)
	if b.total.Compute != budget.Compute || b.borrowed != (ledger.Amounts{}) {
		t.Errorf("team-b has %+v", b)
	}
	took := time.Since(reclaiming)
	a = w.runs("team-a", 4, want)
	if a.total.Compute != budget.Compute || a.borrowed.Compute != 0 {
		t.Errorf("team-a has %+v", a)
	}
	preempted := w.preempted("team-a")
	if preempted != 4 {
		t.Errorf("%d workloads were preempted, want 4", preempted)
	}
	w.progress("team-b: 3 Jobs and 1 pod are admitted with %s and run after %.1f s, %d workloads of team-a were preempted; team-a has %s",
		text(b.total), took.Seconds(), preempted, text(a.total))
	w.check("reclaimed")

	// What the owner no longer needs is lent again.
	foreground := metav1.DeletePropagationForeground
	for name := range wantB {
		if name == "owner-pod" {
			w.Must(w.Client.CoreV1().Pods("team-b").Delete(t.Context(), name, metav1.DeleteOptions{}))
		} else {
			w.Must(w.Client.BatchV1().Jobs("team-b").Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &foreground}))
		}
	}
	w.runs("team-b", 0, nil)
	back := 0
	w.Eventually("the preempted Jobs run again", patience, func() error {
		back = 0
		for _, x := range w.workloads("team-a") {
			if x.is("Admitted") {
				back++
			} else if x.owner() != "too-large" {
				return fmt.Errorf("%s is not admitted", x.owner())
			}
		}
		return nil
	})
	for _, name := range pods {
		want[name] = wholeCard
	}
	a = w.runs("team-a", back, want)
	w.progress("team-a: %d workloads are admitted with %s, of which %s are borrowed", back, text(a.total), text(a.borrowed))
	w.check("lent again")

	running, terminating := most()
	if over(running, double(budget)) {
		t.Errorf("pods with %s ran at the same time, the budgets are %s", text(running), text(double(budget)))
	}
	w.progress("at most %s ran at the same time, %s with the pods that were being deleted", text(running), text(terminating))
}

// job returns the Job of the examples under another name.
func (w *world) job(namespace, name string) *batchv1.Job {
	w.Helper()
	j := &batchv1.Job{}
	w.example("job.yaml", j)
	j.Namespace, j.Name = namespace, name
	return j
}

func (w *world) example(file string, into any) {
	w.Helper()
	text, err := os.ReadFile(examples + file)
	w.Must(err)
	w.Must(yaml.UnmarshalStrict(text, into))
}

func (w *world) createJob(namespace string, j job) {
	w.Helper()
	object := w.job(namespace, j.name)
	object.Spec.Parallelism, object.Spec.Completions = &j.pods, &j.pods
	if j.spec != nil {
		template := &object.Spec.Template.Spec
		shape := template.Containers[0]
		template.InitContainers, template.Containers = j.spec.Spec.InitContainers, j.spec.Spec.Containers
		for _, list := range [][]corev1.Container{template.InitContainers, template.Containers} {
			for i := range list {
				list[i].Image, list[i].Command = shape.Image, shape.Command
			}
		}
		for i := range template.InitContainers {
			template.InitContainers[i].Command = []string{"sleep", "0"}
		}
	}
	created, err := w.Client.BatchV1().Jobs(namespace).Create(w.Ctx, object, metav1.CreateOptions{})
	w.Must(err)
	one, metered := request.ReadAmounts(&created.Spec.Template.Spec)
	if got := times(one, int(j.pods)); j.want != (ledger.Amounts{}) && (!metered || got != j.want) {
		w.Errorf("the template of Job %s amounts to %s, want %s", j.name, text(got), text(j.want))
	}
}

func (w *world) createPod(namespace, name string) {
	w.Helper()
	p := &corev1.Pod{}
	w.example("pod.yaml", p)
	p.Namespace, p.Name = namespace, name
	_, err := w.Client.CoreV1().Pods(namespace).Create(w.Ctx, p, metav1.CreateOptions{})
	w.Must(err)
}

// workload is what the test reads of a Workload.
type workload struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
		Admission  *struct {
			PodSetAssignments []struct {
				ResourceUsage corev1.ResourceList `json:"resourceUsage"`
			} `json:"podSetAssignments"`
		} `json:"admission"`
	} `json:"status"`
}

func (x workload) is(condition string) bool {
	return slices.ContainsFunc(x.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition && c.Status == metav1.ConditionTrue })
}

func (x workload) message(condition string) string {
	for _, c := range x.Status.Conditions {
		if c.Type == condition {
			return c.Message
		}
	}
	return ""
}

// owner returns the name of the Job or pod.
func (x workload) owner() string { return x.Metadata.OwnerReferences[0].Name }

// admitted returns what Kueue has admitted.
func (x workload) admitted() (a ledger.Amounts) {
	for _, set := range x.Status.Admission.PodSetAssignments {
		own := amountsOf(set.ResourceUsage)
		a.Plus(&own)
	}
	return a
}

// amountsOf returns the amounts of a list; quotas count three of them.
func amountsOf(list corev1.ResourceList) ledger.Amounts {
	value := func(name corev1.ResourceName) int64 { q := list[name]; return q.Value() }
	return ledger.Amounts{
		Compute: gpu.Percent(value(wire.ResourceCompute)), Memory: gpu.MiB(value(wire.ResourceMemory) / wire.Mebibyte), Cards: int(value(wire.ResourceCards)),
	}
}

func kueueResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: name}
}

// workloads returns the Workloads of a namespace by the names of their owners.
func (w *world) workloads(namespace string) map[string]workload {
	w.Helper()
	list, err := w.objects.Resource(kueueResource("workloads")).Namespace(namespace).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	out := map[string]workload{}
	for i := range list.Items {
		var x workload
		w.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &x))
		if len(x.Metadata.OwnerReferences) == 0 {
			continue // of a pod that is gone
		}
		out[x.owner()] = x
	}
	return out
}

// preempted returns how many workloads lost what they had borrowed, the Workloads of
// pods included, which are gone: by Kueue's Events.
func (w *world) preempted(namespace string) int {
	w.Helper()
	events, err := w.Client.CoreV1().Events(namespace).List(w.Ctx, metav1.ListOptions{FieldSelector: "reason=Preempted"})
	w.Must(err)
	seen := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Kind == "Workload" {
			seen[e.InvolvedObject.Name] = true
		}
	}
	return len(seen)
}

// usage is what a ClusterQueue's status says.
type usage struct {
	total, borrowed   ledger.Amounts
	pending, admitted int64
}

func (w *world) usage(queue string) usage {
	w.Helper()
	object, err := w.objects.Resource(kueueResource("clusterqueues")).Get(w.Ctx, queue, metav1.GetOptions{})
	w.Must(err)
	var q struct {
		Status struct {
			PendingWorkloads  int64 `json:"pendingWorkloads"`
			AdmittedWorkloads int64 `json:"admittedWorkloads"`
			FlavorsUsage      []struct {
				Resources []struct {
					Name     corev1.ResourceName `json:"name"`
					Total    resource.Quantity   `json:"total"`
					Borrowed resource.Quantity   `json:"borrowed"`
				} `json:"resources"`
			} `json:"flavorsUsage"`
		} `json:"status"`
	}
	w.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &q))
	total, borrowed := corev1.ResourceList{}, corev1.ResourceList{}
	for _, f := range q.Status.FlavorsUsage {
		for _, r := range f.Resources {
			total[r.Name], borrowed[r.Name] = r.Total, r.Borrowed
		}
	}
	return usage{total: amountsOf(total), borrowed: amountsOf(borrowed), pending: q.Status.PendingWorkloads, admitted: q.Status.AdmittedWorkloads}
}

// runs waits until so many workloads of a team are admitted and run, and no other
// pod of the team has a node. Then Kueue's amounts of each workload are the wanted
// ones, and its sum is what the pods carry and what the ledger has booked for them.
func (w *world) runs(team string, n int, want map[string]ledger.Amounts) usage {
	w.Helper()
	var u usage
	w.Eventually(fmt.Sprintf("%d workloads of %s run", n, team), patience, func() error {
		u = w.usage(team)
		admitted := map[string]ledger.Amounts{}
		var sum ledger.Amounts
		for name, x := range w.workloads(team) {
			if x.is("Admitted") && !x.is("Finished") {
				own := x.admitted()
				admitted[name] = own
				sum.Plus(&own)
			}
		}
		if len(admitted) != n || u.admitted != int64(n) || u.total != sum {
			return fmt.Errorf("admitted are %v with %s, and the queue says %d with %s", slices.Sorted(maps.Keys(admitted)), text(sum), u.admitted, text(u.total))
		}
		for name, got := range admitted {
			if diff := cmp.Diff(want[name], got); diff != "" {
				w.Fatalf("%s is admitted with other amounts (-want +got):\n%s", name, diff)
			}
		}
		carried, err := w.carried(team, slices.Collect(maps.Keys(admitted)))
		if err != nil {
			return err
		}
		booked := w.booked(team)
		if carried != sum || booked != sum {
			return fmt.Errorf("admitted are %s, the pods carry %s and the ledger has %s", text(sum), text(carried), text(booked))
		}
		return nil
	})
	return u
}

// carried returns the amounts on the pods that run, which are those of the named
// Jobs and pods.
func (w *world) carried(team string, names []string) (sum ledger.Amounts, err error) {
	w.Helper()
	pods, err := w.Client.CoreV1().Pods(team).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		owner := p.Name
		if len(p.OwnerReferences) > 0 {
			owner = p.OwnerReferences[0].Name
		}
		switch mine := slices.Contains(names, owner); {
		case mine && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil:
			own, metered := request.ReadAmounts(&p.Spec)
			if !metered {
				return sum, fmt.Errorf("pod %s carries no amounts", p.Name)
			}
			sum.Plus(&own)
		case mine:
			return sum, fmt.Errorf("pod %s is %s %v", p.Name, p.Status.Phase, p.Status.Conditions)
		case p.Spec.NodeName != "":
			return sum, fmt.Errorf("pod %s is on node %s, and its workload is not admitted", p.Name, p.Spec.NodeName)
		}
	}
	return sum, nil
}

// booked returns what the pods of a team hold at their peak.
func (w *world) booked(team string) (sum ledger.Amounts) {
	w.Helper()
	for _, n := range w.Snapshot().Nodes {
		for _, h := range n.Holdings() {
			if strings.HasPrefix(string(h.Holder), team+"/") {
				own := n.Peak(&h)
				sum.Plus(&own)
			}
		}
	}
	sum.Whole, sum.Slices = 0, 0 // quotas count neither
	return sum
}

// check fails the test if the audit finds anything.
func (w *world) check(phase string) {
	w.Helper()
	snapshot := w.Snapshot()
	for _, note := range snapshot.Notes {
		w.Errorf("%s: audit: %s", phase, note)
	}
	for _, v := range audit.Check(snapshot, time.Now()).Violations {
		w.Errorf("%s: audit: %s: %s (pods %v)", phase, v.Rule, v.Message, v.Pods)
	}
}

// watch adds up at every change of a pod what all pods with a node carry, and returns
// how to get the most so far: without the pods that are being deleted, and with them.
func (w *world) watch() (most func() (running, all ledger.Amounts)) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Ctx))
	w.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	informer := factory.Core().V1().Pods().Informer()
	var mu sync.Mutex
	var running, all ledger.Amounts
	measure := func(any) {
		mu.Lock()
		defer mu.Unlock()
		var without, with ledger.Amounts
		for _, obj := range informer.GetStore().List() {
			p := obj.(*corev1.Pod) //nolint:errcheck // it is an informer of pods
			if !wire.Holds(p) {
				continue
			}
			own, _ := request.ReadAmounts(&p.Spec)
			with.Plus(&own)
			if p.DeletionTimestamp == nil {
				without.Plus(&own)
			}
		}
		running, all = larger(running, without), larger(all, with)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: measure, UpdateFunc: func(_, obj any) { measure(obj) }, DeleteFunc: measure})
	w.Must(err)
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		w.Must(errors.New("the pods were not read"))
	}
	return func() (ledger.Amounts, ledger.Amounts) {
		mu.Lock()
		defer mu.Unlock()
		return running, all
	}
}

func larger(a, b ledger.Amounts) ledger.Amounts {
	return ledger.Amounts{Compute: max(a.Compute, b.Compute), Memory: max(a.Memory, b.Memory), Cards: max(a.Cards, b.Cards)}
}

func over(a, limit ledger.Amounts) bool { return larger(a, limit) != limit }

func times(a ledger.Amounts, n int) (sum ledger.Amounts) {
	for range n {
		sum.Plus(&a)
	}
	return sum
}

func double(a ledger.Amounts) ledger.Amounts { return times(a, 2) }

func text(a ledger.Amounts) string {
	return fmt.Sprintf("%d %%, %d GiB and %d cards", a.Compute, a.Memory/gibi, a.Cards)
}
