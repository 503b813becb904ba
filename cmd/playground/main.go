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
	"time"

	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/local/component"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
)

// version and commit are set by the build.
var (
	version = "dev"
	commit  = ""
)

// vendorDelay is what the vendor's plugin takes for a pod, according to its users.
const vendorDelay = 20 * time.Millisecond

func startVendor(ctx context.Context, config *rest.Config, s *local.Simulator) (local.Plugin, error) {
	return vendorplugin.Start(ctx, config, s, func() time.Duration { return vendorDelay })
}

func main() {
	if code, ok := component.Run(os.Args); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := local.NewCommand(startVendor)
	cli.Setup(cmd)
	cmd.AddCommand(cli.NewVersionCommand("playground", cli.NewBuild(version, commit)))
	err := cli.Advise(cmd, os.Args[1:], cmd.ExecuteContext(ctx))
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(2)
	}
}
