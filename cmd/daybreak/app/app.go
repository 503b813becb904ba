// Package app is the command line of daybreak, put together from its parts.
package app

import (
	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/command"
	"github.com/daybreak-gpu/daybreak/internal/simulate"
)

// Groups of commands in the help.
const (
	groupInspect = "inspect"
	groupPlan    = "plan"
	groupRun     = "run"
	groupOther   = "other"
)

// NewCommand returns the daybreak command.
func NewCommand(b cli.Build) *cobra.Command {
	root := &cobra.Command{
		Use:   "daybreak",
		Short: "Share and place MetaX GPUs on Kubernetes",
		Long: `Daybreak shares and places MetaX GPUs (cards) on Kubernetes. Pods written for HAMi
(metax-tech.com/*) or Koordinator (koordinator.sh/*) run unchanged.`,
		Version:       b.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Kubernetes' libraries bring a --version of their own, of another type.
	root.Flags().Bool("version", false, "print the version of this binary")
	cli.Setup(root)
	addAnswers(root, groupInspect, "Inspect a cluster", command.NewStatusCommand(), command.NewExplainCommand(), command.NewAuditCommand())
	addAnswers(root, groupPlan, "Plan placements", command.NewPlaceCommand(), simulate.NewCommand())
	addParts(root)
	addAnswers(root, groupOther, "Other commands", command.NewVersionCommand(b), newManCommand())
	cli.AddCompletion(root, groupOther)
	return root
}

// addAnswers adds commands that answer and end. The others drain.
func addAnswers(root *cobra.Command, group, title string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cli.Interruptible(cmd)
	}
	add(root, group, title, commands...)
}

func add(root *cobra.Command, group, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: group, Title: title + ":"})
	for _, cmd := range commands {
		cmd.GroupID = group
		root.AddCommand(cmd)
	}
}
