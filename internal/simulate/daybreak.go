package simulate

import (
	"cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// daybreak asks the core as the scheduler does, for a pod that names no policy.
// Of the jobs to come it knows what it has seen arrive.
//
// Pods without cards are none of its business: in a cluster, other plugins of
// kube-scheduler place them. Here they go to the server with the most CPU left
// for each card that is free.
type daybreak struct {
	cards        ranking[place.Worth]
	withoutCards ranking[float64]
	learner      *place.Learner
	prefer       place.Preference
}

func newDaybreak(w *world) policy {
	d := &daybreak{learner: place.NewLearner()}
	d.cards = ranking[place.Worth]{world: w, ask: d.ask, compare: place.Worth.Compare}
	d.withoutCards = ranking[float64]{world: w, compare: cmp.Compare[float64], ask: func(s *server, k *kind) (float64, gpu.Set, bool) {
		return float64(s.FreeCPU-k.cpu) / float64(s.free+1), 0, s.admits(k)
	}}
	supply := map[string]int{}
	for _, s := range w.servers {
		supply[s.model] += s.cards()
	}
	d.learner.SetSupply(supply)
	return d
}

func (d *daybreak) arrived(k *kind) { d.learner.Observe(&k.request) }

func (d *daybreak) place(k *kind) (server int, cards gpu.Set, ok bool) {
	if k.cards == 0 {
		return d.withoutCards.place(k)
	}
	if demand := d.learner.Demand(); demand != d.prefer.Demand {
		d.prefer.Demand = demand
		d.cards.epoch++
	}
	return d.cards.place(k)
}

func (d *daybreak) ask(s *server, k *kind) (worth place.Worth, cards gpu.Set, fits bool) {
	if !s.admits(k) {
		return worth, 0, false
	}
	offer, refusal := place.Fit(s.Node, &k.request, &d.prefer)
	if refusal.Code != place.Fits {
		return worth, 0, false
	}
	return place.Rank(&offer, &d.prefer), offer.Cards(0), true
}
