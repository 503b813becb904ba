package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/daybreak-gpu/daybreak/charts"
	"github.com/daybreak-gpu/daybreak/internal/local"
)

// addViewer makes jane a user with the rights of the role "view" in a namespace.
func (w *world) addViewer(namespace string) rbacv1.Subject {
	w.Helper()
	admin, err := clientcmd.LoadFromFile(w.Kubeconfig("admin"))
	w.Must(err)
	for _, auth := range admin.AuthInfos {
		auth.Impersonate = "jane"
		w.Must(w.WriteKubeconfig("jane", auth))
	}
	jane := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}
	_, err = w.Client.RbacV1().RoleBindings(namespace).Create(w.Ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{jane},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}, metav1.CreateOptions{})
	w.Must(err)
	return jane
}

// runAs is run with the rights of a user.
func (w *world) runAs(user string, args ...string) (stdout, stderr string, code int) {
	w.Helper()
	return w.run(append(slices.Clone(args), "--kubeconfig", w.Kubeconfig(user))...)
}

// says waits until a command prints the texts and ends with the code: events and
// rights take a moment.
func (w *world) says(user string, code int, args []string, texts ...string) {
	w.Helper()
	w.Eventually(fmt.Sprintf("%q as %s", args, user), time.Minute, func() error {
		stdout, stderr, got := w.runAs(user, args...)
		if got != code {
			return fmt.Errorf("exit code %d, want %d: %s%s", got, code, stdout, stderr)
		}
		for _, text := range texts {
			if !strings.Contains(stdout, text) {
				return fmt.Errorf("no %q in %s", text, stdout)
			}
		}
		return nil
	})
}

// TestExplainForUsers: what explain shows of preemptions and of workloads whose
// pods are rejected, to an administrator, to a user with rights in one namespace,
// and to one with the chart's role for viewers.
func TestExplainForUsers(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents())
	w.AddNodes(1)
	w.Scheduler("scheduler")
	w.priorities()
	w.Create(withPriority(pod("low", "gpu=8"), "low"))
	w.Bound("low")
	w.Create(withPriority(pod("high", "gpu=8"), "high"))
	w.Bound("high")
	w.Create(pod("wide", "gpu=16"), elsewhere(pod("lost", "gpu=1")))
	w.quotaed("chat")
	jane := w.addViewer("default")

	const rights = "this user may not list nodes of the cluster; an administrator can bind the ClusterRole daybreak-viewer"
	rejected := []string{"Deployment default/chat has no pods", "exceeded quota"}
	w.says("admin", 0, []string{"explain", "high"}, "evicted     default/low to make room for it")
	w.says("admin", 1, []string{"explain", "wide"}, "is pending: 0/1 nodes")
	w.says("admin", 1, []string{"explain", "lost"}, "schedulerName is koord-scheduler")
	w.says("admin", 1, []string{"explain", "deployment/chat"}, rejected...)

	w.says("jane", 0, []string{"explain", "high"}, "default/high is on metax-1", "has         c: card GPU-", rights, "evicted     default/low")
	w.says("jane", 1, []string{"explain", "wide"}, "the scheduler found no node", "0/1 nodes", "FailedScheduling", rights)
	w.says("jane", 1, []string{"explain", "deploy/chat"}, rejected...)
	w.says("jane", 2, []string{"status"})

	viewer, err := charts.RightsOf("viewer")
	w.Must(err)
	_, err = w.Client.RbacV1().ClusterRoles().Create(w.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "daybreak-viewer"}, Rules: viewer.Cluster}, metav1.CreateOptions{})
	w.Must(err)
	w.Must(w.Client.RbacV1().RoleBindings("default").Delete(w.Ctx, "jane", metav1.DeleteOptions{}))
	_, err = w.Client.RbacV1().ClusterRoleBindings().Create(w.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Subjects: []rbacv1.Subject{jane}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "daybreak-viewer"},
	}, metav1.CreateOptions{})
	w.Must(err)
	w.says("jane", 0, []string{"status"}, "1 node, 8 cards")
	w.says("jane", 0, []string{"audit"}, "no rule is broken")
	for _, args := range [][]string{{"explain", "high"}, {"explain", "wide"}, {"explain", "deployment/chat"}, {"place", "-f", writeYAML(t, "more.yaml", podOf("more", "gpu=1"))}} {
		// The controller goes on trying to create pods: between two answers there may
		// be one more event.
		w.Eventually(fmt.Sprintf("%q says the same to a viewer as to an administrator", args), time.Minute, func() error {
			admin, _, adminCode := w.run(args...)
			stdout, stderr, code := w.runAs("jane", args...)
			if stdout != admin || code != adminCode || stderr != "" && !strings.HasPrefix(stderr, "note: ") {
				return fmt.Errorf("as jane exit code %d, %s%s; as administrator %d, %s", code, stdout, stderr, adminCode, admin)
			}
			return nil
		})
	}
}

func elsewhere(p *corev1.Pod) *corev1.Pod {
	p.Spec.SchedulerName = "koord-scheduler"
	return p
}

// quotaed creates a Deployment whose pods a quota rejects.
func (w *world) quotaed(name string) {
	w.Helper()
	_, err := w.Client.CoreV1().ResourceQuotas("default").Create(w.Ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	w.Must(err)
	template := pod(name, "gpu=1").Spec
	template.TerminationGracePeriodSeconds = nil
	labels := map[string]string{"app": name}
	_, err = w.Client.AppsV1().Deployments("default").Create(w.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
		},
	}, metav1.CreateOptions{})
	w.Must(err)
}
