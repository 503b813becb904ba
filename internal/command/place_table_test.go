package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestTable keeps what people see: the table, and below it what goes to
// standard error.
func TestTable(t *testing.T) {
	cases := map[string]struct {
		files  []string
		stdin  string
		wantOK bool
	}{
		// Placed, refused, inadmissible, without cards, with a warning.
		"mixed": {files: []string{exampleCluster, "testdata/mixed.yaml"}},
		// All but the first ten are cut.
		"thirty-nodes": {files: []string{"-"}, stdin: documents(smallNodes(30), pod("wide", "gpu: 2"))},
		// Nothing is cut to count one node more.
		"eleven-nodes": {files: []string{"-"}, stdin: documents(smallNodes(11), pod("wide", "gpu: 2"))},
		// Of nodes without cards it is enough to know how many there are.
		"nodes-without-cards": {files: []string{"-"}, stdin: documents(plainNodes(12), counted("with-cards", 1), pod("wide", "gpu: 2"))},
		// A node whose cards can't be read is listed even if it is not needed.
		"counted-and-broken": {
			files: []string{"-"}, wantOK: true,
			stdin: documents(counted("counted", 4), device("broken", 2, "64GB"), slice("broken", "runs", 0, 10, 1), pod("two", "gpu: 2"), pod("one", "gpu: 1")),
		},
		"no-pod": {files: []string{exampleCluster}, wantOK: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := placeOptions{source: source{files: tc.files}, format: format{output: "table"}}
			stdout, stderr, ok := o.place(t, tc.stdin)
			gputest.Equal(t, "ok", tc.wantOK, ok)
			golden(t, "testdata/"+name+".txt", stdout+"--- stderr\n"+stderr)
			if strings.Contains(stdout, " \n") {
				t.Errorf("a line ends in blanks: %q", stdout)
			}
		})
	}
}

func smallNodes(n int) string {
	var docs []string
	for i := range n {
		docs = append(docs, counted(fmt.Sprintf("node-%02d", i+1), 1))
	}
	return documents(docs...)
}

func plainNodes(n int) string {
	var docs []string
	for i := range n {
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: plain-%02d}\n", i+1))
	}
	return documents(docs...)
}
