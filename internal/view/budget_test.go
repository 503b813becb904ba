package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// budget is a ResourceQuota of the namespace default.
func budget(hard string, more ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec:\n  hard: {%s}\n%s\n", hard, strings.Join(more, "\n"))
}

// TestPlaceWithinBudget: pods that are placed count at once, and what runs counts too.
func TestPlaceWithinBudget(t *testing.T) {
	cases := map[string]struct {
		docs []string
		want []string
	}{
		"compute": {
			[]string{budget("limits.metax-tech.com/vcore: 100"), pod("a", "sgpu: 1, vcore: 60, vmemory: 4"), pod("b", "sgpu: 1, vcore: 60, vmemory: 4"), pod("c", "sgpu: 1, vcore: 40, vmemory: 4")},
			[]string{"n1 0", "refused: QuotaExceeded", "n1 0"},
		},
		"what runs counts": {
			[]string{budget("limits.metax-tech.com/vcore: 100"), slice("n1", "runs", 0, 50, 1), pod("a", "sgpu: 1, vcore: 60, vmemory: 4")},
			[]string{"refused: QuotaExceeded"},
		},
		"pods whose cards are not known count": {
			[]string{budget("limits.metax-tech.com/gpu: 2"), device("n2", 2, "64Gi"), podOn("n2", "unknown", "gpu: 2"), pod("a", "gpu: 1")},
			[]string{"", "refused: QuotaExceeded"}, // the first would not be admitted with a node
		},
		"pods of a node that is gone count": {
			[]string{budget("limits.metax-tech.com/gpu: 2"), podOn("gone", "stray", "gpu: 2"), pod("a", "gpu: 1")},
			[]string{"refused: QuotaExceeded"},
		},
		"pods with another vendor's cards do not": {
			[]string{
				budget("limits.metax-tech.com/vcore: 100"), device("n2", 2, "64Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: nv}\n",
				others("nv"), others("n2"), others("gone"), pod("a", "gpu: 1"),
			},
			[]string{"n1 0"},
		},
		"a whole card is as large as the largest that the pod may use": {
			[]string{budget("limits.metax-tech.com/vmemory: 64"), device("n2", 2, "128Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nspec: {unschedulable: true}\n", pod("a", "gpu: 1")},
			[]string{"n1 0"},
		},
		"a whole card may be one of 128 GiB": {
			[]string{budget("limits.metax-tech.com/vmemory: 64"), device("n2", 2, "128Gi"), pod("a", "gpu: 1")},
			[]string{"refused: QuotaExceeded"},
		},
		"a card of its own counts with all of its memory": {
			[]string{budget("limits.metax-tech.com/vmemory: 100"), slice("n1", "runs", 0, 100, 4), pod("a", "sgpu: 1, vmemory: 4")},
			[]string{"refused: QuotaExceeded"},
		},
		"and may be a smaller one": {
			[]string{budget("limits.metax-tech.com/vmemory: 64"), device("n2", 2, "128Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nspec: {unschedulable: true}\n", pod("a", "sgpu: 1, vmemory: 4")},
			[]string{"n1 0"},
		},
		"an online pod counts all compute of its card": {
			[]string{budget("limits.metax-tech.com/vcore: 120"), pod("a", "sgpu: 1, vmemory: 4", "metax-tech.com/sgpu-app-class: online"), pod("b", "sgpu: 1, vcore: 30, vmemory: 4")},
			[]string{"n1 0", "refused: QuotaExceeded"},
		},
		"another namespace": {
			[]string{strings.ReplaceAll(budget("limits.metax-tech.com/gpu: 0"), "{name: gpus}", "{name: gpus, namespace: other}"), pod("a", "gpu: 1")},
			[]string{"n1 0"},
		},
		"a scope that does not cover it": {
			[]string{budget("limits.metax-tech.com/gpu: 0", "  scopes: [Terminating]"), pod("a", "gpu: 1")},
			[]string{"n1 0"},
		},
		"Kubernetes enforces it":         {[]string{budget("requests.daybreak-gpu.io/cards: 0"), pod("a", "gpu: 1")}, []string{"n1 0"}},
		"the scheduler enforces keys":    {[]string{budget("limits.metax-tech.com/gpu: 0"), lease("scheduler", `"profiles":{"daybreak":{"quotaKeys":"enforce"}}`), pod("a", "gpu: 1")}, []string{"refused: QuotaExceeded"}},
		"the scheduler ignores the keys": {[]string{budget("limits.metax-tech.com/gpu: 0"), lease("scheduler", `"profiles":{"daybreak":{"quotaKeys":"off"}}`), pod("a", "gpu: 1")}, []string{"n1 0"}},
		"the scheduler only warns":       {[]string{budget("limits.metax-tech.com/gpu: 0"), lease("scheduler", `"profiles":{"daybreak":{"quotaKeys":"warn"}}`), pod("a", "gpu: 1")}, []string{"n1 0"}},
		"an amount that can't be read":   {[]string{budget("limits.metax-tech.com/gpu: -1"), pod("a", "gpu: 1")}, []string{"refused: QuotaExceeded"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "placed", tc.want, placed(t, snapshot(t, append(tc.docs, device("n1", 2, "64Gi"))...), place.Default))
		})
	}
}

// TestNamespacesCount: what a namespace is shown to hold is what the budgets count of
// its pods: of a GPU of its own everything, of an online pod's the compute, and of GPUs
// that are only counted as much as is assumed of them.
func TestNamespacesCount(t *testing.T) {
	online := slice("n1", "online", 1, 0, 2, "metax-tech.com/sgpu-app-class: online")
	n := NewNamespaces(snapshot(t, device("n1", 3, "64Gi"), slice("n1", "alone", 0, 100, 4), online, slice("n1", "part", 2, 30, 8), counted("v1", 8), podOn("v1", "whole", "gpu: 2"),
		budget("limits.metax-tech.com/vcore: 1000, limits.metax-tech.com/vmemory: 1000, requests.daybreak-gpu.io/cards: 9")), "").Namespaces[0]
	if n.Pods != 4 || n.ComputePercent != 430 || n.MemoryMiB != 202<<10 || n.Cards != 4 {
		t.Errorf("%d pods hold %d%%, %d GiB, %d cards, want 4 with 430%%, 202 GiB, 4", n.Pods, n.ComputePercent, n.MemoryMiB>>10, n.Cards)
	}
	var used []int64
	for _, q := range n.Quotas {
		used = append(used, q.Used)
	}
	gputest.Equal(t, "used of the quotas", []int64{430, 202 << 10, 4}, used)
}

// others is a pod on the node with cards of another vendor, which Koordinator placed.
func others(node string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: others-%s, uid: u-%s}\nspec:\n  nodeName: %s\n  schedulerName: koord-scheduler\n"+
		"  containers: [{name: c, resources: {limits: {koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory-ratio: 100, nvidia.com/gpu: 1}}}]\n", node, node, node)
}

// TestOtherVendorsCards: status does not count them either.
func TestOtherVendorsCards(t *testing.T) {
	s := snapshot(t, budget("limits.metax-tech.com/vcore: 100"), device("n1", 2, "64Gi"), slice("n1", "runs", 0, 50, 1), others("n1"), others("gone"))
	n := NewNamespaces(s, "").Namespaces[0]
	if n.Pods != 1 || n.ComputePercent != 50 || len(n.Quotas) != 1 || n.Quotas[0].Used != 50 {
		t.Errorf("%+v, want one pod with 50%%", n)
	}
}

// TestOverBudgetHasNoAdvice: no room on a node helps, so neither pods to end nor
// smaller requests are named, and the refusal is of every node.
func TestOverBudgetHasNoAdvice(t *testing.T) {
	e := explained(t, budget("limits.metax-tech.com/gpu: 1"), device("n1", 2, "64Gi"), device("n2", 2, "64Gi"), pod("a", "gpu: 2"))
	messages := []string{}
	for _, r := range e.Refusals {
		messages = append(messages, r.Node+": "+r.Code+", "+r.Message)
	}
	const why = ": QuotaExceeded, wants 2, ResourceQuota gpus allows 1 in all (limits.metax-tech.com/gpu)"
	if want := []string{"n1" + why, "n2" + why}; !slices.Equal(messages, want) || e.Help != nil {
		t.Errorf("refusals %q and help %+v, want %q and none", messages, e.Help, want)
	}
}

// TestUnmetered: pods for other schedulers get no amounts, and nothing warns where no
// budget counts.
func TestUnmetered(t *testing.T) {
	other := strings.ReplaceAll(pod("other", "gpu: 1"), "spec:", "spec:\n  schedulerName: volcano")
	n := NewNamespaces(snapshot(t, device("n1", 2, "64Gi"), slice("n1", "runs", 0, 50, 1), pod("waits", "gpu: 1"), other), "").Namespaces[0]
	if want := []string{"runs", "waits"}; !slices.Equal(n.Unmetered, want) || len(n.Warnings) > 0 || n.Pods != 1 || n.Waiting != 2 {
		t.Errorf("%+v, want %v unmetered and no warning", n, want)
	}
}
