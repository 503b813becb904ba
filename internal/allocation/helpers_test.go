package allocation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// app returns a pod with one app container that has the given limits.
func app(limits string) *gputest.PodBuilder { return gputest.MakePod("p").App(limits) }

func podList(pods ...*corev1.Pod) []*corev1.Pod { return pods }

// matches compares a note with the wanted text; "..." at its end stands for words
// that are not ours, such as those of the JSON decoder.
func matches(got, want string) bool {
	if start, ok := strings.CutSuffix(want, "..."); ok {
		return strings.HasPrefix(got, start) && len(got) > len(start)
	}
	return got == want
}

// checkInventory checks what every inventory promises.
func checkInventory(t *testing.T, inv *inventory.Inventory) {
	t.Helper()
	n, _ := NewNode(inv, nil)
	gputest.Must(t, gputest.CheckNode(n))
}
