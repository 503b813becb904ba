package command

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestCompletionIsBounded: of a large cluster only the first names are sent. An
// API server answers a list at resourceVersion 0 in full, whatever its limit.
func TestCompletionIsBounded(t *testing.T) {
	const pods = 2000
	sent := 0
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := pods
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && limit > 0 && r.URL.Query().Get("resourceVersion") != "0" {
			n = min(n, limit)
		}
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"pod-%04d"}}`, i))
		}
		sent += n
		_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"more"},"items":[%s]}`, strings.Join(items, ","))
	})
	client, err := cluster.NewClient(&rest.Config{Host: server.URL})
	gputest.Must(t, err)
	names, err := client.Names(t.Context(), "pods", "team-a")
	if err != nil || len(names) != 500 || sent != 500 {
		t.Errorf("%d names of %d sent (%v), want 500", len(names), sent, err)
	}
}

// TestCompleteFromCluster: names travel, nothing else; and a cluster that can't
// be reached is no reason for a word.
func TestCompleteFromCluster(t *testing.T) {
	server, kubeconfig := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") || r.URL.Path != "/api/v1/namespaces/team-a/pods" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`)
	})
	cmd := NewExplainCommand()
	gputest.Must(t, cmd.ParseFlags([]string{"--kubeconfig", kubeconfig}))
	cmd.SetContext(t.Context())
	if got, _ := cmd.ValidArgsFunction(cmd, nil, ""); !cmp.Equal([]string{"a", "b"}, got) {
		t.Errorf("pods %v, want those of the context's namespace", got)
	}
	if got, _ := cmd.ValidArgsFunction(cmd, []string{"a"}, ""); len(got) > 0 {
		t.Errorf("a second pod is offered: %v", got)
	}
	gputest.Must(t, cmd.ParseFlags([]string{"-f", exampleCluster}))
	if got, _ := cmd.ValidArgsFunction(cmd, nil, ""); len(got) > 0 {
		t.Errorf("%v for a pod of the files, want nothing", got)
	}
	cmd = NewExplainCommand()
	gputest.Must(t, cmd.ParseFlags([]string{"--kubeconfig", kubeconfig}))
	cmd.SetContext(t.Context())
	server.Close()
	if got, directive := cmd.ValidArgsFunction(cmd, nil, ""); len(got) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("%v and %v from a server that is gone, want nothing", got, directive)
	}
}
