package command

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const componentPods = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[
{"metadata":{"name":"a","labels":{"app.kubernetes.io/name":"daybreak","app.kubernetes.io/component":"agent"}},"spec":{"containers":[{"name":"agent","image":"daybreak:v0.1.0"}]}},
{"metadata":{"name":"b","labels":{"app.kubernetes.io/name":"daybreak","app.kubernetes.io/component":"agent"}},"spec":{"containers":[{"name":"agent","image":"daybreak:v0.2.0"}]}},
{"metadata":{"name":"s","labels":{"app.kubernetes.io/name":"daybreak","app.kubernetes.io/component":"scheduler"}},"spec":{"containers":[{"name":"scheduler","image":"daybreak:v0.2.0"}]}}]}`

// TestVersion: the versions of the cluster follow those of the binary; what can't be
// read is a note.
func TestVersion(t *testing.T) {
	const client = "daybreak v0.2.0\n  go          go1.26\n  platform    linux/amd64\n"
	cases := map[string]struct {
		version, pods string // answers of the server; an empty one is a refusal
		args          []string
		stdout        string // URL stands for the server's address
		stderr        string
	}{
		"components": {
			version: `{"gitVersion":"v1.28.3"}`, pods: componentPods,
			stdout: client + "\nserver URL\n  kubernetes  v1.28.3\n  scheduler   v0.2.0 (1 pod)\n  agent       v0.1.0 (1 pod), v0.2.0 (1 pod)\n",
		},
		"JSON": {
			version: `{"gitVersion":"v1.28.3"}`, pods: `{"kind":"PodList","apiVersion":"v1","items":[]}`, args: []string{"-o", "json"},
			stdout: "{\n  \"version\": \"v0.2.0\",\n  \"go\": \"go1.26\",\n  \"platform\": \"linux/amd64\",\n  \"server\": {\n" +
				"    \"address\": \"URL\",\n    \"kubernetes\": \"v1.28.3\",\n    \"components\": []\n  }\n}\n",
		},
		"no Daybreak": {
			version: `{"gitVersion":"v1.28.3"}`, pods: `{"kind":"PodList","apiVersion":"v1","items":[]}`,
			stdout: client + "\nserver URL\n  kubernetes  v1.28.3\n  daybreak    no pods with the label app.kubernetes.io/name: daybreak\n",
		},
		"no right to list pods": {
			version: `{"gitVersion":"v1.28.3"}`,
			stdout:  client + "\nserver URL\n  kubernetes  v1.28.3\n",
			stderr:  "note: server URL: list the pods of Daybreak: ",
		},
		"no answer": {stdout: client, stderr: "note: server URL: "},
		"--client":  {args: []string{"--client"}, stdout: client},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server, kubeconfig := serve(t, func(w http.ResponseWriter, r *http.Request) {
				answer := map[string]string{"/version": tc.version, "/api/v1/pods": tc.pods}[r.URL.Path]
				if answer == "" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = io.WriteString(w, answer)
			})
			cmd := NewVersionCommand(cli.Build{Version: "v0.2.0", Go: "go1.26", Platform: "linux/amd64"})
			var stdout, stderr bytes.Buffer
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			cmd.SetArgs(append([]string{"--kubeconfig", kubeconfig}, tc.args...))
			gputest.Must(t, cmd.ExecuteContext(t.Context()))
			gputest.Equal(t, "stdout", tc.stdout, strings.ReplaceAll(stdout.String(), server.URL, "URL"))
			if notes := strings.ReplaceAll(stderr.String(), server.URL, "URL"); !strings.HasPrefix(notes, tc.stderr) || tc.stderr == "" && notes != "" {
				t.Errorf("stderr is %q, want %q first", notes, tc.stderr)
			}
		})
	}
}
