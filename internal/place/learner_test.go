package place_test

import (
	"reflect"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestLearnerIsAFunctionOfPods: a learner that is asked after every pod, as in a
// scheduler that runs, and one that is asked once, as in a scheduler that starts
// or in the place command, expect the same. So do learners that hear of the
// cluster's cards at different times.
func TestLearnerIsAFunctionOfPods(t *testing.T) {
	r := gputest.Rand(11)
	supply := map[string]int{"C500": 64, "C550": 8}
	asked, supplied := place.NewLearner(), place.NewLearner()
	supplied.SetSupply(supply)
	var pods []*gpu.PodRequest
	for i := range 5000 {
		pod := gputest.Ask(gputest.Share(gpu.Percent(5*(1+r.IntN(12))), gpu.MiB(1024*(1+r.IntN(8)))))
		if r.IntN(4) == 0 {
			pod = gputest.AskWhole(1 << r.IntN(4))
		}
		pod.CPU = gpu.MilliCPU(1000 * r.IntN(16))
		if r.IntN(9) == 0 {
			pod.Models = []string{"C550"}
		}
		pods = append(pods, pod)
		asked.Observe(pod)
		supplied.Observe(pod)
		if i == 40 || i == 777 {
			asked.SetSupply(supply)
		}
		asked.Demand()
		if i%97 != 0 && i != 31 {
			continue
		}
		asked.SetSupply(supply)
		once := place.NewLearner()
		for _, p := range pods {
			once.Observe(p)
		}
		once.SetSupply(supply)
		want := once.Demand()
		if (want != nil) != (i >= 31) {
			t.Fatalf("after %d pods something is expected: %v", i+1, want != nil)
		}
		if !reflect.DeepEqual(want, asked.Demand()) || !reflect.DeepEqual(want, supplied.Demand()) {
			t.Fatalf("after %d pods a learner that was asked in between, or got the supply at another time, expects something else", i+1)
		}
	}
}

// TestLearnerSameSupply: what is expected stays the same object where the cluster
// has as many cards as before, since a scheduler asks all nodes again for another.
func TestLearnerSameSupply(t *testing.T) {
	l := place.NewLearner()
	for range 32 {
		l.Observe(gputest.AskWhole(1))
	}
	l.SetSupply(map[string]int{"C500": 64})
	before := l.Demand()
	l.SetSupply(map[string]int{"C500": 64})
	if l.Demand() != before {
		t.Error("the same supply makes another Demand")
	}
	l.SetSupply(map[string]int{"C500": 65})
	if l.Demand() == before {
		t.Error("another supply makes no other Demand")
	}
}
