package deviceplugin

import (
	"fmt"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Pods with a class and pods without never share a card. Of an online and an
// offline pod either may start first: the scheduler decided which may join.
func TestClassesOnOneCard(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		there, starts gpu.Class
		wantErr       bool
	}{
		{there: gpu.Normal, starts: gpu.Offline, wantErr: true},
		{there: gpu.Online, starts: gpu.Normal, wantErr: true},
		{there: gpu.Offline, starts: gpu.Offline},
		{there: gpu.Online, starts: gpu.Offline},
		{there: gpu.Offline, starts: gpu.Online},
	} {
		t.Run(fmt.Sprintf("%q next to %q", tc.starts, tc.there), func(t *testing.T) {
			t.Parallel()
			holding := func(name string, class gpu.Class) ledger.Holding {
				return ledger.Holding{Holder: ledger.Holder(name), Class: class, QoS: gpu.FixedShare, Parts: []ledger.Part{{Shares: []ledger.Share{{Compute: 10, Memory: 4 << 10}}}}}
			}
			node, wants := gputest.Node(gputest.Zones(1)), holding("b", tc.starts)
			node.Book(holding("a", tc.there))
			err := checkUsage(node, &wants, func(int) (who, name string) { return "another pod", "default/a" })
			if (err != nil) != tc.wantErr {
				t.Errorf("checkUsage() = %v, want an error: %v", err, tc.wantErr)
			}
		})
	}
}
