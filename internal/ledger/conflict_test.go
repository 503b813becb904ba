package ledger_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// TestConflict goes through all pairs of shares: rows are on the card, columns
// want to join.
func TestConflict(t *testing.T) {
	kinds := []struct {
		name  string
		share ledger.Share
		class gpu.Class
		qos   gpu.QoS
	}{
		{name: "whole", share: ledger.Share{Exclusive: true}},
		{name: "best-effort", qos: gpu.BestEffort},
		{name: "fixed-share", qos: gpu.FixedShare},
		{name: "seat"},
		{name: "online", class: gpu.Online, qos: gpu.BestEffort},
		{name: "offline", class: gpu.Offline, qos: gpu.BestEffort},
		{name: "offline, fixed-share", class: gpu.Offline, qos: gpu.FixedShare},
	}
	const c, q, x = ledger.ClassConflict, ledger.QoSConflict, ledger.ExclusiveConflict
	want := [][]ledger.Conflict{
		{x, x, x, x, c | x, c | x, c | x},
		{x, 0, q, 0, c, c, c | q},
		{x, q, 0, 0, c, c | q, c},
		{x, 0, 0, 0, c, c, c},
		{c | x, c, c, c, 0, c, c},
		{c | x, c, c | q, c, 0, 0, q},
		{c | x, c | q, c, c, 0, q, 0},
	}
	for i, on := range kinds {
		for j, joins := range kinds {
			var usage, share, idle ledger.Usage
			usage.Add(on.share, on.class, on.qos)
			share.Add(joins.share, joins.class, joins.qos)
			if got := usage.Conflict(&share); got != want[i][j] {
				t.Errorf("%s joins %s: conflict %b, want %b", joins.name, on.name, got, want[i][j])
			}
			if got := idle.Conflict(&share); got != 0 {
				t.Errorf("%s joins an idle card: conflict %b", joins.name, got)
			}
		}
	}
}
