package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// measured are the rows of other pages that the comparison is taken from.
var measured = struct {
	throughput, peers, placement *regexp.Regexp
}{
	throughput: regexp.MustCompile(`\| 500 \| one slice each \| ([\d.]+) \| ([\d.]+) \|`),
	peers:      regexp.MustCompile(`\| 500 \| one slice each \| ([\d.]+) : ([\d.]+) : ([\d.]+) \|`),
	placement: regexp.MustCompile(`\| mixed \| 0.85 \| daybreak \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|\s*` +
		`\| \| \| hami-topology \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|\s*\| \| \| hami \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|`),
}

// comparisons returns the cells that README and comparison must have, as the pages with the tables have them.
func comparisons(performance, placement string) (readme, compare []string) {
	t, k := measured.throughput.FindStringSubmatch(performance), measured.peers.FindStringSubmatch(performance)
	p := measured.placement.FindStringSubmatch(strings.ReplaceAll(placement, "**", ""))
	if t == nil || k == nil || p == nil {
		return nil, nil
	}
	row := func(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }
	percent := func(n int) string { return p[n] + " %" }
	readme = []string{row("5.5", k[3], k[1]) + "\n", " | " + t[1] + " |\n", "| " + percent(5) + " | | " + percent(2) + " |\n"}
	compare = []string{
		"| " + k[3] + " | |\n", row(k[2], t[2]) + "\n", row(k[1], t[1]) + "\n",
		row(percent(8), percent(5), percent(2)) + "\n", row(percent(7), percent(4), percent(1)) + "\n", row(p[9], p[6], p[3]) + "\n",
	}
	return readme, compare
}

// TestFigures: README and comparison have the figures of the pages on performance and placement.
func TestFigures(t *testing.T) {
	read := func(paths ...string) string {
		var all strings.Builder
		for _, path := range paths {
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	readme, compare := comparisons(read("docs/performance.md"), read("docs/placement.md", "docs/placement-results.md"))
	if readme == nil {
		t.Fatal("the rows for 500 nodes, or for mixed jobs at 0.85, are not found")
	}
	for path, rows := range map[string][]string{"README.md": readme, "README.zh.md": readme, "docs/compare.md": compare, "docs/zh/compare.md": compare} {
		text := read(path)
		for _, row := range rows {
			if !strings.Contains(text, row) {
				t.Errorf("%s: no row ends with %q", path, row)
			}
		}
	}
}

// TestFiguresChanged: new figures on one page are missed on the others.
func TestFiguresChanged(t *testing.T) {
	const performance = "| 500 | one slice each | 2 | 1 | x |\n| 500 | one slice each | 5 : 4 : 3 | x |\n"
	const placement = "| mixed | 0.85 | **daybreak** | **6** | **7** | **100** | 8 |\n| | | hami-topology | 9 | 10 | 99 | 11 |\n| | | hami | 12 | 13 | 99 | 14 |\n"
	readme, compare := comparisons(performance, placement)
	gputest.Equal(t, "README", []string{"| 5.5 | 3 | 5 |\n", " | 2 |\n", "| 10 % | | 7 % |\n"}, readme)
	gputest.Equal(t, "comparison", []string{"| 3 | |\n", "| 4 | 1 |\n", "| 5 | 2 |\n", "| 13 % | 10 % | 7 % |\n", "| 12 % | 9 % | 6 % |\n", "| 14 | 11 | 8 |\n"}, compare)
	if readme, _ := comparisons("", placement); readme != nil {
		t.Errorf("figures %q from nothing", readme)
	}
}
