package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// TestCompleteFromFiles: names of the files that are named on the line.
func TestCompleteFromFiles(t *testing.T) {
	s := source{files: []string{exampleCluster}, space: "team-a"}
	for resource, want := range map[string][]string{
		"nodes": {"metax-a", "metax-b", "metax-c"}, "pods": {"chat", "notebook", "training"}, "namespaces": {"team-a"},
	} {
		if got := s.names(t.Context(), resource); !cmp.Equal(want, got) {
			t.Errorf("%s: %v, want %v", resource, got, want)
		}
	}
	for name, s := range map[string]source{"no such file": {files: []string{"none.yaml"}}, "standard input": {files: []string{"-"}}} {
		if got := s.names(t.Context(), "nodes"); len(got) > 0 {
			t.Errorf("%s: %v, want nothing", name, got)
		}
	}
}

// TestCompletionIsBounded: of a large cluster only the first names are sent. An
// API server answers a list at resourceVersion 0 in full, whatever its limit.
func TestCompletionIsBounded(t *testing.T) {
	const pods = 2000
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := pods
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && limit > 0 && r.URL.Query().Get("resourceVersion") != "0" {
			n = min(n, limit)
		}
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"pod-%04d"}}`, i))
		}
		sent += n
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"continue":"more"},"items":[%s]}`, strings.Join(items, ","))
	}))
	defer server.Close()
	names, err := cluster.Names(t.Context(), &rest.Config{Host: server.URL}, "pods", "team-a")
	if err != nil || len(names) != 500 || sent != 500 {
		t.Errorf("%d names of %d sent (%v), want 500", len(names), sent, err)
	}
}

// TestCompleteFromCluster: names travel, nothing else; and a cluster that can't
// be reached is no reason for a word.
func TestCompleteFromCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") || r.URL.Path != "/api/v1/namespaces/team-a/pods" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		text := `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
		if _, err := w.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "` + server.URL + `"}}], contexts: [{name: x, context: {cluster: c, namespace: team-a}}], current-context: x}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := NewExplainCommand()
	if err := cmd.ParseFlags([]string{"--kubeconfig", path}); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	if got, _ := cmd.ValidArgsFunction(cmd, nil, ""); !cmp.Equal([]string{"a", "b"}, got) {
		t.Errorf("pods %v, want those of the context's namespace", got)
	}
	if got, _ := cmd.ValidArgsFunction(cmd, []string{"a"}, ""); len(got) > 0 {
		t.Errorf("a second pod is offered: %v", got)
	}
	server.Close()
	if got, directive := cmd.ValidArgsFunction(cmd, nil, ""); len(got) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("%v and %v from a server that is gone, want nothing", got, directive)
	}
}
