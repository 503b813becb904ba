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

	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover/mxsml"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/report"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
	"github.com/daybreak-gpu/daybreak/internal/simulate"
)

// version is set by the build.
var version = "dev"

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
	root := newCommand()
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
	case errors.Is(err, report.ErrNo):
		return exitNo
	default:
		fmt.Fprintln(os.Stderr, "daybreak:", err)
		return exitFailed
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "daybreak",
		Short: "Share and place MetaX GPUs on Kubernetes",
		Long: `Daybreak shares and places MetaX GPUs on Kubernetes. It takes pods written for
HAMi (metax-tech.com/*) or Koordinator (koordinator.sh/*), unchanged.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Kubernetes' libraries bring a --version of their own, of another type.
	root.Flags().Bool("version", false, "print the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(
		report.NewStatusCommand(), report.NewExplainCommand(), report.NewAuditCommand(), report.NewPlaceCommand(), simulate.NewCommand(),
		scheduler.NewCommand(), manager.NewCommand(), agent.NewCommand(), mxsml.NewCommand())
	return root
}
