package integration

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// admission makes the world admit pods as a real cluster does: besides the
// policies, by a manager that answers about pods with cards.
func (w *world) admission() {
	w.Helper()
	address := w.FreeAddress()
	w.Must(w.Webhook(w.Ctx, address))
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

// guard starts a manager, makes the guards apply the policies, and waits until
// they do.
func (w *world) guard(g guards, params policy.Params) {
	w.Helper()
	address := w.FreeAddress()
	cfg := manager.Admission{Rules: webhook.Rules{DirectBinders: params.DirectBinders}}
	if g == byServer {
		w.Must(w.Guard(w.Ctx, params))
		w.Must(w.Webhook(w.Ctx, address))
	} else {
		params.NoMatchConditions = g == byManagerAlone
		cfg.Policies = w.Validate(params, address)
	}
	w.startManager("manager", address, cfg)
	w.admits()
	w.Eventually("a forged pod is rejected", time.Minute, func() error {
		forged := annotated(pod("forged"), wire.AnnotationAllocated, "[]")
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, forged, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'daybreak-pods'") {
			return nil
		}
		return fmt.Errorf("not by the policy: %w", err)
	})
}

// startManager starts a manager that admits pods.
func (w *world) startManager(name, address string, cfg manager.Admission) *harness.Manager {
	w.Helper()
	cfg.Address = address
	if len(cfg.Rules.Schedulers) == 0 {
		cfg.Rules.Schedulers = []string{"default-scheduler", "daybreak"}
	}
	return w.World.Manager(name, manager.Config{Admission: cfg})
}

// admits waits until the API server gets answers about pods with cards.
func (w *world) admits() {
	w.Helper()
	w.Eventually("pods are admitted", time.Minute, func() error {
		p := pod("try", "sgpu=1")
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// TestPoliciesCompile: the API server finds nothing wrong with the policies.
func TestPoliciesCompile(t *testing.T) {
	t.Parallel()
	newWorld(t).policiesCompile()
}

func (w *world) policiesCompile() {
	w.Helper()
	w.admission()
	names := map[string]bool{}
	w.Eventually("policies were looked at", time.Minute, func() error {
		return w.policiesChecked(names)
	})
	guards, err := policy.Guards(w.Policies())
	w.Must(err)
	if want := bytes.Count(guards, []byte("\nkind: ValidatingAdmissionPolicy\n")); len(names) != want || want == 0 {
		w.Errorf("policies %v, want %d", slices.Sorted(maps.Keys(names)), want)
	}
}

// policiesChecked reports what the API server's controller says of the policies.
func (w *world) policiesChecked(names map[string]bool) error {
	list, err := w.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(w.Ctx, metav1.ListOptions{})
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
	return context.Cause(w.Ctx)
}
