package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/manager/cert"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
)

// DefaultScheduler is the scheduler that pods with cards are given to.
const DefaultScheduler = "daybreak"

// Admission configures how pods that ask for cards are admitted.
type Admission struct {
	// Address is where every replica serves the webhook; empty or [Off] means
	// nowhere.
	Address string
	// Hosts are the names and addresses that the API server calls; empty means
	// those of the Service daybreak-manager.
	Hosts []string
	// Rules is what is decided about pods; no Schedulers means [DefaultScheduler].
	Rules webhook.Rules
	// Policies is the file with the policies that are evaluated here, for API
	// servers below 1.30; empty means that the API server has them.
	Policies string
	// Validity and Overlap are as in package cert; zero means its defaults.
	Validity, Overlap time.Duration
}

func (a Admission) withDefaults(namespace string) Admission {
	if a.Address == "" {
		a.Address = Off
	}
	if len(a.Hosts) == 0 {
		service := policy.Service + "." + namespace + ".svc"
		a.Hosts = []string{service, service + ".cluster.local"}
	}
	if len(a.Rules.Schedulers) == 0 {
		a.Rules.Schedulers = []string{DefaultScheduler}
	}
	return a
}

func (m *Manager) addAdmission(ctx context.Context) error {
	a := m.cfg.Admission
	keeper, err := cert.New(cert.Options{
		Client: m.client, Namespace: m.cfg.Namespace, Secret: policy.Secret, Configuration: policy.Name, Validating: a.Policies != "",
		Hosts: a.Hosts, Validity: a.Validity, Overlap: a.Overlap, Clock: m.cfg.Clock,
	})
	if err != nil {
		return err
	}
	m.keeper = keeper
	if err := m.ctrl.Add(keeper); err != nil {
		return err
	}
	cards, err := newCardIndex(m.caches.Nodes, m.caches.Devices)
	if err != nil {
		return err
	}
	a.Rules.LargestCard = cards.largest
	if err := m.ctrl.AddReadyzCheck("admission", func(*http.Request) error { return cmp.Or(cards.ready(), keeper.Ready()) }); err != nil {
		return err
	}
	policies, err := m.policies(ctx)
	if err != nil {
		return err
	}
	return m.serve(
		endpoint{name: "admission", address: a.Address, flag: "admission-bind-address", tls: newTLS(keeper.GetCertificate)},
		&http.Server{Handler: webhook.Handler(a.Rules, policies, m.metrics), WriteTimeout: 30 * time.Second})
}

// What the policies look up at the API server, in requests a second: any client that
// reaches the port can cause it.
const lookups, lookupBurst = 50, 200

// policies returns the policies that are evaluated here, or nil.
func (m *Manager) policies(ctx context.Context) (*webhook.Policies, error) {
	file := m.cfg.Admission.Policies
	if file == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	manifests, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	config := rest.CopyConfig(m.rest)
	config.QPS, config.Burst = lookups, lookupBurst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespaces, err := m.informer(ctx, &corev1.Namespace{})
	if err != nil {
		return nil, err
	}
	// An answer is not kept: the policies ask about rights on Nodes only, which users
	// rarely need.
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), WebhookRetryBackoff: &wait.Backoff{Steps: 1},
	}.New()
	if err != nil {
		return nil, err
	}
	evaluator, err := policy.NewEvaluator(manifests, corelisters.NewNamespaceLister(namespaces.GetIndexer()), client, rights)
	if err != nil {
		return nil, fmt.Errorf("--policies %s: %w", file, err)
	}
	return webhook.NewPolicies(evaluator, client), nil
}
