package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// kubeletIDs is what kubelet reports of a node that the vendor's plugin serves.
type kubeletIDs struct {
	podresources.UnimplementedPodResourcesListerServer
	resource, spare string // the plugin's resource, and an id without a holder

	mu   sync.Mutex
	held []*podresources.PodResources
}

// give makes kubelet say that a pod's only container has these ids.
func (k *kubeletIDs) give(pod string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = append(k.held, &podresources.PodResources{Namespace: "default", Name: pod, Containers: []*podresources.ContainerResources{{
		Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: k.resource, DeviceIds: ids}},
	}}})
}

// List implements kubelet's API.
func (k *kubeletIDs) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresources.ListPodResourcesResponse{PodResources: slices.Clone(k.held)}, nil
}

// GetAllocatableResources implements kubelet's API.
func (k *kubeletIDs) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{{ResourceName: k.resource, DeviceIds: []string{k.spare}}}}, nil
}

// alongside runs an agent next to the vendor's plugin, with kubelet's word on who
// has which ids.
func (w *world) alongside(node string, mode gpu.Mode, k *kubeletIDs) {
	w.Helper()
	dir, err := os.MkdirTemp("", "k")
	w.Must(err)
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	var config net.ListenConfig
	listener, err := config.Listen(w.Ctx, "unix", filepath.Join(dir, "r.sock"))
	w.Must(err)
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }()
	w.Cleanup(server.Stop)
	w.Must(os.Mkdir(filepath.Join(dir, "plugins"), 0o755))
	w.Run(w.NewAgent(node, "--serve=on", "--source=simulated", "--profile=c500-2x4", "--mode="+string(mode), "--drain=0s",
		"--device-plugin-dir="+filepath.Join(dir, "plugins"), "--pod-resources-socket="+filepath.Join(dir, "r.sock"), "--state-dir="+filepath.Join(dir, "state"),
		"--cdi-dir="+filepath.Join(dir, "cdi"), "--runtime-endpoint=unix://"+filepath.Join(dir, "runtime.sock")))
}

// vendorNode creates a node as the vendor's plugin alone leaves it, and returns
// its cards.
func (w *world) vendorNode(name string, mode gpu.Mode) []string {
	w.Helper()
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.Must(err)
	profile := kinds[0]
	profile.Mode = mode
	topology, err := profile.Topology(name)
	w.Must(err)
	node := local.NodeOf(&profile, name, topology)
	var cards, list []string
	for i := range topology.Len() {
		cards = append(cards, string(topology.Card(i).ID))
		list = append(list, fmt.Sprintf(`{"uuid":%q,"healthy":true,"totalDevCount":16,"totalCompute":100,"totalVRam":65536}`, cards[i]))
	}
	node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor}
	if mode == gpu.ModeSGPU {
		node.Annotations[wire.AnnotationNodeCards] = "[" + strings.Join(list, ",") + "]"
		delete(node.Status.Capacity, wire.ResourceGPU)
		delete(node.Status.Allocatable, wire.ResourceGPU)
	}
	w.Must(w.Simulator.AdoptNode(w.Ctx, node))
	return cards
}

// silent makes a pod run on a node without a word on its cards.
func (w *world) silent(p *corev1.Pod, node string) {
	w.Helper()
	p.Spec.NodeName = node
	w.Create(p)
	w.running(time.Minute, p.Name)
}

// onNode binds a pod to a node by name.
func onNode(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return p
}

// TestTakeoverVendorOnly: pods of a cluster that had the vendor's plugin alone
// carry nothing that names their cards. Their node takes no slices until the
// agent has read the cards from kubelet's ids; then it takes what is left.
func TestTakeoverVendorOnly(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	const sliced, native = "sliced", "native"
	c, n := w.vendorNode(sliced, gpu.ModeSGPU), w.vendorNode(native, gpu.ModeNative)
	w.silent(pod("part", "sgpu=1", "vcore=30", "vmemory=16"), sliced)
	w.silent(pod("alone", "sgpu=1"), sliced)
	w.silent(pod("pair", "gpu=2"), native)
	w.Scheduler("scheduler")
	w.Create(onNode(pod("slice", "sgpu=1", "vcore=10", "vmemory=1"), sliced))
	w.refused("slice")
	if text := strings.Join(w.Refusals("slice"), "\n"); !strings.Contains(text, "1 has a pod whose cards are not known") {
		t.Errorf("the message of the pod is %q", text)
	}
	if used := w.usedCards(native); used != 2 {
		t.Errorf("%d whole cards are booked before the agent comes, want 2", used)
	}

	ids := &kubeletIDs{resource: string(wire.ResourceSGPU), spare: c[0] + "-0:0"}
	ids.give("part", c[3]+"-12:2")
	ids.give("alone", c[5]+"-3:1")
	whole := &kubeletIDs{resource: string(wire.ResourceGPU), spare: n[0]}
	whole.give("pair", n[2], n[6])
	w.alongside(sliced, gpu.ModeSGPU, ids)
	w.alongside(native, gpu.ModeNative, whole)
	start := time.Now()
	w.Bound("slice")
	t.Logf("the node took a pod %s after its agent was started", time.Since(start).Round(100*time.Millisecond))
	w.Kubectl("annotate", "node", sliced, wire.AnnotationLock+"-") // as the plugin would
	taken := []*incumbent{
		{pod: pod("part"), want: map[string][]string{"c": {c[3] + ":30:16384"}}}, {pod: pod("alone"), want: map[string][]string{"c": {c[5] + ":100:65536"}}},
		{pod: pod("slice"), want: map[string][]string{"c": {c[3] + ":10:1024"}}},
	}
	w.wantShares(sliced, taken)
	w.wantSharesSoon(native, &incumbent{pod: pod("pair"), want: map[string][]string{"c": {n[2] + ":100:65536", n[6] + ":100:65536"}}})
	w.Audit()

	w.Create(onNode(pod("six", "sgpu=6"), sliced), onNode(pod("six-whole", "gpu=6"), native))
	six := w.Bound("six")
	if text := six.Annotations[wire.AnnotationAllocated]; strings.Contains(text, c[3]) || strings.Contains(text, c[5]) {
		t.Errorf("a taken card was given: %s", text)
	}
	w.Bound("six-whole")
	w.Kubectl("annotate", "node", sliced, wire.AnnotationLock+"-")
	w.Create(onNode(pod("late", "sgpu=1"), sliced), onNode(pod("late-whole", "gpu=2"), native))
	w.refused("late")
	w.refused("late-whole")
	w.Audit()
	w.Delete("alone", "pair")
	w.Bound("late")
	w.Bound("late-whole")
	w.Audit()
}

// wantSharesSoon is wantShares for one pod, when the agent has reported it.
func (w *world) wantSharesSoon(node string, in *incumbent) {
	w.Helper()
	w.Eventually("the cards of "+in.pod.Name+" are known", time.Minute, func() error {
		if d := w.device(node); d == nil || d.Annotations[wire.AnnotationPluginAllocations] == "" {
			return fmt.Errorf("the Device is %+v", d)
		}
		return nil
	})
	w.wantShares(node, []*incumbent{in})
}

// newDevice is what an agent of a version to come might write.
func newDevice(d *v1alpha1.Device) {
	d.Annotations["daybreak-gpu.io/of-tomorrow"] = `{"cards":[]}`
	d.Labels["daybreak-gpu.io/of-tomorrow"] = "yes"
	for i := range d.Spec.Devices {
		c := &d.Spec.Devices[i]
		c.Labels["daybreak-gpu.io/of-tomorrow"] = "1.5"
		c.Conditions = append(c.Conditions, metav1.Condition{Type: "Cooled", Status: metav1.ConditionFalse, Reason: "TooWarm", LastTransitionTime: metav1.Now()})
	}
}

// TestTakeoverNewerVersion: Devices of a newer agent are read, and so is what a newer
// scheduler wrote, with keys and fields that are not known yet.
func TestTakeoverNewerVersion(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents())
	w.AddNodes(1)
	w.rewriteDevice("metax-1", newDevice)
	card := w.device("metax-1").Spec.Devices[1].UUID
	limits := limitsOf("sgpu", "1", "vcore", "30", "vmemory", "8")
	w.inhabit("metax-1", &incumbent{pod: containersOf("held", limits), annotations: map[string]string{
		wire.AnnotationAllocated:      fmt.Sprintf(`[[{"uuid":%q,"compute":30,"vRam":8192,"bandwidth":5}]]`, card),
		wire.AnnotationHAMiSGPU:       fmt.Sprintf("%s,Metax-SGPU,8192,30,{}:;", card),
		wire.AnnotationPredicateTime:  "soon",
		"daybreak-gpu.io/of-tomorrow": "{",
	}})
	w.Scheduler("scheduler")
	w.wantShares("metax-1", []*incumbent{{pod: pod("held"), want: map[string][]string{"c0": {card + ":30:8192"}}}})
	w.Create(pod("seven", "gpu=7"))
	if got := w.Bound("seven").Annotations[wire.AnnotationAllocated]; strings.Contains(got, card) {
		t.Errorf("a taken card was given: %s", got)
	}
	w.Create(pod("one", "gpu=1"))
	w.refused("one")
	w.Audit()
}

// rewriteDevice makes the Device of a node one of another version.
func (w *world) rewriteDevice(node string, change func(*v1alpha1.Device)) {
	w.Helper()
	d := w.device(node)
	change(d)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	w.Must(err)
	_, err = w.Devices(w.REST()).Update(w.Ctx, &unstructured.Unstructured{Object: object}, metav1.UpdateOptions{})
	w.Must(err)
}
