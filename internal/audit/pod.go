package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// pod checks the annotations of one bound pod, and reports whether it asks for
// cards.
func (n *node) pod(pod *corev1.Pod) (asks bool) {
	name := string(allocation.HolderOf(pod))
	ask, asks := request.ReadBound(pod)
	if !asks {
		return false
	}
	if _, problems := request.Read(pod); len(problems) > 0 && (ask != nil || wire.CanHold(pod)) {
		n.note(RequestUnclear, []string{name}, "running pod %s has an invalid request (%v): it is booked by its allocation", name, problems[0])
	}
	readings := allocation.Readings(n.ledger, pod)
	if slices.ContainsFunc(n.ledger.Holdings(), func(h ledger.Holding) bool { return string(h.Holder) == name && len(h.Parts) == 0 }) {
		if wire.CanHold(pod) {
			n.note(NoAllocation, []string{name}, "pod %s is bound to %s and holds no cards (%s): its containers do not start", name, n.ledger.Name, n.unreadable(readings))
		}
		return false
	}
	if slices.Contains(n.ledger.Unknown(), allocation.HolderOf(pod)) {
		n.violation(Unaccounted, []string{name}, "pod %s holds cards that are not known (%s): node %s takes no pods until its agent has read them from kubelet or the pod is deleted",
			name, n.unreadable(readings), n.ledger.Name)
		return true
	}
	if ask != nil && ask.Request.Class == gpu.Online {
		unmeter(readings)
	}
	n.missing(name, readings)
	first := slices.IndexFunc(readings, func(r allocation.Reading) bool { return r.Err == nil })
	if first < 0 {
		return true
	}
	n.agreement(name, readings, first)
	if ask != nil {
		n.limits(name, &ask.Request, &readings[first])
	}
	return true
}

// unmeter removes the compute of an online pod: some writers list what the user
// wrote, others the nothing that is booked.
func unmeter(readings []allocation.Reading) {
	for i := range readings {
		for j := range readings[i].Parts {
			for k := range readings[i].Parts[j].Shares {
				share := &readings[i].Parts[j].Shares[k]
				share.Compute, share.Exclusive = 0, false
			}
		}
	}
}

// unreadable says why a pod's cards are not known.
func (n *node) unreadable(readings []allocation.Reading) string {
	switch {
	case n.ledger.Counted:
		return "it and those before it hold more whole cards than the node has"
	case len(readings) == 0:
		return "no annotation lists them"
	}
	var reasons []string
	for i := range readings {
		if readings[i].Err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", readings[i].Key, readings[i].Err))
		}
	}
	if len(reasons) == 0 {
		return "its annotations name too few cards"
	}
	return strings.Join(reasons, "; ")
}

// missing: cards that an annotation names are cards of the pod's own node.
func (n *node) missing(pod string, readings []allocation.Reading) {
	reported := map[string]bool{}
	for i := range readings {
		for _, id := range readings[i].Lost {
			if reported[id] {
				continue
			}
			reported[id] = true
			where := "no node has it"
			if owners := n.owners[gpu.CardID(id)]; len(owners) > 0 {
				where = "it is a card of " + strings.Join(owners, " and ")
			}
			n.violation(CardMissing, []string{pod}, "pod %s on %s holds card %s (%s), which its node does not have: %s",
				pod, n.ledger.Name, id, readings[i].Key, where).Card = id
		}
	}
}

// agreement: all annotations of the pod list the same cards. One that can't be
// read disagrees with those that can.
func (n *node) agreement(pod string, readings []allocation.Reading, first int) {
	for i := range readings {
		a, b := &readings[first], &readings[i]
		switch {
		case b.Err != nil:
			n.violation(FormatsDisagree, []string{pod}, "pod %s: %s can't be read (%v), while %s can", pod, b.Key, b.Err, a.Key)
		case i > first && (!allocation.SameCards(&a.Holding, &b.Holding) || !sameLost(a, b)):
			n.violation(FormatsDisagree, []string{pod}, "pod %s: %s lists %s, but %s lists %s", pod, a.Key, n.amounts(a), b.Key, n.amounts(b))
		}
	}
}

func sameLost(a, b *allocation.Reading) bool {
	x, y := slices.Sorted(slices.Values(a.Lost)), slices.Sorted(slices.Values(b.Lost))
	return slices.Equal(slices.Compact(x), slices.Compact(y))
}

// amounts renders what an annotation lists, card by card.
func (n *node) amounts(r *allocation.Reading) string {
	var parts []string
	for i := range r.Cards().All() {
		u := r.On(i)
		parts = append(parts, fmt.Sprintf("%d%% and %v of card %d", u.Compute, u.Memory, i))
	}
	if len(r.Lost) > 0 {
		parts = append(parts, fmt.Sprintf("something of %s", strings.Join(r.Lost, ", ")))
	}
	if len(parts) == 0 {
		return "of no card"
	}
	return strings.Join(parts, ", ")
}

// limits: the annotation that is booked gives the pod what it asked for, no more
// and no less. More would not be booked, since the limits bound it, but the writer
// is mistaken or malicious.
func (n *node) limits(pod string, ask *gpu.PodRequest, r *allocation.Reading) {
	mismatch := n.partMismatch
	if r.WholePod {
		mismatch = n.wholeMismatch
	}
	if text := mismatch(ask, r); text != "" {
		n.violation(LimitsMismatch, []string{pod}, "pod %s: %s lists %s", pod, r.Key, text)
	}
}

// partMismatch compares container by container. Writers that know of no init
// containers leave theirs empty; lost cards are another rule's business.
func (n *node) partMismatch(ask *gpu.PodRequest, r *allocation.Reading) string {
	for i := range r.Parts {
		part, req := &r.Parts[i], &ask.Requests[i]
		listed := len(part.Shares)
		if listed == 0 && req.Phase == gpu.Init {
			continue
		}
		if listed > req.Cards || listed < req.Cards && len(r.Lost) == 0 {
			return fmt.Sprintf("%d cards for container %s, which asks for %d", listed, req.Container, req.Cards)
		}
		for _, s := range part.Shares {
			want := n.ledger.ShareOf(req, s.Card)
			if s.Compute != want.Compute || !near(s.Memory, want.Memory, req) {
				return fmt.Sprintf("%d%% and %v of card %d for container %s, which asks for %d%% and %v",
					s.Compute, s.Memory, s.Card, req.Container, want.Compute, want.Memory)
			}
		}
	}
	return ""
}

// near allows for the two ways in which a ratio of a card's memory is rounded.
func near(listed, want gpu.MiB, req *gpu.Request) bool {
	return listed == want || req.Memory.Ratio > 0 && listed-want <= gpu.MemoryStep && want-listed <= gpu.MemoryStep
}

// wholeMismatch compares what is listed for the pod as a whole with what its
// containers ask for: on each card at most as if they were all on it, and in
// number between the widest container and all of them side by side.
func (n *node) wholeMismatch(ask *gpu.PodRequest, r *allocation.Reading) string {
	widest := 0
	for i := range ask.Requests {
		widest = max(widest, ask.Requests[i].Cards)
	}
	cards := r.Cards().Len() + len(r.Lost)
	if cards < widest || cards > ask.Cards() {
		return fmt.Sprintf("%d cards, its containers ask for %s", cards, between(widest, ask.Cards()))
	}
	single := widest == ask.Cards() // then there is nothing to add up, and less is wrong too
	for i := range r.Cards().All() {
		u, most := r.On(i), allocation.LimitOn(n.ledger, ask, i)
		if u.Compute > most.Compute || u.Memory > most.Memory+gpu.MemoryStep ||
			single && (u.Compute < most.Compute || u.Memory+gpu.MemoryStep < most.Memory) {
			return fmt.Sprintf("%d%% and %v of card %d, all its containers together ask for %d%% and %v",
				u.Compute, u.Memory, i, most.Compute, most.Memory)
		}
	}
	return ""
}

func between(low, high int) string {
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
