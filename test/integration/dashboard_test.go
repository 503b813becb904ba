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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
)

// account creates a service account that may list nodes and Devices, and pods in
// the namespaces, "" meaning all, and returns a token of it.
func (w *world) account(name string, namespaces ...string) string {
	w.Helper()
	who := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "default"}
	w.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	list := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list"}}
	}
	everywhere := []rbacv1.PolicyRule{list("", "nodes"), list("scheduling.koordinator.sh", "devices")}
	for _, namespace := range namespaces {
		if namespace == "" {
			everywhere = append(everywhere, list("", "pods"))
		} else {
			w.Grant(who, namespace, list("", "pods"))
		}
	}
	w.Grant(who, "", everywhere...)
	return w.Token("default", name)
}

// TestDashboardElsewhere: outside of loopback the page is served over TLS alone,
// to users whom the API server knows and lets list nodes and Devices, and each
// sees the pods of the namespaces where he may list pods.
func TestDashboardElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(2)
	w.Scheduler("scheduler")
	for _, namespace := range []string{"team-a", "covert"} {
		w.Namespace(namespace, nil)
		for name, limits := range map[string][]string{"runner": {"sgpu=1", "vcore=20", "vmemory=4"}, "waiter": {"gpu=16"}} {
			p := pod(namespace+"-"+name, limits...)
			p.Namespace = namespace
			w.Create(p)
		}
	}
	_, port, err := net.SplitHostPort(w.FreeAddress())
	w.Must(err)
	admission := w.FreeAddress()
	w.Must(w.Webhook(w.Ctx, admission))
	w.Manager("manager", manager.Config{
		Admission: manager.Admission{Address: admission, Rules: webhook.Rules{Schedulers: []string{"default-scheduler"}}},
		Dashboard: manager.Dashboard{Address: ":" + port}, // every address of this machine
	})

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the certificate is the manager's own
	t.Cleanup(client.CloseIdleConnections)
	ask := func(path, token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, "https://127.0.0.1:"+port+path, http.NoBody)
		w.Must(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		w.Must(err)
		return response.StatusCode, string(text)
	}
	everybody, alice, stranger := w.account("everybody", ""), w.account("alice", "team-a"), w.Token("default", "default")
	w.Eventually("the dashboard shows all four pods, two of them placed", time.Minute, func() error {
		status, text := ask("/api/v1/state", everybody)
		for _, want := range []string{"team-a-runner", "covert-runner", "team-a-waiter", "covert-waiter"} {
			if status != http.StatusOK || strings.Count(text, want) == 0 {
				return fmt.Errorf("status %d, no %s: %.300s", status, want, text)
			}
		}
		var state struct{ Cluster dashboard.Summary }
		if err := json.Unmarshal([]byte(text), &state); err != nil || state.Cluster.Pending != 2 {
			return fmt.Errorf("%d pods wait, want two: %w", state.Cluster.Pending, err)
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
	plain, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, "http://127.0.0.1:"+port+"/api/v1/state", http.NoBody)
	w.Must(err)
	plain.Header.Set("Authorization", "Bearer "+everybody)
	if response, err := client.Do(plain); err == nil {
		w.Must(response.Body.Close())
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
	w.Must(json.Unmarshal([]byte(text), &state))
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
