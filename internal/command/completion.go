package command

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds how long the tab key waits for a cluster.
const completionTimeout = 3 * time.Second

// completeFrom completes names of nodes, pods or namespaces.
func (s *source) completeFrom(resource string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.names(cmd.Context(), resource), cobra.ShellCompDirectiveNoFileComp
	}
}

// names lists objects of the cluster, pods and workloads of the namespace alone. It
// returns nothing if they can't be read, and where the cluster is in files.
func (s *source) names(ctx context.Context, resource string) []string {
	if !s.live() {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmp.Or(ctx, context.Background()), completionTimeout)
	defer cancel()
	client, err := s.access.Client()
	if err != nil {
		return nil
	}
	namespace := ""
	if resource != "nodes" && resource != "namespaces" {
		namespace = s.namespace()
	}
	names, err := client.Names(ctx, resource, namespace)
	if err != nil {
		return nil
	}
	return names
}
