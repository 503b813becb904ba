package manager

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes"

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
	// Validity and Overlap are as in package cert; zero means its defaults.
	Validity, Overlap time.Duration
}

func (a Admission) withDefaults(namespace string) Admission {
	if a.Address == "" {
		a.Address = Off
	}
	if len(a.Hosts) == 0 {
		service := policy.DefaultService + "." + namespace + ".svc"
		a.Hosts = []string{service, service + ".cluster.local"}
	}
	if len(a.Rules.Schedulers) == 0 {
		a.Rules.Schedulers = []string{DefaultScheduler}
	}
	return a
}

func (m *Manager) addAdmission(context.Context) error {
	a := m.cfg.Admission
	client, err := kubernetes.NewForConfig(m.rest)
	if err != nil {
		return err
	}
	keeper, err := cert.New(cert.Options{
		Client: client, Namespace: m.cfg.Namespace, Secret: policy.Secret, Configuration: policy.Name,
		Hosts: a.Hosts, Validity: a.Validity, Overlap: a.Overlap, Clock: m.cfg.Clock,
	})
	if err != nil {
		return err
	}
	m.keeper = keeper
	if err := m.ctrl.Add(keeper); err != nil {
		return err
	}
	if err := m.ctrl.AddReadyzCheck("admission", func(*http.Request) error { return keeper.Ready() }); err != nil {
		return err
	}
	return m.serve(
		endpoint{name: "admission", address: a.Address, flag: "admission-bind-address", tls: newTLS(keeper.GetCertificate)},
		&http.Server{Handler: webhook.Handler(a.Rules, m.metrics), WriteTimeout: 30 * time.Second})
}
