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
	"github.com/daybreak-gpu/daybreak/test/harness"
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
	sayCount   = "cards are counted: write a whole number from 1 to 64"
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
	return fmt.Sprintf("spec.containers[0].resources.limits[%s%s]: Invalid value: %q: %s", prefix, name, value, say)
}

func note(key, value, say string) string {
	return fmt.Sprintf("metadata.annotations[%s]: Invalid value: %q: %s", key, value, say)
}

// refused are pods that are rejected, with the complete message: what the API server
// itself rewrites, or would reject, and each place in a pod that a problem can be in.
// Every other invalid request is in package request, which reads all as they are
// written and as the API server keeps them.
var refused = map[string]struct {
	pod  *gputest.PodBuilder
	want []string
}{
	"vmemory 4000":          {asks("sgpu: 1, vmemory: 4000"), []string{limit("vmemory", "4k", fmt.Sprintf(sayKept, "4k"))}},
	"vmemory a half":        {asks("sgpu: 1, vmemory: 0.5"), []string{limit("vmemory", "500m", fmt.Sprintf(sayKept, "500m"))}},
	"vmemory -4":            {asks("sgpu: 1, vmemory: -4"), []string{limit("vmemory", "-4", sayGiB)}},
	"vmemory past counting": {asks("sgpu: 1, vmemory: 99999999999999999999Gi"), []string{limit("vmemory", "9223372036854775807", sayGiB)}},
	"vcore 500m":            {asks("sgpu: 1, vcore: 500m"), []string{limit("vcore", "500m", sayPercent)}},
	"vcore past counting":   {asks("sgpu: 1, vcore: 9223372036854775807"), []string{limit("vcore", "9223372036854775807", sayPercent)}},
	"sgpu -1":               {asks("sgpu: -1"), []string{limit("sgpu", "-1", sayCount)}},
	"gpu 1000":              {asks("gpu: 1000"), []string{limit("gpu", "1k", sayCount)}},
	"gpu and sgpu":          {asks("gpu: 1, sgpu: 1"), []string{limit("gpu", "1", "a container takes whole cards or shares of cards: remove metax-tech.com/gpu or metax-tech.com/sgpu")}},
	"limits and requests differ": {
		gputest.MakePod("p").AppWith("sgpu: 2", "sgpu: 1"),
		[]string{`spec.containers[0].resources.requests[metax-tech.com/sgpu]: Invalid value: "1": differs from the limit: write 2 in both, or in limits alone`},
	},
	"in an init container": {
		asks("").Init("sgpu: 1, vcore: 120"),
		[]string{`spec.initContainers[0].resources.limits[metax-tech.com/vcore]: Invalid value: "120": ` + sayPercent},
	},
	"two classes":        {asks("sgpu: 1").Annotate(wire.AnnotationClass, "online,offline"), []string{note(wire.AnnotationClass, "online,offline", sayClass)}},
	"Koordinator, 512Ki": {asks("gpu-core: 10, gpu-memory: 512Ki"), []string{limit("gpu-memory", "512Ki", sayBytes)}},
	"both dialects in one container": {
		asks("sgpu: 1, vcore: 10, gpu-core: 10, gpu-memory: 1Gi"),
		[]string{limit("gpu-core", "10", "a container asks in one dialect: keep the koordinator.sh amounts, or metax-tech.com/vcore and metax-tech.com/vmemory")},
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
	p := harness.Runnable(b, 0)
	p.Name = name
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
		gputest.Equal(t, name+": booked", admitted[name].want, booked(t, p))
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
