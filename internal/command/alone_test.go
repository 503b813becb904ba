package command

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// serve starts an API server and returns its address and a kubeconfig whose context
// is in team-a.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) (server *httptest.Server, kubeconfig string) {
	t.Helper()
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "` + server.URL + `"}}], contexts: [{name: x, context: {cluster: c, namespace: team-a}}], current-context: x}`
	gputest.Must(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	return server, kubeconfig
}

// namespaced serves a cluster in which the user may read one namespace.
func namespaced(t *testing.T, objects map[string]string) source {
	t.Helper()
	_, kubeconfig := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if s := r.URL.Query().Get("fieldSelector"); s != "" {
			path += "?" + s
		}
		text, ok := objects[path]
		switch {
		case ok:
		case strings.Contains(path, "/namespaces/team-a/"):
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		default:
			resource := path[strings.LastIndex(path, "/")+1:]
			w.WriteHeader(http.StatusForbidden)
			text = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"kind":%q},"message":"%s is forbidden"}`, resource, resource)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
	})
	return source{access: cluster.Access{Kubeconfig: kubeconfig}}
}

// TestExplainWithoutRights: a user with rights in one namespace is shown what the
// pod itself has, and which right is missing. The exit code is the pod's.
func TestExplainWithoutRights(t *testing.T) {
	const (
		pods   = "/api/v1/namespaces/team-a/pods"
		events = "/api/v1/namespaces/team-a/events?involvedObject.name="
		rights = "  rights      which nodes have room is not known: this user may not list nodes of the cluster; an administrator can bind the ClusterRole daybreak-viewer to the user\n"
		whole  = `"spec":{"containers":[{"name":"main","resources":{"limits":{"metax-tech.com/gpu":"1"}}}]}`
		slice  = `"spec":{"nodeName":"n1","containers":[{"name":"main","resources":{"limits":{"metax-tech.com/sgpu":"1","metax-tech.com/vcore":"60","metax-tech.com/vmemory":"4"}}}]}`
	)
	head := func(name, more string) string {
		return `"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"team-a","name":"` + name + `"` + more + `}`
	}
	placed := `{` + head("placed", `,"annotations":{"metax-tech.com/gpu-devices-allocated":"[[{\"uuid\":\"GPU-1\",\"compute\":60,\"vRam\":4096}]]"}`) + `,` + slice + `}`
	owned := `,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"chat-6c8f","uid":"10","controller":true}]`
	waits := func(name string) string {
		return `{` + head(name, owned) + `,` + whole + `,"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes: 3 need more"}]}}`
	}
	live := namespaced(t, map[string]string{
		pods + "/placed": placed, pods + "/waits": waits("waits"), pods + "/new": `{` + head("new", "") + `,` + whole + `}`,
		pods: `{"kind":"PodList","apiVersion":"v1","items":[` + waits("chat-6c8f-a") + "," + waits("chat-6c8f-b") + `]}`,
		events + "placed": `{"kind":"EventList","apiVersion":"v1","items":[{"metadata":{"namespace":"team-a","name":"e"},"involvedObject":{"kind":"Pod","namespace":"team-a","name":"placed"},
			"reason":"Scheduled","message":"assigned team-a/placed to n1","lastTimestamp":"2026-03-15T11:00:00Z"}]}`,
		"/apis/apps/v1/namespaces/team-a/deployments/chat":     `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"chat"}}`,
		"/apis/apps/v1/namespaces/team-a/replicasets":          `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"chat-6c8f","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"chat","uid":"9","controller":true}]}}]}`,
		"/api/v1/namespaces/team-a/events?reason=FailedCreate": `{"kind":"EventList","apiVersion":"v1","items":[]}`,
		"/api/v1/namespaces/team-a/events?reason=Preempted":    `{"kind":"EventList","apiVersion":"v1","items":[]}`,
		events + "waits": `{"kind":"EventList","apiVersion":"v1","items":[]}`, events + "new": `{"kind":"EventList","apiVersion":"v1","items":[]}`,
	})
	for target, tc := range map[string]struct {
		want string
		ok   bool
	}{
		"placed": {"team-a/placed is on n1\n  has         main: card GPU-1, 60% and 4 GiB\n  event       Scheduled: assigned team-a/placed to n1 (last at 2026-03-15 11:00:00 UTC)\n" + rights, true},
		"waits":  {"team-a/waits is pending: the scheduler found no node\n  wants       1 whole card\n  scheduler   0/3 nodes: 3 need more\n" + rights, false},
		"new":    {"team-a/new is pending: the scheduler has not reported on it\n  wants       1 whole card\n" + rights, true},
		"deploy/chat": {"Deployment team-a/chat has 2 pods: 2 pending\n\nteam-a/chat-6c8f-a is pending: the scheduler found no node\n  wants       1 whole card\n" +
			"  scheduler   0/3 nodes: 3 need more\n" + rights + "  same for    team-a/chat-6c8f-b\n", false},
	} {
		t.Run(target, func(t *testing.T) {
			stdout, stderr, ok := explained(t, live, target, "table")
			if diff := cmp.Diff(tc.want, stdout); diff != "" || ok != tc.ok || stderr != "" {
				t.Errorf("ok is %v, want %v; on stderr %q; printed (-want +got):\n%s", ok, tc.ok, stderr, diff)
			}
		})
	}
	for target, want := range map[string]string{
		"none": "there is no pod none in namespace team-a", "deploy/none": "there is no Deployment none in namespace team-a",
	} {
		o := explainOptions{source: live, format: colorless("table")}
		if err := o.run(t.Context(), target, strings.NewReader(""), io.Discard, io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %q", target, err, want)
		}
	}
}
