package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// ErrNo is returned by a command that ran well and whose answer is no. What
// there is to say has been printed; the exit code is 1.
var ErrNo = errors.New("the answer is no")

// errNoNodes is returned when there is nothing to place on.
var errNoNodes = errors.New("no nodes: the files hold neither a Node nor a Device; add them with -f, or name a cluster with --kubeconfig")

// placeOptions are the flags of the place command.
type placeOptions struct {
	files      []string
	kubeconfig string
	policy     string
	output     string
}

// NewPlaceCommand returns the command that says where pods would go.
func NewPlaceCommand() *cobra.Command {
	o := placeOptions{}
	cmd := &cobra.Command{
		Use:   "place -f FILE...",
		Short: "Say where pods would go and why not elsewhere",
		Long: `Place says which node and which cards each pod would get, and for a pod that
fits nowhere, why each node refuses it. Nothing is changed anywhere.

Files hold Nodes, Pods, Devices and Lists of them in any order: several YAML
documents, or JSON, or "-" for standard input. Pods with spec.nodeName are
running and hold what their annotations say. Pods without are admitted as the
webhook would, then placed in the order of the files, each booked before the
next.

The nodes come from the files, or with --kubeconfig (or inside a cluster, when
the files have none) from the live cluster. Only cards are looked at: not CPU,
memory, taints or the number of resources that a node advertises.

Exit codes: 0 every pod has its place; 1 some pod does not fit or is not
admitted; 2 a file or a flag can't be read.`,
		Example: `  # Where would this pod go, on the cluster described by these files?
  daybreak place -f nodes.yaml -f pod.yaml

  # The same against a live cluster, as JSON
  daybreak place --kubeconfig ~/.kube/config -f pod.yaml -o json

  # From a dump of a cluster, with another policy
  kubectl get nodes,devices,pods -A -o yaml | daybreak place -f - -f pod.yaml --policy spread`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, `file with Nodes, Pods and Devices, "-" for standard input (repeatable)`)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "take the nodes and running pods of this cluster")
	f.StringVar(&o.policy, "policy", "", "binpack or spread, for pods whose annotations name no policy")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	return cmd
}

func (o *placeOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf(`--output %q: write "table" or "json"`, o.output)
	}
	policy := place.Default
	if o.policy != "" {
		var err error
		if policy, err = wire.ParsePolicy(o.policy); err != nil {
			return fmt.Errorf("--policy: %w", err)
		}
	}
	objects, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	snapshot := objects.Snapshot()
	for _, note := range snapshot.Notes {
		fmt.Fprintln(stderr, "note:", note)
	}
	if len(snapshot.Pending) == 0 {
		fmt.Fprintln(stderr, "note: no pod to place: a pod to place has no spec.nodeName")
	}
	placements, err := Place(snapshot, policy, time.Now)
	if err != nil {
		return err
	}
	return placements.write(o.output, stdout, stderr)
}

// read collects the objects of the files and of the live cluster. Of a live
// cluster's pods only those that run count; the ones to place are the files'.
func (o *placeOptions) read(ctx context.Context, stdin io.Reader) (*cluster.Objects, error) {
	if len(o.files) == 0 {
		return nil, errors.New("nothing to place: name a file that holds a pod with -f")
	}
	objects, err := cluster.ReadFiles(o.files, stdin)
	if err != nil {
		return nil, err
	}
	hasNodes := len(objects.Nodes)+len(objects.Devices) > 0
	if o.kubeconfig == "" {
		if hasNodes {
			return objects, nil
		}
		if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
			return nil, errNoNodes
		}
	}
	if hasNodes {
		return nil, errors.New("nodes come from the files or from the cluster, not from both: leave out --kubeconfig, or the Nodes and Devices")
	}
	config, err := cluster.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	live, err := cluster.ReadLive(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, pod := range live.Pods {
		if pod.Spec.NodeName != "" {
			objects.Pods = append(objects.Pods, pod)
		}
	}
	objects.Nodes, objects.Devices = live.Nodes, live.Devices
	return objects, nil
}

// write prints the answer, and says no when some pod has no place.
func (p *Placements) write(output string, stdout, stderr io.Writer) error {
	if output == "json" {
		enc := json.NewEncoder(stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(p); err != nil {
			return err
		}
	} else {
		for i := range p.Pods {
			for _, warning := range p.Pods[i].Warnings {
				fmt.Fprintf(stderr, "warning: pod %s/%s: %s\n", p.Pods[i].Namespace, p.Pods[i].Name, warning)
			}
		}
		if err := p.WriteTable(stdout); err != nil {
			return err
		}
	}
	if !p.OK() {
		return ErrNo
	}
	return nil
}
