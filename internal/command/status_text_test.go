package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// busy is a cluster in which a lot is wrong: a few of the nodes are cordoned or
// tainted or have unhealthy cards, one card is booked twice, one has no slice left,
// and pods wait.
func busy(nodes int) []string {
	var docs []string
	for i := 1; i <= nodes; i++ {
		name := fmt.Sprintf("metax-%d", i)
		spec := ""
		switch i % 10 {
		case 3:
			spec = "spec: {unschedulable: true}\n"
		case 4:
			spec = "spec: {taints: [{key: team, value: a, effect: NoSchedule}]}\n"
		}
		cards := device(name, 8, "64Gi")
		if i%10 == 5 {
			cards = strings.Replace(cards, "health: true", `health: false, conditions: [{type: Healthy, status: "False", reason: UncorrectableECC, message: 显存出现三个无法纠正的错误需要尽快更换这张卡并检查同一台服务器上的其他卡}]`, 1)
		}
		docs = append(docs, cards, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n%s", name, spec))
	}
	for i := range 16 {
		docs = append(docs, slice("metax-1", fmt.Sprintf("tiny-%d", i), 0, 1, 1))
	}
	docs = append(docs, slice("metax-2", "first", 0, 60, 40), slice("metax-2", "second", 0, 60, 40))
	for i := range 14 {
		docs = append(docs, pod(fmt.Sprintf("waits-%d", i), fmt.Sprintf("gpu: %d", 9+i)))
	}
	return docs
}

func statusOf(t *testing.T, columns int, docs ...string) *statusText {
	t.Helper()
	o := statusOptions{format: format{output: "table"}, now: noon}
	s := snapshot(t, docs...)
	status, err := o.status(s, audit.Check(s, noon()))
	gputest.Must(t, err)
	return o.text(status, false, columns)
}

// TestStatusWidths: lines fit terminals of any width from 80 columns on, Chinese
// texts included, and use the width that there is.
func TestStatusWidths(t *testing.T) {
	docs := append(busy(12), strings.ReplaceAll(device("a-server-with-a-rather-long-name.rack-17.gpu.example.internal", 16, "64Gi"), "minor:", "labels: {node.koordinator.sh/gpu-model: C550}, minor:"))
	for _, columns := range []int{80, 100, 200} {
		widest := 0
		for line := range strings.Lines(statusOf(t, columns, docs...).text()) {
			line = strings.TrimSuffix(line, "\n")
			widest = max(widest, width(line))
			if strings.TrimRight(line, " ") != line {
				t.Errorf("ends in blanks: %q", line)
			}
		}
		if widest > columns || widest < columns*3/4 && columns < 200 {
			t.Errorf("the widest line has %d columns of %d:\n%s", widest, columns, statusOf(t, columns, docs...).text())
		}
	}
}

// TestStatusFitsRows: where rows are too few for all of it, what is wrong is shown
// before the nodes, and something of everything.
func TestStatusFitsRows(t *testing.T) {
	for _, rows := range []int{22, 28, 48} {
		lines := statusOf(t, 80, busy(60)...).fitting(rows)
		if len(lines) > rows || len(lines) < rows-3 {
			t.Errorf("%d lines for %d rows", len(lines), rows)
		}
		var titles []string
		for _, line := range lines {
			word, _, _ := strings.Cut(line, " ")
			if slices.Contains([]string{"UNHEALTHY", "TAKES", "PENDING", "NODE", "metax-1"}, word) {
				titles = append(titles, word)
			}
		}
		if diff := cmp.Diff([]string{"UNHEALTHY", "TAKES", "PENDING", "NODE", "metax-1"}, titles); diff != "" {
			t.Errorf("%d rows (-want +got):\n%s\n%s", rows, diff, strings.Join(lines, "\n"))
		}
	}
	all := statusOf(t, 80, busy(3)...)
	if got := strings.Join(all.fitting(200), "\n") + "\n"; got != all.text() {
		t.Errorf("with rows enough it differs from the whole text:\n%s", got)
	}
	for rows := range 20 { // a terminal may be small
		statusOf(t, 80, busy(12)...).fitting(rows)
	}
}

// TestStatusShowsWhatIsWrong: a card without slices and one that is booked twice
// have signs of their own, violations are counted, tainted nodes are listed, and
// nodes are in the order of their numbers.
func TestStatusShowsWhatIsWrong(t *testing.T) {
	text := statusOf(t, 100, busy(12)...).text()
	for _, want := range []string{
		"\n2 violations: run daybreak audit\n", "\nmetax-1   sgpu  vendor     =.......  ", "\nmetax-2   sgpu  vendor     X.......  ",
		"= no slice left, X violation", "\n  metax-4: the node has the taint team=a:NoSchedule\n", "  tainted\n", "  cordoned\n",
		"\nfragmentation: 91% of what is free is of no use\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if two, ten := strings.Index(text, "\nmetax-2 "), strings.Index(text, "\nmetax-10 "); two > ten || two < 0 {
		t.Errorf("metax-10 comes before metax-2:\n%s", text)
	}
}

// TestStatusGroupsNodes: nodes that take no pods for one reason share a line.
func TestStatusGroupsNodes(t *testing.T) {
	var docs []string
	for i := range 12 {
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: n%d, annotations: {daybreak-gpu.io/served-by: daybreak}}\n", i))
	}
	s := statusOf(t, 100, docs...)
	gputest.Equal(t, "nodes", []string{"n0, n1, n2, n3, n4, n5, n6 and 5 more: it has no Device: its agent has not published its cards"}, s.blocked())
	if text := s.text(); !strings.HasPrefix(text, "12 nodes, 0 cards\n\nNODE") || !strings.Contains(text, "? can't be read") {
		t.Errorf("text:\n%s", text)
	}
}

// TestFollow: on a terminal there are a clock and the age of the data, and ages
// advance though nothing changes. While the connection is lost, that is what the
// first line says, and all others are dimmed.
func TestFollow(t *testing.T) {
	now := noon()
	created := noon().Add(-10 * time.Second).Format(time.RFC3339)
	waiting := strings.Replace(pod("waits", "gpu: 9"), "  name: waits\n", "  name: waits\n  creationTimestamp: "+created+"\n", 1)
	objects, err := cluster.ReadFiles([]string{"-"}, strings.NewReader(documents(device("n1", 8, "64Gi"), waiting, slice("n1", "a", 0, 60, 40), slice("n1", "b", 0, 60, 40))))
	gputest.Must(t, err)
	o := statusOptions{format: format{output: "table"}, now: func() time.Time { return now }}
	f := follower{palette: true, options: &o, screen: &screen{terminal: os.Stdout}, confirmed: &audit.Report{}}
	see := func(s cluster.Sight) []string {
		t.Helper()
		f.seen = s
		_, err := f.look()
		gputest.Must(t, err)
		return f.text()(80, 24)
	}
	lines := see(cluster.Sight{Objects: objects, Answered: now.Add(-time.Second)})
	text := strings.Join(lines, "\n")
	if !strings.HasPrefix(uncolored(text), "12:00:00 connected, data 1s old\n\n1 node, 8 cards") || !strings.Contains(text, "(10s) wants") || !strings.Contains(text, "\x1b[32m.") {
		t.Errorf("at first:\n%s", text)
	}
	if strings.Contains(text, "violation") || !f.due {
		t.Errorf("a violation is shown that was seen once:\n%s", text)
	}
	now = now.Add(5 * time.Second)
	text = strings.Join(see(cluster.Sight{Objects: objects, Answered: now}), "\n")
	if !strings.HasPrefix(uncolored(text), "12:00:05 connected, data 0s old\n") || !strings.Contains(text, "(15s) wants") || !strings.Contains(text, "2 violations: run daybreak audit") {
		t.Errorf("five seconds later:\n%s", text)
	}
	answered := now
	now = now.Add(15 * time.Second)
	lines = see(cluster.Sight{Objects: objects, Answered: answered, Lost: answered.Add(3 * time.Second), Err: errors.New("it does not answer")})
	if want := "12:00:20 connection lost at 12:00:08, retrying (it does not answer); data 15s"; uncolored(lines[0]) != want || uncolored(lines[1]) != "  old" {
		t.Errorf("begins with %q, want %q", lines[:2], want)
	}
	for _, line := range lines[3:] {
		if line != "" && (!strings.HasPrefix(line, "\x1b[2m") || strings.Count(line, "\x1b") != 2) {
			t.Errorf("not dimmed: %q", line)
		}
	}
}

func TestWrap(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"it fits":               {"one two three", []string{"  one two three"}},
		"words":                 {"one two three four five", []string{"  one two three four", "    five"}},
		"a long word":           {"x aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", []string{"  x aaaaaaaaaaaaaaaa", "    aaaaaaaaaaaaaa"}},
		"a long word at an end": {"one two three four aaaaaaaaaaaaaaaaaaaa", []string{"  one two three four", "    aaaaaaaaaaaaaaaa", "    aaaa"}},
		"Chinese":               {"卡 显存出现三个无法纠正的错误", []string{"  卡 显存出现三个无", "    法纠正的错误"}},
		"colors take no room":   {"\x1b[31mone two\x1b[0m three four", []string{"  \x1b[31mone two\x1b[0m three four"}},
		"nothing":               {"", []string{"  "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "lines", tc.want, wrap("  ", tc.text, 20))
		})
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "abc": 3, "显存": 4, "ﬀ": 1, "e\u0301": 1, "（": 2, "\x1b[31mred\x1b[0m": 3, "…": 1, "\u200b": 0, "한": 2,
	} {
		if got := width(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
}

// TestColumns: where there is no terminal, $COLUMNS says how wide lines may be.
func TestColumns(t *testing.T) {
	for env, want := range map[string]int{"": 100, "80": 80, "10": 40, "-1": 100, "wide": 100} {
		t.Setenv("COLUMNS", env)
		if got := columns(&strings.Builder{}); got != want {
			t.Errorf("COLUMNS=%q: %d columns, want %d", env, got, want)
		}
	}
}
