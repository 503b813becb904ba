package ledger_test

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestFullness(t *testing.T) {
	const unit = ledger.FullnessUnit
	cases := map[string]struct {
		usage ledger.Usage
		want  ledger.Fullness
	}{
		"an idle card":             {},
		"one of sixteen slots":     {usage: ledger.Usage{Slots: 1}, want: unit / 16},
		"half the compute":         {usage: ledger.Usage{Compute: 50}, want: unit / 2},
		"a quarter of the memory":  {usage: ledger.Usage{Memory: 16 << 10}, want: unit / 4},
		"they add up":              {usage: ledger.Usage{Slots: 4, Compute: 25, Memory: 32 << 10}, want: unit},
		"everything":               {usage: ledger.Usage{Slots: 16, Compute: 100, Memory: 64 << 10}, want: ledger.MaxFullness},
		"twice everything":         {usage: ledger.Usage{Slots: 32, Compute: 200, Memory: 128 << 10}, want: 2 * ledger.MaxFullness},
		"one and a half of memory": {usage: ledger.Usage{Memory: 96 << 10}, want: unit + unit/2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			card := gputest.Cards(1)[0]
			if got := tc.usage.Fullness(&card); got != tc.want {
				t.Errorf("fullness %d, want %d", got, tc.want)
			}
		})
	}
}

func TestFullnessOfACardWithoutMemory(t *testing.T) {
	u := ledger.Usage{Slots: 16, Memory: 1024}
	if got := u.Fullness(&gpu.Card{}); got != ledger.FullnessUnit {
		t.Errorf("fullness %d, want %d", got, ledger.FullnessUnit)
	}
}

func TestMeanIsOverHealthyCards(t *testing.T) {
	cards := gputest.Cards(3)
	cards[2].Healthy = false
	n := gputest.Node(gputest.MustTopology(cards, nil))
	gputest.Slice(n, "a", 0, 50, 0, "")
	gputest.Slice(n, "b", 2, 100, 64<<10, "")
	if got, want := n.Now().Mean, (ledger.FullnessUnit/2+ledger.FullnessUnit/16)/2; got != want {
		t.Errorf("mean %d, want %d", got, want)
	}
	if got := n.Now().Full[2]; got != 2*ledger.FullnessUnit+ledger.FullnessUnit/16 {
		t.Errorf("the unhealthy card's fullness is %d", got)
	}
}

// exactly returns the fullness as the fraction it stands for.
func exactly(u ledger.Usage, memory gpu.MiB) *big.Rat {
	sum := big.NewRat(int64(u.Slots), 16)
	sum.Add(sum, big.NewRat(int64(u.Compute), 100))
	return sum.Add(sum, big.NewRat(int64(u.Memory), int64(memory)))
}

// TestFullnessOrdersLikeFractions: cards of 64 and 72 GiB (512 and 576 steps)
// compare exactly as the fractions do, ties included.
func TestFullnessOrdersLikeFractions(t *testing.T) {
	r := gputest.Rand(1)
	ties := 0
	for range 10_000 {
		var full [2]ledger.Fullness
		var want [2]*big.Rat
		for i := range 2 {
			memory := []gpu.MiB{512, 576}[r.IntN(2)] * gpu.MemoryStep
			u := randomUsage(r, memory)
			full[i], want[i] = u.Fullness(&gpu.Card{Memory: memory}), exactly(u, memory)
		}
		if got, want := full[0]-full[1], want[0].Cmp(want[1]); sign(got) != want {
			t.Fatalf("fullness %d and %d compare as %d, want %d", full[0], full[1], sign(got), want)
		}
		if full[0] == full[1] {
			ties++
		}
	}
	if ties == 0 {
		t.Error("no tie was seen: the test shows nothing")
	}
}

// TestMeanOrdersLikeFractions is the same for nodes of 1 to 16 cards. Every
// second time the nodes are a true tie, often with different numbers of cards.
func TestMeanOrdersLikeFractions(t *testing.T) {
	r := gputest.Rand(2)
	for i := range 2000 {
		cards, usage := randomCards(r, 1+r.IntN(16))
		mean, want := meanOf(cards, usage)
		if i%2 == 0 && len(cards) <= 8 {
			cards, usage = slices.Repeat(cards, 2), slices.Repeat(usage, 2)
		} else if i%2 == 1 {
			cards, usage = randomCards(r, 1+r.IntN(16))
		}
		otherMean, otherWant := meanOf(cards, usage)
		if got, want := sign(mean-otherMean), want.Cmp(otherWant); got != want || i%2 == 0 && got != 0 {
			t.Fatalf("means %d and %d compare as %d, want %d", mean, otherMean, got, want)
		}
	}
}

func randomCards(r *rand.Rand, n int) ([]gpu.Card, []ledger.Usage) {
	cards, usage := gputest.Cards(n), make([]ledger.Usage, n)
	for i := range cards {
		cards[i].ID = "" // so that they can be repeated
		cards[i].Memory = []gpu.MiB{512, 576}[r.IntN(2)] * gpu.MemoryStep
		if r.IntN(2) == 0 {
			usage[i] = randomUsage(r, cards[i].Memory)
		}
	}
	return cards, usage
}

// meanOf returns the mean fullness twice: as the node has it and as the
// fraction it stands for.
func meanOf(cards []gpu.Card, usage []ledger.Usage) (ledger.Fullness, *big.Rat) {
	sum := new(big.Rat)
	for i := range cards {
		sum.Add(sum, exactly(usage[i], cards[i].Memory))
	}
	n := gputest.Node(gputest.MustTopology(cards, nil))
	n.SetForeign(usage)
	return n.Now().Mean, sum.Quo(sum, big.NewRat(int64(len(cards)), 1))
}

// randomUsage returns round amounts as often as odd ones, so that there are
// ties.
func randomUsage(r *rand.Rand, memory gpu.MiB) ledger.Usage {
	if r.IntN(2) == 0 {
		return ledger.Usage{Slots: int16(r.IntN(3)), Compute: gpu.Percent(r.IntN(5) * 25), Memory: memory / 8 * gpu.MiB(r.IntN(9))}
	}
	return ledger.Usage{
		Slots: int16(r.IntN(17)), Compute: gpu.Percent(r.IntN(101)),
		Memory: gpu.MiB(r.IntN(int(memory/gpu.MemoryStep)+1)) * gpu.MemoryStep,
	}
}

func sign(f ledger.Fullness) int {
	switch {
	case f < 0:
		return -1
	case f > 0:
		return 1
	}
	return 0
}

func TestFullnessDoesNotOverflow(t *testing.T) {
	const largest = 16 << 20
	for _, memory := range []gpu.MiB{largest, largest - 128, 3 * largest, 1000 * largest} {
		t.Run(memory.String(), func(t *testing.T) {
			u := ledger.Usage{Memory: memory, Slots: 1 << 14, Compute: 1 << 20}
			more := u
			more.Memory += gpu.MemoryStep
			card := &gpu.Card{Memory: largest}
			if a, b := u.Fullness(card), more.Fullness(card); a <= 0 || b <= a {
				t.Errorf("fullness %d, and %d with a step more", a, b)
			}
		})
	}
}
