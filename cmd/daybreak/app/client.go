//go:build !linux || client

package app

import (
	"fmt"

	"github.com/spf13/cobra"
)

// addParts adds hidden commands that report where to get the components of a
// cluster. Without those this binary does not link k8s.io/kubernetes.
func addParts(root *cobra.Command) {
	for _, name := range []string{"scheduler", "manager", "agent"} {
		root.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("this build has no %[1]s: run daybreak %[1]s from the image, or from the release's archive for Linux", name)
			},
		})
	}
}
