package request

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// koordAmounts is what a container wrote of Koordinator's resources.
type koordAmounts struct {
	written bool
	first   corev1.ResourceName // one of those written, to report at

	gpu, shared, core, memory, ratio                amount
	hasGPU, hasShared, hasCore, hasMemory, hasRatio bool
}

func (r *reader) readKoordinator() koordAmounts {
	var k koordAmounts
	for _, f := range []struct {
		name corev1.ResourceName
		a    *amount
		has  *bool
	}{
		{wire.KoordGPU, &k.gpu, &k.hasGPU},
		{wire.KoordShared, &k.shared, &k.hasShared},
		{wire.KoordCore, &k.core, &k.hasCore},
		{wire.KoordMemory, &k.memory, &k.hasMemory},
		{wire.KoordMemoryRatio, &k.ratio, &k.hasRatio},
	} {
		if *f.a, *f.has = r.find(f.name); *f.has && !k.written {
			k.written, k.first = true, f.name
		}
	}
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
	core, ratio := int64(-1), int64(-1)
	if k.hasGPU {
		core = r.percent(k.gpu, maxPercent)
		ratio = core
		k.core, k.ratio = k.gpu, k.gpu
	}
	if k.hasCore {
		core = r.percent(k.core, maxPercent)
	}
	if k.hasRatio {
		ratio = r.percent(k.ratio, maxPercent)
	}
	n := r.koordCards(k, core, ratio)
	if len(r.problems) > 0 {
		return gpu.Request{}
	}
	if _, ok := r.find(wire.ResourceSGPU); ok && sgpu != n {
		r.conflict(wire.ResourceSGPU, fmt.Sprintf("the koordinator.sh amounts are for %d: write %d, or leave it out", n, n))
		return gpu.Request{}
	}
	req := gpu.Request{Cards: n, Memory: r.koordMemory(k, ratio, n), Compute: r.koordCompute(k, core, ratio, n)}
	if n > 1 && req.Compute < gpu.FullCompute && len(r.problems) == 0 {
		at := k.shared
		if !k.hasShared {
			at = k.core
		}
		r.invalid(at, fmt.Sprintf("MetaX does not share over several cards: take %d whole cards with %s: %d and %s: %d, or a share of one card with %s: 1",
			n, wire.KoordCore, 100*n, wire.KoordMemoryRatio, 100*n, wire.KoordShared))
	}
	return r.metered(req)
}

// koordCombination checks which resources stand together.
func (r *reader) koordCombination(k *koordAmounts) bool {
	before := len(r.problems)
	if k.hasGPU && (k.hasShared || k.hasCore || k.hasMemory || k.hasRatio) {
		r.invalid(k.gpu, fmt.Sprintf("stands alone, since it is %s and %s in one: remove it or the others", wire.KoordCore, wire.KoordMemoryRatio))
	}
	if k.hasMemory && k.hasRatio {
		r.invalid(k.ratio, fmt.Sprintf("says the same as %s in another way: keep one of the two", wire.KoordMemory))
	}
	if !k.hasGPU && !k.hasMemory && !k.hasRatio {
		at := k.core
		if !k.hasCore {
			at = k.shared
		}
		r.invalid(at, fmt.Sprintf("says nothing about memory: add %s (such as 4Gi) or %s (in percent)", wire.KoordMemory, wire.KoordMemoryRatio))
	}
	return len(r.problems) == before
}

// koordCards returns the number of cards: as written, or as many as the
// percentages are multiples of a whole card.
func (r *reader) koordCards(k *koordAmounts, core, ratio int64) int {
	if k.hasShared {
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
	if k.hasMemory {
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
	if k.hasRatio && ratio > 0 && ratio%100 == 0 && ratio == int64(100*n) {
		return gpu.FullCompute
	}
	at := k.ratio
	if k.hasMemory {
		at = k.memory
	}
	r.invalid(at, fmt.Sprintf("says nothing about compute: add %s in percent, or take whole cards with %s: %d", wire.KoordCore, wire.KoordMemoryRatio, 100*n))
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
