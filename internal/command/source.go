package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// source is where a command reads a cluster from: files, or an API server.
type source struct {
	files []string
	// recursive reads the folders below those of files too.
	recursive bool
	access    cluster.Access
	client    *cluster.Client // once the live cluster is read
	// plugin identifies who serves a node without a Device.
	plugin inventory.VendorPlugin
	// space is the namespace that the user gave.
	space string
}

// register adds the flags that are the same for every command.
func (s *source) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&s.files, "filename", "f", nil, "`FILE` with Nodes, Pods and Devices, a folder of such files, or \"-\" for standard input (repeatable)")
	f.BoolVarP(&s.recursive, "recursive", "R", false, "read the folders of -f recursively")
	f.Var(&s.plugin, "vendor-plugin-selector", "labels of the pods of the vendor's device plugin, as set for the scheduler (default: pods of a DaemonSet gpu-device or …-gpu-device)")
	f.StringVar(&s.plugin.Namespace, "vendor-namespace", wire.VendorNamespace, "`NAMESPACE` of the vendor's operator; pods of its device plugin in other namespaces do not count")
	f.StringVar(&s.plugin.Daybreak, "daybreak-namespace", wire.Namespace, "`NAMESPACE` of Daybreak; its components in other namespaces do not count")
	registerAccess(cmd, &s.access)
}

// registerAccess adds --kubeconfig and --context.
func registerAccess(cmd *cobra.Command, access *cluster.Access) {
	f := cmd.Flags()
	f.StringVar(&access.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: $KUBECONFIG, ~/.kube/config, or the cluster the command runs in)")
	f.StringVar(&access.Context, "context", "", "`NAME` of the kubeconfig's context")
	cli.Complete(cmd, "context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return access.Contexts(), cobra.ShellCompDirectiveNoFileComp
	})
}

// registerNamespace adds -n.
func (s *source) registerNamespace(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&s.space, "namespace", "n", "", usage)
	cli.Complete(cmd, "namespace", s.completeFrom("namespaces"))
}

// live reports whether the cluster is an API server.
func (s *source) live() bool { return len(s.files) == 0 }

// read reads everything there is.
func (s *source) read(ctx context.Context, stdin io.Reader) (*cluster.Objects, error) {
	objects, err := s.objects(ctx, stdin)
	if err != nil {
		return nil, err
	}
	objects.VendorPlugin = s.plugin
	return objects, nil
}

func (s *source) objects(ctx context.Context, stdin io.Reader) (*cluster.Objects, error) {
	if s.live() {
		var err error
		if s.client, err = s.access.Client(); err != nil {
			if errors.Is(err, cluster.ErrNoCluster) {
				err = fmt.Errorf("%w; or read files with -f", err)
			}
			return nil, err
		}
		return s.client.Read(ctx, s.plugin.Daybreak)
	}
	if s.access != (cluster.Access{}) {
		return nil, errors.New("the cluster comes from files or from a kubeconfig, not from both: leave out -f, or --kubeconfig and --context")
	}
	objects, err := cluster.ReadFilesBelow(s.files, s.recursive, stdin)
	if err != nil {
		return nil, err
	}
	if len(objects.Nodes)+len(objects.Devices) == 0 {
		return nil, errors.New("the files hold neither a Node nor a Device: add those too, for example with kubectl get nodes,devices,pods -A -o json")
	}
	return objects, nil
}

// namespace returns the one given, or the one that the kubeconfig's context
// names, or default.
func (s *source) namespace() string {
	switch {
	case s.space != "":
		return s.space
	case s.live():
		return s.access.Namespace()
	}
	return "default"
}
