package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// need is a right that a part can't do without.
type need struct {
	// resource is its plural name and, unless it is of the core group, the
	// group: "devices.scheduling.koordinator.sh".
	resource, subresource string
	// namespace is where; empty means everywhere, or outside of all. name is
	// the one object that it is about; empty means all.
	namespace, name string
	verbs           []string
}

var devices = "devices." + v1alpha1.GroupVersion.Group

// How long the API server may take to answer at all, and to answer all
// questions.
const (
	reachTimeout = 10 * time.Second
	checkTimeout = 30 * time.Second
)

var errSilent = fmt.Errorf("the API server did not answer within %s", checkTimeout)

// readVerbs are the verbs of a cache.
var readVerbs = []string{"list", "watch"}

// What the parts need: all of them read the cluster.
var (
	clusterNeeds = []need{
		{resource: devices, verbs: readVerbs},
		{resource: "pods", verbs: readVerbs},
		{resource: "nodes", verbs: readVerbs},
	}
	eventNeeds        = []need{{resource: "events.events.k8s.io", verbs: []string{"create", "patch"}}}
	nodeResourceNeeds = slices.Concat(clusterNeeds, eventNeeds, []need{
		{resource: "nodes", verbs: []string{"patch"}},
		{resource: "nodes", subresource: "status", verbs: []string{"patch"}},
	})
)

// reach says whether there is an API server that answers; what follows would
// wait for one that does not.
func reach(config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.Timeout = reachTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if _, err := client.ServerVersion(); err != nil {
		return fmt.Errorf("reach the API server at %s: %w", config.Host, err)
	}
	return nil
}

// check finds out early what would otherwise be a cache that never fills or an
// election that nobody wins, and says what to do about it.
func (m *Manager) check(ctx context.Context, parts []part) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errSilent)
	defer cancel()
	err := m.checkAll(ctx, parts)
	if err != nil && context.Cause(ctx) != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

func (m *Manager) checkAll(ctx context.Context, parts []part) error {
	client, err := kubernetes.NewForConfig(m.rest)
	if err != nil {
		return err
	}
	var needs []need
	for _, p := range parts {
		needs = append(needs, p.needs...)
	}
	if m.cfg.LeaderElect {
		const leases = "leases.coordination.k8s.io"
		needs = append(needs,
			need{resource: leases, namespace: m.cfg.LeaderElectNamespace, verbs: []string{"create"}},
			need{resource: leases, namespace: m.cfg.LeaderElectNamespace, name: LeaseName, verbs: []string{"get", "update"}})
	}
	if err := checkRights(ctx, client, needs); err != nil {
		return err
	}
	if err := m.checkDevices(ctx); err != nil {
		return err
	}
	if m.cfg.LeaderElect {
		return m.checkLease(ctx, client)
	}
	return nil
}

// checkRights asks the API server for each right and names all that are
// missing in one sentence.
func checkRights(ctx context.Context, client kubernetes.Interface, needs []need) error {
	var missing []string
	for _, n := range needs {
		var verbs []string
		for _, verb := range n.verbs {
			allowed, err := may(ctx, client, n, verb)
			if err != nil {
				return fmt.Errorf("ask the API server what this manager may do: %w", err)
			}
			if !allowed && !slices.Contains(verbs, verb) {
				verbs = append(verbs, verb)
			}
		}
		if text := strings.Join(verbs, ", ") + " " + n.String(); len(verbs) > 0 && !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this manager may not %s: give its account a role with these verbs", strings.Join(missing, "; "))
	}
	return nil
}

func (n need) String() string {
	name := n.resource
	if n.subresource != "" {
		name += "/" + n.subresource
	}
	if n.name != "" {
		name += " " + n.name
	}
	if n.namespace != "" {
		name += " in namespace " + n.namespace
	}
	return name
}

func may(ctx context.Context, client kubernetes.Interface, n need, verb string) (bool, error) {
	resource, group, _ := strings.Cut(n.resource, ".")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: group, Resource: resource, Subresource: n.subresource, Namespace: n.namespace, Name: n.name, Verb: verb,
		},
	}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func (m *Manager) checkDevices(ctx context.Context) error {
	client, err := dynamic.NewForConfig(m.rest)
	if err != nil {
		return err
	}
	_, err = client.Resource(v1alpha1.GroupVersion.WithResource("devices")).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server knows no devices: apply the CustomResourceDefinition %s first", devices)
	case err != nil:
		return fmt.Errorf("list devices: %w", err)
	}
	return nil
}

// checkLease tries whether the lease could be created, without doing so.
func (m *Manager) checkLease(ctx context.Context, client kubernetes.Interface) error {
	namespace := m.cfg.LeaderElectNamespace
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: namespace}}
	_, err := client.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %s for the lease %s: create it, or name another with --leader-elect-namespace", namespace, LeaseName)
	}
	return fmt.Errorf("try the lease %s/%s: %w", namespace, LeaseName, err)
}
