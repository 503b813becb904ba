package local

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func nodesOf(t *testing.T, n int, profile, servedBy string) *keptNodes {
	t.Helper()
	kinds, err := discover.LoadProfiles(profile)
	gputest.Must(t, err)
	return &keptNodes{Nodes: n, Profile: profile, ServedBy: servedBy, Kinds: kinds}
}

// TestResume: what the user does not say is as in the last run.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	if kept, err := readKept(dir); kept != nil || err != nil {
		t.Fatalf("of a new folder: %v, %v", kept, err)
	}
	last := nodesOf(t, 9, "c500-pcie", wire.ServedByVendor)
	gputest.Must(t, last.write(dir))
	kept, err := readKept(dir)
	gputest.Must(t, err)
	for name, tc := range map[string]struct {
		flags   []string
		want    *keptNodes
		changes string
	}{
		"no flags":        {nil, last, ""},
		"other nodes":     {[]string{"nodes"}, nodesOf(t, 4, "c500-pcie", wire.ServedByVendor), "--nodes 4"},
		"another profile": {[]string{"profile"}, nodesOf(t, 9, "c500-2x4", wire.ServedByVendor), "--profile c500-2x4"},
		"another plugin":  {[]string{"served-by", "nodes"}, nodesOf(t, 4, "c500-pcie", wire.ServedByDaybreak), "--nodes 4 --served-by daybreak"},
	} {
		p := &playground{chosen: func(flag string) bool { return slices.Contains(tc.flags, flag) }}
		want := nodesOf(t, 4, "c500-2x4", wire.ServedByDaybreak)
		p.resume(kept, want)
		gputest.Equal(t, name, tc.want, want)
		if got := kept.changes(want); got != tc.changes {
			t.Errorf("%s: changes are %q, want %q", name, got, tc.changes)
		}
	}
	gputest.Must(t, os.WriteFile(filepath.Join(dir, keptFile), []byte("nodes: 3\n"), 0o600))
	if _, err := readKept(dir); err == nil {
		t.Error("a file without kinds of nodes is read")
	}
}

// TestKeeps: a node is replaced when it becomes something else, by its place
// among the kinds too.
func TestKeeps(t *testing.T) {
	last := nodesOf(t, 4, "c500-2x4", wire.ServedByDaybreak)
	for name, tc := range map[string]struct {
		node string
		want *keptNodes
		same bool
	}{
		"the same":         {"metax-4", nodesOf(t, 4, "c500-2x4", wire.ServedByDaybreak), true},
		"more nodes":       {"metax-4", nodesOf(t, 5, "c500-2x4", wire.ServedByDaybreak), true},
		"fewer nodes":      {"metax-4", nodesOf(t, 3, "c500-2x4", wire.ServedByDaybreak), false},
		"other cards":      {"metax-1", nodesOf(t, 4, "c500-pcie", wire.ServedByDaybreak), false},
		"another plugin":   {"metax-1", nodesOf(t, 4, "c500-2x4", wire.ServedByVendor), false},
		"not of this kind": {"metax-01", nodesOf(t, 4, "c500-2x4", wire.ServedByDaybreak), false},
	} {
		if same := tc.want.keeps(tc.node, last); same != tc.same {
			t.Errorf("%s: the same is %t", name, same)
		}
	}
}
