package manager

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

// need is a right that the manager requires.
type need struct {
	// resource is its plural name and, unless it is of the core group, the
	// group: "devices.scheduling.koordinator.sh".
	resource, subresource string
	// namespace is empty for all namespaces and for resources without one, name
	// for all objects.
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

// needs returns the rights without which the manager can't work.
func (m *Manager) needs() []need {
	const leases = "leases.coordination.k8s.io"
	read, keep := []string{"list", "watch"}, []string{"get", "update", "list", "watch"}
	needs := []need{
		{resource: devices, verbs: read},
		{resource: "pods", verbs: read},
		{resource: "namespaces", verbs: read},
		{resource: "resourcequotas", verbs: read},
		{resource: "nodes", verbs: []string{"patch", "list", "watch"}},
		{resource: "nodes", subresource: "status", verbs: []string{"patch"}},
		{resource: "events.events.k8s.io", verbs: []string{"create", "patch"}},
	}
	if m.cfg.Admission.Address != Off {
		needs = append(needs,
			need{resource: "secrets", namespace: m.cfg.Namespace, name: policy.Secret, verbs: keep},
			need{resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io", name: policy.Name, verbs: keep})
	}
	if m.cfg.Admission.Policies != "" {
		needs = append(needs,
			need{resource: "validatingwebhookconfigurations.admissionregistration.k8s.io", name: policy.Name, verbs: keep},
			need{resource: "namespaces", verbs: []string{"get"}},
			need{resource: "pods", verbs: []string{"get"}},
			need{resource: "subjectaccessreviews.authorization.k8s.io", verbs: []string{"create"}})
	}
	if m.cfg.Dashboard.Address != Off && !dashboard.IsLoopback(m.cfg.Dashboard.Address) {
		needs = append(needs,
			need{resource: "tokenreviews.authentication.k8s.io", verbs: []string{"create"}},
			need{resource: "subjectaccessreviews.authorization.k8s.io", verbs: []string{"create"}})
	}
	if m.cfg.LeaderElect {
		needs = append(needs,
			need{resource: leases, namespace: m.cfg.LeaderElectNamespace, verbs: []string{"create"}},
			need{resource: leases, namespace: m.cfg.LeaderElectNamespace, name: LeaseName, verbs: []string{"get", "update"}})
	}
	return needs
}

// reach reports an API server that does not answer, for which all that follows
// would wait.
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

// check detects early what would otherwise be a cache that never fills or an
// election without a winner, and reports what to do about it.
func (m *Manager) check(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errSilent)
	defer cancel()
	defer func() {
		if err != nil && context.Cause(ctx) != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}()
	if err := checkRights(ctx, m.client, m.needs()); err != nil || !m.cfg.LeaderElect {
		return err
	}
	return m.checkLease(ctx)
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
			if !allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			missing = append(missing, strings.Join(verbs, ", ")+" "+n.String())
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
	gr := schema.ParseGroupResource(n.resource)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: gr.Group, Resource: gr.Resource, Subresource: n.subresource, Namespace: n.namespace, Name: n.name, Verb: verb,
		},
	}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// checkLease tries whether the lease could be created, without doing so.
func (m *Manager) checkLease(ctx context.Context) error {
	namespace := m.cfg.LeaderElectNamespace
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName, Namespace: namespace}}
	_, err := m.client.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no namespace %s for the lease %s: create it, or name another with --leader-elect-namespace", namespace, LeaseName)
	}
	return fmt.Errorf("try the lease %s/%s: %w", namespace, LeaseName, err)
}
