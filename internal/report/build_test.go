package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// noon is the time at which everything here is decided.
func noon() time.Time { return time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC) }

// golden compares what was printed with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test -update if it is right:\n%s", path, diff)
	}
}

// place runs the command at noon and returns what it prints. The answer may be
// no; an error that is none of the command's answers fails the test.
func (o *placeOptions) place(t *testing.T, stdin string) (stdout, stderr string, ok bool) {
	t.Helper()
	o.now = noon
	var out, errs bytes.Buffer
	err := o.run(t.Context(), strings.NewReader(stdin), &out, &errs)
	if err != nil && !errors.Is(err, ErrNo) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), err == nil
}

// snapshot reads the documents as if they stood in one file.
func snapshot(t *testing.T, docs ...string) *cluster.Snapshot {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(docs...)))
	if err != nil {
		t.Fatal(err)
	}
	return objects.Snapshot()
}

func documents(docs ...string) string { return strings.Join(docs, "---\n") }

// device is a Device, which by itself is a node that serves whole cards and
// slices. Its cards are called GPU-<name>-0 and so on and know no links.
func device(name string, cards int, memory string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: %s}\nspec:\n  devices:\n", name)
	for i := range cards {
		fmt.Fprintf(&b, "  - {type: gpu, id: GPU-%s-%d, minor: %d, health: true, resources: {koordinator.sh/gpu-memory: %s}}\n", name, i, i, memory)
	}
	return b.String()
}

// counted is a node of which only the number of cards is known.
func counted(name string, cards int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, annotations: {daybreak-gpu.io/served-by: vendor}}\nstatus: {capacity: {metax-tech.com/gpu: %d}}\n", name, cards)
}

// pod is a pod to place. The limits are "gpu: 1" or "sgpu: 1, vcore: 10", the
// annotations whole entries.
func pod(name, limits string, annotations ...string) string {
	return podOn("", name, limits, annotations...)
}

// slice is a running pod that holds a best-effort slice.
func slice(node, name string, card, vcore, gib int, annotations ...string) string {
	allocated := fmt.Sprintf(`metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-%s-%d","compute":%d,"vRam":%d}]]'`, node, card, vcore, gib*1024)
	return podOn(node, name, fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %d", vcore, gib), append(annotations, allocated)...)
}

func podOn(node, name, limits string, annotations ...string) string {
	limits = strings.ReplaceAll(", "+limits, ", ", ", metax-tech.com/")[2:]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations: {%s}
spec:
  nodeName: %q
  containers:
  - {name: main, resources: {limits: {%s}}}
`, name, strings.Join(annotations, ", "), node, limits)
}
