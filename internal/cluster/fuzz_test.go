package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// addExamples makes every example a seed.
func addExamples(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("../../examples/*/*.yaml")
	gputest.Must(f, err)
	for _, file := range append(files, "../../examples/cluster.yaml") {
		text, err := os.ReadFile(file)
		gputest.Must(f, err)
		f.Add(text)
	}
}

// FuzzReadFiles: whatever a file holds, it is refused with an error or gives a
// cluster on which pods can be placed, and no card is then booked beyond what it
// has by what was placed.
func FuzzReadFiles(f *testing.F) {
	addExamples(f)
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"capacity":{"metax-tech.com/gpu":"2"}}}]}`))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, resources: {limits: {cpu: 1e-999999999, metax-tech.com/gpu: 1e+888}}}]"))
	f.Add([]byte("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec: {replicas: 3, ordinals: {start: 2}, template: {spec: {priorityClassName: high, containers: [{name: c, resources: {limits: {metax-tech.com/gpu: 1}}}]}}}"))
	f.Add([]byte("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: c}]}}}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("{")) { // also as a stream, of which no more is asked than an answer
			_, _ = readText(string(text) + padding)
		}
		objects, err := ReadFiles([]string{"-"}, bytes.NewReader(text))
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a word")
			}
			return
		}
		if err := objects.Complete(); err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a word")
			}
			return
		}
		snapshot := objects.Snapshot()
		for _, pod := range snapshot.Pending {
			ask, problems := request.Read(pod)
			if len(problems) > 0 || ask == nil {
				continue
			}
			var offer ledger.Offer
			i := slices.IndexFunc(snapshot.Nodes, func(n *ledger.Node) bool {
				var refusal place.Refusal
				offer, refusal = place.Fit(n, &ask.Request, &ask.Prefer)
				return refusal.Code == place.Fits
			})
			if i < 0 {
				continue
			}
			n := snapshot.Nodes[i]
			h, err := n.Commit(offer, allocation.HolderOf(pod), &ask.Request)
			gputest.Must(t, err)
			for c := range h.Cards().All() {
				if u := n.Now().Usage[c]; u.Memory > n.Topology().Card(c).Memory || u.Compute > gpu.FullCompute {
					t.Fatalf("card %d of %s is booked beyond what it has: %+v", c, n.Name, u)
				}
			}
		}
	})
}
