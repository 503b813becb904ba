package request

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	sayKnown   = "Daybreak does not know this resource: it knows metax-tech.com/gpu, metax-tech.com/sgpu, metax-tech.com/vcore, metax-tech.com/vmemory"
	sayKoord   = "Daybreak does not know this resource: it knows koordinator.sh/gpu.shared, koordinator.sh/gpu-core, koordinator.sh/gpu-memory, koordinator.sh/gpu-memory-ratio, koordinator.sh/gpu"
	sayUnknown = " has no effect: Daybreak does not know this annotation"
)

func TestCheckKeysResources(t *testing.T) {
	const slice = "sgpu: 1, vcore: 10, vmemory: 1"
	near := func(resource, value, meant string) string {
		return limit(resource, value, "there is no such resource: did you mean "+meant+"?")
	}
	cases := map[string]struct {
		pod          *gputest.PodBuilder
		wantProblems []string
		wantWarnings []string
	}{
		"what is known": {pod: app(slice).App("gpu: 1").App("gpu.shared: 1, gpu-core: 5, gpu-memory: 1Gi").App("gpu-memory-ratio: 100").App("koordinator.sh/gpu: 100")},
		"others' resources": {
			pod: app("cpu: 1, memory: 1Gi, nvidia.com/gpus: 1, koordinator.sh/batch-cpu: 1, koordinator.sh/rdma: 1, metax-tech.com/vfio-gpu: 1, huawei.com/npu-core: 1"),
		},
		"vcores":         {pod: app("sgpu: 1, metax-tech.com/vcores: 10"), wantProblems: []string{near("metax-tech.com/vcores", "10", "metax-tech.com/vcore")}},
		"vmem":           {pod: app("sgpu: 1, metax-tech.com/vmem: 4"), wantProblems: []string{near("metax-tech.com/vmem", "4", "metax-tech.com/vmemory")}},
		"sgpus, alone":   {pod: app("metax-tech.com/sgpus: 1"), wantProblems: []string{near("metax-tech.com/sgpus", "1", "metax-tech.com/sgpu")}},
		"letters turned": {pod: app("metax-tech.com/sgup: 1"), wantProblems: []string{near("metax-tech.com/sgup", "1", "metax-tech.com/sgpu")}},
		"capitals":       {pod: app("metax-tech.com/GPU: 1"), wantProblems: []string{near("metax-tech.com/GPU", "1", "metax-tech.com/gpu")}},
		"two are near": {
			pod: app("metax-tech.com/vgpu: 1"), wantProblems: []string{near("metax-tech.com/vgpu", "1", "metax-tech.com/gpu or metax-tech.com/sgpu")},
		},
		"Koordinator's": {pod: app("koordinator.sh/gpu-cores: 10"), wantProblems: []string{near("koordinator.sh/gpu-cores", "10", "koordinator.sh/gpu-core")}},
		"Koordinator's, with a dash": {
			pod: app("koordinator.sh/gpu-shared: 1"), wantProblems: []string{near("koordinator.sh/gpu-shared", "1", "koordinator.sh/gpu.shared")},
		},
		"the other dialect's": {
			pod: app("metax-tech.com/gpu-core: 10"), wantProblems: []string{near("metax-tech.com/gpu-core", "10", "koordinator.sh/gpu-core")},
		},
		"in requests alone": {
			pod: gputest.MakePod("p").AppWith("", "metax-tech.com/sgpus: 1"),
			wantProblems: []string{
				problem("spec.containers[0].resources.requests[metax-tech.com/sgpus]", "1", "there is no such resource: did you mean metax-tech.com/sgpu?"),
			},
		},
		"in both, reported once": {
			pod: gputest.MakePod("p").AppWith("metax-tech.com/sgpus: 1", "metax-tech.com/sgpus: 1"), wantProblems: []string{near("metax-tech.com/sgpus", "1", "metax-tech.com/sgpu")},
		},
		"in an init container, and several": {
			pod: app("metax-tech.com/vcores: 1, metax-tech.com/vmem: 1").Init("metax-tech.com/sgpus: 1"),
			wantProblems: []string{
				problem("spec.initContainers[0].resources.limits[metax-tech.com/sgpus]", "1", "there is no such resource: did you mean metax-tech.com/sgpu?"),
				near("metax-tech.com/vcores", "1", "metax-tech.com/vcore"), near("metax-tech.com/vmem", "1", "metax-tech.com/vmemory"),
			},
		},
		"unlike all": {
			pod:          app("sgpu: 1, metax-tech.com/priority: 1, koordinator.sh/gpu-partition: 1"),
			wantWarnings: []string{"spec.containers[0].resources.limits[koordinator.sh/gpu-partition]: " + sayKoord, "spec.containers[0].resources.limits[metax-tech.com/priority]: " + sayKnown},
		},
		"a long name": {
			pod:          app("metax-tech.com/" + strings.Repeat("gpu", 1000) + ": 1"),
			wantWarnings: []string{"spec.containers[0].resources.limits[metax-tech.com/" + strings.Repeat("gpu", 1000) + "]: " + sayKnown},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			before := pod.DeepCopy()
			problems, warnings := CheckKeys(pod)
			gputest.Equal(t, "problems", tc.wantProblems, sentences(problems))
			gputest.Equal(t, "warnings", tc.wantWarnings, warnings)
			gputest.Equal(t, "the pod was changed", before, pod)
		})
	}
}

func TestCheckKeysAnnotations(t *testing.T) {
	means := func(key string) string { return sayUnknown + ": did you mean " + key + "?" }
	cases := map[string]struct {
		keys []string
		want []string
	}{
		"what is known":            {keys: append(wire.AskAnnotations(), wire.AnnotationAllocated, wire.AnnotationHAMiSGPU)},
		"what Read warns of":       {keys: []string{weightsName, "scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/reservation-affinity"}},
		"others' annotations":      {keys: []string{"nvidia.com/use-gpuuid", "a", "koordinator.sh/qosClass", "node.koordinator.sh/gpu", "xhami.io/a", "metax-tech.community/a"}},
		"sgpu-qos":                 {[]string{"metax-tech.com/sgpu-qos"}, []string{"metax-tech.com/sgpu-qos" + means(wire.AnnotationQoS)}},
		"use-gpuuid":               {[]string{"metax-tech.com/use-gpuuid"}, []string{"metax-tech.com/use-gpuuid" + means(wire.AnnotationUseCards)}},
		"gpu-schedule-policy":      {[]string{"hami.io/gpu-schedule-policy"}, []string{"hami.io/gpu-schedule-policy" + means(wire.AnnotationCardPolicy)}},
		"the wrong domain":         {[]string{"hami.io/use-gpuuuid"}, []string{"hami.io/use-gpuuuid" + means(wire.AnnotationUseCards)}},
		"unlike all":               {[]string{"hami.io/bind-phase", "metax-tech.com/x"}, []string{"hami.io/bind-phase" + sayUnknown, "metax-tech.com/x" + sayUnknown}},
		"a resource as annotation": {[]string{"koordinator.sh/gpu-core"}, []string{"koordinator.sh/gpu-core" + sayUnknown}},
		"unknown to Koordinator":   {[]string{"scheduling.koordinator.sh/gpu-partition"}, []string{"scheduling.koordinator.sh/gpu-partition" + sayUnknown}},
		"a gang, one warning":      {[]string{"gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"}, []string{"gang.scheduling.koordinator.sh/min-available has no effect: gangs are not supported yet, each pod is placed by itself"}},
		"a long key is cut":        {[]string{"hami.io/" + strings.Repeat("x", 1000)}, []string{"hami.io/" + strings.Repeat("x", 56) + "…" + sayUnknown}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := app("sgpu: 1, vcore: 10, vmemory: 1")
			for _, key := range tc.keys {
				b.Annotate(key, "x")
			}
			problems, warnings := CheckKeys(b.Obj())
			if diff := gocmp.Diff(tc.want, warnings); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v, warnings (-want +got):\n%s", problems, diff)
			}
		})
	}
	if problems, warnings := CheckKeys(app("nvidia.com/gpu: 1").Annotate("hami.io/gpu-schedule-policy", "x").Obj()); len(problems)+len(warnings) > 0 {
		t.Errorf("another vendor's pod: problems %v, warnings %q", problems, warnings)
	}
	b := app("sgpu: 1")
	for i := range 1000 {
		b.Annotate(fmt.Sprintf("hami.io/%d", i), "")
	}
	_, warnings := CheckKeys(b.Obj())
	if want := "990 more annotations have no effect: Daybreak does not know them"; len(warnings) != 11 || warnings[10] != want {
		t.Errorf("%d warnings for 1000 annotations, the last %q, want %q", len(warnings), warnings[len(warnings)-1], want)
	}
}
