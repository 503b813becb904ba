package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func withLabel(key, value string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) {
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}
		d.Labels[key] = value
	}
}

func at(numa int32, pcie string) func(*v1alpha1.DeviceInfo) {
	return func(d *v1alpha1.DeviceInfo) { d.Topology = &v1alpha1.DeviceTopology{NodeID: numa, PCIEID: pcie} }
}

func unhealthy(d *v1alpha1.DeviceInfo) { d.Health = false }

// card is what a card of [gputest.CardInfo] is read as.
func card(id gpu.CardID, minor int, change ...func(*gpu.Card)) gpu.Card {
	c := gpu.Card{ID: id, Minor: minor, Model: "C500", Memory: 64 << 10, Slots: 16, Healthy: true}
	for _, f := range change {
		f(&c)
	}
	return c
}

// cardsIn lists the cards of an inventory that could be read.
func cardsIn(t testing.TB, inv *Inventory) []gpu.Card {
	t.Helper()
	if inv.Problem != nil {
		t.Fatalf("problem: %v", inv.Problem)
	}
	var cards []gpu.Card
	for i := range inv.Topology.Len() {
		cards = append(cards, *inv.Topology.Card(i))
	}
	return cards
}

// checkZones compares the zones of two cards or more, each written as a list
// of indices.
func checkZones(t *testing.T, inv *Inventory, want ...[]int) {
	t.Helper()
	var got [][]int
	for _, zone := range inv.Topology.Zones() {
		got = append(got, zone.Indices())
	}
	gputest.Equal(t, "zones", want, got)
}

// matches compares an error with the wanted text, which is empty for none; "..."
// at its end stands for words that are not ours, such as those of the JSON decoder.
func matches(err error, want string) bool {
	if err == nil {
		return want == ""
	}
	if start, ok := strings.CutSuffix(want, "..."); ok {
		return strings.HasPrefix(err.Error(), start) && len(err.Error()) > len(start)
	}
	return err.Error() == want
}

// checkReadsBack writes what was read and reads it again.
func checkReadsBack[T any](t *testing.T, value T, encode func(T) (string, error), decode func(string) (T, error)) {
	t.Helper()
	text, err := encode(value)
	gputest.Must(t, err)
	back, err := decode(text)
	if diff := cmp.Diff(value, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("read back from %s: %v (-first +second):\n%s", text, err, diff)
	}
}
