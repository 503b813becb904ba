package inventory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// advertising is a node with the vendor's labels whose kubelet has cards to hand
// out, as the vendor's operator leaves it.
func advertising(name corev1.ResourceName, n string, annotations ...string) *corev1.Node {
	node := gputest.MakeNode("", annotations...)
	node.Labels = map[string]string{
		"metax-tech.com/gpu.installed": "true", "metax-tech.com/gpu.product": "MXC550", "metax-tech.com/gpu.family": "MXC",
		"metax-tech.com/gpu.driver.mode": "cloud", "metax-tech.com/maca.ready": "true", "metax-tech.com/runtime.ready": "true",
	}
	node.Status.Capacity = corev1.ResourceList{name: resource.MustParse(n), "metax-tech.com/vfio-gpu": resource.MustParse("0")}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	return node
}

func systemPod(generated string, phase corev1.PodPhase, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: generated, Name: generated + "shdr5", Namespace: "metax-operator", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase},
	}
}

// in returns a copy of the pod in another namespace.
func in(namespace string, pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = namespace
	return pod
}

var (
	pluginPod = systemPod("metax-gpu-device-", corev1.PodRunning, nil)
	agentPod  = in(wire.Namespace, systemPod("daybreak-agent-", corev1.PodPending, map[string]string{"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": "agent"}))
)

// Two zones of four cards, of which two and four are free; and a node of slices.
var (
	figures = []string{
		wire.AnnotationScores, `{"1":0,"2":110,"3":330,"4":660,"5":700,"6":850}`, wire.AnnotationLosses, `{"1":150,"2":80,"3":390,"4":80,"5":150,"6":0}`,
		"metax-tech.com/gpu.topology.zones", `{"zones":[{"name":"gpu-group-0","type":"DirectLink"}]}`,
	}
	sliced = []string{wire.AnnotationNodeCards, `[{"uuid":"GPU-0","model":"sgpu","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,"linkZone":1}]`}
)

// TestWhoServes: cards in what kubelet has to hand out count only where it is
// known that the vendor's plugin hands them out.
func TestWhoServes(t *testing.T) {
	withoutCards := func(node *corev1.Node) *corev1.Node {
		for name := range node.Status.Allocatable {
			node.Status.Allocatable[name] = resource.Quantity{} // the capacity stays for a while
		}
		return node
	}
	for name, tt := range map[string]struct {
		node     *corev1.Node
		pods     []*corev1.Pod
		selector string
		spaces   [2]string // of the operator and of Daybreak
		want     int       // cards
		paused   string
	}{
		// As they are before an upgrade.
		"whole cards, the plugin runs":           {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{pluginPod}, want: 8},
		"whole cards, with the plugin's figures": {node: advertising(wire.ResourceGPU, "8", figures...), want: 8},
		"slices":                                 {node: advertising(wire.ResourceSGPU, "16", sliced...), want: 1},
		"slices, the plugin and our agent run":   {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{agentPod, pluginPod}, want: 1},
		"by a word":                              {node: withoutCards(advertising(wire.ResourceGPU, "8", wire.AnnotationServedBy, wire.ServedByVendor)), want: 8},

		"by a word, our agent":            {node: advertising(wire.ResourceGPU, "8", wire.AnnotationServedBy, wire.ServedByDaybreak), pods: []*corev1.Pod{pluginPod}},
		"nothing but labels":              {node: advertising(wire.ResourceGPU, "8"), want: 8, paused: "nothing shows that the vendor's plugin serves it"},
		"a word that means nothing":       {node: advertising(wire.ResourceGPU, "8", wire.AnnotationServedBy, "\x00"), want: 8, paused: "nothing shows"},
		"labels, and more than cards":     {node: advertising(wire.ResourceGPU, "128")},
		"our agent may have described it": {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{agentPod}, want: 1, paused: "nothing shows"},
		"our agent was there":             {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{in(wire.Namespace, systemPod("daybreak-agent-", corev1.PodFailed, agentPod.Labels))}, want: 1},
		"the plugin has not started":      {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{systemPod("metax-gpu-device-", corev1.PodPending, nil)}, want: 8, paused: "nothing shows"},
		"another plugin runs":             {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{systemPod("metax-gpu-label-", corev1.PodRunning, nil)}, want: 8, paused: "nothing shows"},
		"a name that ends alike":          {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{systemPod("nogpu-device-", corev1.PodRunning, nil)}, want: 8, paused: "nothing shows"},
		"the plugin under its plain name": {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{systemPod("gpu-device-", corev1.PodRunning, nil)}, want: 8},
		"the plugin's devices are gone":   {node: withoutCards(advertising(wire.ResourceGPU, "8", figures...)), pods: []*corev1.Pod{pluginPod}, want: 8, paused: "kubelet has no metax-tech.com/gpu or metax-tech.com/sgpu to allocate"},
		"by a selector":                   {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{systemPod("p-", corev1.PodRunning, map[string]string{"app": "plugin"})}, selector: "app in (plugin,other)", want: 8},
		"a selector in place of the name": {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{pluginPod}, selector: "app=plugin", want: 8, paused: "nothing shows"},
		// What any user can create.
		"a tenant's pod under the plugin's name":  {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{in("tenant", pluginPod)}, want: 8, paused: "nothing shows"},
		"a tenant's pod with the plugin's labels": {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{in("tenant", systemPod("p-", corev1.PodRunning, map[string]string{"app": "plugin"}))}, selector: "app=plugin", want: 8, paused: "nothing shows"},
		"a tenant's pod with our agent's labels":  {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{in("tenant", agentPod)}, want: 1},
		"our agent's labels beside the plugin":    {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{in(wire.VendorNamespace, agentPod)}, want: 1},
		"the plugin in a namespace of its own":    {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{in("gpus", pluginPod)}, spaces: [2]string{"gpus"}, want: 8},
		"the plugin in the namespace by default":  {node: advertising(wire.ResourceGPU, "8"), pods: []*corev1.Pod{pluginPod}, spaces: [2]string{"gpus"}, want: 8, paused: "nothing shows"},
		"our agent in another namespace":          {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{in("db", agentPod)}, spaces: [2]string{"", "db"}, want: 1, paused: "nothing shows"},
		"our agent in the namespace by default":   {node: advertising(wire.ResourceSGPU, "16", sliced...), pods: []*corev1.Pod{agentPod}, spaces: [2]string{"", "db"}, want: 1},
		"a node without cards":                    {node: gputest.MakeNode("")},
		"a node without cards but a label":        {node: withoutCards(advertising("metax-tech.com/other", "1"))},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := VendorPlugin{Namespace: tt.spaces[0], Daybreak: tt.spaces[1]}
			gputest.Must(t, plugin.Set(tt.selector))
			objects := NodeObjects{Name: tt.node.Name, Node: tt.node, Vendor: plugin.Serves(tt.node, slices.Values(tt.pods))}
			inv := objects.Inventory()
			if inv.Problem != nil {
				t.Fatal(inv.Problem)
			}
			n := inv.NewNode()
			if got := n.Topology().Len(); got != tt.want {
				t.Errorf("%d cards, want %d", got, tt.want)
			}
			if !strings.HasPrefix(inv.Paused, tt.paused) || (inv.Paused == "") != (tt.paused == "") && tt.want > 0 {
				t.Errorf("paused: %q, want %q", inv.Paused, tt.paused)
			}
			request := gpu.PodRequest{Requests: []gpu.Request{{Cards: 1, Whole: n.Serves.Whole}}}
			_, refusal := place.Fit(n, &request, &place.Preference{})
			if fits := refusal.Code == place.Fits; fits != (tt.want > 0 && tt.paused == "") {
				t.Errorf("a pod is refused with %v", refusal.Code)
			}
		})
	}
}

// TestInventoryOfNode: a Device that is there decides, whatever serves the node.
func TestInventoryOfNode(t *testing.T) {
	other := gputest.MakeDevice(gputest.CardInfo("GPU-x", 0))
	other.Labels = map[string]string{wire.LabelVendor: "nvidia"}
	node := advertising(wire.ResourceGPU, "8")
	for name, tt := range map[string]struct {
		objects NodeObjects
		want    int
		paused  bool
		problem string
	}{
		"a Device":                        {objects: NodeObjects{Node: node, Device: gputest.MakeDevice(gputest.CardInfos(3)...)}, want: 3},
		"a Device without its Node":       {objects: NodeObjects{Device: gputest.MakeDevice(gputest.CardInfos(3)...)}, want: 3},
		"a Device of another vendor":      {objects: NodeObjects{Node: node, Device: other}, want: 8, paused: true},
		"another vendor's and the plugin": {objects: NodeObjects{Node: node, Device: other, Vendor: true}, want: 8},
		"a Device that can't be decoded":  {objects: NodeObjects{Node: node, Err: errors.New("broken"), Vendor: true}, problem: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.objects.Name = "n1"
			inv := tt.objects.Inventory()
			if got := inv.NewNode().Topology().Len(); inv.Name != "n1" || got != tt.want || (inv.Paused != "") != tt.paused {
				t.Errorf("%s: %d cards, paused %q; want %d, %t", inv.Name, got, inv.Paused, tt.want, tt.paused)
			}
			if (inv.Problem != nil) != (tt.problem != "") {
				t.Errorf("problem %v, want %q", inv.Problem, tt.problem)
			}
		})
	}
}

// TestVendorPluginFlag: it is read as it is written, and nonsense is rejected.
func TestVendorPluginFlag(t *testing.T) {
	var v VendorPlugin
	for _, text := range []string{"app=gpu-device", "app in (a,b),!other", ""} {
		if err := v.Set(text); err != nil || v.String() != text {
			t.Errorf("Set(%q) = %v, then %q", text, err, v.String())
		}
	}
	if err := v.Set("app=="); err != nil {
		t.Errorf("a selector of an empty value: %v", err)
	}
	gputest.ErrorHas(t, "Set()", `"a b c" is no label selector such as app=gpu-device`, v.Set("a b c"))
}

func TestNodesWithLocks(t *testing.T) {
	for name, n := range map[string]*corev1.Node{
		"not known who serves it": gputest.MakeNode("sgpu: 16"),
		"the vendor's plugin":     gputest.MakeNode("sgpu: 16", wire.AnnotationServedBy, wire.ServedByVendor),
		"only listed":             gputest.MakeNode("", wire.AnnotationNodeCards, "[]"),
	} {
		if !UsesLock(n) || !ServesSlices(n) {
			t.Errorf("%s: want slices under a lock", name)
		}
	}
	if UsesLock(gputest.MakeNode("", wire.AnnotationServedBy, wire.ServedByDaybreak)) {
		t.Error("where Daybreak's agent serves there is no lock")
	}
	if ServesSlices(gputest.MakeNode("nvidia.com/gpu: 16, gpu: 16")) {
		t.Error("a node without MetaX slices has locks, which are not of ours")
	}
}
