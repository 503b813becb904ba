package manager

import (
	"maps"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestNoPodHoldsMoreThanItCounts: for any pod, on nodes with unequal cards in any
// state of use, the webhook writes what the pod can use at its peak on the largest
// cards that it could get, and at least what it can use on every other node where it
// fits: as much of a card as the agent gives its containers. That holds too if a user
// changes the pod before it is bound, as far as the policies and the scheduler accept
// the change.
func TestNoPodHoldsMoreThanItCounts(t *testing.T) {
	const worlds, each = 100, 100
	seen, policies := map[string]int{}, newPolicies(t)
	for seed := range uint64(worlds) {
		w := newAmountsWorld(t, seed)
		w.policies = policies
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
		"on a node in use", "peak of an init container", "exclusive slices", "exclusive slices with little memory", "online", "on listed cards alone", "on a seat",
		"claimed", "changed", "change denied", "changed and placed",
	} {
		if seen[what] < 200 {
			t.Errorf("%s: %d pods, want at least 200: the test shows little", what, seen[what])
		}
	}
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
	w.describe(&ask.Request, seen)
	largest := w.largest(pod, &ask.Request)
	if largest == 0 {
		seen["no card known"]++
		largest = unknownCard
	}
	if w.Often(50) {
		w.place(pod, ask, largest, seen)
		return
	}
	seen["changed"]++
	was := pod.DeepCopy()
	w.change(pod)
	if w.denied(was, pod) {
		seen["change denied"]++
		return
	}
	pod.UID = "u"
	if ask, _ = request.ReadPending(pod); ask != nil {
		placed := seen["placed"]
		w.place(pod, ask, 0, seen)
		seen["changed and placed"] += seen["placed"] - placed
	}
}

// place places the pod on each node where it fits and compares. largest is the memory of
// the largest card that it could get when it was admitted, 0 if it was changed since.
func (w *amountsWorld) place(pod *corev1.Pod, ask *request.PodRequest, largest gpu.MiB, seen map[string]int) {
	w.Helper()
	written := w.written(pod)
	selects := nodeaffinity.GetRequiredNodeAffinity(pod)
	for i, n := range w.nodes {
		for _, account := range []*ledger.Node{w.empty[i], w.used[i]} {
			offer, refusal := place.Fit(account, &ask.Request, &ask.Prefer)
			if selected, _ := selects.Match(n); !selected || refusal.Code != place.Fits {
				continue
			}
			seen["placed"]++
			if len(account.Holdings()) > 0 {
				seen["on a node in use"]++
			}
			h := account.Holding(&offer, "default/p", &ask.Request)
			w.booked(account, offer, &ask.Request, &h)
			w.compare(account, &h, w.given(i, account, pod, ask, &h, seen), written, largest, seen)
		}
	}
}

// given returns what the pod's containers can use of the node's cards at their peak,
// once the pod is bound there: from what the agent reads to make their devices. It is
// read as it is booked where the vendor's plugin picks the cards.
func (w *amountsWorld) given(i int, account *ledger.Node, pod *corev1.Pod, ask *request.PodRequest, h *ledger.Holding, seen map[string]int) ledger.Amounts {
	w.Helper()
	annotations, err := allocation.Annotations(account, ask, h, time.Unix(1, 0))
	gputest.Must(w, err)
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.Namespace = account.Name, "default"
	if bound.Annotations == nil {
		bound.Annotations = map[string]string{}
	}
	maps.Copy(bound.Annotations, annotations)
	booking, known, notes := allocation.BookingOf(w.inventories[i], account, bound)
	if !known || len(notes) > 0 {
		w.Fatalf("what is bound can't be read: %q", notes)
	}
	shares := make([][]use, len(booking.Parts))
	for k := range booking.Parts {
		part := &booking.Parts[k]
		own, seats := part.Shares, account.Serves.Seats
		if !account.Counted && ask.Request.Requests[k].Cards > 0 {
			claim, claimErr := allocation.ClaimOf(account, bound, part.Container)
			if claimErr != nil {
				w.Fatal(claimErr)
			}
			own, seats = claim.Shares, claim.Seats
			seen["claimed"]++
		}
		for _, s := range own {
			shares[k] = append(shares[k], useOf(s, account.Topology().Card(s.Card).Memory, seats && part.Whole, booking.Class))
		}
	}
	return life(&booking, shares, seen)
}

// use is what a container can use of a card.
type use struct {
	compute gpu.Percent
	memory  gpu.MiB
	card    bool // all of the card's compute
}

// useOf returns what a container can use that has the share. The agent makes no slice
// of an exclusive share or a seat: the container has the card's own devices. The slice
// of an online pod takes the compute from the others on its card.
func useOf(s ledger.Share, card gpu.MiB, seat bool, class gpu.Class) use {
	switch {
	case s.Exclusive || seat:
		return use{gpu.FullCompute, card, true}
	case class == gpu.Online:
		return use{gpu.FullCompute, s.Memory, true}
	}
	return use{s.Compute, s.Memory, false}
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
			what["exclusive slices with little memory"] = what["exclusive slices with little memory"] || req.Exclusive && !req.Whole && req.Memory.Ratio == 0
		}
	}
	what["online"], what["on listed cards alone"] = r.Class == gpu.Online, len(r.Allow) > 0
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

// compare compares what was written with what is given when the holding is bound, and
// that with what quotas count of it.
func (w *amountsWorld) compare(account *ledger.Node, h *ledger.Holding, given, written ledger.Amounts, largest gpu.MiB, seen map[string]int) {
	w.Helper()
	counted := account.Peak(h)
	counted.Whole, counted.Slices = 0, 0 // no quota of Kubernetes counts them
	if !account.Serves.Seats && counted != given {
		w.Errorf("%s: the ledger counts %+v, and %+v is given", account.Name, counted, given)
	}
	if written.Memory < given.Memory || written.Compute < given.Compute || written.Cards < given.Cards {
		w.Errorf("written %+v, given on %s: %+v", written, account.Name, given)
	}
	if account.Serves.Seats {
		seen["on a seat"]++
	}
	if largest == 0 {
		return
	}
	onLargest := true
	for _, part := range h.Parts {
		for _, s := range part.Shares {
			onLargest = onLargest && account.Topology().Card(s.Card).Memory == largest
		}
	}
	switch {
	case written.Compute != given.Compute || written.Cards != given.Cards || onLargest && written != given:
		w.Errorf("written %+v, given on %s: %+v, the largest cards: %t", written, account.Name, given, onLargest)
	case onLargest:
		seen["on the largest cards"]++
	default:
		seen["on smaller cards"]++
		if written.Memory > given.Memory {
			seen["less on smaller cards"]++
		}
	}
}

// life returns the most that the pod can use at one time: container by container, as
// kubelet starts them.
func life(h *ledger.Holding, shares [][]use, seen map[string]int) (most ledger.Amounts) {
	held := func(runs func(i int, p *ledger.Part) bool) ledger.Amounts {
		var a ledger.Amounts
		for i := range h.Parts {
			for _, s := range shares[i] {
				if !runs(i, &h.Parts[i]) {
					continue
				}
				a.Compute, a.Memory = a.Compute+s.compute, a.Memory+s.memory
				if s.card {
					a.Cards++
				}
			}
		}
		most = ledger.Amounts{Compute: max(most.Compute, a.Compute), Memory: max(most.Memory, a.Memory), Cards: max(most.Cards, a.Cards)}
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

// booked checks what is booked at the peak against what the ledger books on the cards,
// each of which may have its own peak at another time.
func (w *amountsWorld) booked(account *ledger.Node, offer ledger.Offer, r *gpu.PodRequest, h *ledger.Holding) {
	w.Helper()
	shares := make([][]use, len(h.Parts))
	for i := range h.Parts {
		for _, s := range h.Parts[i].Shares {
			shares[i] = append(shares[i], use{s.Compute, s.Memory, s.Exclusive})
		}
	}
	peak := life(h, shares, map[string]int{})
	after := account.Clone()
	_, err := after.Commit(offer, "default/p", r)
	gputest.Must(w, err)
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
	if less || steady && sum != peak {
		w.Errorf("the peak is %+v, and on %s the cards have %+v more", peak, account.Name, sum)
	}
}
