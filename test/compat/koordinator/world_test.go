package koordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

const (
	// envBin names the folder of the binaries, with compat/koordinator in it.
	envBin = "COMPAT_BIN"
	// patience is how long anything may take.
	patience = 2 * time.Minute
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "make compat-koordinator builds Koordinator's scheduler", envBin))
}

func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

var release = Release(bin("compat/koordinator"))

// world is a cluster that Koordinator manages: its definitions, nodes that the
// vendor's plugin serves and that have koordlet's Devices, and Daybreak's policies,
// which let Koordinator's scheduler write.
type world struct {
	*harness.World
	devices dynamic.ResourceInterface // as koordlet
	plugin  *vendorplugin.Plugin
	nodes   []string
	// first is each pod as it was when it first ran.
	first map[types.UID]corev1.Pod
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{World: harness.New(t, bin(""), local.Config{}), first: map[types.UID]corev1.Pod{}}
	w.Must(release.Install(t.Context(), w.Cluster))
	w.guard("daybreak")
	koordlet := w.REST()
	koordlet.Impersonate = rest.ImpersonationConfig{UserName: KoordletUser}
	w.devices = w.Devices(koordlet)

	w.Simulate(local.WithoutAgents())
	var err error
	w.plugin, err = vendorplugin.Start(context.WithoutCancel(t.Context()), w.RESTAs("simulator"), w.Simulator, nil)
	w.Must(err)
	t.Cleanup(w.plugin.Stop)
	kinds := w.Profile()
	w.Must(w.plugin.AddNodes(t.Context(), "vendor", nodes, kinds))
	for i := range nodes {
		name := fmt.Sprintf("vendor-%d", i+1)
		w.nodes = append(w.nodes, name)
		node, err := w.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		w.Must(err)
		topology, err := kinds[0].Topology(name)
		w.Must(err)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(Device(node, topology))
		w.Must(err)
		_, err = w.devices.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		w.Must(err)
	}
	return w
}

// guard applies the policies for a scheduler of Daybreak with these names.
func (w *world) guard(schedulerNames ...string) {
	w.Helper()
	policies := w.Policies()
	policies.OtherSchedulers, policies.SchedulerNames = []string{SchedulerUser}, schedulerNames
	policies.Publishers = append(policies.Publishers, KoordletUser)
	w.Must(w.Guard(w.Ctx, policies))
}

// start starts a scheduler and returns how to stop it.
func (w *world) start(p *local.Process) (stop func()) {
	w.Helper()
	return w.Run(p).Stop
}

func (w *world) koordinator(name string) (stop func()) {
	w.Helper()
	p, err := release.NewScheduler(w.Cluster, name, Scheduler{}, MetaX)
	w.Must(err)
	return w.start(p)
}

func (w *world) daybreak(profiles ...string) (stop func()) {
	w.Helper()
	var args []string
	for _, name := range profiles {
		args = append(args, "--profile="+name)
	}
	return w.start(w.NewScheduler("daybreak", args...))
}

// admission lets Daybreak serve Koordinator's schedulerName too: the policies name
// it, and a manager completes its pods. It returns how to go back, as with the chart's
// admission.webhook=false.
func (w *world) admission() (back func()) {
	w.Helper()
	w.guard("daybreak", SchedulerName)
	admission := manager.Admission{Address: w.FreeAddress()}
	w.Must(w.Webhook(w.Ctx, admission.Address))
	admission.Rules.Schedulers = []string{"daybreak", SchedulerName}
	w.Manager("manager", manager.Config{Admission: admission})
	w.Eventually("the manager answers", patience, func() error {
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, slice("try"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return func() {
		webhooks := w.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		w.Must(webhooks.DeleteCollection(w.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		w.guard("daybreak")
		w.Eventually("new pods carry no amounts", patience, func() error {
			p, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, slice("try"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && hasAmounts(p) {
				err = errors.New("they do")
			}
			return err
		})
	}
}

// hasAmounts reports whether the pod carries what quotas count.
func hasAmounts(p *corev1.Pod) bool {
	_, metered := request.ReadAmounts(&p.Spec)
	return metered
}

// handOver replaces koordlet's Device of a node by the agent's, as the page on
// migration says: the agent runs, and the Device is deleted in koordlet's name.
func (w *world) handOver(node string) {
	w.Helper()
	w.start(w.NewAgent(node, "--serve=off", "--source=simulated", "--profile=c500-2x4", "--mode=sgpu"))
	w.Must(w.devices.Delete(w.Ctx, node, metav1.DeleteOptions{}))
	w.Eventually("the agent writes the Device of "+node, patience, func() error {
		d, err := w.devices.Get(w.Ctx, node, metav1.GetOptions{})
		if err == nil && d.GetAnnotations()[wire.AnnotationLinks] == "" {
			err = fmt.Errorf("its annotations are %v", d.GetAnnotations())
		}
		return err
	})
}

// pod returns a pod of Koordinator's dialect as its documentation writes it.
func pod(name, limits string) *corev1.Pod {
	p := harness.PodFor(name, SchedulerName, "cpu: 100m, "+limits)
	p.Annotations = map[string]string{wire.AnnotationQoS: "fixed-share"}
	p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	return p
}

func slice(name string) *corev1.Pod {
	return pod(name, "gpu.shared: 1, gpu-core: 10, gpu-memory: 5Gi, sgpu: 1")
}

func half(name string) *corev1.Pod {
	return pod(name, "gpu.shared: 1, gpu-core: 50, gpu-memory-ratio: 50, sgpu: 1")
}

func cards(name string, n int) *corev1.Pod {
	return pod(name, fmt.Sprintf("gpu.shared: %d, gpu-core: %d, gpu-memory-ratio: %d, sgpu: %d", n, 100*n, 100*n, n))
}

// card returns the UUID of a card of a node, by its minor number.
func (w *world) card(node string, minor int64) string {
	w.Helper()
	d, err := w.devices.Get(w.Ctx, node, metav1.GetOptions{})
	w.Must(err)
	list, _, err := unstructured.NestedSlice(d.Object, "spec", "devices")
	w.Must(err)
	for _, item := range list {
		if card, ok := item.(map[string]any); ok && card["minor"] == minor {
			return fmt.Sprint(card["id"])
		}
	}
	w.Fatalf("node %s has no card %d", node, minor)
	return ""
}

// on makes a pod run on one node only.
func on(node string, pods ...*corev1.Pod) []*corev1.Pod {
	for _, p := range pods {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return pods
}

// oneByOne creates each pod when the one before it runs. Koordinator's scheduler reads
// the lock from its cache and writes it without a precondition: of two pods for one
// node at the same time the second may overwrite the first one's lock, and the vendor's
// plugin rejects the first.
func (w *world) oneByOne(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		w.Create(p)
		w.run()
	}
}

// again creates a pod until it runs. Koordinator's scheduler may try a pod before its
// cache of cards has heard of an end, and then not again for five minutes.
func (w *world) again(p *corev1.Pod) {
	w.Helper()
	w.Create(p)
	w.Eventually("pod "+p.Name+" runs", patience, func() error {
		pods := w.Pods()
		is := pods[slices.IndexFunc(pods, func(o corev1.Pod) bool { return o.Name == p.Name })]
		switch {
		case is.Status.Phase == corev1.PodRunning:
			return nil
		case unschedulable(&is):
			w.delete(p.Name)
			w.Create(p)
		}
		return errors.New("it is pending")
	})
}

// unschedulable reports whether a scheduler tried the pod in vain.
func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable })
}

func (w *world) delete(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, name, metav1.DeleteOptions{}))
	}
	w.Eventually("pods are gone", patience, func() error {
		for _, p := range w.Pods() {
			if slices.Contains(names, p.Name) {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
	maps.DeleteFunc(w.first, func(_ types.UID, p corev1.Pod) bool { return slices.Contains(names, p.Name) })
}

// run waits until all pods run but the named ones, which were tried in vain.
func (w *world) run(waiting ...string) {
	w.Helper()
	w.Eventually(fmt.Sprintf("all pods run but %v", waiting), patience, func() error {
		var pending []string
		for _, p := range w.Pods() {
			switch {
			case p.Status.Phase == corev1.PodRunning:
			case p.Status.Phase == corev1.PodPending && (unschedulable(&p) || !slices.Contains(waiting, p.Name)):
				pending = append(pending, p.Name)
			default:
				return fmt.Errorf("pod %s is %s: %s %v", p.Name, p.Status.Phase, p.Status.Message, p.Status.Conditions)
			}
		}
		slices.Sort(pending)
		if !slices.Equal(pending, slices.Sorted(slices.Values(waiting))) {
			return fmt.Errorf("pending: %v", pending)
		}
		return nil
	})
}

// check fails the test if a card was allocated beyond what it has, if the formats
// disagree, or if a pod is not the one that ran before.
func (w *world) check(phase string) {
	w.Helper()
	w.Logf("%s: audit", phase)
	w.Audit()
	pods := w.Pods()
	for _, problem := range overbooked(pods) {
		w.Errorf("%s: %s", phase, problem)
	}
	for _, fault := range w.plugin.Faults() {
		w.Errorf("%s: the vendor's plugin: %s", phase, fault)
	}
	for _, refused := range w.plugin.Refused() {
		w.Errorf("%s: the vendor's plugin rejected %s", phase, refused)
	}
	placed := 0
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			continue
		}
		placed++
		if was, ok := w.first[p.UID]; !ok {
			w.first[p.UID] = p
		} else if problem := changed(&was, &p); problem != "" {
			w.Errorf("%s: %s", phase, problem)
		}
	}
	for uid, was := range w.first {
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID == uid }) {
			w.Errorf("%s: pod %s is gone", phase, was.Name)
		}
	}
	w.Logf("%s: %d of %d pods placed", phase, placed, len(pods))
}

// changed returns how a pod differs from what it was when it first ran.
func changed(was, is *corev1.Pod) string {
	var restarts int32
	for i := range is.Status.ContainerStatuses {
		restarts += is.Status.ContainerStatuses[i].RestartCount
	}
	for _, key := range []string{wire.AnnotationAllocated, wire.AnnotationKoordAllocated} {
		if was.Annotations[key] != is.Annotations[key] {
			return fmt.Sprintf("pod %s had %s %s and has %s", is.Name, key, was.Annotations[key], is.Annotations[key])
		}
	}
	if was.Spec.NodeName != is.Spec.NodeName || !was.Status.StartTime.Equal(is.Status.StartTime) || restarts > 0 {
		return fmt.Sprintf("pod %s ran on %s since %s and runs on %s since %s with %d restarts",
			is.Name, was.Spec.NodeName, was.Status.StartTime, is.Spec.NodeName, is.Status.StartTime, restarts)
	}
	return ""
}

// share is what a pod has of a card, in percent and MiB.
type share struct {
	compute, memory int64
}

// overbooked adds up Koordinator's annotation of all pods, without anything of
// Daybreak's ledger: no card may be beyond 100 percent or 64 GiB, and the vendor's
// annotation must say the same.
func overbooked(pods []corev1.Pod) (problems []string) {
	sums := map[string]share{}
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" {
			continue
		}
		var koord struct {
			GPU []struct {
				ID        string              `json:"id"`
				Resources corev1.ResourceList `json:"resources"`
			} `json:"gpu"`
		}
		var vendor [][]struct {
			UUID    string `json:"uuid"`
			Compute int64  `json:"compute"`
			VRam    int64  `json:"vRam"`
		}
		if err := cmp.Or(json.Unmarshal([]byte(p.Annotations[wire.AnnotationKoordAllocated]), &koord), json.Unmarshal([]byte(p.Annotations[wire.AnnotationAllocated]), &vendor)); err != nil {
			problems = append(problems, fmt.Sprintf("pod %s has no allocation that can be read: %v", p.Name, err))
			continue
		}
		asked := p.Spec.Containers[0].Resources.Limits[wire.ResourceSGPU]
		if int64(len(koord.GPU)) != asked.Value() || len(vendor) != 1 || len(vendor[0]) != len(koord.GPU) {
			problems = append(problems, fmt.Sprintf("pod %s asks for %s cards and has %v", p.Name, asked.String(), p.Annotations))
			continue
		}
		own := map[string]share{}
		for _, c := range koord.GPU {
			own[c.ID] = share{c.Resources.Name(wire.KoordCore, resource.DecimalSI).Value(), c.Resources.Name(wire.KoordMemory, resource.BinarySI).Value() >> 20}
		}
		for _, c := range vendor[0] {
			if own[c.UUID] != (share{c.Compute, c.VRam}) {
				problems = append(problems, fmt.Sprintf("pod %s: %s and %s disagree", p.Name, wire.AnnotationKoordAllocated, wire.AnnotationAllocated))
			}
			sum := sums[c.UUID]
			sums[c.UUID] = share{sum.compute + c.Compute, sum.memory + c.VRam}
		}
	}
	for card, sum := range sums {
		if sum.compute > 100 || sum.memory > 64<<10 {
			problems = append(problems, fmt.Sprintf("card %s is allocated to %d %% and %d MiB", card, sum.compute, sum.memory))
		}
	}
	slices.Sort(problems)
	return problems
}

// names returns prefix-0 to prefix-(n-1).
func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s-%d", prefix, i))
	}
	return list
}

// several returns n pods of a kind.
func several(prefix string, n int, kind func(string) *corev1.Pod) (pods []*corev1.Pod) {
	for _, name := range names(prefix, n) {
		pods = append(pods, kind(name))
	}
	return pods
}

func joined(problems []string) string { return strings.Join(problems, "\n") }
