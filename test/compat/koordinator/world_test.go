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
	"strconv"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// envBin names the folder of the binaries, with compat/koordinator in it.
const envBin = "COMPAT_BIN"

func TestMain(m *testing.M) {
	if os.Getenv(envBin) == "" {
		fmt.Fprintln(os.Stderr, "test/compat/koordinator: nothing was tested; make compat-koordinator builds Koordinator's scheduler")
		return
	}
	os.Exit(m.Run())
}

func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

var release = Release(bin("compat/koordinator"))

// world is a cluster that Koordinator manages: its definitions, nodes that the
// vendor's plugin serves and that have koordlet's Devices, and Daybreak's policies,
// which let Koordinator's scheduler write.
type world struct {
	*testing.T
	cluster *local.Cluster
	client  kubernetes.Interface
	devices dynamic.ResourceInterface // as koordlet
	plugin  *vendorplugin.Plugin
	nodes   []string
	// first is each pod as it was when it first ran.
	first map[types.UID]corev1.Pod
}

func newWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := &world{T: t, first: map[types.UID]corev1.Pod{}}
	var err error
	w.cluster, err = local.Start(t.Context(), local.Config{Dir: t.TempDir(), Executable: bin("playground")})
	w.must(err)
	t.Cleanup(w.cluster.Stop)
	w.must(w.cluster.Install(t.Context()))
	w.must(release.Install(t.Context(), w.cluster))
	w.guard("daybreak")
	w.client, err = kubernetes.NewForConfig(w.cluster.REST())
	w.must(err)
	koordlet := w.cluster.REST()
	koordlet.Impersonate = rest.ImpersonationConfig{UserName: KoordletUser}
	objects, err := dynamic.NewForConfig(koordlet)
	w.must(err)
	w.devices = objects.Resource(v1alpha1.GroupVersion.WithResource("devices"))

	running := context.WithoutCancel(t.Context())
	simulator, err := local.NewSimulator(running, w.cluster.RESTAs("simulator"), local.WithoutAgents())
	w.must(err)
	t.Cleanup(simulator.Stop)
	w.plugin, err = vendorplugin.Start(running, w.cluster.RESTAs("simulator"), simulator, nil)
	w.must(err)
	t.Cleanup(w.plugin.Stop)
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.must(err)
	w.must(w.plugin.AddNodes(t.Context(), "vendor", nodes, kinds))
	for i := range nodes {
		name := fmt.Sprintf("vendor-%d", i+1)
		w.nodes = append(w.nodes, name)
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		w.must(err)
		topology, err := kinds[0].Topology(name)
		w.must(err)
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(Device(node, topology))
		w.must(err)
		_, err = w.devices.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		w.must(err)
	}
	return w
}

// guard applies the policies for a scheduler of Daybreak with these names.
func (w *world) guard(schedulerNames ...string) {
	w.Helper()
	policies := w.cluster.Policies()
	policies.OtherSchedulers, policies.SchedulerNames = []string{SchedulerUser}, schedulerNames
	policies.Publishers = append(policies.Publishers, KoordletUser)
	w.must(w.cluster.Guard(w.Context(), policies))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// start starts a scheduler and returns how to stop it.
func (w *world) start(p *local.Process) (stop func()) {
	w.Helper()
	w.must(p.Start())
	w.Cleanup(func() {
		p.Kill()
		if w.Failed() {
			text, _ := os.ReadFile(p.Log())
			w.Logf("the end of %s:\n%s", p.Log(), text[max(0, len(text)-6000):])
		}
	})
	return p.Stop
}

func (w *world) koordinator(name string) (stop func()) {
	w.Helper()
	p, err := release.NewScheduler(w.cluster, name, Scheduler{}, MetaX)
	w.must(err)
	return w.start(p)
}

func (w *world) daybreak(profiles ...string) (stop func()) {
	w.Helper()
	args := []string{"--leader-elect=false"}
	for _, name := range profiles {
		args = append(args, "--profile="+name)
	}
	return w.start(w.cluster.NewScheduler("daybreak", args...))
}

// admission lets Daybreak serve Koordinator's schedulerName too: the policies name
// it, and a manager completes its pods. It returns how to go back, as with the chart's
// admission.webhook=false.
func (w *world) admission() (back func()) {
	w.Helper()
	w.guard("daybreak", SchedulerName)
	addresses, err := local.FreeAddresses(w.Context(), 1)
	w.must(err)
	w.must(w.cluster.Webhook(w.Context(), addresses[0]))
	admission := manager.Admission{Address: addresses[0], Hosts: []string{"127.0.0.1"}}
	admission.Rules.Schedulers = []string{"daybreak", SchedulerName}
	m, err := w.cluster.StartManager(w.Context(), "manager", manager.Config{Admission: admission})
	w.must(err)
	w.Cleanup(m.Stop)
	w.eventually("the manager answers", func() error {
		_, err := w.client.CoreV1().Pods("default").Create(w.Context(), slice("try"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return func() {
		webhooks := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
		w.must(webhooks.DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		w.guard("daybreak")
		w.eventually("new pods carry no amounts", func() error {
			p, err := w.client.CoreV1().Pods("default").Create(w.Context(), slice("try"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
	agent, err := w.cluster.NewAgent(w.Context(), bin("daybreak"), node, "--serve=off", "--source=simulated", "--profile=c500-2x4", "--mode=sgpu")
	w.must(err)
	w.start(agent)
	w.must(w.devices.Delete(w.Context(), node, metav1.DeleteOptions{}))
	w.eventually("the agent writes the Device of "+node, func() error {
		d, err := w.devices.Get(w.Context(), node, metav1.GetOptions{})
		if err == nil && d.GetAnnotations()[wire.AnnotationLinks] == "" {
			err = fmt.Errorf("its annotations are %v", d.GetAnnotations())
		}
		return err
	})
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	if err := machine.Until(w.Context(), 2*time.Minute, check); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// pod returns a pod of Koordinator's dialect as its documentation writes it.
func pod(name string, amounts map[corev1.ResourceName]string) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	for key, amount := range amounts {
		list[key] = resource.MustParse(amount)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{wire.AnnotationQoS: "fixed-share"}},
		Spec: corev1.PodSpec{
			SchedulerName: SchedulerName, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}},
		},
	}
}

func slice(name string) *corev1.Pod {
	return pod(name, map[corev1.ResourceName]string{wire.KoordShared: "1", wire.KoordCore: "10", wire.KoordMemory: "5Gi", wire.ResourceSGPU: "1"})
}

func half(name string) *corev1.Pod {
	return pod(name, map[corev1.ResourceName]string{wire.KoordShared: "1", wire.KoordCore: "50", wire.KoordMemoryRatio: "50", wire.ResourceSGPU: "1"})
}

func cards(name string, n int) *corev1.Pod {
	percent, count := strconv.Itoa(100*n), strconv.Itoa(n)
	return pod(name, map[corev1.ResourceName]string{wire.KoordShared: count, wire.KoordCore: percent, wire.KoordMemoryRatio: percent, wire.ResourceSGPU: count})
}

// card returns the UUID of a card of a node, by its minor number.
func (w *world) card(node string, minor int64) string {
	w.Helper()
	d, err := w.devices.Get(w.Context(), node, metav1.GetOptions{})
	w.must(err)
	list, _, err := unstructured.NestedSlice(d.Object, "spec", "devices")
	w.must(err)
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

func (w *world) create(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		_, err := w.client.CoreV1().Pods("default").Create(w.Context(), p, metav1.CreateOptions{})
		w.must(err)
	}
}

// oneByOne creates each pod when the one before it runs. Koordinator's scheduler reads
// the lock from its cache and writes it without a precondition: of two pods for one
// node at the same time the second may overwrite the first one's lock, and the vendor's
// plugin rejects the first.
func (w *world) oneByOne(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		w.create(p)
		w.run()
	}
}

// again creates a pod until it runs. Koordinator's scheduler may try a pod before its
// cache of cards has heard of an end, and then not again for five minutes.
func (w *world) again(p *corev1.Pod) {
	w.Helper()
	w.create(p)
	w.eventually("pod "+p.Name+" runs", func() error {
		pods := w.pods()
		is := pods[slices.IndexFunc(pods, func(o corev1.Pod) bool { return o.Name == p.Name })]
		switch {
		case is.Status.Phase == corev1.PodRunning:
			return nil
		case unschedulable(&is):
			w.delete(p.Name)
			w.create(p)
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
		w.must(w.client.CoreV1().Pods("default").Delete(w.Context(), name, metav1.DeleteOptions{}))
	}
	w.eventually("pods are gone", func() error {
		for _, p := range w.pods() {
			if slices.Contains(names, p.Name) {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
	maps.DeleteFunc(w.first, func(_ types.UID, p corev1.Pod) bool { return slices.Contains(names, p.Name) })
}

func (w *world) pods() []corev1.Pod {
	w.Helper()
	list, err := w.client.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
	w.must(err)
	return list.Items
}

// run waits until all pods run but the named ones, which were tried in vain.
func (w *world) run(waiting ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("all pods run but %v", waiting), func() error {
		var pending []string
		for _, p := range w.pods() {
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
	objects, err := cluster.ReadLive(w.Context(), w.cluster.REST())
	w.must(err)
	snapshot := objects.Snapshot()
	for _, note := range snapshot.Notes {
		w.Errorf("%s: audit: %s", phase, note)
	}
	for _, v := range audit.Check(snapshot, time.Now()).Violations {
		w.Errorf("%s: audit: %s: %s (pods %v)", phase, v.Rule, v.Message, v.Pods)
	}
	pods := w.pods()
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
