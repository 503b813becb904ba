package place_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestCensusIsAFunctionOfPods: a census that pods came to and left, and that was asked
// after each, as in a scheduler that runs, expects the same as one of the pods that
// are there, as in a scheduler that starts or in the place command, whatever their
// order.
func TestCensusIsAFunctionOfPods(t *testing.T) {
	r := gputest.Rand(11)
	supply := map[string]int{"C500": 64, "C550": 8}
	running := place.NewCensus()
	var pods []*gpu.PodRequest
	for i := range 3000 {
		if len(pods) > 0 && r.IntN(100) < 45 {
			k := r.IntN(len(pods))
			running.Add(place.KindsOf(pods[k]), -1)
			pods = slices.Delete(pods, k, k+1)
		} else {
			pod := gputest.Ask(gputest.Share(gpu.Percent(5*(1+r.IntN(12))), gpu.MiB(1024*(1+r.IntN(8)))))
			if r.IntN(4) == 0 {
				pod = gputest.AskWhole(1 << r.IntN(4))
			}
			pod.CPU = gpu.MilliCPU(1000 * r.IntN(16))
			if r.IntN(9) == 0 {
				pod.Models = []string{"C550"}
			}
			pods = append(pods, pod)
			running.Add(place.KindsOf(pod), 1)
		}
		if i == 40 || i == 777 {
			running.SetSupply(supply)
		}
		running.Demand()
		if i%97 != 0 {
			continue
		}
		running.SetSupply(supply)
		started := place.NewCensus()
		for _, k := range r.Perm(len(pods)) {
			started.Add(place.KindsOf(pods[k]), 1)
		}
		started.SetSupply(supply)
		want := started.Demand()
		if (want != nil) != (len(pods) >= 32) {
			t.Fatalf("of %d pods something is expected: %v", len(pods), want != nil)
		}
		if !reflect.DeepEqual(want, running.Demand()) {
			t.Fatalf("after %d steps a census that has run expects something else", i+1)
		}
	}
}

// TestDemandStays: what is expected is the same object where the same is expected,
// since a scheduler asks all nodes again for another.
func TestDemandStays(t *testing.T) {
	c := place.NewCensus()
	whole, half := place.KindsOf(gputest.AskWhole(1)), place.KindsOf(part(50))
	c.Add(whole, 600)
	c.Add(half, 400)
	c.SetSupply(map[string]int{"C500": 1064})
	before := c.Demand()
	for range 10 {
		c.Add(half, 1)
		c.Add(whole, -1)
		if c.Demand() != before {
			t.Fatal("one pod of a thousand makes another Demand")
		}
	}
	c.SetSupply(map[string]int{"C500": 1064})
	if c.Demand() != before {
		t.Error("the same supply makes another Demand")
	}
	c.SetSupply(map[string]int{"C500": 1065})
	if c.Demand() == before {
		t.Error("another supply makes no other Demand")
	}
	before = c.Demand()
	c.Add(half, 400)
	if c.Demand() == before {
		t.Error("twice as many of a kind make no other Demand")
	}
	c.Add(half, -800)
	c.Add(whole, -580)
	if c.Demand() != nil {
		t.Error("something is expected of a few pods")
	}
}

// TestCensusCounts: a pod counts in which its containers ask for cards, and one that
// asks for none does not count.
func TestCensusCounts(t *testing.T) {
	init := gputest.Whole(2)
	init.Phase = gpu.Init
	for name, tt := range map[string]struct {
		pod  *gpu.PodRequest
		want int
	}{
		"no cards":                       {gputest.Ask(gpu.Request{}), 0},
		"one container":                  {gputest.Ask(gputest.Whole(1), gpu.Request{}), 1},
		"two containers":                 {gputest.Ask(gputest.Whole(1), gputest.Share(30, gib)), 2},
		"an init container as well":      {gputest.Ask(init, gputest.Whole(1)), 1},
		"an init container, and no more": {gputest.Ask(init), 1},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := place.KindsOf(tt.pod)
			if len(kinds) != tt.want {
				t.Errorf("%d kinds, want %d", len(kinds), tt.want)
			}
			c := place.NewCensus()
			c.Add(kinds, 31)
			if c.Demand() != nil {
				t.Error("31 pods are enough")
			}
			c.Add(kinds, 1)
			if (c.Demand() != nil) != (tt.want > 0) {
				t.Errorf("of 32 pods something is expected: %v", c.Demand() != nil)
			}
		})
	}
}

// TestRareKinds: many kinds of which there are few pods each neither take the place of
// the usual one nor cost more than the few that count.
func TestRareKinds(t *testing.T) {
	c := place.NewCensus()
	nodes := []*ledger.Node{named("a", node(cards(2, nil), taken(0, 50), taken(1, 20)))}
	c.Add(place.KindsOf(part(50)), 1500)
	for i := range 1500 {
		c.Add(place.KindsOf(gputest.AskSlice(gpu.Percent(85+i%15), gib*gpu.MiB(1+i%64))), 1)
	}
	if got := where(t, nodes, part(30), &place.Preference{Demand: c.Demand()}); got != "a: 1" {
		t.Errorf("the pod goes to %q, want a: 1, which leaves room for the usual one", got)
	}
	for i := range 100_000 {
		c.Add(place.KindsOf(gputest.AskSlice(gpu.Percent(1+i%99), gpu.MiB(i+1))), 1)
	}
	if n := testing.AllocsPerRun(10, func() { c.Add(place.KindsOf(part(1)), 1); c.Demand() }); n > 1000 {
		t.Errorf("%v allocations to count a pod beside 100 000 kinds of which few count", n)
	}
}
