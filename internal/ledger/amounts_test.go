package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPeakOf: what a pod counts at one time, on cards of 64 GiB. Cards that it has to
// itself count with all of their memory, and online pods with all compute.
func TestPeakOf(t *testing.T) {
	const gib = 1024
	ratio := func(compute, percent gpu.Percent) gpu.Request {
		return gpu.Request{Cards: 1, Compute: compute, Memory: gpu.Memory{Ratio: percent}}
	}
	cases := map[string]struct {
		request *gpu.PodRequest
		want    ledger.Amounts
	}{
		"nothing":     {request: gputest.Ask(gpu.Request{})},
		"whole cards": {request: gputest.AskWhole(3), want: ledger.Amounts{Compute: 300, Memory: 192 * gib, Cards: 3, Whole: 3}},
		"a slice":     {request: gputest.AskSlice(30, 4*gib), want: ledger.Amounts{Compute: 30, Memory: 4 * gib, Slices: 1}},
		"alone on two cards": {
			request: gputest.Ask(gputest.Alone(2, 8*gib)), want: ledger.Amounts{Compute: 200, Memory: 128 * gib, Cards: 2, Slices: 2},
		},
		"alone on a card, with more memory than cards have": {
			request: gputest.Ask(gputest.Alone(1, 80*gib)), want: ledger.Amounts{Compute: 100, Memory: 80 * gib, Cards: 1, Slices: 1},
		},
		"two containers of an online pod": {
			request: online(gputest.Ask(gputest.Share(0, 4*gib), gputest.Share(0, 2*gib))), want: ledger.Amounts{Compute: 200, Memory: 6 * gib, Cards: 2, Slices: 2},
		},
		"an init container of an online pod": {
			request: online(gputest.Ask(gputest.As(gpu.Init, gputest.Share(0, 4*gib)), gputest.Share(0, 2*gib), gpu.Request{})),
			want:    ledger.Amounts{Compute: 100, Memory: 4 * gib, Cards: 1, Slices: 1},
		},
		"a ratio is rounded as on a card": {request: gputest.Ask(ratio(10, 33)), want: ledger.Amounts{Compute: 10, Memory: 168 * 128, Slices: 1}},
		"containers run together": {
			request: gputest.Ask(gputest.Share(30, 4*gib), gputest.Whole(1), gputest.Share(10, 1*gib)),
			want:    ledger.Amounts{Compute: 140, Memory: 69 * gib, Cards: 1, Whole: 1, Slices: 2},
		},
		"init containers run one by one, and before the others": {
			request: gputest.Ask(gputest.As(gpu.Init, gputest.Share(60, 1*gib)), gputest.As(gpu.Init, gputest.Share(50, 9*gib)), gputest.Share(30, 4*gib)),
			want:    ledger.Amounts{Compute: 60, Memory: 9 * gib, Slices: 1},
		},
		"a sidecar runs with what starts after it": {
			request: gputest.Ask(gputest.As(gpu.Init, gputest.Share(70, 8*gib)), gputest.As(gpu.Sidecar, gputest.Share(10, 2*gib)), gputest.As(gpu.Init, gputest.Share(50, 7*gib)), gputest.Share(30, 4*gib)),
			want:    ledger.Amounts{Compute: 70, Memory: 9 * gib, Slices: 2},
		},
	}
	for name, tc := range cases {
		if diff := cmp.Diff(tc.want, ledger.PeakOf(tc.request, gputest.Memory)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func online(r *gpu.PodRequest) *gpu.PodRequest {
	r.Class = gpu.Online
	return r
}

// TestPeakVaries: what a pod counts depends on its cards exactly if the peak is another
// on smaller ones.
func TestPeakVaries(t *testing.T) {
	for name, r := range map[string]*gpu.PodRequest{
		"nothing": gputest.Ask(gpu.Request{}), "no cards of all memory": gputest.Ask(gpu.Request{Memory: gpu.AllMemory()}),
		"whole cards": gputest.AskWhole(3), "a slice": gputest.AskSlice(30, 4096), "alone": gputest.Ask(gpu.Request{}, gputest.Alone(2, 4096)),
		"a ratio": gputest.Ask(gpu.Request{Cards: 1, Compute: 10, Memory: gpu.Memory{Ratio: 33}}), "online": online(gputest.AskSlice(0, 4096)),
	} {
		if got, want := ledger.PeakVaries(r), ledger.PeakOf(r, gputest.Memory) != ledger.PeakOf(r, gputest.Memory/2); got != want {
			t.Errorf("%s: varies: %t, want %t", name, got, want)
		}
	}
}

// TestPeak: the peak is that of the whole pod. The peaks of its cards may come at
// different times.
func TestPeak(t *testing.T) {
	share := func(card int, compute gpu.Percent) []ledger.Share {
		return []ledger.Share{{Card: card, Compute: compute, Memory: 128}}
	}
	h := ledger.Holding{Parts: []ledger.Part{
		{Phase: gpu.Init, Shares: share(0, 80)},
		{Phase: gpu.Init, Shares: share(1, 70)},
		{Phase: gpu.App, Shares: share(0, 10)},
	}}
	n := gputest.Node(gputest.Zones(2))
	if got, want := n.Peak(&h), (ledger.Amounts{Compute: 80, Memory: 128, Slices: 1}); got != want {
		t.Errorf("peak %+v, want %+v", got, want)
	}
	if sum := h.On(0).Compute + h.On(1).Compute; sum != 150 {
		t.Errorf("the cards' own peaks add up to %d, want 150", sum)
	}
}

func TestPlus(t *testing.T) {
	sum := ledger.Amounts{Compute: 30, Memory: 128, Slices: 1}
	sum.Plus(&ledger.Amounts{Compute: 100, Memory: 1024, Cards: 1, Whole: 1})
	sum.Plus(&ledger.Amounts{})
	if want := (ledger.Amounts{Compute: 130, Memory: 1152, Cards: 1, Whole: 1, Slices: 1}); sum != want {
		t.Errorf("sum %+v, want %+v", sum, want)
	}
}
