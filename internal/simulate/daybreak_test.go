package simulate

import (
	"strconv"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestDaybreakIsTheCore: what the policy does, with all that it remembers, is
// what the core answers when it is asked about every node for every pod.
func TestDaybreakIsTheCore(t *testing.T) {
	trace := mixed(4, 40)
	got, err := Place(t.Context(), trace, "daybreak", Options{})
	gputest.Must(t, err)
	_, jobs := kindsOf(trace.Pods, false)
	servers, err := traceServers(trace.Nodes)
	gputest.Must(t, err)
	census, supply := place.NewCensus(), map[string]int{}
	at := map[string]*server{}
	for _, s := range servers {
		supply[s.model] += s.cards()
		at[s.name] = s
	}
	census.SetSupply(supply)
	var want []Placement
	for i := range trace.Pods {
		k := jobs[i].kind
		p := got[i] // pods without cards are not the core's business
		if k.cards > 0 {
			p = choose(servers, k, census.Demand())
		}
		want = append(want, p)
		if p.Placed {
			census.Add(place.KindsOf(&k.request), 1)
			gputest.Must(t, at[p.Node].book(ledger.Holder(strconv.Itoa(i)), k, p.Cards))
		}
	}
	gputest.Equal(t, "placements of core and policy", want, got)
}

// choose asks the core about each server that CPU, memory and model leave, and takes
// the first of the best.
func choose(servers []*server, k *kind, demand *place.Demand) (best Placement) {
	prefer := place.Preference{Demand: demand}
	var most place.Worth
	for _, s := range servers {
		offer, refusal := place.Fit(s.Node, &k.request, &prefer)
		if refusal.Code != place.Fits || !s.admits(k) {
			continue
		}
		if worth := place.Rank(&offer, &prefer); !best.Placed || worth.Compare(most) > 0 {
			best, most = Placement{Placed: true, Node: s.name, Cards: offer.Cards(0)}, worth
		}
	}
	return best
}
