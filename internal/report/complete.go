package report

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// complete sets what the flags are completed from that every command has.
func (s *source) complete(cmd *cobra.Command) {
	cli.Complete(cmd, "context", s.completeContexts)
	if cmd.Flags().Lookup("namespace") != nil {
		cli.Complete(cmd, "namespace", s.completeNamespaces)
	}
}

// patience is how long somebody waits who has pressed the tab key.
const patience = 3 * time.Second

// names lists objects of the cluster, or of the files. When it can't be reached
// there is nothing to complete, and no word about it.
func (s *source) names(ctx context.Context, resource, namespace string) ([]string, cobra.ShellCompDirective) {
	const nothingElse = cobra.ShellCompDirectiveNoFileComp
	if !s.live() {
		return s.fileNames(resource, namespace), nothingElse
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config, err := s.access.Config()
	if err != nil {
		return nil, nothingElse
	}
	names, err := cluster.Names(ctx, config, resource, namespace)
	if err != nil {
		return nil, nothingElse
	}
	return names, nothingElse
}

func (s *source) fileNames(resource, namespace string) []string {
	if slices.Contains(s.files, "-") {
		return nil // what stands there can't be read twice
	}
	// Cobra parses a line that it completes twice over.
	files := slices.Compact(slices.Sorted(slices.Values(s.files)))
	objects, err := cluster.ReadFiles(files, nil)
	if err != nil {
		return nil
	}
	var names []string
	switch resource {
	case "nodes":
		for _, n := range objects.Snapshot().Nodes {
			names = append(names, n.Name)
		}
	case "pods":
		for _, p := range objects.Pods {
			if p.Namespace == namespace {
				names = append(names, p.Name)
			}
		}
	case "namespaces":
		for _, p := range objects.Pods {
			names = append(names, p.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *source) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(cmd.Context(), "nodes", "")
}

func (s *source) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return s.names(cmd.Context(), "namespaces", "")
}

func (s *source) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return s.access.Contexts(), cobra.ShellCompDirectiveNoFileComp
}
