package local

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// A simulated node's objects must read back as the cards of its profile.
func TestProfileReadsBack(t *testing.T) {
	for _, name := range discover.ProfileNames() {
		kinds, err := discover.LoadProfiles(name)
		gputest.Must(t, err)
		for i := range kinds {
			topology, err := kinds[i].Topology("n1")
			gputest.Must(t, err)
			node := NodeOf(&kinds[i], "n1", topology)
			a := agents{dir: t.TempDir(), temporary: true}
			device, err := a.describe(t.Context(), node, &kinds[i])
			gputest.Must(t, err)
			inv := inventory.ReadInventory(node, device)
			if inv.Problem != nil || len(inv.Notes) > 0 {
				t.Fatalf("%s: %v, %v", name, inv.Problem, inv.Notes)
			}
			if !inv.Serves.Whole || !inv.Serves.Slices {
				t.Errorf("%s: serves %+v, want whole cards and slices", name, inv.Serves)
			}
			for a := range topology.Len() {
				for b := range topology.Len() {
					if a != b && inv.Topology.Pull(a, gpu.SetOf(b)) != topology.Pull(a, gpu.SetOf(b)) {
						t.Errorf("%s: pair %d-%d weighs %d, want %d", name, a, b, inv.Topology.Pull(a, gpu.SetOf(b)), topology.Pull(a, gpu.SetOf(b)))
					}
				}
				gputest.Equal(t, fmt.Sprintf("%s: card %d", name, a), topology.Card(a).ID, inv.Topology.Card(a).ID)
			}
		}
	}
}
