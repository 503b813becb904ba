package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// kind is what jobs that ask for the same have in common.
type kind struct {
	id     int
	cards  int
	share  gpu.Percent // of each card; 100 is the whole card
	cpu    gpu.MilliCPU
	memory gpu.MiB // of the host
	size   string  // in reports
	// weight is how often jobs of the kind come, in relation to the other kinds.
	weight  float64
	request gpu.PodRequest
}

// The sizes that are no number of whole cards.
const (
	sizeCPU        = "cpu"
	sizeFractional = "fractional"
)

func newKind(cards int, share gpu.Percent, qos gpu.QoS) kind {
	k := kind{cards: cards, share: share, request: gpu.PodRequest{QoS: qos}}
	switch {
	case cards == 0:
		k.size = sizeCPU
		return k
	case k.fractional():
		k.size = sizeFractional
	default:
		k.size = strconv.Itoa(cards)
	}
	k.request.Requests = []gpu.Request{{
		Container: "main", Cards: cards, Whole: !k.fractional(), Exclusive: !k.fractional(),
		Compute: share, Memory: gpu.Memory{Ratio: share},
	}}
	return k
}

// fractional reports whether the kind asks for a part of one card.
func (k *kind) fractional() bool { return k.cards == 1 && k.share < gpu.FullCompute }

// demand is how much of the cards a job of the kind keeps busy, in thousandths
// of a card.
func (k *kind) demand() int64 { return int64(k.cards) * int64(k.share) * milliPercent }

// runsOn reports whether jobs of the kind may use cards of the model.
func (k *kind) runsOn(model string) bool {
	return k.cards == 0 || k.request.Models == nil || slices.Contains(k.request.Models, model)
}

// wholeCard is a card in the trace's thousandths, and milliPercent a hundredth
// of one.
const (
	wholeCard    = 1000
	milliPercent = wholeCard / 100
)

// key is the same for jobs of a trace that ask for the same.
func (k *kind) key() string {
	return fmt.Sprint(k.cpu, k.memory, k.cards, k.share, k.request.QoS, k.request.Models)
}

// kindsOf returns the pods as jobs that never leave, and their kinds; a kind's
// weight is the number of its pods. Without oneQoS all shares are of one class.
func kindsOf(pods []Pod, oneQoS bool) (kinds []kind, jobs []job) {
	known := map[string]int{}
	of := make([]int, len(pods))
	for i := range pods {
		p := &pods[i]
		qos := gpu.BestEffort
		if oneQoS {
			qos = p.QoS
		}
		k := newKind(p.Cards, gpu.Percent(p.Milli/milliPercent), qos)
		k.cpu, k.memory, k.request.Models = gpu.MilliCPU(p.CPU), p.Memory, p.Models
		k.request.CPU = k.cpu.Coarse(place.CPUDigits)
		key := k.key()
		if _, ok := known[key]; !ok {
			k.id = len(kinds)
			known[key] = k.id
			kinds = append(kinds, k)
		}
		of[i] = known[key]
		kinds[of[i]].weight++
	}
	for _, id := range of {
		jobs = append(jobs, job{kind: &kinds[id], lasts: math.Inf(1)})
	}
	return kinds, jobs
}
