package wire_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestWhatPodsAskFor(t *testing.T) {
	app := func(limits string) *gputest.PodBuilder { return gputest.MakePod("p").App(limits) }
	cases := map[string]struct {
		pod                      *gputest.PodBuilder
		asks, names, hold, slice bool
	}{
		"whole cards":                {pod: app("gpu: 1"), asks: true, names: true, hold: true},
		"a slice":                    {pod: app("").App("sgpu: 1"), asks: true, names: true, hold: true, slice: true},
		"a slice at first":           {pod: app("").Init("").Init("sgpu: 1"), asks: true, names: true, hold: true, slice: true},
		"an amount alone":            {pod: app("vcore: 1"), asks: true, names: true},
		"in requests":                {pod: gputest.MakePod("p").AppWith("", "sgpu: 1"), asks: true, names: true},
		"an amount in requests":      {pod: gputest.MakePod("p").AppWith("", "vcore: 1"), asks: true, names: true},
		"in an init container":       {pod: app("").Init("gpu: 1"), asks: true, names: true, hold: true},
		"zero is a way of asking":    {pod: app("gpu: 0"), asks: true, names: true},
		"zero slices":                {pod: app("sgpu: 0"), asks: true, names: true},
		"Koordinator's words":        {pod: app("gpu-core: 10, gpu-memory: 1Gi"), asks: true},
		"Koordinator's, at first":    {pod: gputest.MakePod("p").Init("gpu-core: 1").App(""), asks: true},
		"Koordinator's shares":       {pod: app("gpu.shared: 1"), asks: true},
		"Koordinator's, with sgpu":   {pod: app("gpu-core: 10, gpu-memory: 1Gi, sgpu: 1"), asks: true, names: true, hold: true, slice: true},
		"another of MetaX's":         {pod: app("metax-tech.com/vfio-gpu: 1")},
		"a typing error":             {pod: app("metax-tech.com/sgpus: 1")},
		"another vendor's":           {pod: app("nvidia.com/gpu: 1, cpu: 2, memory: 1Gi")},
		"no card":                    {pod: app("cpu: 1")},
		"a pod without containers":   {pod: gputest.MakePod("p")},
		"an annotation asks nothing": {pod: app("").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-0"}]]`)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			if got := wire.Asks(pod); got != tc.asks {
				t.Errorf("Asks() = %t, want %t", got, tc.asks)
			}
			if got := wire.NamesMetaX(pod); got != tc.names {
				t.Errorf("NamesMetaX() = %t, want %t", got, tc.names)
			}
			if got := wire.CanHold(pod); got != tc.hold {
				t.Errorf("CanHold() = %t, want %t", got, tc.hold)
			}
			if got := wire.HasSlices(pod); got != tc.slice {
				t.Errorf("HasSlices() = %t, want %t", got, tc.slice)
			}
		})
	}
}
