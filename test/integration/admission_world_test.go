package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/identity"
)

// freeAddress returns an address of this machine to listen on.
func freeAddress(t testing.TB) string {
	t.Helper()
	list, err := local.FreeAddresses(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// admission makes the world admit pods as a real cluster does: besides the
// policies, by a manager that answers about pods with cards.
func (w *world) admission() {
	w.Helper()
	address := freeAddress(w.TB)
	w.must(w.cluster.Webhook(w.ctx, address))
	w.startManager("manager", address, manager.Admission{})
	w.admits()
}

// guards is who evaluates the policies.
type guards string

const (
	byServer guards = "the API server"
	// byManager is as on Kubernetes 1.28 and 1.29, byManagerAlone as below, where
	// webhooks have no conditions.
	byManager      guards = "the manager"
	byManagerAlone guards = "the manager, without conditions"
)

// unseen reports a forgery that the guards do not see: without conditions, the
// status of a pod without the manager's label.
func (g guards) unseen(name string) bool {
	return g == byManagerAlone && name == "touch a pod without cards"
}

// guard starts a manager, makes the guards apply the policies, and waits until
// they do.
func (w *world) guard(g guards, params policy.Params) {
	w.Helper()
	address := freeAddress(w.TB)
	cfg := manager.Admission{Rules: webhook.Rules{DirectBinders: params.DirectBinders}}
	if g == byServer {
		w.must(w.cluster.Guard(w.ctx, params))
		w.must(w.cluster.Webhook(w.ctx, address))
	} else {
		params.NoMatchConditions = g == byManagerAlone
		var err error
		cfg.Policies, err = w.cluster.Validate(w.ctx, params, address)
		w.must(err)
	}
	w.startManager("manager", address, cfg)
	w.admits()
	w.eventually("a forged pod is rejected", time.Minute, func() error {
		forged := annotated(pod("forged"), wire.AnnotationAllocated, "[]")
		_, err := w.client.CoreV1().Pods("default").Create(w.ctx, forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-pods'") {
			return nil
		}
		return fmt.Errorf("not by the policy: %w", err)
	})
}

// startManager starts a manager that admits pods.
func (w *world) startManager(name, address string, cfg manager.Admission) *local.Manager {
	w.Helper()
	cfg.Address, cfg.Hosts = address, []string{"127.0.0.1"}
	if len(cfg.Rules.Schedulers) == 0 {
		cfg.Rules.Schedulers = []string{"default-scheduler", "daybreak"}
	}
	m, err := w.cluster.StartManager(w.ctx, name, manager.Config{Admission: cfg})
	w.must(err)
	w.Cleanup(m.Stop)
	return m
}

// admits waits until the API server gets answers about pods with cards.
func (w *world) admits() {
	w.Helper()
	w.eventually("pods are admitted", time.Minute, func() error {
		p := pod("try", "sgpu=1")
		_, err := w.client.CoreV1().Pods("default").Create(w.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// tenant returns a client of a user that has all rights on pods in the
// namespace, and the one that is given.
func (w *world) tenant(user, namespace string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	w.Helper()
	config, err := identity.Tenant(w.ctx, w.cluster, user, namespace, rules...)
	w.must(err)
	return w.clientOf(config)
}

func (w *world) clientOf(config *rest.Config) kubernetes.Interface {
	w.Helper()
	client, err := kubernetes.NewForConfig(config)
	w.must(err)
	return client
}

// namespace creates a namespace and waits until pods can be created in it.
func (w *world) namespace(name string, labels map[string]string) {
	w.Helper()
	_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	w.eventually("service account of "+name, time.Minute, func() error {
		_, err := w.client.CoreV1().ServiceAccounts(name).Get(w.ctx, "default", metav1.GetOptions{})
		return err
	})
}

// agentOf returns how to reach the API server as the agent that runs on the
// node: with a token that is bound to a pod there, as kubelet would give it.
func (w *world) agentOf(node string) *rest.Config {
	w.Helper()
	config, err := identity.Agent(w.ctx, w.cluster, node, "none")
	w.must(err)
	return config
}

// TestPoliciesCompile: on the oldest and the newest API server the policies hold
// and the API server finds nothing wrong with them.
func TestPoliciesCompile(t *testing.T) {
	for _, version := range []string{"1.33", ""} {
		t.Run("as "+version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, local.Config{EmulatedVersion: version})
			w.admission()
			names := map[string]bool{}
			w.eventually("policies were looked at", time.Minute, func() error {
				return w.policiesChecked(names)
			})
			if len(names) != 8 {
				t.Errorf("policies %v, want 8", names)
			}
		})
	}
}

// policiesChecked reports what the API server's controller says of the policies.
func (w *world) policiesChecked(names map[string]bool) error {
	list, err := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if !strings.HasPrefix(p.Name, "daybreak-") {
			continue
		}
		names[p.Name] = true
		if p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
			return fmt.Errorf("%s is not checked yet", p.Name)
		}
		for _, warning := range p.Status.TypeChecking.ExpressionWarnings {
			w.Errorf("policy %s: %s: %s", p.Name, warning.FieldRef, warning.Warning)
		}
	}
	return context.Cause(w.ctx)
}
