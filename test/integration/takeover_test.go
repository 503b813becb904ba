package integration

import (
	"encoding/json"
	"fmt"
	"maps"
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

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// incumbent is a pod that another scheduler placed before Daybreak came.
type incumbent struct {
	pod *corev1.Pod
	// annotations are what that scheduler wrote, labels too.
	annotations, labels map[string]string
	// lock reports that it took the node's lock for the vendor's plugin.
	lock bool
	// want is what the pod holds: "card:compute:MiB" by container.
	want map[string][]string
}

// inhabit makes the pod run on the node, as the other scheduler does: annotations
// first, then the lock, then the Binding.
func (w *world) inhabit(node string, in *incumbent) {
	w.Helper()
	in.pod.Spec.SchedulerName = "another-scheduler"
	w.Create(in.pod)
	pods := w.Client.CoreV1().Pods("default")
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": in.annotations, "labels": in.labels}})
	w.Must(err)
	_, err = pods.Patch(w.Ctx, in.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.Must(err)
	if in.lock {
		w.setLock(node, time.Now().Format(time.RFC3339)+",default,"+in.pod.Name)
	}
	w.Must(pods.Bind(w.Ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: in.pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
	w.running(time.Minute, in.pod.Name)
}

// containersOf returns a pod whose containers have these limits.
func containersOf(name string, limits ...corev1.ResourceList) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers = nil
	for i, l := range limits {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "c" + strconv.Itoa(i), Image: "none", Resources: corev1.ResourceRequirements{Limits: l}})
	}
	return p
}

// limitsOf is a list of limits: "metax-tech.com/sgpu", "1".
func limitsOf(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = "metax-tech.com/" + name
		}
		list[corev1.ResourceName(name)] = resource.MustParse(pairs[i+1])
	}
	return list
}

// hamiShare is a share as HAMi sees it.
type hamiShare struct {
	card             string
	memory, cores    int
	wantMemory, want int // as Daybreak books it
}

// byHAMi is a pod as HAMi's webhook and scheduler leave it. Shares are by
// container, init containers first.
func byHAMi(node string, p *corev1.Pod, qos string, shares ...[]hamiShare) *incumbent {
	kind, key, other := "Metax-SGPU", "hami.io/metax-sgpu-devices-", "hami.io/metax-gpu-devices-"
	if _, whole := p.Spec.Containers[0].Resources.Limits[wire.ResourceGPU]; whole {
		kind, key, other = "Metax-GPU", other, key
	}
	in := &incumbent{pod: p, want: map[string][]string{}, lock: kind == "Metax-SGPU", labels: map[string]string{"hami.io/vgpu-node": node}}
	var lists []string
	var text strings.Builder
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	for i, list := range shares {
		var vendor []string
		for _, s := range list {
			fmt.Fprintf(&text, "%s,%s,%d,%d:", s.card, kind, s.memory, s.cores)
			entry := fmt.Sprintf(`{"uuid":%q`, s.card)
			if s.cores > 0 {
				entry += fmt.Sprintf(`,"compute":%d`, s.cores)
			}
			vendor = append(vendor, entry+fmt.Sprintf(`,"vRam":%d}`, s.memory))
			in.want[containers[i].Name] = append(in.want[containers[i].Name], fmt.Sprintf("%s:%d:%d", s.card, s.want, s.wantMemory))
		}
		text.WriteByte(';')
		lists = append(lists, "["+strings.Join(vendor, ",")+"]")
	}
	in.annotations = map[string]string{
		"hami.io/vgpu-node": node, "hami.io/vgpu-time": strconv.FormatInt(time.Now().Unix(), 10), "hami.io/bind-phase": "allocating", "hami.io/bind-time": strconv.FormatInt(time.Now().Unix(), 10),
		key + "to-allocate": text.String(), key + "allocated": text.String(), other + "to-allocate": strings.Repeat(";", len(shares)), other + "allocated": strings.Repeat(";", len(shares)),
	}
	if kind == "Metax-SGPU" {
		in.annotations[wire.AnnotationAllocated] = "[" + strings.Join(lists, ",") + "]"
		in.annotations[wire.AnnotationPredicateTime] = strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	if qos != "" {
		in.annotations[wire.AnnotationQoS] = qos
	}
	return in
}

// TestTakeoverHAMi: a cluster that HAMi filled is taken over while its pods run.
func TestTakeoverHAMi(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	v := w.plugin(1, nil)
	w.Must(v.AddNode(w.Ctx, "vendor-native", &discover.Profile{Model: "C500", MemoryMiB: 65536, Cards: 8, Mode: gpu.ModeNative, Driver: "3.8.30"}))
	c := w.cardNames()
	const node, native = "vendor-1", "vendor-native"
	share := func(card string, memory, cores int) []hamiShare {
		return []hamiShare{{card, memory, cores, memory, cores}}
	}
	whole := func(i int) hamiShare { return hamiShare{fmt.Sprintf("%s-metax-%d", native, i), 65536, 100, 65536, 100} }
	before := containersOf("init", limitsOf("sgpu", "1", "vcore", "20", "vmemory", "4"))
	before.Spec.InitContainers = []corev1.Container{{Name: "i0", Image: "none", Resources: corev1.ResourceRequirements{Limits: limitsOf("sgpu", "1", "vcore", "50", "vmemory", "8")}}}
	sliced := []*incumbent{
		byHAMi(node, containersOf("plain", limitsOf("sgpu", "1", "vcore", "60", "vmemory", "4")), "best-effort", share(c[0], 4096, 60)),
		byHAMi(node, containersOf("two", limitsOf("sgpu", "1", "vcore", "30", "vmemory", "8"), nil), "best-effort", share(c[0], 8192, 30), nil),
		byHAMi(node, containersOf("alone", limitsOf("sgpu", "2")), "best-effort", []hamiShare{{c[1], 65536, 100, 65536, 100}, {c[2], 65536, 100, 65536, 100}}),
		byHAMi(node, containersOf("fixed", limitsOf("sgpu", "1", "vcore", "25", "vmemory", "16")), "fixed-share", share(c[3], 16384, 25)),
		// HAMi takes MiB as they come, the driver rounds them up.
		byHAMi(node, containersOf("odd", limitsOf("sgpu", "1", "vcore", "10", "vmemory", "2000Mi")), "fixed-share", []hamiShare{{c[3], 2000, 10, 2048, 10}}),
		byHAMi(node, annotated(containersOf("online", limitsOf("sgpu", "1", "vmemory", "4")), wire.AnnotationClass, "online"), "", share(c[4], 4096, 0)),
		byHAMi(node, before, "best-effort", share(c[5], 8192, 50), share(c[5], 4096, 20)),
	}
	for _, in := range sliced {
		w.inhabit(node, in)
	}
	counted := byHAMi(native, containersOf("whole", limitsOf("gpu", "2")), "", []hamiShare{whole(0), whole(1)})
	w.inhabit(native, counted)

	w.Scheduler("scheduler")
	w.wantShares(node, sliced)
	if used := w.usedCards(native); used != 2 {
		t.Errorf("%d whole cards are booked, want 2", used)
	}
	w.Audit()
	// What is left can be used to the last piece, and nothing else.
	on := func(p *corev1.Pod, node string, cards ...string) *corev1.Pod {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		if len(cards) > 0 {
			annotated(p, wire.AnnotationUseCards, strings.Join(cards, ","))
		}
		return p
	}
	w.Create(
		on(pod("rest-0", "sgpu=1", "vcore=10", "vmemory=52"), node, c[0]), annotated(on(pod("rest-3", "sgpu=1", "vcore=65", "vmemory=46"), node, c[3]), wire.AnnotationQoS, "fixed-share"),
		annotated(on(pod("rest-4", "sgpu=1", "vmemory=60"), node, c[4]), wire.AnnotationClass, "online"),
		on(pod("rest-6", "sgpu=1"), node), on(pod("rest-7", "sgpu=1"), node), on(pod("rest-native", "gpu=6"), native),
	)
	w.running(2*time.Minute, "rest-0", "rest-3", "rest-4", "rest-6", "rest-7", "rest-native")
	w.Create(on(pod("late", "sgpu=2"), node), on(pod("late-native", "gpu=2"), native), on(pod("late-0", "sgpu=1", "vcore=1", "vmemory=1"), node, c[0]))
	for _, name := range []string{"late", "late-native", "late-0"} {
		w.refused(name)
	}
	w.Audit()
	// Pods of before end, and their cards are free.
	w.Delete("alone", "whole", "plain")
	w.running(2*time.Minute, "late", "late-native", "late-0")
	w.Audit()
	w.quiet(v)
}

// refused waits until the pod was looked at and not bound.
func (w *world) refused(name string) {
	w.Helper()
	w.decided(name)
	p := w.Pod(name)
	if p.Spec.NodeName != "" {
		w.Errorf("pod %s was bound: %s", name, p.Annotations[wire.AnnotationAllocated])
	}
}

// status returns a node as "daybreak status -o json" shows it.
func (w *world) status(node string) *view.NodeStatus {
	w.Helper()
	nodes := w.statuses("--node", node)
	if len(nodes) != 1 {
		w.Fatalf("status lists %d nodes, want %s", len(nodes), node)
	}
	return &nodes[0]
}

// statuses returns the nodes that "daybreak status -o json" lists.
func (w *world) statuses(args ...string) []view.NodeStatus {
	w.Helper()
	out, stderr, code := w.run(append([]string{"status", "-o", "json"}, args...)...)
	var status struct{ Nodes []view.NodeStatus }
	if err := json.Unmarshal([]byte(out), &status); err != nil || code != 0 {
		w.Fatalf("status: exit code %d, %v: %.500s", code, err, stderr)
	}
	return status.Nodes
}

func (w *world) usedCards(node string) int {
	w.Helper()
	used := 0
	for _, c := range w.status(node).Cards {
		if len(c.Shares) > 0 {
			used++
		}
	}
	return used
}

// wantShares: what status shows of the node is what its pods' annotations say.
func (w *world) wantShares(node string, pods []*incumbent) {
	w.Helper()
	want, got := map[string][]string{}, map[string][]string{}
	for _, in := range pods {
		for container, shares := range in.want {
			want[in.pod.Name+"/"+container] = slices.Sorted(slices.Values(shares))
		}
	}
	for _, c := range w.status(node).Cards {
		for _, s := range c.Shares {
			key := s.Pod + "/" + s.Container
			got[key] = append(got[key], fmt.Sprintf("%s:%d:%d", c.UUID, s.ComputePercent, s.MemoryMiB))
		}
	}
	for key := range got {
		slices.Sort(got[key])
	}
	gputest.Equal(w, "shares on "+node+", annotations and status", want, got)
}

// koordShare is a share as Koordinator sees it.
type koordShare struct{ minor, core, gib, ratio int }

// byKoordinator is a pod as Koordinator's webhook and scheduler leave it; adapted
// reports that its adapter for the vendor's plugin is on.
func byKoordinator(cards []string, p *corev1.Pod, adapted bool, shares ...koordShare) *incumbent {
	var list, vendor, minors []string
	in := &incumbent{pod: p, want: map[string][]string{}, lock: adapted}
	for _, s := range shares {
		list = append(list, fmt.Sprintf(`{"minor":%d,"resources":{"koordinator.sh/gpu-core":"%d","koordinator.sh/gpu-memory":"%dGi","koordinator.sh/gpu-memory-ratio":"%d"},"id":%q}`,
			s.minor, s.core, s.gib, s.ratio, cards[s.minor]))
		vendor = append(vendor, fmt.Sprintf(`{"uuid":%q,"compute":%d,"vRam":%d}`, cards[s.minor], s.core, s.gib<<10))
		minors = append(minors, strconv.Itoa(s.minor))
		in.want["c0"] = append(in.want["c0"], fmt.Sprintf("%s:%d:%d", cards[s.minor], s.core, s.gib<<10))
	}
	in.annotations = map[string]string{wire.AnnotationKoordAllocated: `{"gpu":[` + strings.Join(list, ",") + `]}`}
	if adapted {
		maps.Copy(in.annotations, map[string]string{
			"scheduling.koordinator.sh/bind-timestamp": strconv.FormatInt(time.Now().UnixNano(), 10), "scheduling.koordinator.sh/gpu-minors": strings.Join(minors, ","),
			wire.AnnotationAllocated: "[[" + strings.Join(vendor, ",") + "]]",
		})
	}
	return in
}

// koordDevice creates the Device that koordlet would: without links, labels of
// ours and conditions that we know.
func (w *world) koordDevice(node string, cards []string) {
	w.Helper()
	d := &v1alpha1.Device{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: "C500"}},
	}
	for i, id := range cards {
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: id, Minor: new(int32(i)), Health: true,
			Resources: limitsOf("koordinator.sh/gpu-core", "100", "koordinator.sh/gpu-memory", "64Gi", "koordinator.sh/gpu-memory-ratio", "100"),
			Topology:  &v1alpha1.DeviceTopology{SocketID: -1, NodeID: int32(i / 4), PCIEID: "pci0000:3a", BusID: fmt.Sprintf("0000:%02x:00.0", 0x38+i)},
		})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	w.Must(err)
	_, err = w.Devices(w.REST()).Create(w.Ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldManager: "koordlet"})
	w.Must(err)
}

// TestTakeoverKoordinator: a cluster that Koordinator filled is taken over while
// its pods run; one node with its adapter for the vendor's plugin, one without.
func TestTakeoverKoordinator(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents())
	v := w.plugin(1, nil)
	cards := w.cardNames()
	w.koordDevice("vendor-1", cards)
	bare := []string{"GPU-k-0", "GPU-k-1", "GPU-k-2", "GPU-k-3", "GPU-k-4", "GPU-k-5"}
	w.bareNode("koord-1", len(bare))
	w.koordDevice("koord-1", bare)

	small := limitsOf("koordinator.sh/gpu.shared", "1", "koordinator.sh/gpu-core", "10", "koordinator.sh/gpu-memory", "4Gi", "sgpu", "1")
	half := limitsOf("koordinator.sh/gpu.shared", "1", "koordinator.sh/gpu-core", "50", "koordinator.sh/gpu-memory-ratio", "50", "sgpu", "1")
	full := limitsOf("koordinator.sh/gpu.shared", "2", "koordinator.sh/gpu-core", "200", "koordinator.sh/gpu-memory-ratio", "200", "sgpu", "2")
	fill := func(prefix string, cards []string, adapted bool) []*incumbent {
		return []*incumbent{
			byKoordinator(cards, containersOf(prefix+"-small", small), adapted, koordShare{0, 10, 4, 6}), byKoordinator(cards, containersOf(prefix+"-half", half), adapted, koordShare{0, 50, 32, 50}),
			byKoordinator(cards, containersOf(prefix+"-full", full), adapted, koordShare{1, 100, 64, 100}, koordShare{2, 100, 64, 100}),
		}
	}
	adapted, plain := fill("a", cards, true), fill("b", bare, false)
	// Two containers are averaged over two cards, and written as one.
	plain = append(plain, byKoordinator(bare, containersOf("b-two", small, small), false, koordShare{3, 10, 4, 6}, koordShare{4, 10, 4, 6}))
	for _, in := range adapted {
		w.inhabit("vendor-1", in)
	}
	for _, in := range plain {
		w.inhabit("koord-1", in)
	}

	w.Scheduler("scheduler")
	w.wantShares("vendor-1", adapted)
	w.wantShares("koord-1", plain)
	w.Audit()
	on := func(p *corev1.Pod, node string) *corev1.Pod {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		return p
	}
	koord := func(name, node string, limits corev1.ResourceList) *corev1.Pod {
		return on(containersOf(name, limits), node)
	}
	rest := limitsOf("koordinator.sh/gpu.shared", "1", "koordinator.sh/gpu-core", "40", "koordinator.sh/gpu-memory", "28Gi", "sgpu", "1")
	w.Create(annotated(koord("rest-a", "vendor-1", rest), wire.AnnotationUseCards, cards[0]), annotated(koord("rest-b", "koord-1", rest.DeepCopy()), wire.AnnotationUseCards, bare[0]))
	w.Create(on(pod("whole-b", "sgpu=1"), "koord-1"))
	for i := range 5 {
		w.Create(on(pod(fmt.Sprintf("whole-a-%d", i), "sgpu=1"), "vendor-1"))
	}
	w.running(2*time.Minute, "rest-a", "whole-a-0", "whole-a-1", "whole-a-2", "whole-a-3", "whole-a-4")
	w.running(time.Minute, "rest-b", "whole-b")
	w.Create(on(pod("late-a", "sgpu=2"), "vendor-1"))
	w.refused("late-a")
	w.Audit()
	w.Delete("a-full")
	w.running(2*time.Minute, "late-a")
	w.Audit()
	w.quiet(v)
}

// bareNode is a node with slices and without the vendor's plugin: pods run there
// when they are bound, and it is not locked.
func (w *world) bareNode(name string, cards int) {
	w.Helper()
	list := limitsOf("sgpu", strconv.Itoa(16*cards))
	list[corev1.ResourceCPU], list[corev1.ResourcePods] = resource.MustParse("64"), resource.MustParse("200")
	for _, key := range []corev1.ResourceName{wire.KoordShared, wire.KoordCore, wire.KoordMemoryRatio} {
		list[key] = resource.MustParse(strconv.Itoa(100 * cards))
	}
	list[wire.KoordMemory] = resource.MustParse(strconv.Itoa(64*cards) + "Gi")
	w.Must(w.Simulator.AdoptNode(w.Ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy()},
	}))
}
