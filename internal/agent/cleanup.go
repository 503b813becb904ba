package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// cleanupRetry is the time between two tries with --wait.
	cleanupRetry = 5 * time.Second
	// withdrawTimeout bounds the wait for the manager, withdrawPoll its polls.
	withdrawTimeout, withdrawPoll = 30 * time.Second, time.Second
)

func newCleanup() *cobra.Command {
	c := &cleaner{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove slices, state and annotations of the agent from this node",
		Long: `Cleanup removes what the agent has created on a node: slices, CDI specs and the state
folder on the machine, and the Device and the agent's annotations of the Node in the
cluster. It then waits until the manager has removed the resources of the Node.

While a pod uses a card or a slice of the node, or an agent runs on it, nothing is
removed, and the number of pods is reported. Slices, annotations and Devices of other
software stay.

With agent.cleanup=true the chart runs it on every node, as the step before helm
uninstall.`,
		Example: `  # On all nodes, before helm uninstall
  helm upgrade daybreak charts/daybreak -n daybreak-system --reset-then-reuse-values --set agent.cleanup=true
  kubectl -n daybreak-system rollout status daemonset/daybreak-agent

  # On one node
  NODE_NAME=gpu-1 daybreak agent cleanup --kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&c.wait, "wait", false, "retry until the node is clean, then keep running; /readyz reports what is missing")
	return cmd
}

// cleaner is the cleanup subcommand, with the agent's flags to find its files.
type cleaner struct {
	command
	wait  bool
	clock clock.Clock
	// missing is why the node is not clean yet; nil once it is.
	missing atomic.Pointer[error]
}

func (c *cleaner) run(ctx context.Context, out io.Writer) error {
	return c.start(func(s *session) error {
		clean := func(ctx context.Context) error { return c.clean(ctx, s) }
		if c.wait {
			return c.stay(ctx, clean)
		}
		if err := clean(ctx); err != nil {
			return fmt.Errorf("clean up node %s: %w", c.Node, err)
		}
		_, err := fmt.Fprintf(out, "node %s is clean\n", c.Node)
		return err
	})
}

// stay cleans until it succeeds, and reports on /readyz until the context ends.
func (c *cleaner) stay(ctx context.Context, clean func(context.Context) error) error {
	begins := errors.New("the cleanup has just begun")
	c.missing.Store(&begins)
	h := handlers{}
	h.add(c.health, "GET /healthz", probe(http.StatusInternalServerError, func() error { return nil }))
	h.add(c.health, "GET /readyz", probe(http.StatusServiceUnavailable, c.ready))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.serve(ctx, nil) })
	group.Go(func() error {
		for {
			err := clean(ctx)
			if err == nil {
				c.missing.Store(nil)
				klog.FromContext(ctx).Info("The node is clean", "node", c.Node)
				<-ctx.Done()
				return nil
			}
			if before := c.missing.Swap(&err); (*before).Error() != err.Error() {
				klog.FromContext(ctx).Info("The node is not clean yet", "node", c.Node, "why", err.Error())
			}
			select {
			case <-ctx.Done():
				return nil
			case <-c.clock.After(cleanupRetry):
			}
		}
	})
	return group.Wait()
}

func (c *cleaner) ready() error {
	if err := c.missing.Load(); err != nil {
		return *err
	}
	return nil
}

// clean cleans the node up once. It can be repeated.
func (c *cleaner) clean(ctx context.Context, s *session) error {
	node, err := c.ownNode(ctx, s.clients)
	if err != nil {
		return err
	}
	pods, err := c.users(ctx, s.clients, node)
	if err != nil {
		return err
	}
	cards, blind := c.cards(ctx, s.source)
	server, err := deviceplugin.New(c.node, pods, s.slicer, deviceplugin.NewMetrics(nil), clock.RealClock{})
	if err != nil {
		return err
	}
	if err := server.Cleanup(ctx, cards, blind); err != nil {
		return err
	}
	if err := c.deleteDevice(ctx, s.clients); err != nil {
		return err
	}
	if err := c.removeAnnotations(ctx, s.clients); err != nil {
		return err
	}
	return c.awaitWithdrawal(ctx, s.clients)
}

// removeAnnotations removes from the Node what the agent applied, and the mark that
// Daybreak serves it, whatever its field manager.
func (c *cleaner) removeAnnotations(ctx context.Context, clients *Clients) error {
	node, err := clients.applyNode(ctx, c.Node, nil)
	if err != nil || node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak {
		return err
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(wire.AnnotationServedBy, "/", "~1")
	patch := fmt.Sprintf(`[{"op": "test", "path": %q, "value": %q}, {"op": "remove", "path": %q}]`, path, wire.ServedByDaybreak, path)
	_, err = clients.Metadata.Resource(nodeResource).Patch(ctx, c.Node, types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("remove annotation %s of node %s: %w", wire.AnnotationServedBy, c.Node, err)
	}
	return nil
}

func (c *cleaner) own() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.Node).String()}
}

// ownNode returns the Node. An agent may list nodes, and not get one.
func (c *cleaner) ownNode(ctx context.Context, clients *Clients) (*metav1.PartialObjectMetadata, error) {
	list, err := clients.Metadata.Resource(nodeResource).List(ctx, c.own())
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", c.Node, err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there is no node %s", c.Node)
	}
	return &list.Items[0], nil
}

// users returns the pods that hold cards through the agent, not the vendor's plugin.
func (c *cleaner) users(ctx context.Context, clients *Clients, node *metav1.PartialObjectMetadata) (*listedPods, error) {
	users := &listedPods{}
	if node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak {
		return users, nil
	}
	list, err := clients.Core.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", c.Node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", c.Node, err)
	}
	for i := range list.Items {
		if pod := &list.Items[i]; wire.Holds(pod) && wire.Asks(pod) {
			users.held = append(users.held, pod)
		}
	}
	return users, nil
}

// cards returns the cards of the node, and why they are not known, if so.
func (c *cleaner) cards(ctx context.Context, source discover.Source) (*deviceplugin.Node, error) {
	n := &deviceplugin.Node{Cards: map[gpu.CardID]deviceplugin.Card{}}
	snapshot, err := c.lookOnce(ctx, source)
	if err != nil {
		return n, err
	}
	for i := range snapshot.Cards {
		card := &snapshot.Cards[i]
		n.Cards[gpu.CardID(card.UUID)] = deviceplugin.Card{BDF: card.BDF, Here: true}
		if card.Sliced != nil && *card.Sliced {
			n.Mode = gpu.ModeSGPU
		}
	}
	return n, nil
}

func (c *cleaner) deleteDevice(ctx context.Context, clients *Clients) error {
	devices := clients.Devices.Resource(deviceResource)
	list, err := devices.List(ctx, c.own())
	switch {
	case apierrors.IsNotFound(err): // there is no definition, hence no Device
		return nil
	case err != nil:
		return fmt.Errorf("read device %s: %w", c.Node, err)
	}
	for i := range list.Items {
		d := &list.Items[i]
		if !writes(FieldManager, d) || writes(koordlet, d) {
			continue
		}
		uid := d.GetUID()
		err := devices.Delete(ctx, c.Node, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete device %s: %w", c.Node, err)
		}
	}
	return nil
}

// awaitWithdrawal waits until the manager, after the Device is gone, has withdrawn
// what the node advertises.
func (c *cleaner) awaitWithdrawal(ctx context.Context, clients *Clients) error {
	err := wait.PollUntilContextTimeout(ctx, withdrawPoll, withdrawTimeout, true, func(ctx context.Context) (bool, error) {
		node, err := c.ownNode(ctx, clients)
		if err != nil {
			return false, err
		}
		_, marked := node.Annotations[wire.AnnotationAdvertised]
		return !marked, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the manager has not withdrawn what the node advertises (annotation %s): clean up while a manager runs, before the chart is uninstalled", wire.AnnotationAdvertised)
	}
	return err
}

// listedPods are pods of one moment, all that a cleanup asks for.
type listedPods struct {
	deviceplugin.Pods
	held []*corev1.Pod
}

// Held implements [deviceplugin.Pods].
func (l *listedPods) Held() ([]*corev1.Pod, bool) { return l.held, true }
