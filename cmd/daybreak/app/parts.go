//go:build linux && !client

package app

import (
	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/agent"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover/mxsml"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
)

// addParts adds the commands that run in a cluster.
func addParts(root *cobra.Command) {
	add(root, groupRun, "Run the components of a cluster", scheduler.NewCommand(), manager.NewCommand(), agent.NewCommand())
	root.AddCommand(mxsml.NewCommand())
}
