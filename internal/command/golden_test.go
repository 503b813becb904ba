package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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

// quotas is the example cluster with budgets, workloads one with workloads.
var (
	quotas    = source{files: []string{exampleCluster, "testdata/quotas.yaml"}}
	workloads = source{files: []string{exampleCluster, "testdata/workloads.yaml"}, space: "team-w"}
)

// colorless is an output without colors.
func colorless(output string) format { return format{output: output, color: "never"} }

// in limits what is shown of the source to a namespace.
func in(s source, namespace string) source {
	s.space = namespace
	return s
}

// outputs are the formats that every command has, with the endings of golden files.
var outputs = map[string]string{"table": ".txt", "json": ".json"}

func TestStatusGolden(t *testing.T) {
	for name, o := range map[string]statusOptions{
		"status.txt":               {source: mix, format: colorless("table")},
		"status-color.txt":         {source: mix, format: format{output: "table", color: "always"}},
		"status-wide.txt":          {source: mix, format: colorless("wide")},
		"status.json":              {source: mix, format: colorless("json")},
		"status-node.txt":          {source: mix, format: colorless("wide"), node: "metax-b"},
		"status-team.txt":          {source: in(mix, "team-a"), format: colorless("table")},
		"namespaces.txt":           {source: quotas, format: colorless("table"), namespaces: true},
		"namespaces-wide.txt":      {source: quotas, format: colorless("wide"), namespaces: true},
		"namespaces.json":          {source: quotas, format: colorless("json"), namespaces: true},
		"namespaces-unmetered.txt": {source: in(quotas, "team-a"), format: colorless("table"), namespaces: true, unmetered: true},
		"namespaces-metered.txt":   {source: in(quotas, "team-c"), format: colorless("table"), namespaces: true, unmetered: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.now = noon
			stdout, stderr, ok := answer(t, o.run)
			if !ok {
				t.Error("the answer is no: status has no such answer")
			}
			if stderr != "" {
				stderr = "--- stderr\n" + stderr
			}
			golden(t, "testdata/"+name, stdout+stderr)
			for line := range strings.Lines(stdout) {
				if n := utf8.RuneCountInString(line); n > 81 && o.namespaces && o.output == "table" && !strings.HasPrefix(line, "  ") { // sentences fill the line
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

// TestContracts: the fields that scripts are written against, by name, in all objects
// of the lists that they are in.
func TestContracts(t *testing.T) {
	const shares, findings = " nodes.cards.shares.", " violations."
	for file, paths := range map[string]string{
		"status.json": "nodes.name nodes.mode nodes.servedBy nodes.cards.uuid nodes.cards.index nodes.cards.model nodes.cards.healthy nodes.cards.zone" +
			" nodes.cards.numa nodes.cards.memoryMiB nodes.cards.memoryFreeMiB nodes.cards.computeFreePercent nodes.cards.qos" +
			shares + "namespace" + shares + "pod" + shares + "container" + shares + "computePercent" + shares + "memoryMiB",
		"namespaces.json": "namespaces.name namespaces.pods namespaces.computePercent namespaces.memoryMiB namespaces.cards" +
			" namespaces.budget.computePercent namespaces.budget.memoryMiB namespaces.budget.cards",
		"audit.json": "pods cards" + findings + "node" + findings + "card" + findings + "rule" + findings + "pods" + findings + "message",
	} {
		text, err := os.ReadFile("testdata/" + file)
		gputest.Must(t, err)
		for path := range strings.FieldsSeq(paths) {
			if !has(decode(t, string(text)), strings.Split(path, ".")) {
				t.Errorf("%s: no field %s", file, path)
			}
		}
	}
}

// has reports whether the document has the field, and of lists each element.
func has(document any, path []string) bool {
	switch document := document.(type) {
	case []any:
		return !slices.ContainsFunc(document, func(element any) bool { return !has(element, path) })
	case map[string]any:
		if len(path) > 0 {
			field, ok := document[path[0]]
			return ok && has(field, path[1:])
		}
	}
	return len(path) == 0
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
		tc.format, tc.now = colorless("table"), noon
		if err := tc.run(t.Context(), strings.NewReader(""), io.Discard, io.Discard); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// TestPluginFlags: the flags decide whose pods are the vendor's plugin's and Daybreak's.
func TestPluginFlags(t *testing.T) {
	o := placeOptions{}
	cmd := &cobra.Command{}
	o.register(cmd)
	gputest.Must(t, cmd.ParseFlags([]string{"-f", "-", "--vendor-namespace=gpus", "--daybreak-namespace=apps", "--vendor-plugin-selector=app=x"}))
	for name, read := range map[string]func(context.Context, io.Reader) (*cluster.Objects, error){"status": o.source.read, "place": o.read} {
		objects, err := read(t.Context(), strings.NewReader("{apiVersion: v1, kind: Node, metadata: {name: n1}}"))
		gputest.Must(t, err)
		if p := &objects.VendorPlugin; p.Namespace != "gpus" || p.Daybreak != "apps" || p.String() != "app=x" {
			t.Errorf("%s: vendor's namespace %q, Daybreak's %q, labels %q", name, p.Namespace, p.Daybreak, p)
		}
	}
}

// explained runs explain and returns what it prints.
func explained(t *testing.T, s source, target, output string) (stdout, stderr string, ok bool) {
	t.Helper()
	o := explainOptions{source: s, format: colorless(output)}
	return answer(t, func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
		return o.run(ctx, target, stdin, stdout, stderr)
	})
}

func TestExplainGolden(t *testing.T) {
	for name, tc := range map[string]struct {
		source
		target string
		wantOK bool
	}{
		"explain-pending":      {mix, "team-b/big", false},
		"explain-slice":        {mix, "team-b/eager", false},
		"explain-gated":        {mix, "team-b/gated", true},
		"explain-inadmissible": {mix, "team-b/mistaken", false},
		"explain-no-cards":     {mix, "team-b/web", true},
		"explain-placed":       {mix, "team-a/training", true},
		"explain-neighbours":   {mix, "team-a/patient", true},
		"explain-counted":      {mix, "team-a/counted", true},
		"explain-quota":        {quotas, "team-h/waits", false},
		// The pods of a workload, those with the same answer together, and why others
		// could not be created.
		"explain-deployment": {workloads, "deployment/chat", false},
		"explain-replicaset": {workloads, "rs/chat-api-77aa", false},
		"explain-job":        {workloads, "jobs/train", false},
		"explain-evicted":    {workloads, "pod/chat-6c8f-aa", true},
		"explain-rejected":   {workloads, "chat-6c8f-ee", false},
	} {
		for output, ending := range outputs {
			t.Run(name+" "+output, func(t *testing.T) {
				stdout, stderr, ok := explained(t, tc.source, tc.target, output)
				if ok != tc.wantOK || stderr != "" {
					t.Errorf("ok is %v, want %v; on stderr %q", ok, tc.wantOK, stderr)
				}
				golden(t, "testdata/"+name+ending, stdout)
			})
		}
	}
	for target, want := range map[string]string{
		"deployment/none": "the files hold no pod of Deployment none in namespace team-w",
		"deploymnt/a/b":   "deploymnt/a/b: want POD, NAMESPACE/POD or KIND/NAME, such as deployment/chat",
	} {
		o := explainOptions{source: workloads, format: colorless("table")}
		err := o.run(t.Context(), target, strings.NewReader(""), io.Discard, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", target, err, want)
		}
	}
}

func TestAuditGolden(t *testing.T) {
	for output, ending := range outputs {
		t.Run(output, func(t *testing.T) {
			o := auditOptions{source: source{files: []string{"testdata/broken.yaml"}}, format: colorless(output), now: noon}
			stdout, _, ok := answer(t, o.run)
			if ok {
				t.Error("the answer is yes")
			}
			golden(t, "testdata/audit"+ending, stdout)
		})
	}
	o := auditOptions{source: source{files: []string{exampleCluster}}, format: colorless("table"), now: noon}
	stdout, _, ok := answer(t, o.run)
	if want := "3 nodes, 24 cards, 3 pods: no rule is broken\n"; !ok || stdout != want {
		t.Errorf("ok is %v, printed %q, want %q", ok, stdout, want)
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
