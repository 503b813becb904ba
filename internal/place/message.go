package place

import (
	"fmt"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Reason returns a text that is the same for every refusal with this code, so
// that nodes can be grouped by it.
func (c Code) Reason() string {
	switch c {
	case NodeExcluded:
		return "the pod may not use the node"
	case NoCards:
		return "no MetaX cards"
	case BadInventory:
		return "card inventory can't be read"
	case Unaccounted:
		return "a pod holds cards that are not known"
	case ModeConflict:
		return "cards are served in another mode"
	case Unhealthy:
		return "cards are unhealthy"
	case CardExcluded:
		return "cards are excluded by the pod"
	case ClassConflict:
		return "cards run pods of another class"
	case QoSConflict:
		return "cards run another QoS class"
	case ExclusiveConflict:
		return "cards are in use"
	case SlicesFull:
		return "cards have no free slice"
	case MemoryShort:
		return "too little free card memory"
	case ComputeShort:
		return "too little free card compute"
	case TooFewCards:
		return "too few cards"
	}
	return ""
}

// Message says in one sentence why the node refused, with the numbers.
func (r *Refusal) Message(n *ledger.Node) string {
	if r.WhenEmpty.Code != Fits && r.WhenEmpty.Code != r.Code {
		never := r.cause()
		never.WhenEmpty, never.Cards = Shortage{}, [codes]uint8{}
		today := r.message(n)
		if t := r.tally(); t != "" {
			today = t
		}
		return never.message(n) + ", even when nobody else is on the node; today " + today
	}
	return r.message(n)
}

func (r *Refusal) message(n *ledger.Node) string {
	switch r.Code {
	case NodeExcluded:
		return r.Exclusion.Message()
	case NoCards:
		return "the node has no MetaX cards"
	case BadInventory:
		return fmt.Sprintf("the node's cards can't be read: %v", n.Problem)
	case Unaccounted:
		return fmt.Sprintf("pod %s holds cards that are not known: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod", n.Unknown()[0])
	case ModeConflict:
		return "the node " + serves(n.Serves)
	case Unhealthy:
		if r.Paused {
			return "the node hands out no cards for now: " + n.Paused
		}
		return r.fitting()
	case SlicesFull:
		if t := r.tally(); t != "" {
			return "wants a free slice: " + t
		}
		return "wants a free slice"
	case MemoryShort:
		return fmt.Sprintf("wants %v of a card's memory, the best card has %v free%s", gpu.MiB(r.Want), gpu.MiB(r.Have), r.others())
	case ComputeShort:
		return fmt.Sprintf("wants %d%% of a card's compute, the best card has %d%% free%s", r.Want, r.Have, r.others())
	case TooFewCards:
		fit := "fit"
		if r.Have == 1 {
			fit = "fits"
		}
		return fmt.Sprintf("wants %s, only %d %s%s", cards(r.Want), r.Have, fit, r.others())
	case CardExcluded, ClassConflict, QoSConflict, ExclusiveConflict:
		return r.fitting()
	}
	return ""
}

// Message says why the pod may not use the node. Who knows the pod and the Node
// can name the label or the taint.
func (x Exclusion) Message() string {
	switch x {
	case NotSelected:
		return "the pod's nodeSelector does not match the node"
	case NotAffine:
		return "the pod's required node affinity does not match the node"
	case Cordoned:
		return "the node is cordoned"
	case NotReady:
		return "the node is not ready"
	case Tainted:
		return "the pod does not tolerate a taint of the node"
	}
	return NodeExcluded.Reason()
}

// summary completes a sentence that begins with a number of nodes.
func (x Exclusion) summary(n int) string {
	are, have, do := "are", "have", "do"
	if n == 1 {
		are, have, do = "is", "has", "does"
	}
	switch x {
	case NotSelected:
		return do + " not match the pod's nodeSelector"
	case NotAffine:
		return do + " not match the pod's required node affinity"
	case Cordoned:
		return are + " cordoned"
	case NotReady:
		return are + " not ready"
	case Tainted:
		return have + " a taint that the pod does not tolerate"
	}
	return "may not be used by the pod"
}

// summarizeExcluded tells of the nodes that the pod may not use, by reason.
func summarizeExcluded(refusals []Refusal) []string {
	var count [exclusions]int
	for i := range refusals {
		if refusals[i].Code == NodeExcluded {
			count[refusals[i].Exclusion]++
		}
	}
	var parts []string
	for x, n := range count {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Exclusion(x).summary(n)))
		}
	}
	return parts
}

// fitting says how many cards fit, and what of the others.
func (r *Refusal) fitting() string {
	if t := r.tally(); t != "" {
		return fmt.Sprintf("wants %s, %d fit: %s", cards(r.Want), r.Have, t)
	}
	return fmt.Sprintf("wants %s, %d fit", cards(r.Want), r.Have)
}

func serves(s ledger.Serves) string {
	switch {
	case s.Seats:
		return "serves seats on shared cards (metax-tech.com/gpu), not slices"
	case s.Whole:
		return "serves whole cards (metax-tech.com/gpu), not slices"
	case s.Slices:
		return "serves slices (metax-tech.com/sgpu), not whole cards"
	}
	return "serves neither whole cards nor slices"
}

// others tells the reasons of the cards that the sentence has not spoken of.
func (r *Refusal) others() string {
	rest := *r
	rest.Cards[r.Code] = 0
	rest.Cards[TooFewCards] = 0
	if t := rest.tally(); t != "" {
		return "; " + t
	}
	return ""
}

func (r *Refusal) tally() string {
	var parts []string
	for c := NoCards; c < TooFewCards; c++ {
		if n := r.Cards[c]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", cards(int64(n)), c.ofCards(n == 1)))
		}
	}
	return strings.Join(parts, ", ")
}

// ofCards completes a sentence that begins with a number of cards.
func (c Code) ofCards(one bool) string {
	are, run, have := "are", "run", "have"
	if one {
		are, run, have = "is", "runs", "has"
	}
	switch c {
	case Unhealthy:
		return are + " unhealthy"
	case CardExcluded:
		return are + " excluded by the pod"
	case ClassConflict:
		return run + " pods of another class"
	case QoSConflict:
		return run + " another QoS class"
	case ExclusiveConflict:
		return are + " in use"
	case SlicesFull:
		return have + " no free slice"
	case MemoryShort:
		return have + " too little memory"
	case ComputeShort:
		return have + " too little compute"
	}
	return are + " out: " + c.Reason()
}

func cards(n int64) string {
	if n == 1 {
		return "1 card"
	}
	return fmt.Sprintf("%d cards", n)
}

// summary tells of n nodes that refused for this code; r is the nearest miss.
func (r *Refusal) summary(n int) string {
	need, have, run, serve := "need", "have", "run", "serve"
	if n == 1 {
		need, have, run, serve = "needs", "has", "runs", "serves"
	}
	unhealthy := have + " unhealthy cards"
	if r.Paused {
		unhealthy = have + " cards that are unhealthy or not handed out for now"
	}
	return fmt.Sprintf("%d ", n) + map[Code]string{
		NodeExcluded:  Exclusion(0).summary(n),
		NoCards:       have + " no MetaX cards",
		BadInventory:  have + " an unreadable card inventory",
		Unaccounted:   have + " a pod whose cards are not known",
		ModeConflict:  serve + " cards in another mode",
		Unhealthy:     unhealthy,
		CardExcluded:  have + " only cards that the pod excludes",
		ClassConflict: run + " pods of another class",
		QoSConflict:   run + " another QoS class",
		SlicesFull:    have + " no free slice",
		ExclusiveConflict: r.ifSeveral(have+" no card that nobody uses",
			fmt.Sprintf("%s %s nobody uses (best has %d)", need, cards(r.Want), r.Have)),
		MemoryShort:  fmt.Sprintf("%s %v more card memory (best has %v free)", need, gpu.MiB(r.Want-r.Have), gpu.MiB(r.Have)),
		ComputeShort: fmt.Sprintf("%s %d%% more card compute (best has %d%% free)", need, r.Want-r.Have, r.Have),
		TooFewCards:  fmt.Sprintf("%s %s that fit (best has %d)", need, cards(r.Want), r.Have),
	}[r.Code]
}

// ifSeveral chooses by whether more than one card is wanted.
func (r *Refusal) ifSeveral(one, several string) string {
	if r.Want > 1 {
		return several
	}
	return one
}
