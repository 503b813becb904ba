package gpu_test

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestMemoryOf(t *testing.T) {
	const c500 = gpu.MiB(64 << 10)
	cases := map[string]struct {
		memory gpu.Memory
		total  gpu.MiB
		want   gpu.MiB
	}{
		"an amount is the same on every card":      {memory: gpu.Memory{Amount: 4096}, total: c500, want: 4096},
		"an amount larger than the card":           {memory: gpu.Memory{Amount: 128 << 10}, total: c500, want: 128 << 10},
		"all memory":                               {memory: gpu.AllMemory(), total: c500, want: c500},
		"all memory of a smaller card":             {memory: gpu.AllMemory(), total: 16000, want: 16000},
		"a ratio above 100 is all memory":          {memory: gpu.Memory{Ratio: 150}, total: c500, want: c500},
		"half of a card":                           {memory: gpu.Memory{Ratio: 50}, total: c500, want: 32 << 10},
		"a third is rounded down to a step":        {memory: gpu.Memory{Ratio: 33}, total: c500, want: 168 * 128},
		"one percent is rounded down to a step":    {memory: gpu.Memory{Ratio: 1}, total: c500, want: 5 * 128},
		"99 percent is rounded down, not up":       {memory: gpu.Memory{Ratio: 99}, total: c500, want: 506 * 128},
		"a ratio never comes to nothing":           {memory: gpu.Memory{Ratio: 1}, total: 1024, want: 128},
		"a ratio counts before an amount":          {memory: gpu.Memory{Ratio: 50, Amount: 128}, total: c500, want: 32 << 10},
		"a ratio of the largest card there may be": {memory: gpu.Memory{Ratio: 99}, total: 16 << 20, want: 129761 * 128},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.memory.Of(tc.total); got != tc.want {
				t.Errorf("Of(%v) = %d MiB, want %d", tc.total, got, tc.want)
			}
		})
	}
}

// TestRatiosFitTogether: shares whose ratios add up to 100 always fit on one
// card, whatever memory it has.
func TestRatiosFitTogether(t *testing.T) {
	for total := 16 * gpu.MemoryStep; total < 1024*gpu.MemoryStep; total += gpu.MemoryStep {
		for ratio := gpu.Percent(7); ratio < 93; ratio++ {
			a, b := gpu.Memory{Ratio: ratio}.Of(total), gpu.Memory{Ratio: 100 - ratio}.Of(total)
			if a+b > total || a%gpu.MemoryStep != 0 || a <= 0 {
				t.Fatalf("%d and %d percent of %d MiB are %d and %d", ratio, 100-ratio, total, a, b)
			}
		}
	}
}

func TestRounding(t *testing.T) {
	cases := map[string]struct{ in, wantUp, wantDown gpu.MiB }{
		"nothing":                {in: 0, wantUp: 0, wantDown: 0},
		"one MiB":                {in: 1, wantUp: 128, wantDown: 0},
		"one below a step":       {in: 127, wantUp: 128, wantDown: 0},
		"a step":                 {in: 128, wantUp: 128, wantDown: 128},
		"one above a step":       {in: 129, wantUp: 256, wantDown: 128},
		"what mx-smi calls 16 G": {in: 16000, wantUp: 16000, wantDown: 16000},
		"a card's memory":        {in: 65535, wantUp: 65536, wantDown: 65408},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "RoundUp", tc.wantUp, tc.in.RoundUp())
			gputest.Equal(t, "RoundDown", tc.wantDown, tc.in.RoundDown())
		})
	}
}

func TestMiBString(t *testing.T) {
	cases := map[gpu.MiB]string{
		0: "0 MiB", 1: "1 MiB", 128: "128 MiB", 640: "640 MiB", 1023: "1023 MiB", 1024: "1 GiB",
		1025: "1025 MiB", 1536: "1536 MiB", 4096: "4 GiB", 16000: "16000 MiB", 64 << 10: "64 GiB", 72 << 10: "72 GiB",
	}
	for in, want := range cases {
		gputest.Equal(t, fmt.Sprintf("MiB(%d) prints as", int64(in)), want, in.String())
	}
}

// TestCoarse: amounts have few coarse values, none is below the amount or much above
// it, and those are their own.
func TestCoarse(t *testing.T) {
	for digits, want := range map[int]int{2: 35, 4: 121} {
		values := map[gpu.MilliCPU]bool{}
		for c := range gpu.MilliCPU(128_000) {
			got := c.Coarse(digits)
			if got < c || got > c+c>>(digits-1) || got.Coarse(digits) != got {
				t.Fatalf("%d is about %d, and that about %d", c, got, got.Coarse(digits))
			}
			values[got] = true
		}
		if len(values) != want {
			t.Errorf("%d values of %d digits up to 128 cores, want %d", len(values), digits, want)
		}
	}
}
