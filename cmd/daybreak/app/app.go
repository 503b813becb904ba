// Package app is the command line of daybreak, put together from its parts.
package app

import (
	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover/mxsml"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/command"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
	"github.com/daybreak-gpu/daybreak/internal/simulate"
)

// Groups of commands in the help.
const (
	groupAsk = "ask"
	groupRun = "run"
)

// NewCommand returns the daybreak command.
func NewCommand(b cli.Build) *cobra.Command {
	root := &cobra.Command{
		Use:   "daybreak",
		Short: "Share and place MetaX GPUs on Kubernetes",
		Long: `Daybreak shares and places MetaX GPUs on Kubernetes. It takes pods written for
HAMi (metax-tech.com/*) or Koordinator (koordinator.sh/*), unchanged.`,
		Example: `  # Every card of the cluster: what is free, who holds what, who waits
  daybreak status

  # Why is this pod pending?
  daybreak explain trainer-0 -n team-a

  # Where would this pod go, without any cluster?
  daybreak place -f examples/cluster.yaml -f examples/hami/gpu-default.yaml`,
		Version:       b.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Kubernetes' libraries bring a --version of their own, of another type.
	root.Flags().Bool("version", false, "print the version")
	cli.Setup(root)
	root.AddGroup(&cobra.Group{ID: groupAsk, Title: "Commands that ask:"}, &cobra.Group{ID: groupRun, Title: "Parts that run in a cluster:"})
	add(root, groupAsk, command.NewStatusCommand(), command.NewExplainCommand(), command.NewAuditCommand(), command.NewPlaceCommand(), simulate.NewCommand())
	add(root, groupRun, scheduler.NewCommand(), manager.NewCommand(), agent.NewCommand())
	add(root, "", mxsml.NewCommand(), cli.NewVersionCommand("daybreak", b))
	return root
}

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = group
		if group == groupAsk {
			cmd = cli.Interruptible(cmd) // the others drain
		}
		root.AddCommand(cmd)
	}
}
