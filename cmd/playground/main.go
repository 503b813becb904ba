// Playground runs a real Kubernetes control plane with simulated MetaX nodes and
// Daybreak as its scheduler on one machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/local/component"
)

// version and commit are set by the build.
var (
	version = "dev"
	commit  = ""
)

func main() {
	if code, ok := component.Run(os.Args); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := local.NewCommand()
	cli.Setup(cmd)
	cmd.AddCommand(cli.NewVersionCommand("playground", cli.NewBuild(version, commit)))
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	}
}
