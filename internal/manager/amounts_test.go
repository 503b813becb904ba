package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestAmountsAreWhatIsBooked: for any pod, on nodes with unequal cards in any state
// of use, the webhook writes what the ledger books at the pod's peak on the largest
// cards that the pod could get, and at least what it books on every other node where
// the pod fits.
func TestAmountsAreWhatIsBooked(t *testing.T) {
	const worlds, each = 100, 100
	seen := map[string]int{}
	for seed := range uint64(worlds) {
		w := newAmountsWorld(t, seed)
		for left := each; left > 0; {
			pod := w.pod()
			verdict := w.rules.Admit(pod, &authenticationv1.UserInfo{Username: "jane"})
			if len(verdict.Problems) > 0 {
				continue
			}
			left--
			w.check(pod, seen)
			if t.Failed() {
				t.Fatalf("seed %d, pod %+v", seed, pod.Spec)
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{
		"init", "sidecar", "several apps", "the ratio counts", "no card known", "placed", "on the largest cards", "on smaller cards", "less on smaller cards",
		"on a node in use", "peak of an init container", "exclusive slices", "on a seat",
	} {
		if seen[what] < 200 {
			t.Errorf("%s: %d pods, want at least 200: the test shows little", what, seen[what])
		}
	}
}

// amountsWorld is a cluster whose cards the webhook knows, with the accounts of its
// nodes.
type amountsWorld struct {
	*testing.T
	gputest.Mixture
	rules webhook.Rules
	nodes []*corev1.Node
	empty []*ledger.Node // and, in the same order, each node in some state of use:
	used  []*ledger.Node
}

const unknownCard = 72 << 10

func newAmountsWorld(t *testing.T, seed uint64) *amountsWorld {
	w := &amountsWorld{T: t, Mixture: gputest.Mixture{Rand: gputest.Rand(seed)}}
	var objects []runtime.Object
	for i := range 2 + w.IntN(5) {
		name := fmt.Sprintf("n%d", i)
		n := gputest.ServedNode(name, 8, 8)
		w.State(n)
		facts := inventory.NodeObjects{Name: name, Node: n}
		if w.Often(90) {
			memories := []string{"16Gi", "32Gi", "48Gi", "64Gi", "80Gi"}[w.IntN(4):]
			sizes := make([]string, 1+w.IntN(8))
			for j := range sizes {
				sizes[j] = memories[w.IntN(2)] // some nodes have cards of two kinds
				w.Cards = append(w.Cards, fmt.Sprintf("%s-%d", name, j))
			}
			object := deviceOf(t, name, []string{"", "", "", "native", "sgpu", "shared"}[w.IntN(6)], sizes...)
			facts.Device = decoded(t, object)
			objects = append(objects, object)
		} else {
			n = gputest.MakeNode("gpu: 8", wire.AnnotationServedBy, wire.ServedByVendor)
			n.Name, facts.Node, facts.Vendor = name, n, true
			w.State(n)
		}
		objects = append(objects, n)
		account := facts.Inventory().NewNode()
		w.nodes, w.empty, w.used = append(w.nodes, n), append(w.empty, account), append(w.used, account.Clone())
	}
	w.Cards = append(w.Cards, "GPU-of-another-node")
	w.rules = webhook.Rules{LargestCard: newCards(t, objects...).largest, CardMemory: unknownCard}
	w.fill()
	return w
}

func decoded(t *testing.T, object *unstructured.Unstructured) *v1alpha1.Device {
	t.Helper()
	device := cluster.DecodeDevice(object)
	if device.Err != nil {
		t.Fatal(device.Err)
	}
	return device.Device
}

// fill books some pods.
func (w *amountsWorld) fill() {
	for i, n := range w.used {
		for j := range w.IntN(12) {
			ask, _ := request.Read(w.pod())
			if ask == nil {
				continue
			}
			if offer, refusal := place.Fit(n, &ask.Request, &ask.Prefer); refusal.Code == place.Fits {
				if _, err := n.Commit(offer, ledger.Holder(fmt.Sprintf("default/filler-%d-%d", i, j)), &ask.Request); err != nil {
					w.Fatal(err)
				}
			}
		}
	}
}

// forms are further ways to ask for cards, and not to.
var forms = []string{
	"", "cpu: 1", "sgpu: 0", "gpu: 1", "gpu: 3", "sgpu: 1", "sgpu: 2", "sgpu: 1, vcore: 0", "sgpu: 1, vcore: 30", "sgpu: 1, vcore: 100, vmemory: 4", "sgpu: 3, vmemory: 1",
	"sgpu: 1, vcore: 15, vmemory: 3", "sgpu: 1, vcore: 5, vmemory: 300Mi", "sgpu: 2, vcore: 25, vmemory: 5G",
	"koordinator.sh/gpu: 100", "koordinator.sh/gpu: 300", "koordinator.sh/gpu: 33", "gpu-memory-ratio: 200", "gpu-core: 7, gpu-memory-ratio: 13", "gpu.shared: 1, gpu-core: 40, gpu-memory: 1Gi",
	"gpu.shared: 2, gpu-core: 200, gpu-memory: 20Gi", "gpu-core: 100, gpu-memory-ratio: 50",
}

// pod returns a pod with further containers, some of which have amounts already.
func (w *amountsWorld) pod() *corev1.Pod {
	pod := w.Pod("p")
	forged := func() string { return "daybreak-gpu.io/" + []string{"compute: 1", "memory: 1k", "cards: 9"}[w.IntN(3)] }
	draw := func() corev1.Container {
		words := []string{forms[w.IntN(len(forms))]}
		if w.Often(10) {
			words = append(words, forged())
		}
		limits := gputest.MakeResources(strings.Trim(strings.Join(words, ", "), ", "))
		c := corev1.Container{Name: fmt.Sprintf("more-%d", len(pod.Spec.Containers)+len(pod.Spec.InitContainers)), Resources: corev1.ResourceRequirements{Limits: limits}}
		if w.Often(20) {
			c.Resources = corev1.ResourceRequirements{Requests: limits}
		}
		return c
	}
	for w.Often(25) {
		pod.Spec.Containers = slices.Insert(pod.Spec.Containers, w.IntN(len(pod.Spec.Containers)+1), draw())
	}
	for w.Often(40) {
		c := draw()
		if w.Often(50) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// check checks what was written on the pod, and counts what it was about.
func (w *amountsWorld) check(pod *corev1.Pod, seen map[string]int) {
	w.Helper()
	ask, problems := request.Read(pod)
	if ask == nil {
		if _, metered := request.ReadAmounts(&pod.Spec); metered {
			w.Errorf("amounts on a pod without cards (%v)", problems)
		}
		return
	}
	written := w.written(pod)
	r := &ask.Request
	w.describe(r, seen)
	largest := w.largest(pod, r)
	if largest == 0 {
		seen["no card known"]++
		largest = unknownCard
	}
	selects := nodeaffinity.GetRequiredNodeAffinity(pod)
	for i, n := range w.nodes {
		for _, account := range []*ledger.Node{w.empty[i], w.used[i]} {
			offer, refusal := place.Fit(account, r, &ask.Prefer)
			if selected, _ := selects.Match(n); !selected || refusal.Code != place.Fits {
				continue
			}
			seen["placed"]++
			if len(account.Holdings()) > 0 {
				seen["on a node in use"]++
			}
			w.compare(account, offer, r, written, largest, seen)
		}
	}
}

// written returns the amounts, which are on the first app container alone.
func (w *amountsWorld) written(pod *corev1.Pod) ledger.Amounts {
	w.Helper()
	amounts, metered := request.ReadAmounts(&pod.Spec)
	if !metered {
		w.Error("no amounts")
	}
	for i, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, name := range wire.AmountResources() {
			limit, limited := c.Resources.Limits[name]
			requested := c.Resources.Requests[name]
			if limited != (i == 0) || limit.Cmp(requested) != 0 {
				w.Errorf("container %s: %s: limit %s, request %s", c.Name, name, &limit, &requested)
			}
		}
	}
	return amounts
}

// describe counts what is special about the pod.
func (w *amountsWorld) describe(r *gpu.PodRequest, seen map[string]int) {
	phases := map[gpu.Phase]int{}
	what := map[string]bool{}
	for i := range r.Requests {
		if req := &r.Requests[i]; req.Cards > 0 {
			phases[req.Phase]++
			what["the ratio counts"] = what["the ratio counts"] || req.Memory.Ratio > 0
			what["exclusive slices"] = what["exclusive slices"] || req.Exclusive && !req.Whole
		}
	}
	what["init"], what["sidecar"], what["several apps"] = phases[gpu.Init] > 0, phases[gpu.Sidecar] > 0, phases[gpu.App] > 1
	for name := range maps.Keys(what) {
		if what[name] {
			seen[name]++
		}
	}
}

// largest returns the memory of the largest card that the pod could get, or 0: by a
// look at every card.
func (w *amountsWorld) largest(pod *corev1.Pod, r *gpu.PodRequest) gpu.MiB {
	var largest gpu.MiB
	for i, n := range w.nodes {
		selected, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
		for c := range w.empty[i].Topology().All().All() {
			if card := w.empty[i].Topology().Card(c); selected && place.Served(w.empty[i].Serves, r) && r.Admits(card.ID) {
				largest = max(largest, card.Memory)
			}
		}
	}
	return largest
}

// compare compares what was written with what is booked when the offer is taken.
func (w *amountsWorld) compare(account *ledger.Node, offer ledger.Offer, r *gpu.PodRequest, written ledger.Amounts, largest gpu.MiB, seen map[string]int) {
	w.Helper()
	h := account.Holding(&offer, "default/p", r)
	peak := life(&h, seen)
	if got := h.Peak(); got != peak {
		w.Errorf("the ledger's peak is %+v, want %+v", got, peak)
	}
	w.booked(account, offer, r, &h, peak)
	peak.Whole, peak.Slices = 0, 0 // no quota of Kubernetes counts them
	switch {
	case account.Serves.Seats:
		seen["on a seat"]++
	case written.Compute != peak.Compute || written.Cards != peak.Cards:
		w.Errorf("written %+v, booked on %s: %+v", written, account.Name, peak)
	}
	onLargest := !account.Serves.Seats
	for _, part := range h.Parts {
		for _, s := range part.Shares {
			onLargest = onLargest && account.Topology().Card(s.Card).Memory == largest
		}
	}
	switch {
	case onLargest:
		seen["on the largest cards"]++
		if written != peak {
			w.Errorf("written %+v, booked on the largest cards: %+v", written, peak)
		}
	case written.Memory < peak.Memory || written.Compute < peak.Compute || written.Cards < peak.Cards:
		w.Errorf("written %+v, booked on smaller cards: %+v", written, peak)
	default:
		seen["on smaller cards"]++
		if written.Memory > peak.Memory {
			seen["less on smaller cards"]++
		}
	}
}

// life returns the most that the pod holds at one time: container by container, as
// kubelet starts them.
func life(h *ledger.Holding, seen map[string]int) (most ledger.Amounts) {
	held := func(runs func(i int, p *ledger.Part) bool) ledger.Amounts {
		var a ledger.Amounts
		for i := range h.Parts {
			for _, s := range h.Parts[i].Shares {
				if !runs(i, &h.Parts[i]) {
					continue
				}
				a.Compute, a.Memory = a.Compute+s.Compute, a.Memory+s.Memory
				if s.Exclusive {
					a.Cards++
				}
				if h.Parts[i].Whole {
					a.Whole++
				} else {
					a.Slices++
				}
			}
		}
		most = ledger.Amounts{
			Compute: max(most.Compute, a.Compute), Memory: max(most.Memory, a.Memory), Cards: max(most.Cards, a.Cards),
			Whole: max(most.Whole, a.Whole), Slices: max(most.Slices, a.Slices),
		}
		return a
	}
	for now := range h.Parts {
		if h.Parts[now].Phase == gpu.Init {
			held(func(i int, p *ledger.Part) bool { return i == now || i < now && p.Phase == gpu.Sidecar })
		}
	}
	if running := held(func(_ int, p *ledger.Part) bool { return p.Phase != gpu.Init }); running != most {
		seen["peak of an init container"]++
	}
	return most
}

// booked checks the peak against what the ledger books on the cards, each of which
// may have its own peak at another time.
func (w *amountsWorld) booked(account *ledger.Node, offer ledger.Offer, r *gpu.PodRequest, h *ledger.Holding, peak ledger.Amounts) {
	w.Helper()
	after := account.Clone()
	if _, err := after.Commit(offer, "default/p", r); err != nil {
		w.Fatal(err)
	}
	var sum ledger.Amounts
	for c := range h.Cards().All() {
		before, now := account.Now().Usage[c], after.Now().Usage[c]
		sum.Compute, sum.Memory = sum.Compute+now.Compute-before.Compute, sum.Memory+now.Memory-before.Memory
		if now.Exclusive {
			sum.Cards++
		}
	}
	steady := !slices.ContainsFunc(h.Parts, func(p ledger.Part) bool { return p.Phase == gpu.Init && len(p.Shares) > 0 })
	less := sum.Compute < peak.Compute || sum.Memory < peak.Memory || sum.Cards < peak.Cards
	differs := sum.Compute != peak.Compute || sum.Memory != peak.Memory || sum.Cards != peak.Cards
	if less || steady && differs {
		w.Errorf("the peak is %+v, and on %s the cards have %+v more", peak, account.Name, sum)
	}
}
