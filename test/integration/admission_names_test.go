package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// warned collects the warnings of a client.
type warned struct {
	sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warned) take() []string {
	w.Lock()
	defer w.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

func (w *world) warnedClient() (kubernetes.Interface, *warned) {
	w.Helper()
	config, warnings := w.REST(), &warned{}
	config.WarningHandlerWithContext = warnings
	return w.ClientOf(config), warnings
}

// TestMistypedKeys: a pod with a mistyped name is rejected or gets a warning, also
// when it has nothing else that Daybreak knows. Other schedulers' pods pass.
func TestMistypedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	client, warnings := w.warnedClient()
	const mean = "there is no such resource: did you mean "
	cases := map[string]struct {
		pod      *gputest.PodBuilder
		name     string // of its scheduler
		refused  []string
		warnings []string
	}{
		"sgpus alone": {pod: asks("metax-tech.com/sgpus: 1"), refused: []string{limit("sgpus", "1", mean+"metax-tech.com/sgpu?")}},
		"vcores and vmem": {
			pod:     asks("sgpu: 1, metax-tech.com/vcores: 10, metax-tech.com/vmem: 4"),
			refused: []string{limit("vcores", "10", mean+"metax-tech.com/vcore?"), limit("vmem", "4", mean+"metax-tech.com/vmemory?")},
		},
		"in an init container": {
			pod:     asks("sgpu: 1").Init("koordinator.sh/gpu-cores: 10"),
			refused: []string{`spec.initContainers[0].resources.limits[koordinator.sh/gpu-cores]: Invalid value: "10": ` + mean + "koordinator.sh/gpu-core?"},
		},
		"sgpus for Volcano": {pod: asks("metax-tech.com/sgpus: 1").Annotate("hami.io/gpu-schedule-policy", "x"), name: "volcano"},
		"sgpus on a node":   {pod: asks("metax-tech.com/sgpus: 1").On("n1")},
		"unlike all": {
			pod: asks("metax-tech.com/priority: 1"),
			warnings: []string{
				"spec.containers[0].resources.limits[metax-tech.com/priority]: Daybreak does not know this resource: it knows metax-tech.com/gpu, " +
					"metax-tech.com/sgpu, metax-tech.com/vcore, metax-tech.com/vmemory",
			},
		},
		"annotations": {
			pod: asks("sgpu: 1").Annotate("metax-tech.com/sgpu-qos", "x").Annotate("hami.io/gpu-schedule-policy", "x").Annotate("gang.scheduling.koordinator.sh/name", "x"),
			warnings: []string{
				"hami.io/gpu-schedule-policy has no effect: Daybreak does not know this annotation: did you mean hami.io/gpu-scheduler-policy?",
				"metax-tech.com/sgpu-qos has no effect: Daybreak does not know this annotation: did you mean metax-tech.com/sgpu-qos-policy?",
				"gang.scheduling.koordinator.sh/name has no effect: gangs are not supported yet, each pod is placed by itself",
			},
		},
		"another vendor's": {pod: asks("nvidia.com/gpu: 1").Annotate("hami.io/gpu-schedule-policy", "x")},
	}
	for name, tc := range cases {
		p := runnable(tc.pod, "p")
		p.Spec.SchedulerName = tc.name
		_, err := client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		got, want := "", ""
		if err != nil {
			got = err.Error()
		}
		if len(tc.refused) > 0 {
			want = `admission webhook "pods.daybreak-gpu.io" denied the request: ` + strings.Join(tc.refused, "; ")
		}
		if got != want || err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got\n  %s\nwant\n  %s", name, got, want)
		}
		gputest.Equal(t, name+": warnings", tc.warnings, warnings.take())
	}
}

// TestOthersNames: while no manager answers, pods with others' resources are
// created, also with those whose names begin like Daybreak's.
func TestOthersNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must(w.Webhook(w.Ctx, w.FreeAddress()))
	try := func(limits string) error {
		p := runnable(asks(limits).Annotate("hami.io/vgpu-time", "1"), "p")
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.Eventually("the webhook is called", time.Minute, func() error {
		if err := try("metax-tech.com/sgpus: 1"); err == nil || !strings.Contains(err.Error(), `failed calling webhook "pods.daybreak-gpu.io"`) {
			return fmt.Errorf("created, or another error: %w", err)
		}
		return nil
	})
	for _, limits := range []string{"cpu: 1", "nvidia.com/gpu: 1", "metax-tech.com/vfio-gpu: 1", "koordinator.sh/rdma: 1", "koordinator.sh/batch-cpu: 1000"} {
		if err := try(limits); err != nil {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

// TestAllocationSize: a pod whose allocation could not be written is rejected. One
// with room for it is bound, and can be changed afterwards.
func TestAllocationSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.AddNodes(1)
	w.Scheduler("scheduler")
	pods := w.Client.CoreV1().Pods("default")
	const slice = "sgpu: 1, vcore: 1, vmemory: 1"
	large := func(n int) *corev1.Pod { return runnable(asks(slice).Annotate("a", strings.Repeat("x", n)), "large") }
	many := asks("")
	for range 2000 {
		many.Init(slice)
	}
	for want, p := range map[string]*corev1.Pod{
		"metadata.annotations: Forbidden: the pod's own annotations have 262001 bytes and the allocation needs 694, and an object has at most 262144: " +
			"shorten the pod's own by 551": large(262_000),
		"spec: Forbidden: a pod with GPUs has at most 1024 containers, init containers included, and this one has 2001: split it into several pods": runnable(many, "many"),
	} {
		want = `admission webhook "pods.daybreak-gpu.io" denied the request: ` + want
		if _, err := pods.Create(w.Ctx, p, metav1.CreateOptions{}); err == nil || err.Error() != want {
			t.Errorf("got\n  %v\nwant\n  %s", err, want)
		}
	}
	w.Create(large(261_000))
	w.Bound("large")
	if _, err := pods.Patch(w.Ctx, "large", types.MergePatchType, []byte(`{"metadata":{"annotations":{"b":"c"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an annotation on the bound pod: %v", err)
	}
	w.Audit()
}
