package view

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// noon is the time at which everything here is decided.
func noon() time.Time { return time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC) }

// snapshot reads the documents as if they stood in one file.
func snapshot(t *testing.T, docs ...string) *cluster.Snapshot {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(docs...)))
	gputest.Must(t, err)
	return objects.Snapshot()
}

// placeAll places the pods of the snapshot that wait.
func placeAll(t *testing.T, s *cluster.Snapshot, o PlaceOptions) *Placements {
	t.Helper()
	o.Now = noon
	placements, err := Place(s, o)
	gputest.Must(t, err)
	return placements
}

// explained explains the first pod of the documents that waits.
func explained(t *testing.T, docs ...string) *Explanation {
	t.Helper()
	s := snapshot(t, docs...)
	return Explain(s, s.Pending[0], place.Default)
}

// Short names for the documents that tests are made of.
var (
	documents = manifest.Join
	device    = manifest.Device
	counted   = manifest.Counted
	pod       = manifest.Pod
	podOn     = manifest.PodOn
	slice     = manifest.Slice
	lease     = manifest.Lease
)

// cards returns the cards of each container.
func (p *Placement) cards() [][]Card {
	var all [][]Card
	for _, c := range p.Containers {
		all = append(all, c.Cards)
	}
	return all
}
