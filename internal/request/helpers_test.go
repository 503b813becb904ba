package request

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// app returns a pod with one app container that has the given limits.
func app(limits string) *gputest.PodBuilder { return gputest.MakePod("p").App(limits) }

// readCase is a pod and what [Read] makes of it: a request, or the problems as
// the user reads them, or neither.
type readCase struct {
	pod          *gputest.PodBuilder
	want         *gpu.PodRequest
	wantProblems []string
}

// refused is a pod with these problems.
func refused(pod *gputest.PodBuilder, problems ...string) readCase {
	return readCase{pod: pod, wantProblems: problems}
}

// runRead reads each pod twice: as it is written, which is what a webhook
// sees, and as the API server keeps it, which is what a scheduler sees. Both
// must read it alike, and write nothing on it: informers share their objects.
func runRead(t *testing.T, cases map[string]readCase) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			for _, pod := range []*corev1.Pod{pod, gputest.Stored(t, pod)} {
				before := pod.DeepCopy()
				ask, problems := Read(pod)
				gputest.Equal(t, "the pod before and after", before, pod)
				gputest.Equal(t, "problems", tc.wantProblems, sentences(problems))
				var got *gpu.PodRequest
				if ask != nil {
					got = &ask.Request
				}
				gputest.Equal(t, "request", tc.want, got)
			}
		})
	}
}

// sentences returns the problems as the user reads them.
func sentences(problems field.ErrorList) []string {
	var list []string
	for _, p := range problems {
		list = append(list, p.Error())
	}
	return list
}

// problem is a sentence about a value at a path of the pod.
func problem(path, value, sentence string) string {
	return fmt.Sprintf("%s: Invalid value: %q: %s", path, value, sentence)
}

// limit is a problem with a limit of the first app container.
func limit(resource, value, sentence string) string {
	return problem("spec.containers[0].resources.limits["+resource+"]", value, sentence)
}

// annotation is a problem with an annotation of the pod.
func annotation(key, value, sentence string) string {
	return problem("metadata.annotations["+key+"]", value, sentence)
}

// podOf is the request of a pod whose containers are called c0, c1, ...
func podOf(qos gpu.QoS, class gpu.Class, requests ...gpu.Request) *gpu.PodRequest {
	for i := range requests {
		requests[i].Container = fmt.Sprintf("c%d", i)
	}
	return &gpu.PodRequest{QoS: qos, Class: class, Requests: requests}
}

// bestEffort is the request of a pod that names neither QoS nor class.
func bestEffort(requests ...gpu.Request) *gpu.PodRequest {
	return podOf(gpu.BestEffort, gpu.Normal, requests...)
}

// whole is n whole cards.
func whole(n int) gpu.Request {
	return gpu.Request{Cards: n, Whole: true, Exclusive: true, Compute: 100, Memory: percent(100)}
}

// alone is n cards alone, in the words of slices.
func alone(n int, memory gpu.Memory) gpu.Request {
	return gpu.Request{Cards: n, Exclusive: true, Compute: 100, Memory: memory}
}

// slice is a part of each of n cards.
func slice(n int, compute gpu.Percent, memory gpu.Memory) gpu.Request {
	return gpu.Request{Cards: n, Compute: compute, Memory: memory}
}

func mib(amount gpu.MiB) gpu.Memory        { return gpu.Memory{Amount: amount} }
func percent(ratio gpu.Percent) gpu.Memory { return gpu.Memory{Ratio: ratio} }
func during(phase gpu.Phase, r gpu.Request) gpu.Request {
	r.Phase = phase
	return r
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
