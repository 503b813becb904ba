package ledger_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// on is a share of card 0.
func on(compute gpu.Percent, memory gpu.MiB) []ledger.Share {
	return []ledger.Share{{Compute: compute, Memory: memory}}
}

func app(shares []ledger.Share) ledger.Part { return ledger.Part{Phase: gpu.App, Shares: shares} }

func initial(shares []ledger.Share) ledger.Part { return ledger.Part{Phase: gpu.Init, Shares: shares} }

func sidecar(shares []ledger.Share) ledger.Part {
	return ledger.Part{Phase: gpu.Sidecar, Shares: shares}
}

func TestHoldingIsBookedAtItsPeak(t *testing.T) {
	alone := []ledger.Share{{Compute: 100, Memory: 512, Exclusive: true}}
	cases := map[string]struct {
		parts []ledger.Part
		want  ledger.Usage // of card 0; the QoS class is burst-share
	}{
		"no container asks":                            {},
		"one container":                                {parts: []ledger.Part{app(on(30, 1024))}, want: ledger.Usage{Compute: 30, Memory: 1024, Slots: 1, QoS: 4}},
		"app containers add up":                        {parts: []ledger.Part{app(on(30, 1024)), app(on(20, 2048))}, want: ledger.Usage{Compute: 50, Memory: 3072, Slots: 2, QoS: 4}},
		"an init container no larger is free":          {parts: []ledger.Part{initial(on(30, 1024)), app(on(30, 1024))}, want: ledger.Usage{Compute: 30, Memory: 1024, Slots: 1, QoS: 4}},
		"an init container that is larger":             {parts: []ledger.Part{initial(on(70, 4096)), app(on(30, 1024))}, want: ledger.Usage{Compute: 70, Memory: 4096, Slots: 1, QoS: 4}},
		"each amount has its own peak":                 {parts: []ledger.Part{initial(on(70, 512)), app(on(30, 1024)), app(on(10, 1024))}, want: ledger.Usage{Compute: 70, Memory: 2048, Slots: 2, QoS: 4}},
		"init containers run one after the other":      {parts: []ledger.Part{initial(on(40, 1024)), initial(on(50, 512))}, want: ledger.Usage{Compute: 50, Memory: 1024, Slots: 1, QoS: 4}},
		"a sidecar adds to the app containers":         {parts: []ledger.Part{sidecar(on(10, 256)), app(on(30, 1024))}, want: ledger.Usage{Compute: 40, Memory: 1280, Slots: 2, QoS: 4}},
		"a sidecar adds to later init containers":      {parts: []ledger.Part{sidecar(on(10, 256)), initial(on(60, 1024)), app(on(5, 128))}, want: ledger.Usage{Compute: 70, Memory: 1280, Slots: 2, QoS: 4}},
		"a sidecar spares earlier init containers":     {parts: []ledger.Part{initial(on(60, 1024)), sidecar(on(10, 256)), app(on(5, 128))}, want: ledger.Usage{Compute: 60, Memory: 1024, Slots: 2, QoS: 4}},
		"sidecars count from where they start":         {parts: []ledger.Part{sidecar(on(10, 128)), initial(on(50, 128)), sidecar(on(20, 128)), initial(on(35, 128))}, want: ledger.Usage{Compute: 65, Memory: 384, Slots: 3, QoS: 4}},
		"an exclusive init container, then a slice":    {parts: []ledger.Part{initial(alone), app(on(30, 1024))}, want: ledger.Usage{Compute: 100, Memory: 1024, Slots: 1, QoS: 4, Exclusive: true}},
		"alone on the card there is no QoS class":      {parts: []ledger.Part{app(alone)}, want: ledger.Usage{Compute: 100, Memory: 512, Slots: 1, Exclusive: true}},
		"shares of other cards don't count":            {parts: []ledger.Part{app([]ledger.Share{{Card: 1, Compute: 90, Memory: 128}, {Card: 0, Compute: 5, Memory: 256}})}, want: ledger.Usage{Compute: 5, Memory: 256, Slots: 1, QoS: 4}},
		"a container may hold a card twice if it must": {parts: []ledger.Part{app(append(on(5, 128), on(6, 256)...))}, want: ledger.Usage{Compute: 11, Memory: 384, Slots: 2, QoS: 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := ledger.Holding{Holder: "pod", QoS: gpu.BurstShare, Parts: tc.parts}
			gputest.Equal(t, "booked on card 0", tc.want, h.On(0))
		})
	}
}

func TestHoldingOfAClass(t *testing.T) {
	cases := map[string]struct {
		class gpu.Class
		want  ledger.Usage
	}{
		"without a class":               {class: gpu.Normal, want: ledger.Usage{Compute: 10, Memory: 256, Slots: 2, QoS: 1}},
		"offline":                       {class: gpu.Offline, want: ledger.Usage{Compute: 10, Memory: 256, Slots: 2, Offline: 2, QoS: 1}},
		"online pods have no QoS class": {class: gpu.Online, want: ledger.Usage{Compute: 10, Memory: 256, Slots: 2, Online: 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			parts := []ledger.Part{initial(on(3, 64)), app(on(5, 128)), sidecar(on(5, 128))}
			h := ledger.Holding{Class: tc.class, QoS: gpu.BestEffort, Parts: parts}
			gputest.Equal(t, "booked on card 0", tc.want, h.On(0))
		})
	}
}

func TestHoldingCards(t *testing.T) {
	h := ledger.Holding{Parts: []ledger.Part{
		initial([]ledger.Share{{Card: 7}}), app(nil), app([]ledger.Share{{Card: 2}, {Card: 63}}), app([]ledger.Share{{Card: 2}}),
	}}
	gputest.Equal(t, "cards", []int{2, 7, 63}, h.Cards().Indices())
}
