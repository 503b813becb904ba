package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// placeOptions are the flags of the place command.
type placeOptions struct {
	source
	format
	policy      string
	ignoreState bool

	now func() time.Time
}

// NewPlaceCommand returns the command that shows where pods would be placed.
func NewPlaceCommand() *cobra.Command {
	o := placeOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "place -f FILE...",
		Short: "Show where pods would be placed, and why not elsewhere",
		Long: `Place shows the node and the cards that each pod would get and, for a pod that fits
on no node, the reason of each node. It decides with the scheduler's code and changes
nothing.

A container requests cards with HAMi's resources or with Koordinator's:

  metax-tech.com/gpu: 2                  two whole cards, linked if possible

  metax-tech.com/sgpu: 1                 a share of one card:
  metax-tech.com/vcore: 60               60% of its compute and
  metax-tech.com/vmemory: 4              4 GiB of its memory

  koordinator.sh/gpu.shared: 1           the same share
  koordinator.sh/gpu-core: 60
  koordinator.sh/gpu-memory: 4Gi

Files contain Nodes, Devices, Pods, workloads and Lists of them in any order, as YAML
documents or JSON. In a folder, the .yaml, .yml and .json files are read. Pods with
spec.nodeName are running and hold the cards of their annotations; one without an
allocation that admission would reject is reported. Other pods are admitted as by the
webhook and placed in the order of the files, each booked before the next.

Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs and
ReplicationControllers are expanded to the pods that their controllers would create:
all replicas, the parallel pods of a Job, one run of a CronJob, one pod for each node
that a DaemonSet may use. The pods are named web-1, web-2 and so on.

The cards of a node are those of its Device, else those of its annotation
metax-tech.com/node-gpu-devices, else its capacity of metax-tech.com/gpu.

A pod is placed on nodes that it may use: its nodeSelector and required node affinity
match, it tolerates the taints, and the node is not cordoned and ready. A node without
a Ready condition counts as ready. Other nodes have the refusal code NodeExcluded;
--ignore-node-state includes them. CPU, memory and the advertised resources of a node
are not checked.

If a pod does not fit but pods of lower priority block it, the answer lists the pods
that the scheduler would preempt. Priorities come from spec.priority or from the
PriorityClasses of the files or the cluster. PodDisruptionBudgets are not read.

Without nodes in the files, the live cluster is used: that of --kubeconfig and
--context, else the one of the current context, else the one the command runs in. The
scheduler's policy is read from its Lease. If it is unknown, a note reports it.

-o json prints one document with the annotations that the scheduler would write and
the refusal of each node with its code and numbers. If all input comes from files, the
annotation metax-tech.com/predicate-time has the latest time in the files: the same
files give the same document. Notes and warnings go to standard error.

Exit codes: 0 every pod is placed; 1 a pod does not fit or is not admitted; 2 invalid
flags, unreadable input, or a workload that cannot be expanded.`,
		Example: `  # A pod on the cluster of the current context
  daybreak place -f pod.yaml

  # All pods of a Deployment and a Job
  daybreak place -f deployment.yaml -f job.yaml

  # Without a cluster: the nodes are in a file
  daybreak place -f examples/cluster.yaml -f examples/hami/gpu-default.yaml

  # From a dump of a cluster, spread over the nodes
  kubectl get nodes,devices,pods -A -o json | daybreak place -f - -f pod.yaml --policy spread

  # The refusal of each node
  daybreak place -f cluster.yaml -f pod.yaml -o json | jq -r '.pods[].refusals[]? | .node + ": " + .message'`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(cmd)
	registerPolicy(cmd, &o.policy)
	cmd.Flags().BoolVar(&o.ignoreState, "ignore-node-state", false, "include nodes that are cordoned, not ready, tainted or not selected by the pod")
	o.registerOutput(cmd, "table", "json")
	return cmd
}

// registerPolicy adds --policy.
func registerPolicy(cmd *cobra.Command, policy *string) {
	cmd.Flags().StringVar(policy, "policy", "", "`POLICY` for pods without one in their annotations: binpack or spread (default: the scheduler's)")
	cli.Words(cmd, "policy", "binpack", "spread")
}

// onlyFlags rejects arguments, most likely a file without its -f.
func onlyFlags(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: to name a file write -f %s", args[0], args[0])
	}
	return nil
}

func (o *placeOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if _, err := o.check(stdout, "table", "json"); err != nil {
		return err
	}
	policy, err := givenPolicy(o.policy)
	if err != nil {
		return err
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
	now := o.now
	if !snapshot.Live {
		now = snapshot.Latest // the same files give the same answer
	}
	placements, err := view.Place(snapshot, view.PlaceOptions{Policy: policy, IgnoreNodeState: o.ignoreState, Now: now})
	if err != nil {
		return err
	}
	for _, note := range unique(placements.Pods, func(p *view.Placement) []string { return p.Estimate }) {
		fmt.Fprintln(stderr, "note:", note)
	}
	for i := range placements.Pods {
		for _, warning := range placements.Pods[i].Warnings {
			if o.output != "json" {
				fmt.Fprintf(stderr, "warning: pod %s/%s: %s\n", placements.Pods[i].Namespace, placements.Pods[i].Name, warning)
			}
		}
	}
	return o.answer(stdout, placements.OK(), "Placements", placements, func() string { return placeText(placements) })
}

// givenPolicy returns the policy of a flag; without one, the default.
func givenPolicy(name string) (place.Policy, error) {
	if name == "" {
		return place.Default, nil
	}
	policy, err := request.ParsePolicy(name)
	if err != nil {
		return policy, fmt.Errorf("--policy: %w", err)
	}
	return policy, nil
}

// unique returns the texts of all items, each once.
func unique[T any](items []T, of func(*T) []string) []string {
	var texts []string
	for i := range items {
		for _, text := range of(&items[i]) {
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// read collects the objects of the files and, where those have no node, of the
// live cluster.
func (o *placeOptions) read(ctx context.Context, stdin io.Reader) (*cluster.Objects, error) {
	if len(o.files) == 0 {
		return nil, errors.New("nothing to place: name a file that holds a pod with -f")
	}
	objects, err := cluster.ReadFilesBelow(o.files, o.recursive, stdin)
	if err != nil {
		return nil, err
	}
	objects.VendorPlugin = o.plugin
	hasNodes := len(objects.Nodes)+len(objects.Devices) > 0
	switch {
	case hasNodes && o.access != (cluster.Access{}):
		return nil, errors.New("nodes come from the files or from the cluster, not from both: leave out --kubeconfig and --context, or the Nodes and Devices")
	case hasNodes:
		err = objects.Complete()
		return objects, err
	}
	client, err := o.access.Client()
	if errors.Is(err, cluster.ErrNoCluster) {
		return nil, errors.New("no nodes: the files hold neither a Node nor a Device; add them with -f, or name a cluster with --kubeconfig")
	}
	if err != nil {
		return nil, err
	}
	live, err := client.Read(ctx, o.plugin.Daybreak)
	if err != nil {
		return nil, err
	}
	if err := addLive(objects, live); err != nil {
		return nil, err
	}
	if objects.NeedsPriorityClasses() {
		classes, err := client.ReadPriorityClasses(ctx)
		if err != nil {
			objects.Notes = append(objects.Notes, err.Error()+"; without them priorities count as 0")
		}
		objects.PriorityClasses = append(objects.PriorityClasses, classes...)
	}
	err = objects.Complete()
	return objects, err
}

// addLive adds the live cluster's nodes and the pods that run there; the pods
// to place are the files', and of those that wait the scheduler knows. A pod
// can't run and be placed: it would be booked twice.
func addLive(objects, live *cluster.Objects) error {
	asked := make(map[ledger.Holder]bool, len(objects.Pods))
	for _, pod := range objects.Pods {
		asked[allocation.HolderOf(pod)] = true
	}
	for _, pod := range live.Pods {
		switch {
		case pod.Spec.NodeName == "" && asked[allocation.HolderOf(pod)]:
		case pod.Spec.NodeName == "":
			objects.Waiting = append(objects.Waiting, pod)
		case asked[allocation.HolderOf(pod)]:
			return fmt.Errorf("pod %s is in the files, but already runs on node %s: give the one to place another name", allocation.HolderOf(pod), pod.Spec.NodeName)
		default:
			objects.Pods = append(objects.Pods, pod)
		}
	}
	objects.Nodes, objects.Devices, objects.Live, objects.Settings = live.Nodes, live.Devices, live.Live, live.Settings
	return nil
}
