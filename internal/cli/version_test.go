package cli

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestVersion(t *testing.T) {
	build := Build{Version: "v0.1.0", Commit: "abc", Modified: true, Go: "go1.26", Kubernetes: "v1.36.3", Platform: "linux/amd64"}
	command := func() *cobra.Command { return NewVersionCommand("sun", build) }

	table, err := run(command())
	gputest.Must(t, err)
	want := `sun v0.1.0
  commit      abc (modified)
  go          go1.26
  kubernetes  v1.36.3
  platform    linux/amd64
`
	gputest.Equal(t, "table", want, table)

	document, err := run(command(), "-o", "json")
	gputest.Must(t, err)
	var got Build
	if err := json.Unmarshal([]byte(document), &got); err != nil || got != build {
		t.Errorf("JSON %s (%v), want %+v", document, err, build)
	}

	if _, err := run(command(), "-o", "yaml"); err == nil {
		t.Error("a format that does not exist is accepted")
	}
}

// TestNewBuild: the version and commit that the build sets have precedence over
// what Go records.
func TestNewBuild(t *testing.T) {
	b := NewBuild("v1", "abc")
	if b.Version != "v1" || b.Commit != "abc" || b.Go != runtime.Version() || b.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%+v", b)
	}
}
