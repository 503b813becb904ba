package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// admitted are pods that are let in, and what is then booked for each: by
// container, the compute and the MiB of each card.
var admitted = map[string]struct {
	pod  *gputest.PodBuilder
	want string
}{
	"a whole card":                             {asks("gpu: 1"), "100%/65536"},
	"two whole cards":                          {asks("gpu: 2"), "100%/65536 100%/65536"},
	"a slice":                                  {asks("sgpu: 1, vcore: 60, vmemory: 4"), "60%/4096"},
	"GiB with a unit":                          {asks("sgpu: 1, vcore: 5, vmemory: 4Gi"), "5%/4096"},
	"MiB":                                      {asks("sgpu: 1, vcore: 5, vmemory: 2048Mi"), "5%/2048"},
	"gigabytes: 4G is 3815 MiB, rounded up":    {asks("sgpu: 1, vcore: 5, vmemory: 4G"), "5%/3840"},
	"the least there is":                       {asks("sgpu: 1, vcore: 1, vmemory: 1Mi"), "1%/128"},
	"200 MiB is 256":                           {asks("sgpu: 1, vcore: 1, vmemory: 200Mi"), "1%/256"},
	"no compute reserved":                      {asks("sgpu: 1, vcore: 0, vmemory: 1"), "0%/1024"},
	"no vcore: alone on the card":              {asks("sgpu: 1, vmemory: 4"), "100%/4096"},
	"no vmemory: all of it":                    {asks("sgpu: 1, vcore: 30"), "30%/65536"},
	"two slices of two cards":                  {asks("sgpu: 2, vcore: 10, vmemory: 2"), "10%/2048 10%/2048"},
	"online: compute is not booked":            {asks("sgpu: 1, vcore: 50, vmemory: 4").Annotate(wire.AnnotationClass, "online"), "0%/4096"},
	"offline":                                  {asks("sgpu: 1, vcore: 20, vmemory: 4").Annotate(wire.AnnotationClass, "offline"), "20%/4096"},
	"fixed-share":                              {asks("sgpu: 1, vcore: 20, vmemory: 4").Annotate(wire.AnnotationQoS, "fixed-share"), "20%/4096"},
	"burst-share":                              {asks("sgpu: 1, vcore: 20, vmemory: 4").Annotate(wire.AnnotationQoS, "burst-share"), "20%/4096"},
	"two containers":                           {asks("sgpu: 1, vcore: 10, vmemory: 1").App("sgpu: 1, vcore: 20, vmemory: 2"), "10%/1024 | 20%/2048"},
	"one of two containers":                    {asks("").App("sgpu: 1, vcore: 10, vmemory: 1"), "- | 10%/1024"},
	"none, as a template says it":              {asks("sgpu: 0").App("sgpu: 1, vcore: 10, vmemory: 1"), "- | 10%/1024"},
	"an init container":                        {asks("sgpu: 1, vcore: 20, vmemory: 1").Init("sgpu: 1, vcore: 10, vmemory: 2"), "10%/2048 | 20%/1024"},
	"a sidecar":                                {asks("sgpu: 1, vcore: 20, vmemory: 1").Sidecar("sgpu: 1, vcore: 10, vmemory: 2"), "10%/2048 | 20%/1024"},
	"in requests alone":                        {gputest.MakePod("p").AppWith("", "sgpu: 1, vcore: 15, vmemory: 3"), "15%/3072"},
	"a comma list of policies":                 {asks("sgpu: 1, vcore: 10, vmemory: 1").Annotate(wire.AnnotationCardPolicy, "numa,binpack"), "10%/1024"},
	"not on some cards":                        {asks("sgpu: 1, vcore: 10, vmemory: 1").Annotate(wire.AnnotationNoUseCards, "GPU-none,GPU-else"), "10%/1024"},
	"whole cards with a QoS":                   {asks("gpu: 1").Annotate(wire.AnnotationQoS, "fixed-share"), "100%/65536"},
	"Koordinator as documented":                {asks("gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi, sgpu: 1"), "10%/1024"},
	"Koordinator without sgpu":                 {asks("gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi"), "10%/1024"},
	"Koordinator without either number":        {asks("gpu-core: 10, gpu-memory: 1Gi"), "10%/1024"},
	"Koordinator with a ratio":                 {asks("gpu-core: 25, gpu-memory-ratio: 25"), "25%/16384"},
	"Koordinator, two whole cards":             {asks("gpu-core: 200, gpu-memory-ratio: 200, sgpu: 2"), "100%/65536 100%/65536"},
	"Koordinator, shared 2 of two whole cards": {asks("gpu.shared: 2, gpu-core: 200, gpu-memory-ratio: 200"), "100%/65536 100%/65536"},
	"Koordinator's gpu":                        {asks("koordinator.sh/gpu: 200"), "100%/65536 100%/65536"},
	"Koordinator's gpu, half of one":           {asks("koordinator.sh/gpu: 50"), "50%/32768"},
	"Koordinator, memory of a whole card":      {asks("gpu-memory-ratio: 100"), "100%/65536"},
	"Koordinator, 100 MiB is 128":              {asks("gpu-core: 1, gpu-memory: 100Mi"), "1%/128"},
	"one dialect each":                         {asks("sgpu: 1, vcore: 10, vmemory: 1").App("gpu-core: 10, gpu-memory: 1Gi"), "10%/1024 | 10%/1024"},
	"a forged allocation is taken off": {
		asks("sgpu: 1, vcore: 10, vmemory: 1").Annotate(wire.AnnotationAllocated, `[[{"uuid":"GPU-x","compute":100,"vRam":65536}]]`).
			Annotate(wire.AnnotationHAMiSGPU, "GPU-x,Metax-SGPU,65536,100:;").Annotate(wire.AnnotationKoordAllocated, `{"gpu":[{"minor":0}]}`), "10%/1024",
	},
}

const (
	sayGiB     = "a number without a unit is GiB: write 1 to 999, or an amount with a unit such as 512Mi"
	sayKept    = "Kubernetes keeps it as %s, which is no amount of card memory: write whole GiB from 1 to 999 or an amount with a unit, such as 4, 4Gi or 4096Mi"
	sayBytes   = "card memory goes from 1Mi to 1Ti: write for example 4Gi or 4096Mi"
	sayPercent = "is in percent: write a whole number from 0 to 100"
	sayMany    = "is in percent: write a whole number from 0 to 6400"
	sayCount   = "cards are counted: write a whole number from 1 to 64"
	sayShared  = "is a number of cards: write 1 for a share of one card, at most 64"
	sayQoS     = `write "best-effort", "fixed-share" or "burst-share", or leave the annotation out for best-effort`
	sayClass   = `write "online" or "offline", or leave the annotation out`
	sayAlone   = "a privileged container sees every card of its node: write false, or let an administrator label the namespace daybreak-gpu.io/allow-privileged: \"true\""
)

// limit is a problem with a limit of the first container.
func limit(name, value, say string) string {
	prefix := "metax-tech.com/"
	if strings.HasPrefix(name, "gpu-") || strings.HasPrefix(name, "gpu.") {
		prefix = "koordinator.sh/"
	}
	if strings.Contains(name, "/") {
		prefix = ""
	}
	return fmt.Sprintf("spec.containers[0].resources.limits[%s%s]: Invalid value: %q: %s", prefix, name, value, say)
}

func note(key, value, say string) string {
	return fmt.Sprintf("metadata.annotations[%s]: Invalid value: %q: %s", key, value, say)
}

// refused are pods that are rejected, with the complete message.
var refused = map[string]struct {
	pod  *gputest.PodBuilder
	want []string
}{
	"vmemory 512Ki":          {asks("sgpu: 1, vmemory: 512Ki"), []string{limit("vmemory", "512Ki", sayBytes)}},
	"vmemory 1M":             {asks("sgpu: 1, vmemory: 1M"), []string{limit("vmemory", "1M", sayBytes)}},
	"vmemory 4000":           {asks("sgpu: 1, vmemory: 4000"), []string{limit("vmemory", "4k", fmt.Sprintf(sayKept, "4k"))}},
	"vmemory 1k":             {asks("sgpu: 1, vmemory: 1k"), []string{limit("vmemory", "1k", fmt.Sprintf(sayKept, "1k"))}},
	"vmemory 1e3":            {asks("sgpu: 1, vmemory: 1e3"), []string{limit("vmemory", "1e3", fmt.Sprintf(sayKept, "1e3"))}},
	"vmemory a half":         {asks("sgpu: 1, vmemory: 0.5"), []string{limit("vmemory", "500m", fmt.Sprintf(sayKept, "500m"))}},
	"vmemory 0":              {asks("sgpu: 1, vmemory: 0"), []string{limit("vmemory", "0", sayGiB)}},
	"vmemory -4":             {asks("sgpu: 1, vmemory: -4"), []string{limit("vmemory", "-4", sayGiB)}},
	"vmemory 1025":           {asks("sgpu: 1, vmemory: 1025"), []string{limit("vmemory", "1025", sayGiB)}},
	"vmemory 2Ti":            {asks("sgpu: 1, vmemory: 2Ti"), []string{limit("vmemory", "2Ti", sayBytes)}},
	"vmemory past counting":  {asks("sgpu: 1, vmemory: 99999999999999999999Gi"), []string{limit("vmemory", "9223372036854775807", sayGiB)}},
	"vcore 500m":             {asks("sgpu: 1, vcore: 500m"), []string{limit("vcore", "500m", sayPercent)}},
	"vcore 120":              {asks("sgpu: 1, vcore: 120"), []string{limit("vcore", "120", sayPercent)}},
	"vcore -1":               {asks("sgpu: 1, vcore: -1"), []string{limit("vcore", "-1", sayPercent)}},
	"vcore past counting":    {asks("sgpu: 1, vcore: 9223372036854775807"), []string{limit("vcore", "9223372036854775807", sayPercent)}},
	"sgpu -1":                {asks("sgpu: -1"), []string{limit("sgpu", "-1", sayCount)}},
	"sgpu 65":                {asks("sgpu: 65"), []string{limit("sgpu", "65", sayCount)}},
	"sgpu a half":            {asks("sgpu: 500m"), []string{limit("sgpu", "500m", sayCount)}},
	"gpu -1":                 {asks("gpu: -1"), []string{limit("gpu", "-1", sayCount)}},
	"gpu 1000":               {asks("gpu: 1000"), []string{limit("gpu", "1k", sayCount)}},
	"gpu and sgpu":           {asks("gpu: 1, sgpu: 1"), []string{limit("gpu", "1", "a container takes whole cards or shares of cards: remove metax-tech.com/gpu or metax-tech.com/sgpu")}},
	"gpu with an amount":     {asks("gpu: 1, vmemory: 4"), []string{limit("vmemory", "4", "is an amount of a share, and a whole card comes with all of it: remove it, or write metax-tech.com/sgpu in place of metax-tech.com/gpu")}},
	"an amount without sgpu": {asks("vcore: 10"), []string{limit("vcore", "10", "is an amount of each card, but no card is asked for: add metax-tech.com/sgpu: 1")}},
	"limits and requests differ": {
		gputest.MakePod("p").AppWith("sgpu: 2", "sgpu: 1"),
		[]string{`spec.containers[0].resources.requests[metax-tech.com/sgpu]: Invalid value: "1": differs from the limit: write 2 in both, or in limits alone`},
	},
	"in an init container": {
		asks("").Init("sgpu: 1, vcore: 120"),
		[]string{`spec.initContainers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": ` + sayPercent},
	},
	"unknown QoS":   {asks("sgpu: 1").Annotate(wire.AnnotationQoS, "guaranteed"), []string{note(wire.AnnotationQoS, "guaranteed", sayQoS)}},
	"unknown class": {asks("sgpu: 1").Annotate(wire.AnnotationClass, "batch"), []string{note(wire.AnnotationClass, "batch", sayClass)}},
	"two classes":   {asks("sgpu: 1").Annotate(wire.AnnotationClass, "online,offline"), []string{note(wire.AnnotationClass, "online,offline", sayClass)}},
	"online with a whole card": {
		asks("gpu: 1").Annotate(wire.AnnotationClass, "online"),
		[]string{limit("gpu", "1", "an online pod shares its card: write metax-tech.com/sgpu: 1 with metax-tech.com/vmemory, or remove the annotation metax-tech.com/sgpu-app-class")},
	},
	"offline with two cards": {
		asks("sgpu: 2").Annotate(wire.AnnotationClass, "offline"),
		[]string{limit("sgpu", "2", "a container of an offline pod takes one card: write 1, or remove the annotation metax-tech.com/sgpu-app-class")},
	},
	"unknown node policy": {
		asks("sgpu: 1").Annotate(wire.AnnotationNodePolicy, "random"),
		[]string{note(wire.AnnotationNodePolicy, "random", `"random" is no policy: write "binpack" or "spread", or leave the annotation out`)},
	},
	"unknown card policy": {
		asks("sgpu: 1").Annotate(wire.AnnotationCardPolicy, "binpack,best"),
		[]string{note(wire.AnnotationCardPolicy, "binpack,best", `"best" is no policy: write "binpack", "spread", "numa" or "mutex", or several with commas`)},
	},
	"topology-aware, or not": {
		asks("sgpu: 1").Annotate(wire.AnnotationTopologyAware, "maybe"), []string{note(wire.AnnotationTopologyAware, "maybe", `write "true" or "false"`)},
	},
	"more cards listed than there are": {
		asks("sgpu: 1").Annotate(wire.AnnotationUseCards, strings.Repeat("GPU-1,", 1025)),
		[]string{note(wire.AnnotationUseCards, "1025 cards", "name at most 1024 cards; to choose among nodes use a node selector")},
	},
	"Koordinator sharing over two cards": {
		asks("gpu.shared: 2, gpu-core: 100, gpu-memory-ratio: 100"),
		[]string{limit("gpu.shared", "2", "MetaX does not share over several cards: take 2 whole cards with koordinator.sh/gpu-core: 200 and koordinator.sh/gpu-memory-ratio: 200, or a share of one card with koordinator.sh/gpu.shared: 1")},
	},
	"Koordinator, core without memory": {
		asks("gpu-core: 10"), []string{limit("gpu-core", "10", "requires memory: add koordinator.sh/gpu-memory (such as 4Gi) or koordinator.sh/gpu-memory-ratio (in percent)")},
	},
	"Koordinator, memory without core": {
		asks("gpu-memory: 1Gi"), []string{limit("gpu-memory", "1Gi", "requires compute: add koordinator.sh/gpu-core in percent, or take whole cards with koordinator.sh/gpu-memory-ratio: 100")},
	},
	"Koordinator, memory and ratio": {
		asks("gpu-core: 10, gpu-memory: 1Gi, gpu-memory-ratio: 10"), []string{limit("gpu-memory-ratio", "10", "duplicates koordinator.sh/gpu-memory: keep one of the two")},
	},
	"Koordinator, shared 0":  {asks("gpu.shared: 0, gpu-core: 10, gpu-memory: 1Gi"), []string{limit("gpu.shared", "0", sayShared)}},
	"Koordinator, shared 65": {asks("gpu.shared: 65, gpu-core: 10, gpu-memory: 1Gi"), []string{limit("gpu.shared", "65", sayShared)}},
	"Koordinator, core -1":   {asks("gpu-core: -1, gpu-memory: 1Gi"), []string{limit("gpu-core", "-1", sayMany)}},
	"Koordinator, core 150":  {asks("gpu-core: 150, gpu-memory: 1Gi"), []string{limit("gpu-core", "150", "more than one card is taken whole: write a multiple of 100, or at most 100")}},
	"Koordinator, 512Ki":     {asks("gpu-core: 10, gpu-memory: 512Ki"), []string{limit("gpu-memory", "512Ki", sayBytes)}},
	"Koordinator, ratio 0":   {asks("gpu-core: 10, gpu-memory-ratio: 0"), []string{limit("gpu-memory-ratio", "0", "is the part of a card's memory in percent: write 1 to 100")}},
	"Koordinator, sgpu of another number": {
		asks("gpu.shared: 1, gpu-core: 10, gpu-memory: 1Gi, sgpu: 2"), []string{limit("sgpu", "2", "the koordinator.sh amounts are for 1: write 1, or leave it out")},
	},
	"Koordinator's gpu and the rest": {
		asks("koordinator.sh/gpu: 100, gpu-core: 100"),
		[]string{limit("koordinator.sh/gpu", "100", "stands alone, since it is koordinator.sh/gpu-core and koordinator.sh/gpu-memory-ratio in one: remove it or the others")},
	},
	"both dialects in one container": {
		asks("sgpu: 1, vcore: 10, gpu-core: 10, gpu-memory: 1Gi"),
		[]string{limit("gpu-core", "10", "a container asks in one dialect: keep the koordinator.sh amounts, or metax-tech.com/vcore and metax-tech.com/vmemory")},
	},
	"whole cards and Koordinator's": {
		asks("gpu: 1, gpu-core: 10, gpu-memory: 1Gi"), []string{limit("gpu", "1", "a container asks in one dialect: remove metax-tech.com/gpu, or the koordinator.sh amounts")},
	},
	"bound by its author": {
		asks("sgpu: 1").On("metax-1"),
		[]string{`spec.nodeName: Invalid value: "metax-1": the scheduler chooses the cards together with the node: leave it out, and to choose the node write nodeSelector: {kubernetes.io/hostname: metax-1}`},
	},
	"privileged": {lord(asks("sgpu: 1")), []string{"spec.containers[0].securityContext.privileged: Invalid value: true: " + sayAlone}},
	"all of it at once": {
		lord(asks("sgpu: 1, vcore: 120, vmemory: 512Ki").Annotate(wire.AnnotationQoS, "best")),
		[]string{
			limit("vmemory", "512Ki", sayBytes), limit("vcore", "120", sayPercent), note(wire.AnnotationQoS, "best", sayQoS),
			"spec.containers[0].securityContext.privileged: Invalid value: true: " + sayAlone,
		},
	},
}

// asks is a pod with one container and limits as in a manifest.
func asks(limits string) *gputest.PodBuilder { return gputest.MakePod("p").App(limits) }

// lord makes the pod's first container privileged.
func lord(b *gputest.PodBuilder) *gputest.PodBuilder {
	b.Obj().Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	return b
}

// runnable makes a pod of the table one that the API server takes.
func runnable(b *gputest.PodBuilder, name string) *corev1.Pod {
	p := b.Obj().DeepCopy()
	p.Name = name
	p.Spec.TerminationGracePeriodSeconds = new(int64(0))
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Image = "none"
		}
	}
	return p
}

// TestAdmission admits every pod of the two tables at the real API server.
func TestAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.AddNodes(8)
	w.Scheduler("scheduler")

	for _, name := range slices.Sorted(maps.Keys(refused)) {
		tc := refused[name]
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, runnable(tc.pod, "refused"), metav1.CreateOptions{})
		want := `admission webhook "pods.daybreak-gpu.io" denied the request: ` + strings.Join(tc.want, "; ")
		switch {
		case err == nil:
			t.Errorf("%s: let in", name)
			w.Delete("refused")
		case !apierrors.IsInvalid(err) || err.Error() != want:
			t.Errorf("%s: got\n  %v\nwant\n  %s", name, err, want)
		}
	}

	names := slices.Sorted(maps.Keys(admitted))
	for i, name := range names {
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, runnable(admitted[name].pod, fmt.Sprintf("admitted-%d", i)), metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i, name := range names {
		p := w.Bound(fmt.Sprintf("admitted-%d", i))
		if got := booked(t, p); got != admitted[name].want {
			t.Errorf("%s: booked %q, want %q", name, got, admitted[name].want)
		}
		if err := sound(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d pods refused, %d admitted", len(refused), len(admitted))
	w.Audit()
}

// booked returns what the scheduler gave a pod.
func booked(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	var lists [][]struct{ Compute, VRam int }
	if err := json.Unmarshal([]byte(p.Annotations[wire.AnnotationAllocated]), &lists); err != nil {
		t.Errorf("pod %s: %v", p.Name, err)
	}
	containers := make([]string, len(lists))
	for i, cards := range lists {
		var shares []string
		for _, c := range cards {
			shares = append(shares, fmt.Sprintf("%d%%/%d", c.Compute, c.VRam))
		}
		containers[i] = strings.Join(shares, " ")
		if len(cards) == 0 {
			containers[i] = "-"
		}
	}
	return strings.Join(containers, " | ")
}

// sound reports what a pod lacks that admission should have filled in.
func sound(p *corev1.Pod) error {
	var errs []error
	ask, problems := request.Read(p)
	if ask == nil {
		return fmt.Errorf("not admissible any more: %v", problems)
	}
	if _, ok := p.Annotations[wire.AnnotationQoS]; ok == (ask.Request.QoS == "") {
		errs = append(errs, fmt.Errorf("QoS %q, annotated: %v", ask.Request.QoS, ok))
	}
	want := ledger.PeakOf(&ask.Request, gputest.Memory)
	if amounts, metered := request.ReadAmounts(&p.Spec); !metered || amounts.Compute != want.Compute || amounts.Memory != want.Memory || amounts.Cards != want.Cards {
		errs = append(errs, fmt.Errorf("amounts %+v, want %+v", amounts, want))
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			_, koord := c.Resources.Limits[wire.KoordCore]
			_, sgpu := c.Resources.Limits[wire.ResourceSGPU]
			_, shared := c.Resources.Limits[wire.KoordShared]
			if _, plain := c.Resources.Limits[wire.KoordGPU]; plain || koord && (!sgpu || !shared) {
				errs = append(errs, fmt.Errorf("container %s: limits %v", c.Name, c.Resources.Limits))
			}
			for name, q := range c.Resources.Limits {
				if r := c.Resources.Requests[name]; r.Cmp(q) != 0 {
					errs = append(errs, fmt.Errorf("container %s: %s: limit %s, request %s", c.Name, name, q.String(), r.String()))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// TestPrivileged: a label on the namespace lets privileged containers have
// cards.
func TestPrivilegedNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.Namespace("trusted", map[string]string{"daybreak-gpu.io/allow-privileged": "true"})
	w.Namespace("doubted", map[string]string{"daybreak-gpu.io/allow-privileged": "yes"})
	p := runnable(lord(asks("sgpu: 1, vcore: 120")), "p")
	for namespace, want := range map[string]string{
		"trusted": `admission webhook "privileged.pods.daybreak-gpu.io" denied the request: ` + limit("vcore", "120", sayPercent),
		"doubted": `admission webhook "pods.daybreak-gpu.io" denied the request: ` + limit("vcore", "120", sayPercent) +
			"; spec.containers[0].securityContext.privileged: Invalid value: true: " + sayAlone,
	} {
		p.Namespace = namespace
		w.Eventually("the API server has seen namespace "+namespace, 10*time.Second, func() error {
			if _, err := w.Client.CoreV1().Pods(namespace).Create(w.Ctx, p, metav1.CreateOptions{}); err == nil || err.Error() != want {
				return fmt.Errorf("got\n  %w\nwant\n  %s", err, want)
			}
			return nil
		})
	}
	good := runnable(lord(asks("sgpu: 1")), "good")
	good.Namespace = "trusted"
	w.Create(good)
}
