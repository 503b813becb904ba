// Daybreak shares and places MetaX GPUs on Kubernetes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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
	ctx := cli.UntilSignal(os.Exit)
	os.Exit(exitCode(ctx, execute(ctx, os.Args)))
}

// Names of links to this binary that make it a plugin of kubectl: one runs as
// "kubectl daybreak", the other completes its words.
const (
	pluginName         = "kubectl-daybreak"
	pluginCompleteName = "kubectl_complete-daybreak"
)

// execute runs what the name of the binary and its arguments ask for.
func execute(ctx context.Context, args []string) error {
	root, line := app.NewCommand(cli.NewBuild(version, commit)), args[1:]
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case pluginCompleteName:
		asPlugin(root)
		line = append([]string{cobra.ShellCompRequestCmd}, line...)
	case pluginName:
		asPlugin(root)
	}
	root.SetArgs(line)
	return cli.Advise(root, line, root.ExecuteContext(ctx))
}

// asPlugin makes help and advice show the command as the user types it.
func asPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl daybreak"}
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
		if cmd.Name() == "completion" || cmd.Name() == "man" {
			cmd.Hidden = true // they are for daybreak itself
		}
	}
	// What follows "--" runs in a container, where there is no kubectl.
	typed := regexp.MustCompile(`(-- )?\bdaybreak (` + strings.Join(names, "|") + `)\b`)
	asTyped := func(text string) string {
		return typed.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasPrefix(found, "-- ") {
				return found
			}
			return "kubectl " + found
		})
	}
	var rename func(*cobra.Command)
	rename = func(cmd *cobra.Command) {
		cmd.Long, cmd.Example = asTyped(cmd.Long), asTyped(cmd.Example)
		for _, sub := range cmd.Commands() {
			rename(sub)
		}
	}
	rename(root)
}

// exitCode returns the exit code for how a command ended, and prints the error
// unless it was printed or is the signal that ended the command.
func exitCode(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, cli.ErrNo):
		return exitNo
	case errors.Is(err, cli.ErrInterrupted), ctx.Err() != nil && errors.Is(err, context.Canceled):
		return cli.ExitInterrupted
	default:
		fmt.Fprintln(os.Stderr, "daybreak:", err)
		return exitFailed
	}
}
