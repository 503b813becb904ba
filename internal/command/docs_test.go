package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestDocs: what the pages on the command line show is what the commands print.
func TestDocs(t *testing.T) {
	for _, page := range []string{"cli.md", "zh/cli.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		gputest.Must(t, err)
		checkShown(t, page, string(text), "status", "explain", "audit", "place")
	}
}

// checkShown runs the commands that a page shows, the given ones at least, and
// compares what they print.
func checkShown(t *testing.T, page, text string, want ...string) {
	t.Helper()
	shown := map[string]bool{}
	for block := range strings.SplitSeq(text, "```") {
		command, printed, _ := strings.Cut(strings.TrimPrefix(block, "console\n"), "\n")
		args, ok := strings.CutPrefix(command, "$ daybreak ")
		if !ok {
			continue
		}
		shown[strings.Fields(args)[0]] = true
		gputest.Equal(t, fmt.Sprintf("the answer to %q in %s", command, page), printed, runCommand(t, args))
	}
	for _, command := range want {
		if !shown[command] {
			t.Errorf("%s shows no answer of daybreak %s", page, command)
		}
	}
}

// runCommand runs a command line that starts at the top of the repository.
func runCommand(t *testing.T, args string) string {
	t.Helper()
	root := &cobra.Command{SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(NewStatusCommand(), NewExplainCommand(), NewAuditCommand(), NewPlaceCommand())
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(strings.Fields(strings.ReplaceAll(args, "examples/", examples)))
	if err := root.ExecuteContext(t.Context()); err != nil && !errors.Is(err, cli.ErrNo) {
		t.Fatalf("daybreak %s: %v", args, err)
	}
	return out.String()
}
