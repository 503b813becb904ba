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

// errNoNodes is returned when there is nothing to place on.
var errNoNodes = errors.New("no nodes: the files hold neither a Node nor a Device; add them with -f, or name a cluster with --kubeconfig")

// placeOptions are the flags of the place command.
type placeOptions struct {
	source
	format
	policy      string
	ignoreState bool

	now func() time.Time
}

// NewPlaceCommand returns the command that says where pods would go.
func NewPlaceCommand() *cobra.Command {
	o := placeOptions{now: time.Now}
	cmd := &cobra.Command{
		Use:   "place -f FILE...",
		Short: "Say where pods would go and why not elsewhere",
		Long: `Place says which node and which cards each pod would get, and for a pod that
fits nowhere, why each node refuses it. It decides as the scheduler does, and
changes nothing anywhere.

A container asks for cards in HAMi's words or in Koordinator's:

  metax-tech.com/gpu: 2                  two whole cards, well linked

  metax-tech.com/sgpu: 1                 a share of one card:
  metax-tech.com/vcore: 60               60% of its compute and
  metax-tech.com/vmemory: 4              4 GiB of its memory

  koordinator.sh/gpu.shared: 1           the same share
  koordinator.sh/gpu-core: 60
  koordinator.sh/gpu-memory: 4Gi

Files hold Nodes, Devices, Pods, workloads and Lists of them in any order: several
YAML documents, or JSON, or "-" for standard input. Of a folder the .yaml, .yml
and .json files are read. Pods with spec.nodeName are running and hold what their
annotations say; one that was written by hand and that admission would reject is
reported. Pods without are admitted as the webhook would, then placed in the order
of the files, each booked before the next.

Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs and
ReplicationControllers stand for the pods that their controllers would create: the
replicas, the pods of a Job that run at the same time, one run of a CronJob, a pod
for each node that a DaemonSet may use. Their names are web-1, web-2 and so on.

A node's cards are those of its Device; without one, those of its annotation
metax-tech.com/node-gpu-devices; without that, as many as its capacity of
metax-tech.com/gpu says.

A pod goes to nodes that it may use: its nodeSelector and required node affinity
match, it tolerates the taints, and the node is neither cordoned nor not ready. A
node without a Ready condition counts as ready. Other nodes refuse it with the
code NodeExcluded; --ignore-node-state counts them as well. CPU, memory and the
number of resources that a node advertises refuse no pod.

Where a pod does not fit but outranks pods that are in its way, the answer names
the pods that the scheduler would preempt. Priorities come from spec.priority or
from PriorityClasses, of the files or of the cluster. PodDisruptionBudgets are not
read.

Like the scheduler, the command learns from the pods that are there which pods to
expect, and takes the scheduler's policy from the arguments of its pods. Where the
scheduler may know more, a note says so.

The nodes come from the files, or where the files have none from the live
cluster, with the pods that run there: that of --kubeconfig and --context, else
the one that kubectl would take, else the one this runs in.

The answer is a table, or with -o json one document that has everything: the
annotations that the scheduler would write, and each node's refusal with its
code and numbers. Where everything comes from files, the annotation
metax-tech.com/predicate-time has the latest time that the files show, so that the
same files give the same answer. Notes and warnings go to standard error.

Exit codes: 0 every pod has its place; 1 some pod does not fit now or is not
admitted; 2 a file or a flag can't be read, or a workload can't be expanded.`,
		Example: `  # Where would this pod go, on the cluster that these files describe?
  daybreak place -f examples/cluster.yaml -f examples/hami/gpu-default.yaml

  # The same against a live cluster, as JSON
  daybreak place --kubeconfig ~/.kube/config -f pod.yaml -o json

  # All pods of a Deployment and a Job, on the live cluster
  daybreak place -f deployment.yaml -f job.yaml

  # From a dump of a cluster, level instead of packed
  kubectl get nodes,devices,pods -A -o json | daybreak place -f - -f pod.yaml --policy spread

  # Only the nodes that refuse, and why
  daybreak place -f cluster.yaml -f pod.yaml -o json | jq -r '.pods[].refusals[]? | .node + ": " + .message'`,
		Args: onlyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(cmd)
	registerPolicy(cmd, &o.policy)
	cmd.Flags().BoolVar(&o.ignoreState, "ignore-node-state", false, "count nodes that are cordoned, not ready, tainted or not selected by the pod")
	o.registerOutput(cmd, "table", "json")
	return cmd
}

// registerPolicy adds --policy.
func registerPolicy(cmd *cobra.Command, policy *string) {
	cmd.Flags().StringVar(policy, "policy", "", "`POLICY` for pods whose annotations name none: binpack or spread; without it the scheduler's")
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
	objects.VendorPlugin = o.plugin
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
	return o.answer(stdout, placements.OK(), placements, func() string { return placeText(placements) })
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
	objects, err := o.readFiles(stdin)
	if err != nil {
		return nil, err
	}
	hasNodes := len(objects.Nodes)+len(objects.Devices) > 0
	switch {
	case hasNodes && o.access != (cluster.Access{}):
		return nil, errors.New("nodes come from the files or from the cluster, not from both: leave out --kubeconfig and --context, or the Nodes and Devices")
	case hasNodes:
		err = objects.Complete()
		return objects, err
	}
	config, err := o.access.Config()
	if errors.Is(err, cluster.ErrNoCluster) {
		return nil, errNoNodes
	}
	if err != nil {
		return nil, err
	}
	live, err := cluster.ReadLive(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := addLive(objects, live); err != nil {
		return nil, err
	}
	if objects.NeedsPriorityClasses() {
		classes, err := cluster.ReadPriorityClasses(ctx, config)
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
	objects.Nodes, objects.Devices, objects.Live = live.Nodes, live.Devices, live.Live
	return nil
}
