package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// budget is a ResourceQuota of the namespace default.
func budget(hard string, more ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: gpus}\nspec:\n  hard: {%s}\n%s\n", hard, strings.Join(more, "\n"))
}

// TestPlaceWithinBudget: pods that are placed count at once, and what runs counts too.
func TestPlaceWithinBudget(t *testing.T) {
	const scheduler = "apiVersion: v1\nkind: Pod\nmetadata: {name: s, labels: {app.kubernetes.io/name: daybreak, app.kubernetes.io/component: scheduler}}\n" +
		"spec: {nodeName: n1, containers: [{name: s, args: [scheduler, --quota-keys=%s]}]}\n"
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
		"a whole card is as large as the largest that the pod may use": {
			[]string{budget("limits.metax-tech.com/vmemory: 64"), device("n2", 2, "128Gi"), "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nspec: {unschedulable: true}\n", pod("a", "gpu: 1")},
			[]string{"n1 0"},
		},
		"a whole card may be one of 128 GiB": {
			[]string{budget("limits.metax-tech.com/vmemory: 64"), device("n2", 2, "128Gi"), pod("a", "gpu: 1")},
			[]string{"refused: QuotaExceeded"},
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
		"the scheduler enforces keys":    {[]string{budget("limits.metax-tech.com/gpu: 0"), fmt.Sprintf(scheduler, "enforce"), pod("a", "gpu: 1")}, []string{"refused: QuotaExceeded"}},
		"the scheduler ignores the keys": {[]string{budget("limits.metax-tech.com/gpu: 0"), fmt.Sprintf(scheduler, "off"), pod("a", "gpu: 1")}, []string{"n1 0"}},
		"the scheduler only warns":       {[]string{budget("limits.metax-tech.com/gpu: 0"), fmt.Sprintf(scheduler, "warn"), pod("a", "gpu: 1")}, []string{"n1 0"}},
		"an amount that can't be read":   {[]string{budget("limits.metax-tech.com/gpu: -1"), pod("a", "gpu: 1")}, []string{"refused: QuotaExceeded"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, placed(t, snapshot(t, append(tc.docs, device("n1", 2, "64Gi"))...), place.Default)); diff != "" {
				t.Errorf("placed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOverBudgetHasNoAdvice: no room on a node helps, so neither pods to end nor
// smaller requests are named, and the refusal is of every node.
func TestOverBudgetHasNoAdvice(t *testing.T) {
	s := snapshot(t, budget("limits.metax-tech.com/gpu: 1"), device("n1", 2, "64Gi"), device("n2", 2, "64Gi"), pod("a", "gpu: 2"))
	e := Explain(s, s.Pending[0], place.Default)
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
