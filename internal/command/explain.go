package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// explainOptions are the flags of the explain command.
type explainOptions struct {
	source
	format
	all    bool
	policy string
}

// NewExplainCommand returns the command that explains why a pod is pending, or why
// it was placed on its node.
func NewExplainCommand() *cobra.Command {
	o := explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain POD | KIND/NAME",
		Short: "Explain why a pod is pending, or why it was placed on its node",
		Long: `Explain shows why a pod is pending: the reason in one sentence, as in its events,
the nodes by reason, the largest request that fits now, and the pods that block it.
The answer is computed with the scheduler's code on the current state of the cluster.

For a placed pod it shows the cards, the pods that share them, and why its node was
preferred over the next best one. Pods that have ended since are not considered.

Nodes that the pod may not use (cordoned, not ready, tainted, or not selected by the
pod) have the refusal code NodeExcluded and are in no suggestion. The last message of
kube-scheduler, about CPU or volumes for example, is shown last.

For a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or CronJob it explains the
pods, grouped by answer, and why pods could not be created: an admission webhook or a
quota rejected them. A pod that was rejected is explained by the events of its
controller.

Without the right to list nodes, the answer is limited to the pod itself: its cards
or the scheduler's report, and its events.

-o json prints one document with the refusal of every node, as daybreak place does.

Exit codes: 0 the pod is placed, fits, or requests no card; 1 it fits on no node,
cannot be bound or created, is not admitted, or its cards are unknown; 2 there is no
such pod, or the input cannot be read.`,
		Example: `  # A pod in the namespace of the current context
  daybreak explain trainer-0

  # A pod in another namespace
  daybreak explain trainer-0 -n team-a
  daybreak explain team-a/trainer-0

  # All pods of a workload
  daybreak explain deployment/chat
  daybreak explain job/train -n team-a

  # The refusal of every node
  daybreak explain trainer-0 -o json | jq -r '.pods[].refusals[] | .node + ": " + .message'

  # From a dump
  kubectl get nodes,devices,pods -A -o json | daybreak explain trainer-0 -f -`,
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	o.register(cmd)
	o.registerNamespace(cmd, "`NAMESPACE` of the pod (default: that of the current context)")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "find the pod in any namespace")
	registerPolicy(cmd, &o.policy)
	o.registerOutput(cmd, "table", "json")
	o.registerColor(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.complete(cmd.Context(), begun), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// complete returns names of pods, and after deployment/ those of Deployments.
func (o *explainOptions) complete(ctx context.Context, begun string) []string {
	word, _, ok := strings.Cut(begun, "/")
	kind, isKind := cluster.OwnerKind(word)
	if !ok || !isKind || !o.live() {
		return o.names(ctx, "pods")
	}
	names := o.names(ctx, cluster.OwnerResource(kind))
	for i := range names {
		names[i] = word + "/" + names[i]
	}
	return names
}

func onePod(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("which pod? write its name: daybreak explain POD [-n NAMESPACE]; daybreak status lists those that are pending")
	case 1:
		return nil
	}
	return fmt.Errorf("one pod or workload at a time: got %s", strings.Join(args, ", "))
}

// target is what is explained: a pod, or the pods of a workload.
type target struct {
	pod   string
	owner *cluster.Owner
}

// target reads the argument: POD, NAMESPACE/POD, pod/POD or KIND/NAME.
func (o *explainOptions) target(arg string) (target, error) {
	first, rest, ok := strings.Cut(arg, "/")
	kind, isKind := cluster.OwnerKind(first)
	switch {
	case ok && isKind:
		if o.all {
			return target{}, fmt.Errorf("%s: name the namespace of a workload with -n, in place of -A", arg)
		}
		return target{owner: &cluster.Owner{Kind: kind, Namespace: o.namespace(), Name: rest}}, nil
	case ok && (first == "pod" || first == "pods" || first == "po"):
		return o.target(rest)
	case ok && strings.Contains(rest, "/"):
		return target{}, fmt.Errorf("%s: want POD, NAMESPACE/POD or KIND/NAME, such as deployment/chat%s", arg, cli.Suggest(first, []string{"deployment", "statefulset", "daemonset", "job", "cronjob"}))
	case ok:
		if o.space != "" && o.space != first {
			return target{}, fmt.Errorf("pod %s is in namespace %s, but -n is %s: leave one out", arg, first, o.space)
		}
		o.space = first
		return target{pod: rest}, nil
	}
	return target{pod: arg}, nil
}

func (o *explainOptions) run(ctx context.Context, name string, stdin io.Reader, stdout, stderr io.Writer) error {
	colors, err := o.check(stdout, "table", "json")
	if err != nil {
		return err
	}
	policy, err := givenPolicy(o.policy)
	if err != nil {
		return err
	}
	target, err := o.target(name)
	if err != nil {
		return err
	}
	objects, unread := o.read(ctx, stdin)
	if unread != nil && (!o.live() || !apierrors.IsForbidden(unread)) {
		return unread
	}
	explain := func() (*view.Explanations, error) {
		if unread != nil {
			return o.explainAlone(ctx, target, missingRight(unread))
		}
		return o.explain(ctx, objects, target, policy)
	}
	answer, err := explain()
	if err != nil && target.owner == nil {
		if target.owner = o.creator(ctx, objects, target.pod); target.owner != nil {
			answer, err = explain()
		}
	}
	if err != nil {
		return err
	}
	for _, warning := range unique(answer.Pods, func(e *view.Explanation) []string { return e.Warnings }) {
		if o.output != "json" {
			fmt.Fprintf(stderr, "warning: %s\n", warning)
		}
	}
	return o.answer(stdout, answer.OK(), "Explanations", answer, func() string { return explainText(answer, colors) })
}

// creator returns the workload that failed to create the pod, as its events show: a pod
// that a quota or a webhook rejected does not exist.
func (o *explainOptions) creator(ctx context.Context, objects *cluster.Objects, pod string) *cluster.Owner {
	var events []cluster.Event
	if objects != nil {
		events = objects.Events
	}
	if o.live() {
		// Without events the answer is that there is no such pod.
		events, _ = o.client.ReadEvents(ctx, "reason", cluster.ReasonFailedCreate, o.namespace())
	}
	for _, e := range events {
		kind, ok := cluster.OwnerKind(e.Kind)
		if ok && e.Reason == cluster.ReasonFailedCreate && e.Namespace == o.namespace() && strings.Contains(e.Message, strconv.Quote(pod)) {
			return &cluster.Owner{Kind: kind, Namespace: e.Namespace, Name: e.Name}
		}
	}
	return nil
}

// explain answers from the whole cluster.
func (o *explainOptions) explain(ctx context.Context, objects *cluster.Objects, t target, policy place.Policy) (*view.Explanations, error) {
	pods := []*corev1.Pod{}
	if t.owner == nil {
		pod, err := findPod(objects, o.namespace(), t.pod, o.all)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	if err := o.readMore(ctx, objects, t, pods); err != nil {
		return nil, err
	}
	answer := &view.Explanations{}
	if t.owner != nil {
		var err error
		if answer.Workload, pods, err = o.workload(objects, t.owner); err != nil {
			return nil, err
		}
	}
	answer.Pods = view.ExplainAll(objects.Snapshot(), pods, policy)
	return answer, nil
}

// workload returns the workload and its pods. Files need not have the workload
// itself.
func (o *explainOptions) workload(objects *cluster.Objects, owner *cluster.Owner) (*view.Workload, []*corev1.Pod, error) {
	pods := objects.PodsOf(owner)
	failures := objects.FailuresOf(owner, pods)
	if !o.live() && len(pods)+len(failures) == 0 {
		return nil, nil, fmt.Errorf("the files hold no pod of %s %s in namespace %s", owner.Kind, owner.Name, owner.Namespace)
	}
	return &view.Workload{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name, Failures: view.NewEvents(failures)}, pods, nil
}

// readMore reads what else there is on the live cluster about what is explained:
// the workload, and events.
func (o *explainOptions) readMore(ctx context.Context, objects *cluster.Objects, t target, pods []*corev1.Pod) error {
	if !o.live() {
		return nil
	}
	if t.owner != nil {
		if err := o.client.ReadOwner(ctx, t.owner); err != nil {
			return err
		}
		failures, err := o.client.ReadEvents(ctx, "reason", cluster.ReasonFailedCreate, t.owner.Namespace)
		if err != nil {
			return err
		}
		objects.Events = append(objects.Events, failures...)
	}
	// Victims may be in any namespace.
	namespace := o.namespace()
	if len(pods) > 0 {
		namespace = pods[0].Namespace
	}
	preemptions, err := o.client.ReadEvents(ctx, "reason", cluster.ReasonPreempted, "", namespace)
	objects.Events = append(objects.Events, preemptions...)
	return err
}

// explainAlone answers from what a user may see who has rights in one namespace.
func (o *explainOptions) explainAlone(ctx context.Context, t target, limited string) (*view.Explanations, error) {
	objects, err := o.client.ReadPods(ctx, o.namespace(), t.pod)
	if err != nil {
		return nil, err
	}
	pods, answer := objects.Pods, &view.Explanations{Pods: []view.Explanation{}}
	if err := o.readMore(ctx, objects, t, nil); err != nil {
		return nil, err
	}
	if t.owner != nil {
		answer.Workload, pods, err = o.workload(objects, t.owner)
	} else {
		var own []cluster.Event
		own, err = o.client.ReadEvents(ctx, "involvedObject.name", t.pod, o.namespace())
		objects.Events = append(objects.Events, own...)
	}
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		answer.Pods = append(answer.Pods, view.ExplainAlone(pod, objects.Events, limited))
	}
	return answer, nil
}

// missingRight says which right is missing, and how to get it.
func missingRight(err error) string {
	what := "nodes, pods and devices"
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil && status.ErrStatus.Details.Kind != "" {
		what = status.ErrStatus.Details.Kind
	}
	return fmt.Sprintf("which nodes have room is not known: this user may not list %s of the cluster; an administrator can bind the ClusterRole daybreak-viewer to the user", what)
}

// findPod finds the pod, or says what may have been meant.
func findPod(objects *cluster.Objects, namespace, name string, all bool) (*corev1.Pod, error) {
	var there, elsewhere []string
	var found []*corev1.Pod
	for _, p := range objects.Pods {
		switch {
		case p.Name == name && (all || p.Namespace == namespace):
			found = append(found, p)
		case p.Name == name:
			elsewhere = append(elsewhere, p.Namespace)
		case p.Namespace == namespace:
			there = append(there, p.Name)
		case all:
			there = append(there, p.Namespace+"/"+p.Name)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var spaces []string
		for _, p := range found {
			spaces = append(spaces, p.Namespace)
		}
		return nil, fmt.Errorf("there are %d pods called %s: name one with -n %s", len(found), name, strings.Join(spaces, " or -n "))
	case len(elsewhere) > 0:
		return nil, fmt.Errorf("there is no pod %s in namespace %s, but one in %s: add -n %s", name, namespace, strings.Join(elsewhere, ", "), elsewhere[0])
	case all:
		return nil, fmt.Errorf("there is no pod %s in any namespace%s", name, cli.Suggest(name, there))
	}
	return nil, fmt.Errorf("there is no pod %s in namespace %s%s", name, namespace, cli.Suggest(name, there))
}
