package request

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestReadContainers(t *testing.T) {
	nothing := gpu.Request{}
	runRead(t, map[string]readCase{
		"each has its entry, also those that ask nothing": {
			pod:  app("cpu: 1").App("sgpu: 1, vcore: 10, vmemory: 1").App(""),
			want: bestEffort(nothing, slice(1, 10, mib(1024)), nothing),
		},
		"init containers come first": {
			pod:  gputest.MakePod("p").Init("sgpu: 1, vcore: 10, vmemory: 1").App("sgpu: 1, vcore: 20, vmemory: 2"),
			want: bestEffort(during(gpu.Init, slice(1, 10, mib(1024))), slice(1, 20, mib(2048))),
		},
		"a sidecar is an init container that stays": {
			pod: gputest.MakePod("p").Init("").Sidecar("sgpu: 1, vcore: 10, vmemory: 1").Init("gpu: 1").App("gpu: 2"),
			want: bestEffort(during(gpu.Init, nothing), during(gpu.Sidecar, slice(1, 10, mib(1024))),
				during(gpu.Init, whole(1)), whole(2)),
		},
		"only an init container asks": {
			pod:  gputest.MakePod("p").Init("gpu: 1").App("cpu: 1"),
			want: podOf("", "", during(gpu.Init, whole(1)), nothing),
		},
		"one dialect each": {
			pod:  app("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi, sgpu: 1").App("sgpu: 1, vcore: 10, vmemory: 1"),
			want: bestEffort(slice(1, 5, mib(1024)), slice(1, 10, mib(1024))),
		},
		"whole cards in one, slices in the other": {
			pod:  app("gpu: 1").App("sgpu: 1, vcore: 10, vmemory: 1"),
			want: bestEffort(whole(1), slice(1, 10, mib(1024))),
		},
		"none asks for a card":         {pod: app("cpu: 1, nvidia.com/gpu: 1").App("")},
		"all their counts are zero":    {pod: app("gpu: 0").App("sgpu: 0")},
		"no resources, odd annotation": {pod: app("").Annotate(qosName, "guaranteed")},
		"a problem names its container": refused(gputest.MakePod("p").Init("gpu: 1").Init("gpu: 65").App("gpu: 1").App("sgpu: 1, vcore: 101"),
			problem("spec.initContainers[1].resources.limits[metax-tech.com/gpu]", "65", sayCount),
			problem("spec.containers[1].resources.limits[metax-tech.com/vcore]", "101", sayPercent)),
	})
}

func TestReadAllProblemsAtOnce(t *testing.T) {
	runRead(t, map[string]readCase{
		"five mistakes, five sentences": refused(app("sgpu: 1, vcore: 120, vmemory: 4000").Annotate(qosName, "guaranteed").Annotate(nodePolicyName, "random").Annotate(topologyName, "maybe"),
			limit(vmemoryName, "4k", sayKept("4k")),
			limit(vcoreName, "120", sayPercent),
			annotation(qosName, "guaranteed", sayQoS),
			annotation(nodePolicyName, "random", `"random" is no policy: write "binpack" or "spread", or leave the annotation out`),
			annotation(topologyName, "maybe", sayWord)),
		"one in each container and one for the pod": refused(gputest.MakePod("p").Init("gpu: 1, sgpu: 1").App("vcore: 10").AppWith("gpu: 1", "gpu: 2").App("gpu-core: 10").Annotate(className, "batch"),
			annotation(className, "batch", sayClass),
			problem("spec.initContainers[0].resources.limits[metax-tech.com/gpu]", "1", sayOneKind),
			limit(vcoreName, "10", sayAddCards),
			problem("spec.containers[1].resources.requests[metax-tech.com/gpu]", "2", "differs from the limit: write 1 in both, or in limits alone"),
			problem("spec.containers[2].resources.limits[koordinator.sh/gpu-core]", "10", sayNoMemory)),
	})
}
