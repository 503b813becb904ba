package view

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// noon is the time at which everything here is decided.
func noon() time.Time { return time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC) }

// snapshot reads the documents as if they stood in one file.
func snapshot(t *testing.T, docs ...string) *cluster.Snapshot {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(docs...)))
	if err != nil {
		t.Fatal(err)
	}
	return objects.Snapshot()
}

// Short names for the documents that tests are made of.
var (
	documents = manifest.Join
	device    = manifest.Device
	counted   = manifest.Counted
	pod       = manifest.Pod
	podOn     = manifest.PodOn
	slice     = manifest.Slice
)

// cards returns the cards of each container.
func (p *Placement) cards() [][]Card {
	var all [][]Card
	for _, c := range p.Containers {
		all = append(all, c.Cards)
	}
	return all
}
