package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// explainOptions are the flags of the explain command.
type explainOptions struct {
	source
	format
	all    bool
	policy string
}

// NewExplainCommand returns the command that says why a pod is pending, or why
// it is where it is.
func NewExplainCommand() *cobra.Command {
	o := explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain POD",
		Short: "Say why a pod is pending, or why it is where it is",
		Long: `Explain says of a pending pod why no node takes it: in one sentence, the same as
in its events, then by reason with the node that comes nearest, which smaller
request would fit now, and which pods are in the way. It tries these out with the
code that the scheduler runs, on the cluster as it is this moment.

Of a placed pod it says which cards it has, who shares them, and what spoke for
its node against the next best one, as far as the pods that are still there show.

The nodes are those that the pod may use: others, which are cordoned, not ready,
tainted or not selected by the pod, refuse it with the code NodeExcluded and are
in no advice. What kube-scheduler itself last said, about CPU or volumes for
example, stands below.

With -o json the answer is one document, with the refusal of every node as in
daybreak place. Exit codes: 0 the pod has its place, could have one, or asks for
no card; 1 it fits nowhere, is not admitted, or its cards are unknown; 2 there is
no such pod, or something can't be read.`,
		Example: `  # A pod of the namespace of your context
  daybreak explain trainer-0

  # Of another namespace, in either way
  daybreak explain trainer-0 -n team-a
  daybreak explain team-a/trainer-0

  # Every node's refusal
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
	o.registerNamespace(cmd, "`NAMESPACE` of the pod; without it that of the kubeconfig's context")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "find the pod in whichever namespace it is")
	registerPolicy(cmd, &o.policy)
	o.registerOutput(cmd, "table", "json")
	o.registerColor(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.names(cmd.Context(), "pods"), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func onePod(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("which pod? write its name: daybreak explain POD [-n NAMESPACE]; daybreak status lists those that are pending")
	case 1:
		return nil
	}
	return fmt.Errorf("one pod at a time: got %s", strings.Join(args, ", "))
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
	name = strings.TrimPrefix(strings.TrimPrefix(name, "pod/"), "pods/")
	if space, pod, ok := strings.Cut(name, "/"); ok {
		if o.space != "" && o.space != space {
			return fmt.Errorf("pod %s is in namespace %s, but -n says %s: leave one out", name, space, o.space)
		}
		o.space, name = space, pod
	}
	objects, err := o.read(ctx, stdin)
	if err != nil {
		return err
	}
	pod, err := findPod(objects, o.namespace(), name, o.all)
	if err != nil {
		return err
	}
	explanation := view.Explain(objects.Snapshot(), pod, policy)
	answer := &view.Explanations{Pods: []view.Explanation{*explanation}}
	for _, warning := range explanation.Warnings {
		if o.output != "json" {
			fmt.Fprintf(stderr, "warning: %s\n", warning)
		}
	}
	return o.answer(stdout, answer.OK(), answer, func() string { return explainText(explanation, colors) })
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
