package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

var mix = source{files: []string{exampleCluster, "testdata/mix.yaml"}}

// answer runs a command at noon and returns what it prints, both outputs, and
// whether its answer is not no.
func answer(t *testing.T, run func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error) (stdout, stderr string, ok bool) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), strings.NewReader(""), &out, &errs)
	if err != nil && !errors.Is(err, cli.ErrNo) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), err == nil
}

func TestStatusGolden(t *testing.T) {
	cases := map[string]statusOptions{
		"status.txt":       {format: format{output: "table", color: "never"}},
		"status-color.txt": {format: format{output: "table", color: "always"}},
		"status-wide.txt":  {format: format{output: "wide", color: "never"}},
		"status.json":      {format: format{output: "json", color: "never"}},
		"status-node.txt":  {format: format{output: "wide", color: "never"}, node: "metax-b"},
		"status-team.txt":  {format: format{output: "table", color: "never"}, source: source{space: "team-a"}},
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			o.files, o.now = mix.files, noon
			stdout, stderr, ok := answer(t, o.run)
			if !ok {
				t.Error("the answer is no: status has no such answer")
			}
			golden(t, "testdata/"+name, stdout+printedTo(stderr))
		})
	}
}

// quotas is the example cluster with budgets.
var quotas = source{files: []string{exampleCluster, "testdata/quotas.yaml"}}

func TestNamespacesGolden(t *testing.T) {
	cases := map[string]statusOptions{
		"namespaces.txt":           {format: format{output: "table", color: "never"}},
		"namespaces-wide.txt":      {format: format{output: "wide", color: "never"}},
		"namespaces.json":          {format: format{output: "json", color: "never"}},
		"namespaces-unmetered.txt": {format: format{output: "table", color: "never"}, source: source{space: "team-a"}, unmetered: true},
		"namespaces-metered.txt":   {format: format{output: "table", color: "never"}, source: source{space: "team-c"}, unmetered: true},
	}
	for name, o := range cases {
		t.Run(name, func(t *testing.T) {
			o.files, o.now, o.namespaces = quotas.files, noon, true
			stdout, stderr, _ := answer(t, o.run)
			golden(t, "testdata/"+name, stdout+printedTo(stderr))
			if o.output != "table" {
				return
			}
			for line := range strings.Lines(stdout) {
				if n := utf8.RuneCountInString(line); n > 81 && !strings.HasPrefix(line, "  ") { // sentences fill the line
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

// TestExplainQuota: the quota that keeps a pod waiting, by name.
func TestExplainQuota(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		o := explainOptions{source: quotas, format: format{output: output, color: "never"}}
		stdout, _, ok := answer(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
			return o.run(ctx, "team-h/waits", stdin, stdout, stderr)
		})
		if ok {
			t.Error("the answer is yes")
		}
		golden(t, "testdata/explain-quota"+map[string]string{"table": ".txt", "json": ".json"}[output], stdout)
	}
}

// TestNamespacesContract: the fields that scripts are written against, by name.
func TestNamespacesContract(t *testing.T) {
	o := statusOptions{source: quotas, format: format{output: "json", color: "never"}, now: noon, namespaces: true}
	stdout, _, _ := answer(t, o.run)
	type amounts struct{ ComputePercent, MemoryMiB, Cards *int64 }
	var doc struct {
		Namespaces []struct {
			Name string
			Pods int
			amounts
			ComputePercent, MemoryMiB, Cards int64
			Budget                           amounts
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	n := doc.Namespaces[0]
	if n.Name != "team-a" || n.Pods != 3 || n.ComputePercent != 250 || n.MemoryMiB != 160<<10 || n.Cards != 2 ||
		*n.Budget.ComputePercent != 300 || *n.Budget.MemoryMiB != 160<<10 || *n.Budget.Cards != 2 {
		t.Errorf("team-a is %+v", n)
	}
}

// TestNamespacesFlags: flags that exclude each other.
func TestNamespacesFlags(t *testing.T) {
	const nodes = "--namespaces shows no nodes and does not follow changes: leave out --node and --watch"
	for _, tc := range []struct {
		statusOptions
		want string
	}{
		{statusOptions{unmetered: true}, "--unmetered lists pods of namespaces: add --namespaces"},
		{statusOptions{namespaces: true, node: "metax-a"}, nodes},
		{statusOptions{namespaces: true, watch: true}, nodes},
	} {
		tc.format, tc.now = format{output: "table", color: "never"}, noon
		if err := tc.run(t.Context(), strings.NewReader(""), io.Discard, io.Discard); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// printedTo appends what went to standard error, if anything.
func printedTo(stderr string) string {
	if stderr == "" {
		return ""
	}
	return "--- stderr\n" + stderr
}

func TestExplainGolden(t *testing.T) {
	cases := map[string]struct {
		pod    string
		wantOK bool
	}{
		"explain-pending":      {"team-b/big", false},
		"explain-slice":        {"team-b/eager", false},
		"explain-gated":        {"team-b/gated", true},
		"explain-inadmissible": {"team-b/mistaken", false},
		"explain-no-cards":     {"team-b/web", true},
		"explain-placed":       {"team-a/training", true},
		"explain-neighbours":   {"team-a/patient", true},
		"explain-counted":      {"team-a/counted", true},
	}
	for name, tc := range cases {
		for _, output := range []string{"table", "json"} {
			t.Run(name+" "+output, func(t *testing.T) {
				o := explainOptions{source: mix, format: format{output: output, color: "never"}}
				stdout, stderr, ok := answer(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
					return o.run(ctx, tc.pod, stdin, stdout, stderr)
				})
				if ok != tc.wantOK || stderr != "" {
					t.Errorf("ok is %v, want %v; on stderr %q", ok, tc.wantOK, stderr)
				}
				ending := map[string]string{"table": ".txt", "json": ".json"}[output]
				golden(t, "testdata/"+name+ending, stdout)
			})
		}
	}
}

// TestExplainWorkloads: the pods of a workload, those with the same answer together,
// and why others could not be created.
func TestExplainWorkloads(t *testing.T) {
	files := source{files: []string{exampleCluster, "testdata/workloads.yaml"}, space: "team-w"}
	for name, target := range map[string]string{
		"explain-deployment": "deployment/chat", "explain-replicaset": "rs/chat-api-77aa", "explain-job": "jobs/train", "explain-evicted": "pod/chat-6c8f-aa", "explain-rejected": "chat-6c8f-ee",
	} {
		for _, output := range []string{"table", "json"} {
			t.Run(name+" "+output, func(t *testing.T) {
				o := explainOptions{source: files, format: format{output: output, color: "never"}}
				stdout, stderr, ok := answer(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
					return o.run(ctx, target, stdin, stdout, stderr)
				})
				if ok != (name == "explain-evicted") || stderr != "" {
					t.Errorf("ok is %v; on stderr %q", ok, stderr)
				}
				golden(t, "testdata/"+name+map[string]string{"table": ".txt", "json": ".json"}[output], stdout)
			})
		}
	}
	for target, want := range map[string]string{
		"deployment/none": "the files hold no pod of Deployment none in namespace team-w",
		"deploymnt/a/b":   "deploymnt/a/b: want POD, NAMESPACE/POD or KIND/NAME, such as deployment/chat",
	} {
		o := explainOptions{source: files, format: format{output: "table", color: "never"}}
		err := o.run(t.Context(), target, strings.NewReader(""), io.Discard, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", target, err, want)
		}
	}
}

func TestAuditGolden(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		t.Run(output, func(t *testing.T) {
			o := auditOptions{source: source{files: []string{"testdata/broken.yaml"}}, format: format{output: output, color: "never"}, now: noon}
			stdout, _, ok := answer(t, o.run)
			if ok {
				t.Error("the answer is yes")
			}
			golden(t, "testdata/audit."+map[string]string{"table": "txt", "json": "json"}[output], stdout)
		})
	}
	o := auditOptions{source: source{files: []string{exampleCluster}}, format: format{output: "table", color: "never"}, now: noon}
	stdout, _, ok := answer(t, o.run)
	if want := "3 nodes, 24 cards, 3 pods: no rule is broken\n"; !ok || stdout != want {
		t.Errorf("ok is %v, printed %q, want %q", ok, stdout, want)
	}
}

// TestStatusFits: a table has at most 100 columns, and no line ends in blanks.
func TestStatusFits(t *testing.T) {
	o := statusOptions{source: mix, format: format{output: "table", color: "never"}, now: noon}
	stdout, _, _ := answer(t, o.run)
	for line := range strings.Lines(stdout) {
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > lineWidth {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.TrimRight(line, " ") != line {
			t.Errorf("ends in blanks: %q", line)
		}
	}
}

// TestStatusContract: the fields that scripts are written against, by name, and
// figures that add up.
func TestStatusContract(t *testing.T) {
	o := statusOptions{source: source{files: []string{exampleCluster}}, format: format{output: "json", color: "never"}, now: noon}
	stdout, _, _ := answer(t, o.run)
	var doc struct {
		Nodes []map[string]any `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	has := func(m map[string]any, keys ...string) {
		t.Helper()
		for _, key := range keys {
			if _, ok := m[key]; !ok {
				t.Errorf("no field %q in %v", key, m)
			}
		}
	}
	shares := 0
	for _, node := range doc.Nodes {
		has(node, "name", "mode", "servedBy", "cards")
		cards, _ := node["cards"].([]any)
		for _, c := range cards {
			card, _ := c.(map[string]any)
			has(card, "uuid", "index", "model", "healthy", "zone", "numa", "memoryMiB", "memoryFreeMiB", "computeFreePercent", "qos", "shares")
			list, _ := card["shares"].([]any)
			used := 0.0
			for _, s := range list {
				share, _ := s.(map[string]any)
				has(share, "namespace", "pod", "container", "computePercent", "memoryMiB")
				amount, _ := share["memoryMiB"].(float64)
				used += amount
				shares++
			}
			total, _ := card["memoryMiB"].(float64)
			if free, _ := card["memoryFreeMiB"].(float64); free+used != total {
				t.Errorf("card %v: %v free and %v used of %v", card["uuid"], free, used, total)
			}
		}
	}
	if shares != 4 {
		t.Errorf("%d shares, want 4", shares)
	}
}

// TestAuditContract: the shape of the document.
func TestAuditContract(t *testing.T) {
	o := auditOptions{source: source{files: []string{"testdata/broken.yaml"}}, format: format{output: "json", color: "never"}, now: noon}
	stdout, _, _ := answer(t, o.run)
	var report audit.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	var rules []audit.Rule
	for _, f := range report.Violations {
		rules = append(rules, f.Rule)
	}
	want := []audit.Rule{audit.MemoryOverbooked, audit.ComputeOverbooked, audit.FormatsDisagree, audit.LockStuck}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if report.Pods != 3 || report.Cards != 3 {
		t.Errorf("%d pods and %d cards, want 3 and 3", report.Pods, report.Cards)
	}
	if !strings.Contains(stdout, `"violations": [`) || !slices.ContainsFunc(report.Notes, func(f audit.Finding) bool { return f.Rule == audit.UnhealthyInUse }) {
		t.Errorf("no note of the unhealthy card, or another document: %s", stdout)
	}
}

// TestExplainIsShort: ten lines at most on thousands of nodes that refuse for
// many reasons.
func TestExplainIsShort(t *testing.T) {
	docs := []string{pod("wide", "gpu: 8")}
	for i := range 300 {
		name := "n" + strings.Repeat("x", i%7) + time.Duration(i).String()
		switch i % 5 {
		case 0:
			docs = append(docs, counted(name, 1+i%7))
		case 1:
			docs = append(docs, device(name, 8, "64Gi"), slice(name, "a"+name, i%8, 10, 1))
		case 2:
			docs = append(docs, device(name, 4, "64GB!"))
		case 3:
			docs = append(docs, device(name, 8, "64Gi"), podOn(name, "u"+name, "gpu: 1"))
		default:
			docs = append(docs, strings.ReplaceAll(device(name, 8, "64Gi"), "health: true", "health: false"))
		}
	}
	s := snapshot(t, docs...)
	e := view.Explain(s, s.Pending[0], place.Default)
	if len(e.Refusals) != 300 {
		t.Errorf("%d refusals, want one of each node", len(e.Refusals))
	}
	text := podText(e, false, nil)
	if n := strings.Count(text, "\n"); n > 10 || n < 5 {
		t.Errorf("%d lines, want 5 to 10:\n%s", n, text)
	}
	if !strings.HasPrefix(text, "default/wide is pending: 0/300 nodes: ") {
		t.Errorf("begins with another sentence:\n%s", text)
	}
	if e.Help == nil || e.Help.Room == nil || len(e.Help.Room.Pods) != 1 || e.Help.Smaller == nil || e.Help.Smaller.Cards != 7 {
		t.Errorf("help is %+v, want one pod that is in the way, and 7 cards", e.Help)
	}
}
