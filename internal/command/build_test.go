package command

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// noon is the time at which everything here is decided.
func noon() time.Time { return time.Date(2026, time.March, 15, 12, 0, 0, 0, time.UTC) }

// golden compares what was printed with a file, or rewrites the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		gputest.Must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	gputest.Equal(t, path+", go test -update if it is right", string(want), got)
}

// place runs the command at noon and returns what it prints. The answer may be
// no; an error that is none of the command's answers fails the test.
func (o *placeOptions) place(t *testing.T, stdin string) (stdout, stderr string, ok bool) {
	t.Helper()
	o.now = noon
	var out, errs bytes.Buffer
	err := o.run(t.Context(), strings.NewReader(stdin), &out, &errs)
	if err != nil && !errors.Is(err, cli.ErrNo) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), err == nil
}

// snapshot reads the documents as if they stood in one file.
func snapshot(t *testing.T, docs ...string) *cluster.Snapshot {
	t.Helper()
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(docs...)))
	gputest.Must(t, err)
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
