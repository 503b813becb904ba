package noderesource

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// card is one card of a Device in a test.
type card struct {
	memory, model string
	sick          bool
}

func c500(n int) []card { return slices.Repeat([]card{{memory: "64Gi", model: "C500"}}, n) }

// sicken makes the cards with the given numbers unhealthy.
func sicken(cards []card, which ...int) []card {
	for _, i := range which {
		cards[i].sick = true
	}
	return cards
}

// deviceOf returns the Device of n1. Labels are given as key, value.
func deviceOf(cards []card, labels ...string) *v1alpha1.Device {
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: pairs(labels)}}
	for i, c := range cards {
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: "GPU-" + string(rune('a'+i)), Minor: new(int32(i)), Health: !c.sick,
			Labels: map[string]string{wire.LabelModel: c.model}, Resources: corev1.ResourceList{wire.KoordMemory: resource.MustParse(c.memory)},
		})
	}
	return d
}

func pairs(list []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(list); i += 2 {
		out[list[i]] = list[i+1]
	}
	return out
}

var ofMetaX = []string{wire.LabelVendor, "metax", wire.LabelModel, "C500", wire.LabelDriver, "3.8.30"}

// allMarks is the mark of a node that got all three labels from us.
const allMarks = "node.koordinator.sh/gpu-vendor,node.koordinator.sh/gpu-model,node.koordinator.sh/gpu-driver-version"

// nodeOf returns n1 with capacity and allocatable as gputest reads them.
func nodeOf(amounts string) *corev1.Node {
	list := corev1.ResourceList{}
	maps.Copy(list, gputest.MakeResources(amounts))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}, Annotations: map[string]string{}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: maps.Clone(list)},
	}
}

// marked puts the mark and the labels on the node that we would.
func marked(node *corev1.Node) *corev1.Node {
	node.Annotations[wire.AnnotationAdvertised] = allMarks
	maps.Copy(node.Labels, pairs(ofMetaX))
	return node
}

// ofKubelet sets the version of the node's kubelet.
func ofKubelet(node *corev1.Node, version string) *corev1.Node {
	node.Status.NodeInfo.KubeletVersion = version
	return node
}

// holding returns a pod on n1 that asks for the resources.
func holding(requests string) corev1.Pod {
	pod := gputest.MakePod("p").AppWith("", requests).Obj()
	pod.Spec.NodeName = "n1"
	pod.Status.Phase = corev1.PodRunning
	return *pod
}

func withPhase(pod corev1.Pod, phase corev1.PodPhase) corev1.Pod {
	pod.Status.Phase = phase
	return pod
}

func started(pod corev1.Pod) corev1.Pod {
	pod.Status.StartTime = &metav1.Time{}
	return pod
}

// allocated adds an allocation of whole cards.
func allocated(pod corev1.Pod, cards ...string) corev1.Pod {
	var list []string
	for _, card := range cards {
		list = append(list, `{"uuid":"`+card+`","compute":100,"vRam":65536}`)
	}
	pod.Annotations = map[string]string{wire.AnnotationAllocated: "[[" + strings.Join(list, ",") + "]]"}
	return pod
}

func ending(pod corev1.Pod) corev1.Pod {
	pod.DeletionTimestamp = &metav1.Time{}
	return pod
}

// text writes amounts as gputest reads them, in the order of resources.
func text(list corev1.ResourceList) string {
	var out []string
	for _, name := range resources {
		if q, ok := list[name]; ok {
			short := strings.TrimPrefix(string(name), "koordinator.sh/")
			if name == wire.KoordGPU {
				short = string(name)
			}
			out = append(out, short+": "+q.String())
		}
	}
	return strings.Join(out, ", ")
}

const (
	unlimited = "metax-tech.com/vcore: 8Pi, metax-tech.com/vmemory: 8Pi, "
	eight     = "gpu.shared: 800, gpu-core: 800, gpu-memory: 512Gi, gpu-memory-ratio: 800, koordinator.sh/gpu: 800"
	seven     = "gpu.shared: 700, gpu-core: 700, gpu-memory: 448Gi, gpu-memory-ratio: 700, koordinator.sh/gpu: 700"
)

func TestDecideAmounts(t *testing.T) {
	whole := "gpu.shared: 1, gpu-core: 100, gpu-memory-ratio: 100"
	cases := map[string]struct {
		cards []card
		node  *corev1.Node
		pods  []corev1.Pod
		want  string
		held  string
	}{
		"one C500, the seed's node": {cards: c500(1), want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 64Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100"},
		"eight":                     {cards: c500(8), want: eight},
		"one of eight unhealthy":    {cards: sicken(c500(8), 3), want: seven},
		"cards of two sizes":        {cards: []card{{memory: "64Gi"}, {memory: "72Gi"}}, want: "gpu.shared: 200, gpu-core: 200, gpu-memory: 136Gi, gpu-memory-ratio: 200, koordinator.sh/gpu: 200"},
		"the smaller one unhealthy": {cards: []card{{memory: "64Gi", sick: true}, {memory: "72Gi"}}, want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 72Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100"},
		"all unhealthy":             {cards: sicken(c500(2), 0, 1), want: "gpu.shared: 0, gpu-core: 0, gpu-memory: 0, gpu-memory-ratio: 0, koordinator.sh/gpu: 0"},
		"no card at all":            {want: "gpu.shared: 0, gpu-core: 0, gpu-memory: 0, gpu-memory-ratio: 0, koordinator.sh/gpu: 0"},
		"kubelet set all to zero":   {cards: c500(8), node: marked(nodeOf("gpu-core: 0")), want: eight},
		"kubelet that fails init containers with vcore": {cards: c500(8), node: ofKubelet(nodeOf("cpu: 4"), "v1.30.14"), want: unlimited + eight},
		"the same of a vendor, with pods":               {cards: c500(8), node: ofKubelet(nodeOf("cpu: 4"), "v1.28.3-aliyun.1"), pods: []corev1.Pod{holding("sgpu: 1, vcore: 100, vmemory: 1Ti")}, want: unlimited + eight},
		"kubelet that does not any more":                {cards: c500(8), node: ofKubelet(marked(nodeOf(unlimited+eight)), "v1.31.0"), want: eight},
		"pods ask for less":                             {cards: sicken(c500(8), 3), pods: slices.Repeat([]corev1.Pod{holding(whole)}, 7), want: seven},
		"pods ask for all, one sick":                    {cards: sicken(c500(8), 3), pods: slices.Repeat([]corev1.Pod{holding(whole)}, 8), want: "gpu.shared: 700, gpu-core: 800, gpu-memory: 448Gi, gpu-memory-ratio: 800, koordinator.sh/gpu: 700", held: "koordinator.sh/gpu-core, koordinator.sh/gpu-memory-ratio"},
		"memory alone is held":                          {cards: sicken(c500(2), 0), pods: []corev1.Pod{holding("gpu-memory: 96Gi")}, want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 96Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100", held: "koordinator.sh/gpu-memory"},
		"memory in another unit":                        {cards: sicken(c500(2), 0), pods: []corev1.Pod{holding("gpu-memory: 70G")}, want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 68359375Ki, gpu-memory-ratio: 100, koordinator.sh/gpu: 100", held: "koordinator.sh/gpu-memory"},
		"all in one":                                    {cards: sicken(c500(2), 0, 1), pods: []corev1.Pod{holding("koordinator.sh/gpu: 200")}, want: "gpu.shared: 0, gpu-core: 0, gpu-memory: 0, gpu-memory-ratio: 0, koordinator.sh/gpu: 200", held: "koordinator.sh/gpu"},
		"pods that have ended hold nothing": {
			cards: sicken(c500(2), 0), want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 64Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100",
			pods: []corev1.Pod{withPhase(holding("gpu-core: 200"), corev1.PodFailed), withPhase(holding("gpu-core: 200"), corev1.PodSucceeded)},
		},
		"pods that are ending or starting hold all": {
			cards: sicken(c500(2), 0, 1), want: "gpu.shared: 0, gpu-core: 150, gpu-memory: 0, gpu-memory-ratio: 0, koordinator.sh/gpu: 0", held: "koordinator.sh/gpu-core",
			pods: []corev1.Pod{ending(holding("gpu-core: 100")), withPhase(started(holding("gpu-core: 50")), corev1.PodPending)},
		},
		"a pod without cards that kubelet has not admitted": {
			cards: c500(2), want: "gpu.shared: 200, gpu-core: 200, gpu-memory: 128Gi, gpu-memory-ratio: 200, koordinator.sh/gpu: 200",
			pods: []corev1.Pod{withPhase(holding("gpu-core: 900"), corev1.PodPending)},
		},
		"a pod with cards that kubelet has not admitted": {
			cards: sicken(c500(2), 0), want: "gpu.shared: 100, gpu-core: 200, gpu-memory: 64Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100", held: "koordinator.sh/gpu-core",
			pods: []corev1.Pod{withPhase(allocated(holding("gpu-core: 200"), "GPU-a", "GPU-b"), corev1.PodPending)},
		},
		"other resources don't count": {
			cards: sicken(c500(2), 0), pods: []corev1.Pod{holding("sgpu: 20, cpu: 4")},
			want: "gpu.shared: 100, gpu-core: 100, gpu-memory: 64Gi, gpu-memory-ratio: 100, koordinator.sh/gpu: 100",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.node == nil {
				tc.node = nodeOf("sgpu: 16")
			}
			device := deviceOf(tc.cards, ofMetaX...)
			got := decide(facts{node: tc.node, inventory: inventory.ReadInventory(tc.node, device), deviceLabels: device.Labels, pods: tc.pods})
			gputest.Equal(t, "verdict", advertise, got.verdict)
			gputest.Equal(t, "amounts", tc.want, text(got.amounts))
			if held := strings.Join(got.held, ", "); held != tc.held {
				t.Errorf("held is %q, want %q", held, tc.held)
			}
			if sick := len(tc.cards) - got.healthy; got.unhealthy != sick {
				t.Errorf("%d healthy and %d unhealthy of %d cards", got.healthy, got.unhealthy, len(tc.cards))
			}
		})
	}
}

func TestDecideVerdict(t *testing.T) {
	bad := (&inventory.NodeObjects{Name: "n1", Err: errors.New("broken")}).Inventory()
	reset := marked(nodeOf(eight))
	reset.Status.Capacity = gputest.MakeResources("gpu-core: 0")
	cases := map[string]struct {
		node      *corev1.Node
		inventory *inventory.Inventory
		pods      []corev1.Pod
		want      verdict
		amounts   string
	}{
		"no Device, never had one":                  {node: nodeOf("cpu: 4"), want: ignore},
		"no Device, resources are another's":        {node: nodeOf(eight), want: ignore},
		"no Device any more":                        {node: marked(nodeOf(eight)), want: withdraw},
		"no Device any more, a pod still holds":     {node: marked(nodeOf(eight)), pods: []corev1.Pod{holding("gpu-core: 100")}, want: withdraw},
		"can't be read: all stays":                  {node: marked(nodeOf(eight)), inventory: bad, want: keep, amounts: eight},
		"can't be read: what is not there stays so": {node: marked(nodeOf("cpu: 4")), inventory: bad, want: keep},
		"can't be read, kubelet reset, a pod holds": {node: reset, inventory: bad, pods: []corev1.Pod{holding("gpu-core: 100")}, want: keep, amounts: "gpu-core: 100"},
		"never could be read":                       {node: nodeOf(eight), inventory: bad, want: ignore},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decide(facts{node: tc.node, inventory: tc.inventory, pods: tc.pods})
			gputest.Equal(t, "verdict", tc.want, got.verdict)
			gputest.Equal(t, "amounts", tc.amounts, text(got.amounts))
			if tc.inventory != nil && !errors.Is(got.problem, tc.inventory.Problem) {
				t.Errorf("problem %v, want %v", got.problem, tc.inventory.Problem)
			}
		})
	}
}

func TestDecideLabels(t *testing.T) {
	cases := map[string]struct {
		device *v1alpha1.Device
		node   *corev1.Node
		want   []string
		mark   string
	}{
		"all three": {device: deviceOf(c500(1), ofMetaX...), want: ofMetaX, mark: allMarks},
		"no driver version": {
			device: deviceOf(c500(1), wire.LabelVendor, "metax", wire.LabelModel, "C500"),
			want:   []string{wire.LabelVendor, "metax", wire.LabelModel, "C500"}, mark: wire.LabelVendor + "," + wire.LabelModel,
		},
		"no model: the commonest of the cards": {
			device: deviceOf([]card{{memory: "64Gi", model: "C500"}, {memory: "72Gi", model: "C600"}, {memory: "72Gi", model: "C600"}}, wire.LabelVendor, "metax"),
			want:   []string{wire.LabelVendor, "metax", wire.LabelModel, "C600"}, mark: wire.LabelVendor + "," + wire.LabelModel,
		},
		"no model: of two the first card's": {
			device: deviceOf([]card{{memory: "72Gi", model: "C600"}, {memory: "64Gi", model: "C500"}}, wire.LabelVendor, "metax"),
			want:   []string{wire.LabelVendor, "metax", wire.LabelModel, "C600"}, mark: wire.LabelVendor + "," + wire.LabelModel,
		},
		"a model that can't be a label is made one, as the agent does": {
			device: deviceOf([]card{{memory: "64Gi", model: "C500 VF: ü"}}, wire.LabelVendor, "metax"),
			want:   []string{wire.LabelVendor, "metax", wire.LabelModel, "C500-VF"}, mark: wire.LabelVendor + "," + wire.LabelModel,
		},
		"a label that was there is not ours": {
			device: deviceOf(c500(1), ofMetaX...), want: ofMetaX, mark: wire.LabelModel + "," + wire.LabelDriver,
			node: func() *corev1.Node {
				node := nodeOf("")
				node.Labels[wire.LabelVendor] = "metax"
				return node
			}(),
		},
		"a label of ours stays ours": {device: deviceOf(c500(1), ofMetaX...), node: marked(nodeOf("")), want: ofMetaX, mark: allMarks},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.node == nil {
				tc.node = nodeOf("")
			}
			got := decide(facts{node: tc.node, inventory: inventory.ReadInventory(tc.node, tc.device), deviceLabels: tc.device.Labels})
			gputest.Equal(t, "labels", pairs(tc.want), got.labels)
			if got.mark == nil || *got.mark != tc.mark {
				t.Errorf("mark is %v, want %q", got.mark, tc.mark)
			}
		})
	}
}

// TestDecideSettles: what a decision writes leads to a node about which the
// same decision writes nothing, whatever the node was before. Capacity and
// allocatable are the same then, and never less than the pods ask for.
func TestDecideSettles(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		f := randomFacts(random)
		first := decide(f)
		apply(f.node, first)
		d := decide(f)
		if apply(f.node, d) {
			t.Fatalf("%+v changes the node, and then %+v", first, d)
		}
		if d.verdict == ignore || d.verdict == withdraw {
			continue
		}
		asked := requested(f)
		for _, name := range resources {
			capacity, has := f.node.Status.Capacity[name]
			allocatable := f.node.Status.Allocatable[name]
			if capacity.Cmp(allocatable) != 0 {
				t.Fatalf("%s: capacity %v, allocatable %v", name, &capacity, &allocatable)
			}
			if want := asked[name]; has && capacity.Cmp(want) < 0 {
				t.Fatalf("%s: %v, less than the pods ask for, %v", name, &capacity, &want)
			}
		}
	}
}

func randomFacts(random *rand.Rand) facts {
	amounts := []string{"", "0", "100", "800"}
	node := nodeOf("cpu: 4")
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for _, name := range resources {
			if amount := amounts[random.IntN(4)]; amount != "" {
				list[name] = resource.MustParse(amount)
			}
		}
	}
	if random.IntN(2) == 0 {
		marked(node)
	}
	if random.IntN(3) == 0 {
		node.Labels[wire.LabelModel] = "H100"
	}
	f := facts{node: node}
	for range random.IntN(4) {
		f.pods = append(f.pods, holding("gpu-core: 100, gpu-memory: 64Gi"))
	}
	switch random.IntN(4) {
	case 0:
	case 1:
		f.inventory = (&inventory.NodeObjects{Name: "n1", Err: errors.New("broken")}).Inventory()
	default:
		cards := c500(1 + random.IntN(4))
		if random.IntN(2) == 0 {
			sicken(cards, random.IntN(len(cards)))
		}
		device := deviceOf(cards, ofMetaX[:2+2*random.IntN(3)]...)
		f.inventory, f.deviceLabels = inventory.ReadInventory(node, device), device.Labels
	}
	return f
}

// apply makes the node as decided and reports whether that is a change.
func apply(node *corev1.Node, d decision) bool {
	metadata, status := d.setMetadata(node), d.setStatus(node)
	return metadata || status
}

func TestChanges(t *testing.T) {
	device := deviceOf(c500(8), ofMetaX...)
	foreign := marked(nodeOf(eight + ", sgpu: 128"))
	foreign.Annotations[wire.AnnotationAdvertised] = "kubernetes.io/hostname," + wire.LabelVendor
	foreign.Labels["kubernetes.io/hostname"] = "n1"
	skewed := marked(nodeOf(eight))
	skewed.Status.Allocatable[wire.KoordCore] = resource.MustParse("150")
	none := `{"koordinator.sh/gpu":null,"koordinator.sh/gpu-core":null,"koordinator.sh/gpu-memory":null,"koordinator.sh/gpu-memory-ratio":null,"koordinator.sh/gpu.shared":null}`
	noStatus := `"status":{"allocatable":` + none + `,"capacity":` + none + `}`
	cases := map[string]struct {
		node   *corev1.Node
		device *v1alpha1.Device
		want   string // the merge patch
	}{
		"nothing to do": {node: marked(nodeOf(eight + ", sgpu: 128")), device: device, want: "{}"},
		"only what differs": {
			node: skewed, device: device,
			want: `{"status":{"allocatable":{"koordinator.sh/gpu-core":"800"}}}`,
		},
		"the same amount in other words": {
			node:   marked(nodeOf(strings.ReplaceAll(eight, "512Gi", "524288Mi"))),
			device: device, want: "{}",
		},
		"all of ours goes, by null": {
			node: marked(nodeOf(eight + ", sgpu: 128")),
			want: `{"metadata":{"annotations":null,"labels":null},` + noStatus + `}`,
		},
		"a mark that lists what can't be ours": {
			node: foreign,
			want: `{"metadata":{"annotations":null,"labels":{"node.koordinator.sh/gpu-vendor":null}},` + noStatus + `}`,
		},
		"a label that is wanted no more": {
			node: marked(nodeOf(eight)), device: deviceOf(c500(8), wire.LabelVendor, "metax", wire.LabelModel, "C500"),
			want: `{"metadata":{"annotations":{"` + wire.AnnotationAdvertised + `":"node.koordinator.sh/gpu-vendor,node.koordinator.sh/gpu-model"},"labels":{"node.koordinator.sh/gpu-driver-version":null}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := facts{node: tc.node}
			if tc.device != nil {
				f.inventory, f.deviceLabels = inventory.ReadInventory(tc.node, tc.device), tc.device.Labels
			}
			before := tc.node.DeepCopy()
			d := decide(f)
			gputest.Equal(t, "the node before and after the decision", before, tc.node)
			changed := apply(tc.node, d)
			got, err := client.MergeFrom(before).Data(tc.node)
			gputest.Must(t, err)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" || changed != (tc.want != "{}") {
				t.Errorf("changed: %t, patch (-want +got):\n%s", changed, diff)
			}
		})
	}
}
