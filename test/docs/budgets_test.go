package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// cardMemory is that of the cards in the table of amounts.
const cardMemory gpu.MiB = 64 << 10

// TestBudgets: the table of pods and their amounts has a row for each pod of
// examples/budgets, with what the pod requests and what quotas count of it.
func TestBudgets(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "examples", "budgets", "*.yaml"))
	gputest.Must(t, err)
	want := map[string][]string{}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		gputest.Must(t, err)
		name := filepath.Base(file)
		texts[name], want[name] = string(text), amountsOf(t, text)
	}
	if len(want) != 11 {
		t.Errorf("%d pods in examples/budgets, the pages say eleven", len(want))
	}
	for _, path := range []string{"docs/guide-budgets.md", "docs/zh/guide-budgets.md"} {
		t.Run(path, func(t *testing.T) {
			got := map[string][]string{}
			for name, row := range budgetRows(t, path) {
				got[name] = row[len(row)-3:]
				said := codeSpan.FindAllString(row[1], -1)
				for i := range said {
					said[i] = "/" + strings.Trim(said[i], "`") + "\n"
				}
				if len(said) == 0 || slices.ContainsFunc(said, func(line string) bool { return !strings.Contains(texts[name], line) }) {
					t.Errorf("%s: the row shows %q, which are not all limits of the pod", name, said)
				}
			}
			gputest.Equal(t, "compute, memory and cards, counted and on the page", want, got)
		})
	}
}

// amountsOf returns the amounts that the manager writes on a pod, as kubectl shows
// them.
func amountsOf(t *testing.T, text []byte) []string {
	t.Helper()
	pod := &corev1.Pod{}
	gputest.Must(t, yaml.UnmarshalStrict(text, pod))
	ask, problems := request.Read(pod)
	if ask == nil {
		t.Fatalf("%s requests no cards: %v", pod.Name, problems)
	}
	request.WriteAmounts(&pod.Spec, ledger.PeakOf(&ask.Request, cardMemory))
	var out []string
	for _, name := range wire.AmountResources() {
		amount := pod.Spec.Containers[0].Resources.Limits[name]
		out = append(out, amount.String())
	}
	return out
}

// budgetRows returns the cells of the table's rows, by the file that the first one
// links to.
func budgetRows(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	gputest.Must(t, err)
	row := regexp.MustCompile(`(?m)^\| \[[^\]]*\]\((?:\.\./)+examples/budgets/([^)/]+)\) \|(.*)\|$`)
	rows := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		cells := []string{m[1]}
		for cell := range strings.SplitSeq(m[2], "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if len(cells) != 5 || rows[m[1]] != nil {
			t.Errorf("%s: row %q: want five cells, once", path, m[0])
			continue
		}
		rows[m[1]] = cells
	}
	return rows
}
