package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// setQuota stores a ResourceQuota as the informer would.
func (r *rig) setQuota(t testing.TB, rq *corev1.ResourceQuota) {
	t.Helper()
	gputest.Must(t, r.fakes.informers.Core().V1().ResourceQuotas().Informer().GetStore().Add(rq))
	r.shared.quotas.forget(rq.Namespace)
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
		"a card of its own has all of its memory": {
			quotas: []*corev1.ResourceQuota{limits(quota.LimitVMemory, "100Gi")}, bound: []*corev1.Pod{makePod("a", slice(100, 4), holds(0))}, pod: makePod("p", slice(100, 4)),
			want: "wants 64 GiB, ResourceQuota team has 36 GiB of 100 GiB left",
		},
		"an online pod has all compute of its card": {
			quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "150")}, bound: []*corev1.Pod{makePod("a", slice(10, 4), annotated(wire.AnnotationClass, "online"), holds(0))},
			pod: makePod("p", slice(10, 4), annotated(wire.AnnotationClass, "online")), want: "wants 100%, ResourceQuota team has 50% of 150% left",
		},
		"keys that only warn":   {keys: quota.Warn, quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "0")}, pod: makePod("p", slice(50, 4))},
		"keys that are ignored": {keys: quota.Off, quotas: []*corev1.ResourceQuota{limits(quota.LimitVCore, "0")}, pod: makePod("p", slice(50, 4))},
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
				gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(pod))
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

// nextActivated returns the pod that was to be tried at once, or "" when after a while
// none was.
func (r *rig) nextActivated(wait time.Duration) string {
	select {
	case name := <-r.fakes.activated:
		return name
	case <-time.After(wait):
		return ""
	}
}

// TestQuotaHints: what may have freed some of a budget has one pod tried that waits for
// it, and hints wake none.
func TestQuotaHints(t *testing.T) {
	small, big, dev := makeNode("n1"), makeNode("n2"), makeDevice("n2", 1)
	big.Labels = map[string]string{"size": "big"}
	dev.Spec.Devices[0].UUID = "GPU-big"
	dev.Spec.Devices[0].Resources[wire.KoordMemory] = resource.MustParse("128Gi")
	without := dev.DeepCopy()
	without.Spec.Devices = nil
	change := func(node *corev1.Node, do func(*corev1.Node)) *corev1.Node {
		node = node.DeepCopy()
		do(node)
		return node
	}
	mine, other := makePod("mine", slice(60, 4), holds(0)), makePod("other", slice(60, 4), holds(1), inNamespace("other"))
	compute, memory := makePod("compute", slice(60, 4)), makePod("memory", whole(1))
	ends := func(ended *corev1.Pod) func(*rig, *corev1.Pod) (fwk.QueueingHint, error) {
		return func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterPodDelete(klog.Background(), pod, ended, nil)
		}
	}
	update := func(before, after *corev1.Pod) func(*rig, *corev1.Pod) (fwk.QueueingHint, error) {
		return func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterPodUpdate(klog.Background(), pod, before, after)
		}
	}
	node := func(before, after any) func(*rig, *corev1.Pod) (fwk.QueueingHint, error) {
		return func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterNode(klog.Background(), pod, before, after)
		}
	}
	late := mine.DeepCopy()
	deadline(late)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		hint func(*rig, *corev1.Pod) (fwk.QueueingHint, error)
		want bool
	}{
		"a pod of the namespace ends":                              {pod: compute, want: true, hint: ends(mine)},
		"a pod of another namespace ends":                          {pod: compute, hint: ends(other)},
		"a pod ends, but the budget is too small":                  {pod: makePod("large", whole(2)), hint: ends(mine)},
		"a pod of the namespace leaves the scope":                  {pod: compute, want: true, hint: update(mine, late)},
		"a pod of the namespace changes otherwise":                 {pod: compute, hint: update(mine, mine.DeepCopy())},
		"a node comes, and the budget is of compute":               {pod: compute, hint: node(nil, small)},
		"the largest cards are cordoned":                           {pod: memory, want: true, hint: node(big, change(big, func(n *corev1.Node) { n.Spec.Unschedulable = true }))},
		"the largest cards are cordoned, the budget is of compute": {pod: compute, hint: node(big, change(big, func(n *corev1.Node) { n.Spec.Unschedulable = true }))},
		"they are tainted": {pod: memory, want: true, hint: node(big, change(big, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}))},
		"they lose a label": {pod: memory, want: true, hint: node(big, change(big, func(n *corev1.Node) { n.Labels = nil }))},
		"nothing changes":   {pod: memory, hint: node(big, change(big, func(*corev1.Node) {}))},
		"their node goes":   {pod: memory, want: true, hint: node(big, nil)},
		"their Device changes": {pod: memory, want: true, hint: func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterDevice(klog.Background(), pod, trimmed(t, dev), trimmed(t, without))
		}},
		"their Device goes": {pod: memory, want: true, hint: func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterDevice(klog.Background(), pod, trimmed(t, dev), nil)
		}},
		"a Device changes, and the budget is of compute": {pod: compute, hint: func(r *rig, pod *corev1.Pod) (fwk.QueueingHint, error) {
			return r.afterDevice(klog.Background(), pod, trimmed(t, dev), trimmed(t, without))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, n := range []*corev1.Node{small, big} {
				r.addNode(t, n)
			}
			r.setDevice(t, makeDevice("n1", 4))
			r.setDevice(t, dev)
			scoped := makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"})
			scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
			r.setQuota(t, scoped)
			r.setQuota(t, makeQuota("memory", map[corev1.ResourceName]string{quota.LimitVMemory: "64Gi"}))
			if tc.pod == memory {
				r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "1000"}))
			}
			if status := r.preFilter(t, tc.pod, nodeInfo(small, mine, other), nodeInfo(big)); status.IsSuccess() {
				t.Fatal("the pod passes")
			}
			if got, err := tc.hint(r, tc.pod); got != fwk.QueueSkip || err != nil {
				t.Errorf("hint %v, %v: kube-scheduler would try all pods that wait", got, err)
			}
			wait := 10 * time.Second
			if !tc.want {
				wait = 10 * time.Millisecond
			}
			if got := r.nextActivated(wait); (got == tc.pod.Name) != tc.want || !tc.want && got != "" {
				t.Errorf("pod %q is tried, want it: %v", got, tc.want)
			}
		})
	}
}

// TestQuotaApart: a pod whose node went away counts as long as it holds anything, and
// once.
func TestQuotaApart(t *testing.T) {
	r := newRig(t)
	r.setDevice(t, makeDevice("n1", 4))
	second := makeDevice("n2", 4)
	for i := range second.Spec.Devices {
		second.Spec.Devices[i].UUID = "GPU-b" + strconv.Itoa(i)
	}
	r.setDevice(t, second)
	r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
	n1, n2 := nodeInfo(makeNode("n1")), nodeInfo(makeNode("n2"))
	r.fakes.snapshot = snapshotOf(n1, n2)
	store := r.fakes.informers.Core().V1().Pods().Informer().GetStore()
	pod, rest, more := makePod("pod", slice(60, 4)), makePod("rest", slice(40, 4)), makePod("more", slice(41, 4))
	gputest.Must(t, store.Add(pod))
	fits := func(when string, want bool, pod *corev1.Pod, infos ...fwk.NodeInfo) {
		t.Helper()
		if status := r.preFilter(t, pod, infos...); status.IsSuccess() != want {
			t.Errorf("PreFilter(%s) = %v, %s", pod.Name, status, when)
		}
	}
	cs := r.cycleOver(t, pod, []fwk.NodeInfo{n1, n2})
	succeeds(t, r.Reserve(t.Context(), cs, pod, "n1"))
	fits("while pod is reserved on a node that is gone", true, rest, n2)
	fits("while pod is reserved on a node that is gone", false, more, n2)
	r.Unreserve(t.Context(), cs, pod, "n1")
	fits("although nothing is reserved any more", true, pod, n2)
	fits("although nothing is reserved any more", true, more, n2)

	cs = r.cycleOver(t, pod, []fwk.NodeInfo{n2})
	r.fakes.snapshot = snapshotOf(n2)
	succeeds(t, r.Reserve(t.Context(), cs, pod, "n2"))
	fits("although pod counts once on n2", true, rest, n2)
	fits("while pod is reserved on n2", false, more, n2)

	stray := makePod("stray", slice(40, 4), boundTo("gone"))
	gputest.Must(t, store.Add(stray))
	r.shared.index.usage.stray(stray)
	fits("although a pod was bound to a node that is gone", false, rest, n2)
	gputest.Must(t, store.Delete(stray))
	fits("although that pod has ended", true, rest, n2)
}

// TestOtherVendorsCards: only pods that can hold cards count, or for which cards are
// booked.
func TestOtherVendorsCards(t *testing.T) {
	koordinator := asking(map[corev1.ResourceName]string{wire.KoordCore: "100", wire.KoordMemoryRatio: "100", "nvidia.com/gpu": "1"})
	for name, tc := range map[string]struct {
		other *corev1.Pod
		want  bool
	}{
		"on a node without our cards":   {other: makePod("other", koordinator, boundTo("nv")), want: true},
		"on a node that does not exist": {other: makePod("other", koordinator, boundTo("gone")), want: true},
		"on a node with our cards":      {other: makePod("other", koordinator, boundTo("n1")), want: true},
		"with cards of ours":            {other: makePod("other", koordinator, holds(0))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setDevice(t, makeDevice("n1", 4))
			r.setQuota(t, makeQuota("team", map[corev1.ResourceName]string{quota.LimitVCore: "100"}))
			nv, n1 := nodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nv"}}), nodeInfo(makeNode("n1"))
			switch tc.other.Spec.NodeName {
			case "nv":
				nv = nodeInfo(nv.Node(), tc.other)
			case "n1":
				n1 = nodeInfo(n1.Node(), tc.other)
			}
			gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetStore().Add(tc.other))
			if status := r.preFilter(t, makePod("p", slice(50, 4)), n1, nv); status.IsSuccess() != tc.want {
				t.Errorf("PreFilter() = %v", status)
			}
		})
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
		"as written":       {pod: makePod("p", slice(60, 4), carrying("60", "4Gi", "0"))},
		"of smaller cards": {pod: makePod("p", whole(2), carrying("200", "32Gi", "2"))},
		"of an online pod": {pod: makePod("p", slice(10, 4), annotated(wire.AnnotationClass, "online"), carrying("100", "4Gi", "1"))},
		"too little compute of an online pod": {
			pod: makePod("p", slice(10, 4), annotated(wire.AnnotationClass, "online"), carrying("10", "4Gi", "1")), want: "limits[daybreak-gpu.io/compute]: Invalid value: 10: the pod requests 100",
		},
		"exclusive, with the memory of the smallest card": {pod: makePod("p", slice(100, 4), carrying("100", "4Gi", "1"))},
		"too little compute":                              {pod: makePod("p", slice(60, 4), carrying("10", "4Gi", "0")), want: "spec.containers[0].resources.limits[daybreak-gpu.io/compute]: Invalid value: 10: the pod requests 60: create it again while a manager runs"},
		"too little memory":                               {pod: makePod("p", slice(60, 4), carrying("60", "1Gi", "0")), want: "limits[daybreak-gpu.io/memory]: Invalid value: 1073741824: the pod requests 4294967296"},
		"no cards where it has them alone":                {pod: makePod("p", whole(1), carrying("100", "64Gi", "0")), want: "limits[daybreak-gpu.io/cards]: Invalid value: 0: the pod requests 1"},
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
// do, and does not wait for an informer that never fills. That holds for a
// configuration of the user's, too.
func TestQuotasForbidden(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	daybreak := func(name, args string) string {
		return fmt.Sprintf("- schedulerName: %s\n  plugins: {multiPoint: {enabled: [{name: Daybreak}]}}\n  pluginConfig: [{name: Daybreak, args: %s}]\n", name, args)
	}
	builtin := func(keys string) string {
		text, err := defaultConfig(configOptions{profiles: []string{"a", "b"}, quotaKeys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, tc := range map[string]struct {
		config string
		want   string // of the error
	}{
		"built in":                       {config: builtin(quota.Enforce), want: "set --quota-keys=off"},
		"built in, ignored":              {config: builtin(quota.Off)},
		"a file without args":            {config: head + "profiles:\n- plugins: {multiPoint: {enabled: [{name: Daybreak}]}}\n", want: "quotaKeys: off in the args of plugin Daybreak"},
		"a file with other args":         {config: head + "profiles:\n" + daybreak("a", "{policy: spread}"), want: "may not list"},
		"a file with one profile of two": {config: head + "profiles:\n" + daybreak("a", `{quotaKeys: "off"}`) + daybreak("b", "{quotaKeys: warn}"), want: "may not list"},
		"a file that ignores them":       {config: head + "profiles:\n" + daybreak("a", `{quotaKeys: "off"}`)},
		"a file with one extension point": {
			config: head + "profiles:\n- plugins: {preFilter: {enabled: [{name: Daybreak}]}}\n", want: "may not list",
		},
		"a file without the plugin":   {config: head},
		"a file with arguments amiss": {config: head + "profiles:\n" + daybreak("a", "{quotaKeys: maybe}"), want: "quotaKeys: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				corev1.SchemeGroupVersion.WithResource("resourcequotas"): "ResourceQuotaList",
			})
			settings, err := settingsOf(loadText(t, []byte(tc.config)).Profiles)
			if err == nil {
				err = checkQuotaRights(t.Context(), client, settings)
			}
			if err != nil && !strings.Contains(tc.want, "quotaKeys: Unsupp") {
				t.Error(err)
			}
			client.PrependReactor("list", "resourcequotas", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("resourcequotas"), "", nil)
			})
			if err == nil {
				err = checkQuotaRights(t.Context(), client, settings)
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}
