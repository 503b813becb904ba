package request

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// endless matches numbers that Quantity itself takes minutes to parse or to
// compare. The API server would be the first to suffer from one.
var endless = regexp.MustCompile(`[eE][+-]?\d{4}`)

// Quantities that were thought of, for any resource.
var quantities = []string{
	"0", "1", "2", "4", "60", "64", "65", "100", "120", "1024", "1025", "4000", "-1", "-0", "+1", "500m", "1u", "1n", "1k", "1M", "4G", "1T", "1P", "1E", "512Ki", "1Ki",
	"1Mi", "2048Mi", "4Gi", "1Ti", "1025Gi", "8Ei", "1e3", "1E3", "1e-3", "1e100", ".5", "0.5Ki", "1.5Gi", "0.1", "9223372036854775807", "9223372036854775808",
	"18446744073709551617", "99999999999999999999Gi", "1048575", "1048577", "1099511627777",
}

func FuzzVMemory(f *testing.F) {
	for _, text := range quantities {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, ok := parse(text)
		if !ok {
			return
		}
		pod := app("sgpu: 1, vcore: 10").Obj()
		pod.Spec.Containers[0].Resources.Limits[wire.ResourceVMemory] = q
		ask := checkRead(t, pod)
		if ask == nil {
			return
		}
		got := ask.Request.Requests[0].Memory
		if got.Ratio != 0 || got.Amount < 128 || got.Amount > 1<<20 {
			t.Fatalf("%s is %+v", text, got)
		}
		// At least what was asked for, and less than a step more. A number of
		// GiB is below what 1 MiB would be in bytes.
		asked := q.DeepCopy()
		if asked.CmpInt64(wire.Mebibyte) < 0 {
			asked = *resource.NewQuantity(q.Value()<<30, resource.BinarySI)
		}
		if asked.CmpInt64(int64(got.Amount)*wire.Mebibyte) > 0 || asked.CmpInt64(int64(got.Amount-gpu.MemoryStep)*wire.Mebibyte) <= 0 {
			t.Fatalf("%s is %s, which is not what was asked for", text, got.Amount)
		}
	})
}

// parse reads a quantity as the API server does. Some numbers it does not keep:
// 10000E comes back as 10. What was meant can't be known any more.
func parse(text string) (resource.Quantity, bool) {
	if len(text) > 64 || endless.MatchString(text) {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, false
	}
	kept, err := resource.ParseQuantity(q.String())
	return q, err == nil && kept.Cmp(q) == 0
}

// checkRead reads the pod and checks what every request promises. It
// returns nil when the pod is refused, or asks for nothing.
func checkRead(t *testing.T, pod *corev1.Pod) *PodRequest {
	t.Helper()
	ask, problems := Read(pod)
	again, problemsAgain := Read(gputest.Stored(t, pod))
	if diff := gocmp.Diff(ask, again); diff != "" {
		t.Fatalf("the pod reads otherwise once it is stored (-before +after):\n%s", diff)
	}
	if diff := gocmp.Diff(sentences(problems), sentences(problemsAgain)); diff != "" {
		t.Fatalf("problems once it is stored (-before +after):\n%s", diff)
	}
	if ask != nil && len(problems) > 0 {
		t.Fatalf("admitted in spite of %v", problems)
	}
	for _, p := range problems {
		if p.Field == "" || p.Field == "<nil>" || strings.TrimSpace(p.Detail) == "" {
			t.Fatalf("problem %v", p)
		}
	}
	if ask == nil {
		return nil
	}
	if n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); len(ask.Request.Requests) != n || ask.Request.Cards() < 1 {
		t.Fatalf("%d requests for %d containers, %d cards", len(ask.Request.Requests), n, ask.Request.Cards())
	}
	for _, r := range ask.Request.Requests {
		if r.Cards == 0 {
			continue
		}
		m := r.Memory
		switch {
		case r.Cards < 0 || r.Cards > gpu.MaxCards, r.Compute < 0 || r.Compute > 100, r.Exclusive != (r.Compute == 100), r.Whole && !r.Exclusive:
			t.Fatalf("request %+v", r)
		case m.Ratio < 0 || m.Ratio > 100 || (m.Ratio == 0) != (m.Amount > 0) || m.Amount > 1<<20 || m.Amount%gpu.MemoryStep != 0:
			t.Fatalf("memory %+v", m)
		}
	}
	return ask
}

// FuzzQuantities puts any quantities in the place of any resources.
func FuzzQuantities(f *testing.F) {
	for i, text := range quantities {
		f.Add("1", "", text, "", "", "", uint8(i))
		f.Add("", text, "", "", text, "", uint8(i))
		f.Add("", "", "", text, "1Gi", "", uint8(i))
		f.Add("2", "", "", "200", "", text, uint8(i))
		f.Add(text, "", text, "", "", "", uint8(i))
	}
	f.Fuzz(func(t *testing.T, count, shared, compute, core, memory, ratio string, kinds uint8) {
		choose := func(bit uint8, a, b corev1.ResourceName) corev1.ResourceName {
			if kinds>>bit&1 == 0 {
				return a
			}
			return b
		}
		pod := gputest.MakePod("p").App("").Obj()
		limits := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{
			choose(0, wire.ResourceSGPU, wire.ResourceGPU): count, wire.KoordShared: shared, choose(1, wire.ResourceVCore, wire.KoordGPU): compute,
			wire.KoordCore: core, choose(2, wire.KoordMemory, wire.ResourceVMemory): memory, wire.KoordMemoryRatio: ratio,
		} {
			if q, ok := parse(text); ok {
				limits[name] = q
			}
		}
		pod.Spec.Containers[0].Resources.Limits = limits
		if kinds>>3&1 == 1 {
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: limits}
		}
		if kinds>>4&3 > 0 {
			pod.Annotations = map[string]string{wire.AnnotationClass: []string{"online", "offline", "batch"}[kinds>>4&3-1]}
		}
		if ask := checkRead(t, pod); ask != nil {
			n := gputest.Node(gputest.Zones(2))
			_, refusal := place.Fit(n, &ask.Request, &ask.Prefer)
			if refusal.Code != place.Fits && refusal.Message(n) == "" {
				t.Fatalf("refused without a word: %+v", refusal)
			}
		}
	})
}

// FuzzCardPolicy: a policy is read or refused, and the keys that are read mean the
// same when they are written down again.
func FuzzCardPolicy(f *testing.F) {
	for _, text := range []string{"", "binpack", "spread", "numa", "mutex", "topology-aware", "binpack,spread", "spread,spread", " mutex , numa ", ",", "binpack,", "BINPACK", "random", "binpack;spread", "\x00"} {
		f.Add(text)
	}
	words := []string{"binpack", "spread", "numa", "mutex"} // by key
	f.Fuzz(func(t *testing.T, text string) {
		pod := app("sgpu: 1, vcore: 10, vmemory: 1").Annotate(wire.AnnotationCardPolicy, text).Obj()
		ask, problems := Read(pod)
		if (ask == nil) != (len(problems) > 0) {
			t.Fatalf("%q: request %v, problems %v", text, ask, problems)
		}
		if ask == nil {
			return
		}
		var list []string
		for _, key := range ask.Prefer.Cards {
			list = append(list, words[key])
		}
		pod.Annotations[wire.AnnotationCardPolicy] = strings.Join(list, ",")
		again, _ := Read(pod)
		gputest.Equal(t, fmt.Sprintf("%q: written again, first and second", text), ask.Prefer, again.Prefer)
	})
}

// FuzzCheckKeys: whatever a resource and an annotation are called, each gets one
// answer at most, what is known gets none, and the request reads the same, so that
// typing errors neither keep a pod from being placed nor close its node.
func FuzzCheckKeys(f *testing.F) {
	for _, text := range []string{"metax-tech.com/vcores", "metax-tech.com/", "metax-tech.com/vfio-gpu", "koordinator.sh/gpu", "koordinator.sh/gpu-mem", "hami.io/gpu-schedule-policy",
		"gang.scheduling.koordinator.sh/name", "scheduling.koordinator.sh/x", "cpu", "", "/", "metax-tech.com/\xff"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, resourceName, key string) {
		name := corev1.ResourceName(resourceName)
		if slices.Contains(wire.Resources(), name) || slices.Contains(wire.AskAnnotations(), key) {
			return // changes what the pod asks for
		}
		pod := app("sgpu: 1, vcore: 10, vmemory: 1").Annotate(key, "x").Obj()
		pod.Spec.Containers[0].Resources.Limits[name] = resource.MustParse("1")
		problems, warnings := CheckKeys(pod)
		unknown := 0
		if wire.IsUnknown(name) {
			unknown = 1
		}
		ofKey := 0
		if strings.HasPrefix(key, wire.PrefixKoordGang) || !knownAnnotation(key) {
			ofKey = 1
		}
		if len(problems)+len(warnings) != unknown+ofKey || len(problems) > unknown {
			t.Fatalf("%q, %q: problems %v, warnings %q", resourceName, key, problems, warnings)
		}
		ask, refused := Read(pod)
		plain, _ := Read(app("sgpu: 1, vcore: 10, vmemory: 1").Obj())
		if diff := gocmp.Diff(&plain.Request, &ask.Request); diff != "" || len(refused) > 0 {
			t.Fatalf("%q, %q: %v, request (-plain +got):\n%s", resourceName, key, refused, diff)
		}
		bound, asks := ReadBound(pod)
		if diff := gocmp.Diff(ask, bound); diff != "" || !asks {
			t.Fatalf("%q, %q: asks %t, bound (-pending +bound):\n%s", resourceName, key, asks, diff)
		}
	})
}
