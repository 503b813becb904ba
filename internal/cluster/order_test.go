package cluster_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const examples = "../../examples/"

// TestOrderDoesNotMatter places all example pods on the example cluster, with
// its documents, the cards of its Devices and its running pods in another order
// each time. Only the order of the pods to place may count, so it is kept.
func TestOrderDoesNotMatter(t *testing.T) {
	docs := exampleDocuments(t)
	want := placeDocuments(t, docs)
	placed, refused := 0, 0
	for i := range want.Placements.Pods {
		if want.Placements.Pods[i].Node != "" {
			placed++
		} else {
			refused++
		}
	}
	if placed < 10 || refused < 1 {
		t.Fatalf("%d pods are placed and %d are not, too few of one kind to show anything", placed, refused)
	}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		if diff := cmp.Diff(want, placeDocuments(t, shuffled(r, docs))); diff != "" {
			t.Fatalf("shuffle %d (-files' order +shuffled):\n%s", seed, diff)
		}
	}
}

// document is one object, as it is after decoding.
type document map[string]any

func (d document) spec() map[string]any {
	spec, _ := d["spec"].(map[string]any)
	return spec
}

// pending reports whether the document is a pod to place.
func (d document) pending() bool { return d["kind"] == "Pod" && d.spec()["nodeName"] == nil }

// exampleDocuments reads the example cluster and all example pods, which get
// names of their own.
func exampleDocuments(t *testing.T) []document {
	t.Helper()
	docs := readDocuments(t, examples+"cluster.yaml")
	paths, err := filepath.Glob(examples + "*/*.yaml")
	gputest.Must(t, err)
	for i, path := range paths {
		for _, d := range readDocuments(t, path) {
			if !d.pending() {
				continue // a workload, whose pods come in the order of the documents
			}
			d["metadata"].(map[string]any)["name"] = fmt.Sprintf("pod-%02d", i) //nolint:errcheck // a panic fails the test
			docs = append(docs, d)
		}
	}
	return docs
}

func readDocuments(t *testing.T, path string) []document {
	t.Helper()
	text, err := os.ReadFile(path)
	gputest.Must(t, err)
	var docs []document
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var d document
		if err := yaml.Unmarshal([]byte(part), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if d != nil {
			docs = append(docs, d)
		}
	}
	return docs
}

// shuffled returns the documents in another order, but the pending pods in
// theirs. The cards inside the Devices change their order as well.
func shuffled(r *rand.Rand, docs []document) []document {
	var pending []document
	for _, d := range docs {
		if d.pending() {
			pending = append(pending, d)
		}
		if cards, ok := d.spec()["devices"].([]any); ok {
			r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
		}
	}
	out := make([]document, len(docs))
	for to, from := range r.Perm(len(docs)) {
		out[to] = docs[from]
	}
	for i := range out {
		if out[i].pending() {
			out[i], pending = pending[0], pending[1:]
		}
	}
	return out
}

// outcome is all that may depend on an order.
type outcome struct {
	Placements *view.Placements
	Booked     map[string][]ledger.Holding
}

func placeDocuments(t *testing.T, docs []document) outcome {
	t.Helper()
	var text strings.Builder
	for _, d := range docs {
		part, err := json.Marshal(d)
		gputest.Must(t, err)
		text.WriteString("---\n" + string(part) + "\n")
	}
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(text.String()))
	gputest.Must(t, err)
	s := objects.Snapshot()
	if len(s.Notes) > 0 {
		t.Fatalf("notes: %q", s.Notes)
	}
	placements, err := view.Place(s, view.PlaceOptions{Now: func() time.Time { return time.Unix(0, 0) }})
	gputest.Must(t, err)
	booked := map[string][]ledger.Holding{}
	for _, n := range s.Nodes {
		booked[n.Name] = n.Holdings()
	}
	return outcome{placements, booked}
}
