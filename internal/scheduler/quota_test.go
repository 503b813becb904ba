package scheduler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// setQuota stores a ResourceQuota as the informer would.
func (r *rig) setQuota(t testing.TB, rq *corev1.ResourceQuota) {
	t.Helper()
	if err := r.fakes.informers.Core().V1().ResourceQuotas().Informer().GetStore().Add(rq); err != nil {
		t.Fatal(err)
	}
}

// preFilter runs PreFilter for the pod over the nodes and returns what it answers.
func (r *rig) preFilter(t *testing.T, pod *corev1.Pod, infos ...fwk.NodeInfo) *fwk.Status {
	t.Helper()
	_, status := r.PreFilter(t.Context(), framework.NewCycleState(), pod, infos)
	return status
}

func deadline(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = new(int64(60)) }

func inNamespace(name string) podOption { return func(pod *corev1.Pod) { pod.Namespace = name } }

func TestQuota(t *testing.T) {
	limits := func(key corev1.ResourceName, amount string) *corev1.ResourceQuota {
		return makeQuota("team", map[corev1.ResourceName]string{key: amount})
	}
	scoped := limits(quota.LimitVCore, "100")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	unknown := makePod("unknown", whole(1), annotated(wire.AnnotationAllocated, unreadable), boundTo("n1"))
	small := makeDevice("n2", 1)
	small.Spec.Devices[0].Resources[wire.KoordMemory] = resource.MustParse("32Gi")
	small.Spec.Devices[0].UUID = "GPU-small"
	onSmall := func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"size": "small"} }
	cases := map[string]struct {
		keys   string
		quotas []*corev1.ResourceQuota
		bound  []*corev1.Pod
		apart  []*corev1.Pod // on a node that is not listed
		pod    *corev1.Pod
		want   string // of the message; nothing: the pod passes
	}{
		"no quota":                {bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0))}, pod: makePod("p", slice(50, 4))},
		"within the budget":       {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "110")}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0))}, pod: makePod("p", slice(50, 4))},
		"above it":                {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "100")}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0))}, pod: makePod("p", slice(50, 4)), want: "wants 50%, ResourceQuota team has 40% of 100% left (limits.metax-tech.com/vcore)"},
		"pods of other teams":     {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "100")}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0), inNamespace("other"))}, pod: makePod("p", slice(50, 4))},
		"another team's quota":    {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "0")}, pod: makePod("p", slice(50, 4), inNamespace("other"))},
		"memory without a unit":   {quotas: []*corev1.ResourceQuota{limits(quota.LimitVMemory, "7")}, bound: []*corev1.Pod{makePod("a", slice(10, 4), holds(0))}, pod: makePod("p", slice(10, 4)), want: "wants 4 GiB, ResourceQuota team has 3 GiB of 7 GiB left (limits.metax-tech.com/vmemory)"},
		"a whole card has memory": {quotas: []*corev1.ResourceQuota{limits(quota.LimitVMemory, "100Gi")}, bound: []*corev1.Pod{makePod("a", whole(1), holds(0))}, pod: makePod("p", whole(1)), want: "wants 64 GiB, ResourceQuota team has 36 GiB of 100 GiB left"},
		"cards are counted":       {quotas: []*corev1.ResourceQuota{limits(quota.LimitGPU, "1")}, bound: []*corev1.Pod{makePod("a", whole(1), holds(0))}, pod: makePod("p", whole(1)), want: "wants 1, ResourceQuota team has 0 of 1 left (limits.metax-tech.com/gpu)"},
		"slices are counted":      {quotas: []*corev1.ResourceQuota{limits(quota.LimitSGPU, "1")}, bound: []*corev1.Pod{makePod("a", whole(1), holds(0))}, pod: makePod("p", slice(10, 4))},
		"more than all of it":     {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "100")}, pod: makePod("p", whole(2)), want: "wants 200%, ResourceQuota team allows 100% in all (limits.metax-tech.com/vcore)"},
		"an unreadable amount":    {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "-1")}, pod: makePod("p", whole(1)), want: "ResourceQuota team: limits.metax-tech.com/vcore is -1: write a whole number from 0"},
		"cards that are unknown":  {quotas: []*corev1.ResourceQuota{limits(quota.LimitGPU, "1")}, bound: []*corev1.Pod{unknown}, pod: makePod("p", whole(1)), want: "has 0 of 1 left"},
		"cards that are gone":     {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "100")}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(9))}, pod: makePod("p", slice(50, 4)), want: "has 40% of 100% left"},
		"a node that is gone":     {quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "100")}, apart: []*corev1.Pod{makePod("a", slice(60, 4), boundTo("gone"))}, pod: makePod("p", slice(50, 4)), want: "has 40% of 100% left"},
		"a scope without the pod": {quotas: []*corev1.ResourceQuota{scoped}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0), deadline)}, pod: makePod("p", slice(50, 4))},
		"a scope of the pod only": {quotas: []*corev1.ResourceQuota{scoped}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0))}, pod: makePod("p", slice(50, 4), deadline)},
		"a scope of both":         {quotas: []*corev1.ResourceQuota{scoped}, bound: []*corev1.Pod{makePod("a", slice(60, 4), holds(0), deadline)}, pod: makePod("p", slice(50, 4), deadline), want: "has 40% of 100% left"},
		"the largest card counts": {quotas: []*corev1.ResourceQuota{limits(quota.LimitVMemory, "32Gi")}, pod: makePod("p", whole(1)), want: "wants 64 GiB"},
		"of those it may use":     {quotas: []*corev1.ResourceQuota{limits(quota.LimitVMemory, "32Gi")}, pod: makePod("p", whole(1), onSmall)},
		"keys that only warn":     {keys: quota.Warn, quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "0")}, pod: makePod("p", slice(50, 4))},
		"keys that are ignored":   {keys: quota.Off, quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "0")}, pod: makePod("p", slice(50, 4))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tc.keys != "" {
				r.quotaKeys = tc.keys
			}
			r.setDevice(t, makeDevice("n1", 4))
			r.setDevice(t, small)
			for _, rq := range tc.quotas {
				r.setQuota(t, rq)
			}
			for _, pod := range tc.apart {
				if err := r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			n2 := makeNode("n2")
			n2.Labels = map[string]string{"size": "small"}
			infos := []fwk.NodeInfo{nodeInfo(makeNode("n1"), tc.bound...), nodeInfo(n2)}
			for range 2 { // the second time with sums that are there already
				status := r.preFilter(t, tc.pod, infos...)
				if status.IsSuccess() != (tc.want == "") || !strings.Contains(status.Message(), tc.want) {
					t.Fatalf("PreFilter() = %v, want %q", status, tc.want)
				}
				if tc.want != "" && status.Code() != fwk.UnschedulableAndUnresolvable {
					t.Errorf("PreFilter() = %v: preemption would be tried in vain", status.Code())
				}
			}
			if tc.keys == quota.Warn {
				if got, want := len(r.fakes.recorder.Events), 1; got != want {
					t.Fatalf("%d events, want %d for two attempts", got, want)
				}
				if got := <-r.fakes.recorder.Events; !strings.Contains(got, "QuotaExceeded placed nevertheless, since quotaKeys is warn: wants 50%") {
					t.Errorf("event %q", got)
				}
			}
		})
	}
}

// TestQuotaReserved: a pod counts from Reserve on, whether the snapshot shows it or
// not, and until it is given up.
func TestQuotaReserved(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 4))
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
	info := nodeInfo(makeNode("n1"))
	r.fakes.snapshot = snapshotOf(info)
	first, second := makePod("first", slice(60, 4)), makePod("second", slice(60, 4))
	if err := r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(first); err != nil {
		t.Fatal(err)
	}
	cs := r.cycleOver(t, first, []fwk.NodeInfo{info})
	if status := r.Reserve(t.Context(), cs, first, "n1"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := r.preFilter(t, second, info); status.IsSuccess() {
		t.Error("a second pod passes although the first is reserved")
	}
	if status := r.preFilter(t, second); status.IsSuccess() {
		t.Error("a second pod passes when the node of the first is not listed any more")
	}
	r.Unreserve(t.Context(), cs, first, "n1")
	if status := r.preFilter(t, second, info); !status.IsSuccess() {
		t.Errorf("PreFilter() = %v although the first pod was given up", status)
	}
}

// TestQuotaHints: a pod that waits for a budget is woken by ends of pods of its
// namespace alone, and one that wants more than all of it by none.
func TestQuotaHints(t *testing.T) {
	r := newRig(t)
	node := makeNode("n1")
	if err := r.fakes.informers.Core().V1().Nodes().Informer().GetStore().Add(node); err != nil {
		t.Fatal(err)
	}
	dev := r.setDevice(t, makeDevice("n1", 4))
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
	mine, other := makePod("mine", slice(60, 4), holds(0)), makePod("other", slice(60, 4), holds(1), inNamespace("other"))
	info := nodeInfo(node, mine, other)
	waiting, large := makePod("waiting", slice(60, 4)), makePod("large", whole(2))
	for _, pod := range []*corev1.Pod{waiting, large} {
		if status := r.preFilter(t, pod, info); status.IsSuccess() {
			t.Fatalf("pod %s passes", pod.Name)
		}
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		hint func(pod *corev1.Pod) (fwk.QueueingHint, error)
		want fwk.QueueingHint
	}{
		"a pod of the namespace ends": {pod: waiting, want: fwk.Queue, hint: func(pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterPodDelete(klog.Background(), pod, mine, nil)
		}},
		"a pod of another namespace ends": {pod: waiting, hint: func(pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterPodDelete(klog.Background(), pod, other, nil)
		}},
		"a Device changes": {pod: waiting, hint: func(pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterDevice(klog.Background(), pod, nil, dev)
		}},
		"a node comes": {pod: waiting, hint: func(pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterNode(klog.Background(), pod, nil, node)
		}},
		"a pod of the namespace ends, but the budget is too small": {pod: large, hint: func(pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterPodDelete(klog.Background(), pod, mine, nil)
		}},
	} {
		if got, err := tc.hint(tc.pod); got != tc.want || err != nil {
			t.Errorf("%s: hint %v, %v, want %v", name, got, err, tc.want)
		}
	}
	if got := r.shared.pods.waitingForQuota("ns"); len(got) != 2 {
		t.Errorf("%d pods wait for a change of the quota, want 2", len(got))
	}
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "500"}))
	if status := r.preFilter(t, waiting, info); !status.IsSuccess() {
		t.Errorf("PreFilter() = %v with a larger quota", status)
	}
	if got := r.shared.pods.waitingForQuota("ns"); len(got) != 1 || got["large"] == nil {
		t.Errorf("%v wait for a change of the quota, want the large pod", got)
	}
}

// TestForgedAmounts: a pod with smaller amounts than what it requests was not
// written by a manager.
func TestForgedAmounts(t *testing.T) {
	carrying := func(compute, memory, cards string) podOption {
		return func(pod *corev1.Pod) {
			for name, amount := range map[corev1.ResourceName]string{wire.ResourceCompute: compute, wire.ResourceMemory: memory, wire.ResourceCards: cards} {
				pod.Spec.Containers[0].Resources.Limits[name] = resource.MustParse(amount)
			}
		}
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"as written":                       {pod: makePod("p", slice(60, 4), carrying("60", "4Gi", "0"))},
		"of smaller cards":                 {pod: makePod("p", whole(2), carrying("200", "32Gi", "2"))},
		"too little compute":               {pod: makePod("p", slice(60, 4), carrying("10", "4Gi", "0")), want: "spec.containers[0].resources.limits[daybreak-gpu.io/compute]: Invalid value: 10: the pod requests 60: create it again while a manager runs"},
		"too little memory":                {pod: makePod("p", slice(60, 4), carrying("60", "1Gi", "0")), want: "limits[daybreak-gpu.io/memory]: Invalid value: 1073741824: the pod requests 4294967296"},
		"no cards where it has them alone": {pod: makePod("p", whole(1), carrying("100", "64Gi", "0")), want: "limits[daybreak-gpu.io/cards]: Invalid value: 0: the pod requests 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 4))
			status := r.preFilter(t, tc.pod, nodeInfo(makeNode("n1")))
			if status.IsSuccess() != (tc.want == "") || !strings.Contains(status.Message(), tc.want) {
				t.Errorf("PreFilter() = %v, want %q", status, tc.want)
			}
		})
	}
}

// TestQuotasForbidden: without the right to ResourceQuotas the scheduler says what to
// do, and does not wait for an informer that never fills.
func TestQuotasForbidden(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		corev1.SchemeGroupVersion.WithResource("resourcequotas"): "ResourceQuotaList",
	})
	if err := checkQuotaRights(t.Context(), client); err != nil {
		t.Error(err)
	}
	client.PrependReactor("list", "resourcequotas", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("resourcequotas"), "", nil)
	})
	if err := checkQuotaRights(t.Context(), client); err == nil || !strings.Contains(err.Error(), "set --quota-keys=off") {
		t.Errorf("the error is %v", err)
	}
}
