// Daybreak shares and places MetaX GPUs on Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/cmd/daybreak/app"
	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// version and commit are set by the build.
var (
	version = "dev"
	commit  = ""
)

// Exit codes, the same for every command.
const (
	exitNo     = 1 // it ran, and the answer is no
	exitFailed = 2 // files or flags can't be read
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args)
	stop()
	os.Exit(exitCode(err))
}

// Names of links to this binary that make it a plugin of kubectl: one runs as
// "kubectl daybreak", the other completes its words.
const (
	pluginName         = "kubectl-daybreak"
	pluginCompleteName = "kubectl_complete-daybreak"
)

// execute runs what the name of the binary and its arguments ask for.
func execute(ctx context.Context, args []string) error {
	root := app.NewCommand(cli.NewBuild(version, commit))
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case pluginCompleteName:
		asPlugin(root)
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	case pluginName:
		asPlugin(root)
		root.SetArgs(args[1:])
	default:
		root.SetArgs(args[1:])
	}
	return root.ExecuteContext(ctx)
}

// asPlugin makes help and advice read as the user types it.
func asPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl daybreak"}
	for _, cmd := range root.Commands() {
		cmd.Example = strings.ReplaceAll(cmd.Example, "daybreak ", "kubectl daybreak ")
	}
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, cli.ErrNo):
		return exitNo
	case errors.Is(err, cli.ErrInterrupted):
		return cli.ExitInterrupted
	default:
		fmt.Fprintln(os.Stderr, "daybreak:", err)
		return exitFailed
	}
}
