package integration

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/charts"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// TestSettings: the leaders of scheduler and manager write their settings on their
// Leases, also after a takeover, and commands answer by them: by the policy of a
// configuration file, and by the taint of the manager. Without them, and without the
// right to read them, there is a note.
func TestSettings(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents())
	w.AddNodes(2)
	more := writeYAML(t, "more.yaml", podOf("more", "sgpu=1", "vcore=10", "vmemory=1"))
	_, stderr, _ := w.run("place", "-f", more)
	for _, part := range []string{"scheduler's settings are unknown: Lease kube-system/daybreak-scheduler is missing", "manager's settings are unknown: Lease daybreak-system/daybreak-manager is missing"} {
		if !strings.Contains(stderr, "note: the "+part) {
			t.Errorf("no note about the %s: %s", part, stderr)
		}
	}

	first := w.Run(w.NewScheduler("first", "--config="+w.schedulerConfig(map[string]any{"policy": "spread", "quotaKeys": "warn"})))
	w.Create(pod("there", "sgpu=1", "vcore=10", "vmemory=1"))
	full := w.Bound("there").Spec.NodeName
	empty := map[string]string{"metax-1": "metax-2", "metax-2": "metax-1"}[full]
	waits := pod("waits", "sgpu=1", "vcore=10", "vmemory=1")
	waits.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	w.Create(waits)
	answers := func(scheduler, node string) {
		w.Helper()
		w.hasSettings(metav1.NamespaceSystem, "kube-scheduler", `"profiles":{"default-scheduler":`+scheduler+`}`)
		placed, stderr, _ := w.run("place", "-f", more)
		explained, _, _ := w.run("explain", "waits")
		if !strings.Contains(placed, node) || !strings.Contains(explained, node) || strings.Contains(stderr+placed+explained, "scheduler's") {
			t.Errorf("not on %s by the policy of the scheduler:\n%s%s%s", node, placed, stderr, explained)
		}
	}
	answers(`{"policy":"spread","quotaKeys":"warn"}`, empty)
	second := w.Scheduler("second", "--policy=binpack")
	w.Must(first.Signal(syscall.SIGTERM))
	answers(`{"policy":"binpack","quotaKeys":"enforce"}`, full)
	w.Create(pod("bound", "sgpu=1", "vcore=10", "vmemory=1"))
	w.Bound("bound") // the election goes on
	select {
	case <-second.Exited():
		t.Error("the scheduler that has written its settings has ended")
	default:
	}

	w.Kubectl("taint", "node", empty, "team=a:NoSchedule")
	lead := func(name, taint string) *harness.Manager {
		return w.Manager(name, manager.Config{
			LeaderElect: true, Lease: manager.Lease{Duration: 6 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: 500 * time.Millisecond},
			Admission: manager.Admission{Rules: webhook.Rules{Taint: webhook.Taint{Key: taint, Effect: corev1.TaintEffectNoSchedule}}},
		})
	}
	leader := lead("leader", "other")
	w.hasSettings(manager.DefaultNamespace, manager.LeaseName, `"toleratedTaint":"other:NoSchedule"`)
	w.says("admin", 0, []string{"status"}, empty+": the node has the taint team=a:NoSchedule")
	lead("standby", "team")
	leader.Stop()
	w.hasSettings(manager.DefaultNamespace, manager.LeaseName, `"toleratedTaint":"team:NoSchedule"`)
	if out, stderr, _ := w.run("status"); strings.Contains(out+stderr, "taint") || strings.Contains(out+stderr, "settings") {
		t.Errorf("the taint that the manager tolerates: %s%s", out, stderr)
	}

	jane := w.addViewer("default")
	viewer, err := charts.RightsOf("viewer")
	w.Must(err)
	rules := slices.DeleteFunc(viewer.Cluster, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "leases") })
	_, err = w.Client.RbacV1().ClusterRoles().Create(w.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "no-leases"}, Rules: rules}, metav1.CreateOptions{})
	w.Must(err)
	_, err = w.Client.RbacV1().ClusterRoleBindings().Create(w.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{jane}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "no-leases"},
	}, metav1.CreateOptions{})
	w.Must(err)
	w.says("jane", 0, []string{"status"}, "the node has the taint team=a:NoSchedule")
	if _, stderr, _ := w.runAs("jane", "status"); !strings.Contains(stderr, "the manager's settings are unknown: Lease daybreak-system/daybreak-manager is forbidden to this user") {
		t.Errorf("without the right to Leases: %s", stderr)
	}
}

// hasSettings waits until the Lease has the settings, written by its holder.
func (w *world) hasSettings(namespace, lease, settings string) {
	w.Helper()
	w.Eventually("settings of "+lease, time.Minute, func() error {
		l, err := w.Client.CoordinationV1().Leases(namespace).Get(w.Ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := fmt.Sprintf(`{"holder":%q,%s}`, *l.Spec.HolderIdentity, settings)
		if got := l.Annotations[wire.AnnotationSettings]; got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}
