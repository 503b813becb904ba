package command

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// completionTimeout bounds how long the tab key waits for a cluster.
const completionTimeout = 3 * time.Second

// completeFrom completes names of nodes, pods or namespaces.
func (s *source) completeFrom(resource string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return s.names(cmd.Context(), resource), cobra.ShellCompDirectiveNoFileComp
	}
}

// names lists objects of the files or the cluster, pods and workloads of the
// namespace alone. It returns nothing if they can't be read.
func (s *source) names(ctx context.Context, resource string) []string {
	if !s.live() {
		return s.fileNames(resource)
	}
	ctx, cancel := context.WithTimeout(cmp.Or(ctx, context.Background()), completionTimeout)
	defer cancel()
	config, err := s.access.Config()
	if err != nil {
		return nil
	}
	namespace := ""
	if resource != "nodes" && resource != "namespaces" {
		namespace = s.namespace()
	}
	names, err := cluster.Names(ctx, config, resource, namespace)
	if err != nil {
		return nil
	}
	return names
}

func (s *source) fileNames(resource string) []string {
	if slices.Contains(s.files, "-") {
		return nil // standard input can't be read twice
	}
	// Cobra parses a line that it completes twice over.
	files := slices.Compact(slices.Sorted(slices.Values(s.files)))
	objects, err := (&source{files: files, recursive: s.recursive}).readFiles(nil)
	if err != nil {
		return nil
	}
	var names []string
	if resource == "nodes" {
		for _, n := range objects.Snapshot().Nodes {
			names = append(names, n.Name)
		}
	}
	for _, p := range objects.Pods {
		switch {
		case resource == "namespaces":
			names = append(names, p.Namespace)
		case resource == "pods" && p.Namespace == s.namespace():
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
