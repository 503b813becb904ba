package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// cleanup ends the server and cleans up in its place.
func (s *scene) cleanup(blind error) error {
	s.Helper()
	s.stop()
	s.stop = func() {}
	server, err := New(s.cfg, s, s.driver, NewMetrics(nil), s.clock)
	gputest.Must(s, err)
	return server.Cleanup(s.Context(), s.node, blind)
}

// Nothing that the agent made is left, and what others made stays.
func TestCleanup(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.startSlice("a", "GPU-b", 30, 4, "daybreak-sgpu-007")
	card := s.driver.cards["0000:01:00.0"]
	card.Slices = append(card.Slices,
		discover.Slice{ID: 90, UUID: "S-90", Alias: "of the vendor", Memory: 1024},
		discover.Slice{ID: 91, UUID: "S-91", Alias: aliasPrefix + "from a lost journal", Memory: 1024})
	theirs := filepath.Join(s.cfg.CDI, "vendor.json")
	socket := filepath.Join(s.cfg.Plugins, "vendor.sock")
	for _, path := range []string{theirs, socket} {
		gputest.Must(t, os.WriteFile(path, nil, 0o600))
	}
	s.stop()
	s.delete("a")
	for range 2 { // a second time there is nothing to do
		gputest.Must(t, s.cleanup(nil))
	}
	gputest.Equal(t, "slices", []string{"of the vendor"}, s.driver.aliases())
	if names := s.specs(); len(names) != 0 {
		t.Errorf("CDI specs: %v", names)
	}
	if _, err := os.Stat(s.cfg.State); !os.IsNotExist(err) {
		t.Errorf("state folder: %v", err)
	}
	for _, path := range []string{theirs, socket} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("of the vendor: %v", err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.cfg.Plugins, "daybreak*")); len(left) > 0 {
		t.Errorf("sockets: %v", left)
	}
}

// Nothing is removed while something is in use, or might be.
func TestCleanupInUse(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*scene)
		blind  error
		want   string
	}{
		"a pod runs":                 {change: func(*scene) {}, want: "pods that use cards or slices of this node: 1; delete them"},
		"two pods":                   {change: func(s *scene) { s.slicePod("b", "GPU-a", 30, 4) }, want: "cards or slices of this node: 2;"},
		"a container outlives a pod": {change: func(s *scene) { s.delete("a"); s.alive[types.UID("uid-a")] = true }, want: "cards or slices of this node: 1;"},
		"the driver does not let go": {change: func(s *scene) { s.delete("a"); s.driver.busy = true }, want: "the driver reports it as in use"},
		"the pods are not known":     {change: func(s *scene) { s.delete("a"); s.blind = true }, want: "the pods of the node are not known"},
		"the cards can't be asked":   {change: func(s *scene) { s.delete("a") }, blind: errors.New("no library"), want: "slices can't be removed: no library"},
		"another agent still serves": {change: func(s *scene) { s.delete("a"); s.lock() }, want: "another agent works with it"},
		"the journal can't be read":  {change: func(s *scene) { s.delete("a"); s.spoil() }, want: "move it away if it can't be restored"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			s.startSlice("a", "GPU-b", 30, 4, "daybreak-sgpu-007")
			s.stop()
			tc.change(s)
			before := s.driver.aliases()
			err := s.cleanup(tc.blind)
			gputest.ErrorHas(t, "cleanup", tc.want, err)
			gputest.Equal(t, "slices, before and after", before, s.driver.aliases())
			if _, err := os.Stat(filepath.Join(s.cfg.State, "journal.json")); err != nil {
				t.Errorf("journal: %v", err)
			}
		})
	}
}

// TestCleanupWithoutDriver: a node whose driver was never there, or is gone, has
// no slices to remove.
func TestCleanupWithoutDriver(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeNative)
	s.stop()
	s.node.Cards = nil
	gputest.Check(t, s.cleanup(errors.New("no library")))
	if _, err := os.Stat(s.cfg.State); !os.IsNotExist(err) {
		t.Errorf("state folder: %v", err)
	}
}

// lock takes the state folder, as another agent does.
func (s *scene) lock() {
	s.Helper()
	file, err := lockState(s.cfg.State)
	gputest.Must(s, err)
	s.T.Cleanup(func() { _ = file.Close() })
}

// spoil makes the journal unreadable.
func (s *scene) spoil() {
	s.Helper()
	gputest.Must(s, os.WriteFile(filepath.Join(s.cfg.State, "journal.json"), []byte("{"), 0o600))
}
