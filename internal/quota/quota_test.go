package quota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func resourceQuota(name string, hard map[corev1.ResourceName]string) *corev1.ResourceQuota {
	rq := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	rq.Spec.Hard = corev1.ResourceList{}
	for key, amount := range hard {
		rq.Spec.Hard[key] = resource.MustParse(amount)
	}
	return rq
}

func TestRead(t *testing.T) {
	const percent = ": write a whole number from 0, in percent of one card"
	cases := map[string]struct {
		key         corev1.ResourceName
		amount      string
		want        int64
		wantProblem string
	}{
		"cards":                                   {key: quota.LimitGPU, amount: "4", want: 4},
		"percent":                                 {key: quota.LimitVCore, amount: "200", want: 200},
		"explicit zero":                           {key: quota.LimitSGPU, amount: "0", want: 0},
		"memory without a unit is GiB":            {key: quota.LimitVMemory, amount: "64", want: 64 << 10},
		"the API server keeps 64000 as 64k":       {key: quota.LimitVMemory, amount: "64000", want: 64000 << 10},
		"and 1500 as it is":                       {key: quota.LimitVMemory, amount: "1500", want: 1500 << 10},
		"an exponent is no unit":                  {key: quota.LimitVMemory, amount: "1e2", want: 100 << 10},
		"memory with a binary unit is bytes":      {key: quota.LimitVMemory, amount: "64Gi", want: 64 << 10},
		"a decimal unit too, rounded down to MiB": {key: quota.LimitVMemory, amount: "64G", want: 61035},
		"half a GiB in bytes":                     {key: quota.LimitVMemory, amount: "0.5Gi", want: 512},
		"a native amount is bytes":                {key: quota.RequestMemory, amount: "1073741824", want: 1 << 10},
		"negative":                                {key: quota.LimitVCore, amount: "-5", wantProblem: "is -5" + percent},
		"a fraction":                              {key: quota.LimitVCore, amount: "1.5", wantProblem: "is 1500m" + percent},
		"a fraction of a GiB":                     {key: quota.LimitVMemory, amount: "0.5", wantProblem: "is 500m: write a whole number from 0, in GiB, or an amount with a unit such as 64Gi"},
		"negative memory":                         {key: quota.LimitVMemory, amount: "-1Gi", wantProblem: "is -1Gi: write a whole number from 0, in GiB, or an amount with a unit such as 64Gi"},
		"more than can be counted":                {key: quota.LimitVMemory, amount: "9E", wantProblem: "is 9E: write a whole number from 0, in GiB, or an amount with a unit such as 64Gi"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := quota.Read(resourceQuota("gpu", map[corev1.ResourceName]string{tc.key: tc.amount}))
			if q == nil || len(q.Limits) != 1 {
				t.Fatalf("read %+v, want one limit", q)
			}
			l := q.Limits[0]
			if l.Hard != tc.want || l.Problem != tc.wantProblem || l.Quota != "gpu" || l.Limit != string(tc.key) {
				t.Errorf("%s %s is %d %q, want %d %q", l.Quota, l.Limit, l.Hard, l.Problem, tc.want, tc.wantProblem)
			}
		})
	}
	if q := quota.Read(resourceQuota("pods", map[corev1.ResourceName]string{corev1.ResourcePods: "3", "requests.metax-tech.com/gpu": "3"})); q != nil {
		t.Errorf("read %+v of a quota without limits of ours", q)
	}
}

func TestCovers(t *testing.T) {
	deadline := int64(60)
	batch := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: &deadline, PriorityClassName: "batch", Containers: []corev1.Container{{}}}}
	service := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}}}
	class := func(op corev1.ScopeSelectorOperator, values ...string) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values},
		}}}
	}
	both := func(a, b corev1.ResourceQuotaSpec) corev1.ResourceQuotaSpec {
		a.ScopeSelector.MatchExpressions = append(a.ScopeSelector.MatchExpressions, b.ScopeSelector.MatchExpressions...)
		return a
	}
	scopes := func(all ...corev1.ResourceQuotaScope) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{Scopes: all}
	}
	cases := map[string]struct {
		spec                   corev1.ResourceQuotaSpec
		wantBatch, wantService bool
	}{
		"no scope":                  {spec: scopes(), wantBatch: true, wantService: true},
		"with a deadline":           {spec: scopes(corev1.ResourceQuotaScopeTerminating), wantBatch: true},
		"without a deadline":        {spec: scopes(corev1.ResourceQuotaScopeNotTerminating), wantService: true},
		"best effort":               {spec: scopes(corev1.ResourceQuotaScopeBestEffort), wantBatch: true},
		"not best effort":           {spec: scopes(corev1.ResourceQuotaScopeNotBestEffort), wantService: true},
		"all scopes together":       {spec: scopes(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotBestEffort)},
		"of some priority class":    {spec: scopes(corev1.ResourceQuotaScopePriorityClass), wantBatch: true},
		"of a listed class":         {spec: class(corev1.ScopeSelectorOpIn, "batch"), wantBatch: true},
		"of no listed class":        {spec: class(corev1.ScopeSelectorOpNotIn, "batch"), wantService: true},
		"listed twice":              {spec: both(class(corev1.ScopeSelectorOpIn, "batch", "other"), class(corev1.ScopeSelectorOpIn, "batch")), wantBatch: true},
		"listed, and then not":      {spec: both(class(corev1.ScopeSelectorOpIn, "batch"), class(corev1.ScopeSelectorOpIn, "other"))},
		"listed and excluded":       {spec: both(class(corev1.ScopeSelectorOpIn, "batch"), class(corev1.ScopeSelectorOpNotIn, "batch"))},
		"with and without a class":  {spec: both(class(corev1.ScopeSelectorOpExists), class(corev1.ScopeSelectorOpDoesNotExist))},
		"without a class":           {spec: class(corev1.ScopeSelectorOpDoesNotExist), wantService: true},
		"a scope that is not known": {spec: scopes(corev1.ResourceQuotaScopeCrossNamespacePodAffinity), wantBatch: true, wantService: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rq := resourceQuota("gpu", nil)
			rq.Spec = tc.spec
			rq.Spec.Hard = corev1.ResourceList{quota.LimitGPU: resource.MustParse("4")}
			q := quota.Read(rq)
			gputest.Equal(t, "covers the batch pod", tc.wantBatch, q.Covers(quota.ClassOf(batch)))
			gputest.Equal(t, "covers the service", tc.wantService, q.Covers(quota.ClassOf(service)))
		})
	}
}

func TestExceeded(t *testing.T) {
	one := map[corev1.ResourceName]string{quota.LimitVCore: "200", quota.LimitVMemory: "64", quota.RequestCards: "0"}
	affinity := resourceQuota("scoped", map[corev1.ResourceName]string{quota.LimitVCore: "200"})
	affinity.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeCrossNamespacePodAffinity}
	slice := ledger.Amounts{Compute: 30, Memory: 4096, Slices: 1}
	cases := map[string]struct {
		quotas []*corev1.ResourceQuota
		used   ledger.Amounts
		pod    ledger.Amounts
		want   string
	}{
		"no quota":                 {pod: slice},
		"exactly the budget":       {quotas: []*corev1.ResourceQuota{resourceQuota("a", one)}, used: ledger.Amounts{Compute: 170, Memory: 60 << 10}, pod: slice},
		"compute above":            {quotas: []*corev1.ResourceQuota{resourceQuota("a", one)}, used: ledger.Amounts{Compute: 180}, pod: slice, want: "wants 30%, ResourceQuota a has 20% of 200% left (limits.metax-tech.com/vcore)"},
		"memory above":             {quotas: []*corev1.ResourceQuota{resourceQuota("a", one)}, used: ledger.Amounts{Memory: 63 << 10}, pod: slice, want: "wants 4 GiB, ResourceQuota a has 1 GiB of 64 GiB left (limits.metax-tech.com/vmemory)"},
		"pods that are above stay": {quotas: []*corev1.ResourceQuota{resourceQuota("a", one)}, used: ledger.Amounts{Compute: 300}, pod: slice, want: "wants 30%, ResourceQuota a has 0% of 200% left (limits.metax-tech.com/vcore)"},
		"a limit of what the pod does not want": {
			quotas: []*corev1.ResourceQuota{resourceQuota("a", map[corev1.ResourceName]string{quota.LimitGPU: "0"})}, used: ledger.Amounts{Whole: 3}, pod: slice,
		},
		"an explicit zero": {
			quotas: []*corev1.ResourceQuota{resourceQuota("a", map[corev1.ResourceName]string{quota.LimitSGPU: "0"})}, pod: slice,
			want: "wants 1, ResourceQuota a allows 0 in all (limits.metax-tech.com/sgpu)",
		},
		"several quotas all hold": {
			quotas: []*corev1.ResourceQuota{resourceQuota("b", one), resourceQuota("a", map[corev1.ResourceName]string{quota.LimitVCore: "400"})}, used: ledger.Amounts{Compute: 200}, pod: slice,
			want: "wants 30%, ResourceQuota b has 0% of 200% left (limits.metax-tech.com/vcore)",
		},
		"more than the whole budget": {
			quotas: []*corev1.ResourceQuota{resourceQuota("a", one)}, pod: ledger.Amounts{Compute: 400, Whole: 4},
			want: "wants 400%, ResourceQuota a allows 200% in all (limits.metax-tech.com/vcore)",
		},
		"an amount that can't be read lets nothing pass": {
			quotas: []*corev1.ResourceQuota{resourceQuota("a", map[corev1.ResourceName]string{quota.LimitVCore: "-1"})}, pod: slice,
			want: "ResourceQuota a: limits.metax-tech.com/vcore is -1: write a whole number from 0, in percent of one card",
		},
		"nor does a scope that is not known": {
			quotas: []*corev1.ResourceQuota{affinity}, pod: slice,
			want: "ResourceQuota scoped: limits.metax-tech.com/vcore does not support scope CrossNamespacePodAffinity: remove the scope",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}}
			by, used := quota.Group(tc.quotas), quota.Used{}
			used.Add(by, quota.Pod{Pod: pod, Amounts: tc.used})
			r := quota.Exceeded(by, used, quota.Pod{Pod: pod, Amounts: tc.pod})
			if (r.Code == place.Fits) != (tc.want == "") {
				t.Fatalf("refused with %q, want %q", r.Code, tc.want)
			}
			if r.Code == place.QuotaExceeded && r.Message(nil) != tc.want {
				t.Errorf("message %q, want %q", r.Message(nil), tc.want)
			}
			other := pod.DeepCopy()
			other.Namespace = "other"
			if r := quota.Exceeded(by, used, quota.Pod{Pod: other, Amounts: slice}); r.Code != place.Fits {
				t.Errorf("a pod of another namespace is refused: %s", r.Message(nil))
			}
		})
	}
}

// TestHeld: what whole cards count depends on the cards of the node, and where that
// does not exist on cards as they usually are.
func TestHeld(t *testing.T) {
	cards := gputest.Cards(2)
	cards[1].Memory = 128 << 10
	for name, tc := range map[string]struct {
		node *ledger.Node
		want gpu.MiB
	}{
		"the largest card of the node": {gputest.Node(gputest.MustTopology(cards, gpu.ZoneLinks([]int{0, 0}))), 256 << 10},
		"a node that is gone":          {nil, 128 << 10},
	} {
		if got := quota.Held(tc.node, gputest.AskWhole(2)); got.Memory != tc.want || got.Whole != 2 {
			t.Errorf("%s: holds %+v, want 2 cards and %v", name, got, tc.want)
		}
	}
}
