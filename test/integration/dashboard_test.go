package integration

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
)

// account creates a service account that may list nodes and Devices, and pods in
// the namespaces, "" meaning all, and returns a token of it.
func (w *world) account(name string, namespaces ...string) string {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	_, err := w.client.CoreV1().ServiceAccounts("default").Create(w.ctx, account, metav1.CreateOptions{})
	w.must(err)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "default"}}
	list := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list"}}
	}
	cluster := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{list("", "nodes"), list("scheduling.koordinator.sh", "devices")}}
	for _, namespace := range namespaces {
		if namespace == "" {
			cluster.Rules = append(cluster.Rules, list("", "pods"))
			continue
		}
		_, err = w.client.RbacV1().Roles(namespace).Create(w.ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{list("", "pods")}}, metav1.CreateOptions{})
		w.must(err)
		_, err = w.client.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: subjects,
		}, metav1.CreateOptions{})
		w.must(err)
	}
	_, err = w.client.RbacV1().ClusterRoles().Create(w.ctx, cluster, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: subjects,
	}, metav1.CreateOptions{})
	w.must(err)
	return w.token(name)
}

func (w *world) token(account string) string {
	w.Helper()
	request, err := w.client.CoreV1().ServiceAccounts("default").CreateToken(w.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.must(err)
	return request.Status.Token
}

// TestDashboardElsewhere: outside of loopback the page is served over TLS alone,
// to users whom the API server knows and lets list nodes and Devices, and each
// sees the pods of the namespaces where he may list pods.
func TestDashboardElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.nodes(2)
	w.scheduler("scheduler")
	for _, namespace := range []string{"team-a", "covert"} {
		w.namespace(namespace, nil)
		for name, limits := range map[string][]string{"runner": {"sgpu=1", "vcore=20", "vmemory=4"}, "waiter": {"gpu=16"}} {
			p := pod(namespace+"-"+name, limits...)
			p.Namespace = namespace
			w.create(p)
		}
	}
	_, port, err := net.SplitHostPort(freeAddress(t))
	w.must(err)
	admission := freeAddress(t)
	w.must(w.cluster.Webhook(w.ctx, admission))
	m, err := w.cluster.StartManager(w.ctx, "manager", manager.Config{
		Admission: manager.Admission{Address: admission, Hosts: []string{"127.0.0.1"}, Rules: webhook.Rules{Schedulers: []string{"default-scheduler"}}},
		Dashboard: manager.Dashboard{Address: ":" + port}, // every address of this machine
	})
	w.must(err)
	t.Cleanup(m.Stop)

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the certificate is the manager's own
	t.Cleanup(client.CloseIdleConnections)
	ask := func(path, token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "https://127.0.0.1:"+port+path, http.NoBody)
		w.must(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		w.must(err)
		return response.StatusCode, string(text)
	}
	everybody, alice, stranger := w.account("everybody", ""), w.account("alice", "team-a"), w.token("default")
	w.eventually("the dashboard shows all four pods", time.Minute, func() error {
		status, text := ask("/api/v1/state", everybody)
		for _, want := range []string{"team-a-runner", "covert-runner", "team-a-waiter", "covert-waiter"} {
			if status != http.StatusOK || strings.Count(text, want) == 0 {
				return fmt.Errorf("status %d, no %s: %.300s", status, want, text)
			}
		}
		return nil
	})

	paths := []string{"/", "/assets/app.js", "/api/v1/state", "/api/v1/stream", "/api/v1/pods/team-a/team-a-runner"}
	for _, path := range paths {
		for name, c := range map[string]struct {
			token string
			want  int
		}{
			"no token": {"", http.StatusUnauthorized}, "a forged token": {alice + "x", http.StatusUnauthorized}, "a user without rights": {stranger, http.StatusForbidden},
		} {
			if status, text := ask(path, c.token); status != c.want || strings.Contains(text, "metax-1") || strings.Contains(text, "runner") {
				t.Errorf("%s for %s: status %d, want %d: %.300s", path, name, status, c.want, text)
			}
		}
	}
	plain, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://127.0.0.1:"+port+"/api/v1/state", http.NoBody)
	w.must(err)
	plain.Header.Set("Authorization", "Bearer "+everybody)
	if response, err := client.Do(plain); err == nil {
		w.must(response.Body.Close())
		if response.StatusCode < 400 {
			t.Errorf("without TLS: %s", response.Status)
		}
	}
	w.checkSeenByAlice(func(path string) (int, string) { return ask(path, alice) })
}

// checkSeenByAlice: she may list pods in team-a, so she sees those by name, and
// what the others hold without.
func (w *world) checkSeenByAlice(ask func(path string) (int, string)) {
	w.Helper()
	status, text := ask("/api/v1/state")
	if status != http.StatusOK || strings.Contains(text, "covert") || !strings.Contains(text, "team-a-runner") || !strings.Contains(text, "team-a-waiter") {
		w.Errorf("alice gets status %d: %s", status, text)
	}
	var state struct {
		Nodes   []dashboard.Node  `json:"nodes"`
		Cluster dashboard.Summary `json:"cluster"`
	}
	w.must(json.Unmarshal([]byte(text), &state))
	hidden, seen := 0, 0
	for _, n := range state.Nodes {
		for _, c := range n.Cards {
			for _, h := range c.Holders {
				if h.Hidden && h.MemoryMiB == 4096 {
					hidden++
				} else if h.Pod == "team-a-runner" {
					seen++
				}
			}
		}
	}
	if hidden != 1 || seen != 1 || state.Cluster.HiddenPending != 1 || state.Cluster.Pending != 2 {
		w.Errorf("alice sees %d pods with and %d without a name, %d of %d waiting are hidden; want 1, 1, 1 of 2", seen, hidden, state.Cluster.HiddenPending, state.Cluster.Pending)
	}
	if status, text := ask("/api/v1/pods/covert/covert-runner"); status != http.StatusNotFound {
		w.Errorf("a pod of another namespace: status %d: %s", status, text)
	}
	if status, text := ask("/api/v1/pods/team-a/team-a-waiter"); status != http.StatusOK || strings.Contains(text, "covert") || !strings.Contains(text, "TooFewCards") {
		w.Errorf("her own pod: status %d: %s", status, text)
	}
}
