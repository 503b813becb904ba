package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const someAmounts = ", daybreak-gpu.io/compute: 130, daybreak-gpu.io/memory: 6Gi, daybreak-gpu.io/cards: 1"

// TestWriteAmounts: the first app container has the amounts and no other container
// has any, whatever was there. A copy that shares its maps is left alone.
func TestWriteAmounts(t *testing.T) {
	for name, pod := range map[string]*gputest.PodBuilder{
		"none":               app("sgpu: 1").App("cpu: 1").Init("gpu: 1"),
		"no resources":       app("").App(""),
		"already":            gputest.MakePod("p").AppWith("sgpu: 1"+someAmounts, "cpu: 1"+someAmounts),
		"others":             app("sgpu: 1, daybreak-gpu.io/compute: 9").App("daybreak-gpu.io/memory: 1k").Init("gpu: 1, daybreak-gpu.io/cards: 0"),
		"in requests alone":  gputest.MakePod("p").AppWith("sgpu: 1", "daybreak-gpu.io/compute: 130"),
		"on a sidecar alone": app("sgpu: 1").Sidecar("sgpu: 1" + someAmounts),
	} {
		t.Run(name, func(t *testing.T) {
			pod := pod.Obj()
			shared := *pod.Spec.DeepCopy()
			for i := range shared.Containers {
				shared.Containers[i].Resources = pod.Spec.Containers[i].Resources
			}
			before := shared.DeepCopy()
			want := ledger.Amounts{Compute: 130, Memory: 6 << 10, Cards: 1}
			WriteAmounts(&pod.Spec, want)
			if got, metered := ReadAmounts(&pod.Spec); got != want || !metered {
				t.Errorf("read %+v, %t, want %+v", got, metered, want)
			}
			gputest.Equal(t, "a copy changed", *before, shared)
			amounts := gputest.MakeResources(someAmounts[2:])
			for i, c := range append(Containers(pod), Containers(gputest.Stored(t, pod))...) {
				first := c.list == "containers" && c.index == 0
				for name, want := range amounts {
					limit, limited := c.resources.Limits[name]
					request, requested := c.resources.Requests[name]
					if limited != first || requested != first || first && (limit.Cmp(want) != 0 || request.Cmp(want) != 0) {
						t.Errorf("container %d, %s: %s and %s, want %s on the first app container alone", i, name, &limit, &request, &want)
					}
				}
			}
			once := pod.DeepCopy()
			WriteAmounts(&pod.Spec, want)
			if !cmp.Equal(once, pod) {
				t.Error("writing twice changes the pod again")
			}
		})
	}
}

func TestReadAmounts(t *testing.T) {
	for name, tc := range map[string]struct {
		pod     *gputest.PodBuilder
		want    ledger.Amounts
		metered bool
	}{
		"all three":                   {pod: app("sgpu: 1" + someAmounts), want: ledger.Amounts{Compute: 130, Memory: 6 << 10, Cards: 1}, metered: true},
		"of nothing":                  {pod: app("daybreak-gpu.io/compute: 0, daybreak-gpu.io/memory: 0, daybreak-gpu.io/cards: 0"), metered: true},
		"from before":                 {pod: app("sgpu: 1")},
		"two of three":                {pod: app("sgpu: 1, daybreak-gpu.io/compute: 10, daybreak-gpu.io/memory: 1Gi")},
		"on another container":        {pod: app("sgpu: 1").App("cpu: 1" + someAmounts)},
		"a pod without a container":   {pod: gputest.MakePod("p")},
		"a pod that only initializes": {pod: gputest.MakePod("p").Init("sgpu: 1" + someAmounts)},
	} {
		if got, metered := ReadAmounts(&tc.pod.Obj().Spec); got != tc.want || metered != tc.metered {
			t.Errorf("%s: %+v, %t, want %+v, %t", name, got, metered, tc.want, tc.metered)
		}
	}
}

// TestAmountsAskForNothing: amounts on a pod are no request for cards and no typing
// error, and what the pod asks for is the same with them.
func TestAmountsAskForNothing(t *testing.T) {
	if ask, problems := Read(app("cpu: 1" + someAmounts).Obj()); ask != nil || len(problems) > 0 {
		t.Errorf("read %+v, problems %v", ask, problems)
	}
	for _, limits := range []string{"sgpu: 1, vcore: 10", "gpu: 2", "gpu-core: 10, gpu-memory-ratio: 20", "cpu: 1"} {
		with := app(limits + someAmounts).Obj()
		if problems, warnings := CheckKeys(with); len(problems)+len(warnings) > 0 {
			t.Errorf("%s: problems %v, warnings %q", limits, problems, warnings)
		}
		want, _ := Read(app(limits).Obj())
		got, _ := Read(with)
		gputest.Equal(t, limits+", without and with amounts", want, got)
	}
}
