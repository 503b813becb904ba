package simulate

import (
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
)

// daybreak asks the core as the scheduler does, for a pod that names no policy: it
// expects more jobs like those that run.
//
// Pods without cards are none of its business: in a cluster, other plugins of
// kube-scheduler place them. Here they go to the server with the most CPU left
// for each card that is free.
type daybreak struct {
	*world
	board *place.Board
	// versions are those of the servers when they were put on the board.
	versions     []int
	withoutCards policy
	census       *place.Census
}

func newDaybreak(w *world) policy {
	mostCPU := scored(func(s *server, k *kind) (float64, gpu.Set) { return -float64(s.FreeCPU-k.cpu) / float64(s.free+1), 0 })
	d := &daybreak{world: w, board: place.NewBoard(), versions: make([]int, len(w.servers)), withoutCards: mostCPU(w), census: place.NewCensus()}
	supply := map[string]int{}
	for _, s := range w.servers {
		supply[s.model] += s.cards()
	}
	d.census.SetSupply(supply)
	return d
}

func (d *daybreak) count(k *kind, jobs int) { d.census.Add(place.KindsOf(&k.request), jobs) }

func (d *daybreak) place(k *kind) (server int, cards gpu.Set, ok bool) {
	if k.cards == 0 {
		return d.withoutCards.place(k)
	}
	for i, s := range d.servers {
		if d.versions[i] != s.version {
			d.versions[i] = s.version
			d.board.Set(s.Node) // its NodeID is the position
		}
	}
	prefer := place.Preference{Demand: d.census.Demand()}
	var most place.Worth
	t := tie{world: d.world}
	for id, worth := range d.board.Ranking(&k.request, &prefer).Best() {
		if ok && (worth != most || t.ties != TiesRandom) {
			break
		}
		if d.servers[id].admits(k) && (!ok || t.replaces(0)) {
			server, most, ok = int(id), worth, true
		}
	}
	if !ok {
		return 0, 0, false
	}
	offer, _ := place.Fit(d.servers[server].Node, &k.request, &prefer)
	return server, offer.Cards(0), true
}
