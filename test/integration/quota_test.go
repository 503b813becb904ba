package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const (
	// A burst: so many pods, created by so many clients at once.
	burstPods, burstClients = 60, 12
	// deniedByQuota is how the policy begins a denial.
	deniedByQuota = "ValidatingAdmissionPolicy 'daybreak-quota'"
)

var enforced = map[string]string{wire.LabelQuota: wire.QuotaEnforced}

// bursts are ResourceQuotas with the pods that are created against them, in each
// dialect, and how many of them fit.
var bursts = map[string]struct {
	resource  corev1.ResourceName
	hard      string
	dialects  [2]string
	fit, used int64
}{
	"compute": {wire.ResourceCompute, "200", [2]string{"sgpu: 1, vcore: 30, vmemory: 1", "gpu-core: 30, gpu-memory: 1Gi"}, 6, 180},
	"memory":  {wire.ResourceMemory, "50Gi", [2]string{"sgpu: 1, vcore: 5, vmemory: 7", "gpu-core: 5, gpu-memory: 7Gi"}, 7, 49 << 30},
	"cards":   {wire.ResourceCards, "9", [2]string{"gpu: 2", "koordinator.sh/gpu: 200"}, 4, 8},
}

// TestQuotaBurst: however many pods are created at once, and whether a manager
// answers or is killed meanwhile, the quota's limit is reached and not exceeded,
// and no pod exists that the quota does not count.
func TestQuotaBurst(t *testing.T) {
	t.Parallel()
	for _, failures := range []string{"Fail", "Ignore"} {
		t.Run(failures, func(t *testing.T) {
			w := newOpenWorld(t)
			m := w.quotaManager(failures)
			w.AddNodes(3)
			w.Scheduler("scheduler")
			for name := range bursts {
				for _, kill := range []bool{false, true} {
					what := name
					if kill {
						what += "-killed"
					}
					t.Run(what, func(t *testing.T) { w.burst(t, what, name, m, kill) })
				}
			}
		})
	}
}

// quotaManager puts the policies and the webhook into the cluster and starts a
// manager as a process of its own. It returns when the manager writes amounts.
func (w *world) quotaManager(failures string) *local.Process {
	w.Helper()
	address := w.FreeAddress()
	params := w.Policies()
	params.URL, params.FailurePolicy = "https://"+address, failures
	w.Must(w.Guard(w.Ctx, params))
	text, err := policy.Webhook(params)
	w.Must(err)
	w.Must(w.Apply(w.Ctx, bytes.NewReader(text)))
	m := w.NewProcess("manager", bin("daybreak"), "manager", "--kubeconfig="+w.Kubeconfig("manager"), "--leader-elect=false", "--drain=0",
		"--metrics-bind-address="+manager.Off, "--health-probe-bind-address="+manager.Off, "--dashboard-bind-address="+manager.Off,
		"--admission-bind-address="+address, "--admission-host=127.0.0.1", "--scheduler-name=default-scheduler", "-v=2")
	w.Run(m)
	w.metered()
	return m
}

// metered waits until the manager writes amounts.
func (w *world) metered() {
	w.Helper()
	w.Eventually("amounts are written", time.Minute, func() error {
		p, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, pod("try", "sgpu=1"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if _, ok := request.ReadAmounts(&p.Spec); !ok {
			return errors.New("none")
		}
		return nil
	})
}

// quota creates a namespace whose quota must hold, and returns when it does.
func (w *world) quota(namespace string, name corev1.ResourceName, hard string) {
	w.Helper()
	w.Namespace(namespace, enforced)
	key := "requests." + name
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{key: resource.MustParse(hard)}}}
	_, err := w.Client.CoreV1().ResourceQuotas(namespace).Create(w.Ctx, q, metav1.CreateOptions{})
	w.Must(err)
	w.Eventually("the quota is counted", time.Minute, func() error {
		if _, err := w.used(namespace, name); err != nil {
			return err
		}
		return nil
	})
}

// used returns how much of the quota is used.
func (w *world) used(namespace string, name corev1.ResourceName) (int64, error) {
	q, err := w.Client.CoreV1().ResourceQuotas(namespace).Get(w.Ctx, "budget", metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	used, ok := q.Status.Used["requests."+name]
	if !ok {
		return 0, fmt.Errorf("status %+v", q.Status)
	}
	return used.Value(), nil
}

func (w *world) burst(t *testing.T, namespace, name string, m *local.Process, kill bool) {
	b := bursts[name]
	w.quota(namespace, b.resource, b.hard)
	t.Cleanup(func() {
		_ = w.Client.CoreV1().Pods(namespace).DeleteCollection(w.Ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	})
	var created, exceeded, absent atomic.Int64
	gate := make(chan struct{}) // opens for all but the first pods when the manager is killed
	const first = 3
	if !kill {
		close(gate)
	}
	var clients sync.WaitGroup
	for c := range burstClients {
		pods := w.ClientOf(w.REST()).CoreV1().Pods(namespace)
		clients.Go(func() {
			for i := c; i < burstPods; i += burstClients {
				if i >= first {
					<-gate
				}
				p := harness.PodFor(fmt.Sprintf("p-%d", i), "", b.dialects[i%2])
				p.Namespace = namespace
				for {
					_, err := pods.Create(w.Ctx, p, metav1.CreateOptions{})
					switch {
					case err == nil:
						created.Add(1)
					case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: budget"):
						exceeded.Add(1)
					case kill && (apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook") ||
						apierrors.IsForbidden(err) && strings.Contains(err.Error(), deniedByQuota)):
						absent.Add(1)
						if machine.Sleep(w.Ctx, 50*time.Millisecond) {
							continue // as a controller does
						}
					default:
						t.Errorf("create %s: %v", p.Name, err)
					}
					break
				}
			}
		})
	}
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { // never above, at any time
		for {
			select {
			case <-ended:
				return
			default:
				w.withinQuota(t, namespace, b.resource, b.used)
			}
		}
	})
	if kill {
		w.Eventually("the first pods are created", time.Minute, func() error {
			if n := created.Load(); n < first {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		close(gate)
		m.Kill()
		w.Eventually("pods are rejected", time.Minute, func() error {
			if n := absent.Load(); n < 3*burstClients {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		t.Logf("without a manager: %d pods exist, %d times one was rejected", created.Load(), absent.Load())
		w.Must(m.Start())
	}
	clients.Wait()
	close(ended)
	watcher.Wait()
	pods, err := w.Client.CoreV1().Pods(namespace).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	if n := int64(len(pods.Items)); n != b.fit || created.Load() != b.fit || created.Load()+exceeded.Load() != burstPods {
		t.Errorf("%d pods exist, %d were created and %d exceed the quota; want %d of %d", n, created.Load(), exceeded.Load(), b.fit, burstPods)
	}
	used, err := w.used(namespace, b.resource)
	w.Must(err)
	if used != b.used {
		t.Errorf("used %d, want %d", used, b.used)
	}
	w.Eventually("all are placed", time.Minute, func() error {
		pods, err := w.Client.CoreV1().Pods(namespace).List(w.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%s: %v", pods.Items[0].Name, pods.Items[0].Status.Conditions)
		}
		return err
	})
	t.Logf("%d of %d pods exist, used %d of %s; %d times no manager answered", len(pods.Items), burstPods, used, b.hard, absent.Load())
}

// withinQuota checks that every pod of the namespace carries amounts and that their
// sum is no more than fits.
func (w *world) withinQuota(t *testing.T, namespace string, name corev1.ResourceName, most int64) {
	pods, err := w.Client.CoreV1().Pods(namespace).List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		if w.Ctx.Err() == nil {
			t.Errorf("list: %v", err)
		}
		return
	}
	var sum int64
	for i := range pods.Items {
		p := &pods.Items[i]
		if _, ok := request.ReadAmounts(&p.Spec); !ok {
			t.Errorf("pod %s exists without amounts", p.Name)
			continue
		}
		q := p.Spec.Containers[0].Resources.Requests[name]
		sum += q.Value()
	}
	if sum > most {
		t.Errorf("%d pods have %d, and %d fits", len(pods.Items), sum, most)
	}
}

// TestQuotaPolicy: while no manager answers, pods with cards are rejected where
// quotas must hold, and only those that Daybreak would schedule; with a manager they
// have its amounts, whatever their users wrote.
func TestQuotaPolicy(t *testing.T) {
	t.Parallel()
	for _, g := range []guards{byServer, byManager, byManagerAlone} {
		t.Run(string(g), func(t *testing.T) {
			t.Parallel()
			w := newOpenWorld(t)
			address := w.FreeAddress()
			params := w.Policies()
			params.URL, params.FailurePolicy, params.NoMatchConditions = "https://"+address, "Ignore", g == byManagerAlone
			cfg := manager.Admission{}
			if g == byServer {
				w.Must(w.Guard(w.Ctx, params))
				text, err := policy.Webhook(params)
				w.Must(err)
				w.Must(w.Apply(w.Ctx, bytes.NewReader(text)))
			} else {
				cfg.Policies = w.Validate(params, address)
			}
			m := w.startManager("manager", address, cfg)
			w.metered()
			w.AddNodes(1)
			w.Scheduler("scheduler")
			w.Namespace("team", enforced)
			w.Namespace("free", nil)
			w.quotaThere()
			m.Stop()
			w.quotaAway(g)
			w.startManager("manager-again", address, cfg)
			w.metered()
			if got := w.amountsIn("team", "back", "daybreak", "gpu: 1"); got == nil || got.Cards != 1 {
				t.Errorf("the manager is back: amounts %+v", got)
			}
			if g != byServer {
				return
			}
			params.QuotaEverywhere = true
			w.Must(w.Guard(w.Ctx, params))
			text, err := policy.Webhook(params)
			w.Must(err)
			w.Must(w.Apply(w.Ctx, bytes.NewReader(bytes.ReplaceAll(text, []byte(address), []byte(w.FreeAddress()))))) // no manager listens there
			w.Eventually("quotas hold everywhere", time.Minute, func() error {
				_, err := w.admitted("free", "everywhere", "daybreak", "gpu: 1")
				if err == nil || !strings.Contains(err.Error(), deniedByQuota) {
					return fmt.Errorf("not denied: %w", err)
				}
				return nil
			})
		})
	}
}

// admitted creates a pod as a dry run, and returns it as it would be.
func (w *world) admitted(namespace, name, scheduler, limits string, change ...func(*corev1.Pod)) (*corev1.Pod, error) {
	p := harness.PodFor(name, scheduler, limits)
	p.Namespace = namespace
	for _, c := range change {
		c(p)
	}
	return w.Client.CoreV1().Pods(namespace).Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// amountsIn returns the amounts that such a pod gets; nil without.
func (w *world) amountsIn(namespace, name, scheduler, limits string, change ...func(*corev1.Pod)) *ledger.Amounts {
	w.Helper()
	p, err := w.admitted(namespace, name, scheduler, limits, change...)
	if err != nil {
		w.Errorf("pod %s: %v", name, err)
		return nil
	}
	if a, ok := request.ReadAmounts(&p.Spec); ok {
		return &a
	}
	return nil
}

// quotaThere is what holds while a manager answers.
func (w *world) quotaThere() {
	w.Helper()
	forged := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
		p.Spec.Containers[1].Name = "second"
		for i := range p.Spec.Containers {
			for _, name := range wire.AmountResources() {
				p.Spec.Containers[i].Resources.Limits[name] = resource.MustParse("1")
			}
		}
	}
	want := ledger.Amounts{Compute: 60, Memory: 8 << 10}
	if got := w.amountsIn("team", "forged", "daybreak", "sgpu: 1, vcore: 30, vmemory: 4", forged); got == nil || *got != want {
		w.Errorf("forged amounts became %+v, want %+v", got, want)
	}
	for name, p := range map[string]struct{ scheduler, limits string }{
		"another scheduler": {"hami-scheduler", "sgpu: 1"}, "no cards": {"daybreak", "cpu: 1"}, "zero cards": {"daybreak", "sgpu: 0"},
	} {
		if got := w.amountsIn("team", strings.ReplaceAll(name, " ", "-"), p.scheduler, p.limits); got != nil {
			w.Errorf("%s: amounts %+v", name, got)
		}
	}
	w.mirrorPasses("there")
	w.resizeRejected()
}

// quotaAway is what holds while no manager answers.
func (w *world) quotaAway(g guards) {
	w.Helper()
	want := map[guards]string{byServer: deniedByQuota, byManager: `failed calling webhook "quota.policies.daybreak-gpu.io"`}[g]
	for dialect, limits := range map[string]string{"hami": "sgpu: 1, vcore: 5", "koordinator": "gpu-core: 100, gpu-memory-ratio: 100", "whole": "gpu: 1"} {
		for _, scheduler := range []string{"", "daybreak"} {
			_, err := w.admitted("team", dialect, scheduler, limits)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				w.Errorf("%s for %q where quotas must hold: %v, want %q", dialect, scheduler, err, want)
			}
			if got := w.amountsIn("free", dialect, scheduler, limits); got != nil {
				w.Errorf("%s for %q elsewhere: amounts %+v without a manager", dialect, scheduler, got)
			}
		}
	}
	for name, p := range map[string]struct{ scheduler, limits string }{
		"another-scheduler": {"hami-scheduler", "sgpu: 1"}, "no-cards": {"daybreak", "cpu: 1"}, "zero-cards": {"daybreak", "sgpu: 0"},
	} {
		if _, err := w.admitted("team", name, p.scheduler, p.limits); err != nil {
			w.Errorf("%s: %v", name, err)
		}
	}
	if g != byManager { // there a pod that comes bound waits for a manager
		w.mirrorPasses("away")
	}
	// A pod from before: it exists without amounts when the namespace gets the label.
	before := harness.PodFor("before", "daybreak", "sgpu: 1, vcore: 5, vmemory: 1")
	before.Namespace = "free"
	w.Create(before)
	_, err := w.Client.CoreV1().Namespaces().Patch(w.Ctx, "free", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, wire.LabelQuota, wire.QuotaEnforced), metav1.PatchOptions{})
	w.Must(err)
	_, err = w.Client.CoreV1().Pods("free").Patch(w.Ctx, "before", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	w.Must(err)
	_, err = w.Client.CoreV1().Namespaces().Patch(w.Ctx, "free", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, wire.LabelQuota), metav1.PatchOptions{})
	w.Must(err)
}

// mirrorPasses checks that a kubelet may show a static pod with cards.
func (w *world) mirrorPasses(name string) {
	w.Helper()
	config := w.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:metax-0", Groups: []string{"system:nodes", "system:masters"}}
	p := harness.PodFor("mirror-"+name, "default-scheduler", "gpu: 1")
	p.Namespace, p.Spec.NodeName = "team", "metax-0"
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	if _, err := w.ClientOf(config).CoreV1().Pods("team").Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		w.Errorf("a static pod: %v", err)
	}
}

// resizeRejected checks that the amounts of a pod that runs can't change.
func (w *world) resizeRejected() {
	w.Helper()
	p := harness.PodFor("resized", "", "sgpu: 1, vcore: 5, vmemory: 1, cpu: 1")
	p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired}}
	w.Create(p)
	w.Bound("resized")
	pods := w.Client.CoreV1().Pods("default")
	patch := func(name corev1.ResourceName, amount string, subresources ...string) error {
		text := fmt.Appendf(nil, `{"spec":{"containers":[{"name":"c","resources":{"limits":{%q:%q},"requests":{%q:%q}}}]}}`, name, amount, name, amount)
		_, err := pods.Patch(w.Ctx, "resized", types.StrategicMergePatchType, text, metav1.PatchOptions{}, subresources...)
		return err
	}
	if err := patch(corev1.ResourceCPU, "2", "resize"); err != nil {
		w.Errorf("resize the CPU: %v", err)
	}
	for _, name := range wire.AmountResources() {
		for _, subresources := range [][]string{{"resize"}, {}} {
			if err := patch(name, "4", subresources...); !apierrors.IsInvalid(err) {
				w.Errorf("resize %s by %v: %v, want that it is invalid", name, subresources, err)
			}
		}
	}
	w.Delete("resized")
}
