package request

import (
	"fmt"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// koordAmounts is what a container wrote of Koordinator's resources.
type koordAmounts struct {
	gpu, shared, core, memory, ratio amount
	// first is one of those written, to report at.
	first amount
}

func (r *reader) readKoordinator() koordAmounts {
	k := koordAmounts{
		gpu: r.find(wire.KoordGPU), shared: r.find(wire.KoordShared), core: r.find(wire.KoordCore),
		memory: r.find(wire.KoordMemory), ratio: r.find(wire.KoordMemoryRatio),
	}
	k.first = firstWritten(k.gpu, k.shared, k.core, k.memory, k.ratio)
	return k
}

// maxPercent bounds percentages that are given for several cards at once.
const maxPercent = 100 * gpu.MaxCards

// koordRequest reads Koordinator's dialect. Its amounts are for the container
// as a whole: each of n cards gives one part in n. MetaX makes no slices over
// several cards, so with n above 1 every card must be taken whole.
func (r *reader) koordRequest(k *koordAmounts, sgpu int) gpu.Request {
	if !r.koordCombination(k) {
		return gpu.Request{}
	}
	core, ratio := r.koordPercent(k.core), r.koordPercent(k.ratio)
	if k.gpu.written() { // the two in one
		core = r.koordPercent(k.gpu)
		ratio, k.core, k.ratio = core, k.gpu, k.gpu
	}
	n := r.koordCards(k, core, ratio)
	if len(r.problems) > 0 {
		return gpu.Request{}
	}
	if at := r.find(wire.ResourceSGPU); at.written() && sgpu != n {
		r.invalid(at, fmt.Sprintf("the koordinator.sh amounts are for %d: write %d, or leave it out", n, n))
		return gpu.Request{}
	}
	req := gpu.Request{Cards: n, Memory: r.koordMemory(k, ratio, n), Compute: r.koordCompute(k, core, ratio, n)}
	if n > 1 && req.Compute < gpu.FullCompute && len(r.problems) == 0 {
		r.invalid(firstWritten(k.shared, k.core), fmt.Sprintf("MetaX does not share over several cards: take %d whole cards with %s: %d and %s: %d, or a share of one card with %s: 1",
			n, wire.KoordCore, 100*n, wire.KoordMemoryRatio, 100*n, wire.KoordShared))
	}
	return r.metered(req)
}

// koordPercent reads a percentage for all cards together, or -1 where there is none.
func (r *reader) koordPercent(a amount) int64 {
	if !a.written() {
		return -1
	}
	return r.percent(a, maxPercent)
}

// koordCombination checks which resources stand together.
func (r *reader) koordCombination(k *koordAmounts) bool {
	before := len(r.problems)
	if k.gpu.written() && (k.shared.written() || k.core.written() || k.memory.written() || k.ratio.written()) {
		r.invalid(k.gpu, fmt.Sprintf("stands alone, since it is %s and %s in one: remove it or the others", wire.KoordCore, wire.KoordMemoryRatio))
	}
	if k.memory.written() && k.ratio.written() {
		r.invalid(k.ratio, fmt.Sprintf("duplicates %s: keep one of the two", wire.KoordMemory))
	}
	if !k.gpu.written() && !k.memory.written() && !k.ratio.written() {
		r.invalid(firstWritten(k.core, k.shared), fmt.Sprintf("requires memory: add %s (such as 4Gi) or %s (in percent)", wire.KoordMemory, wire.KoordMemoryRatio))
	}
	return len(r.problems) == before
}

// koordCards returns the number of cards: as written, or as many as the
// percentages are multiples of a whole card.
func (r *reader) koordCards(k *koordAmounts, core, ratio int64) int {
	if k.shared.written() {
		n, ok := wire.WholeNumber(k.shared.Quantity, gpu.MaxCards)
		if !ok || n == 0 {
			r.invalid(k.shared, fmt.Sprintf("is a number of cards: write 1 for a share of one card, at most %d", gpu.MaxCards))
			return 1
		}
		return int(n)
	}
	for _, p := range []struct {
		percent int64
		at      amount
	}{{ratio, k.ratio}, {core, k.core}} {
		if p.percent > 100 && p.percent%100 != 0 {
			r.invalid(p.at, "more than one card is taken whole: write a multiple of 100, or at most 100")
			return 1
		}
		if p.percent >= 100 {
			return int(p.percent / 100)
		}
	}
	return 1
}

// koordMemory returns the memory of each of n cards.
func (r *reader) koordMemory(k *koordAmounts, ratio int64, n int) gpu.Memory {
	if k.memory.written() {
		each := k.memory
		if n > 1 && each.CmpInt64(tebibyte*int64(n)) <= 0 {
			each.Set(each.Value() / int64(n))
		}
		return gpu.Memory{Amount: r.bytes(each)}
	}
	each, ok := r.eachOf(k.ratio, ratio, n)
	if ok && each == 0 {
		r.invalid(k.ratio, "is the part of a card's memory in percent: write 1 to 100")
	}
	return gpu.Memory{Ratio: gpu.Percent(each)}
}

// koordCompute returns the compute of each of n cards. Without gpu-core it is
// known only when the cards are taken whole.
func (r *reader) koordCompute(k *koordAmounts, core, ratio int64, n int) gpu.Percent {
	if core >= 0 {
		each, _ := r.eachOf(k.core, core, n)
		return gpu.Percent(each)
	}
	if k.ratio.written() && ratio > 0 && ratio%100 == 0 && ratio == int64(100*n) {
		return gpu.FullCompute
	}
	r.invalid(firstWritten(k.memory, k.ratio), fmt.Sprintf("requires compute: add %s in percent, or take whole cards with %s: %d", wire.KoordCore, wire.KoordMemoryRatio, 100*n))
	return 0
}

// eachOf divides a percentage by the number of cards.
func (r *reader) eachOf(a amount, percent int64, n int) (int64, bool) {
	if n == 1 && percent > 100 {
		r.invalid(a, "is for one card: write at most 100")
		return 0, false
	}
	if percent%int64(n) != 0 || percent/int64(n) > 100 {
		r.invalid(a, fmt.Sprintf("is for %d cards together: write a multiple of %d, at most %d", n, n, 100*n))
		return 0, false
	}
	return percent / int64(n), true
}
