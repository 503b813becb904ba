package docs

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// envBin names the folder with the binaries that `make docs` built.
const envBin = "DOCS_BIN"

func TestMain(m *testing.M) {
	// A process started in the background may ignore Ctrl-C, and its children inherit
	// that. They do not inherit it for a signal that is handled.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		<-interrupted
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// TestPages runs the commands of the pages, one page after the other.
func TestPages(t *testing.T) {
	bin := os.Getenv(envBin)
	if bin == "" {
		t.Skip("make docs builds what the pages use, and runs this")
	}
	c := &clusters{dir: t.TempDir(), bin: bin, say: t.Logf}
	t.Cleanup(c.stop)
	counts := map[kind]int{}
	compared := 0
	ran := map[string]string{} // pages by what is typed on them
	for _, p := range loadPages(t) {
		if !p.runs() {
			continue
		}
		all := t.Context() // clusters outlive a page
		t.Run(p.path, func(t *testing.T) {
			// Commands and output of both languages are the same (TestLanguages).
			key := strings.Join(typed(p), "\n")
			if same := ran[key]; same != "" {
				t.Logf("the commands of %s", same)
				return
			}
			ran[key] = p.path
			readPage(t, p, func() (string, error) { return c.kubeconfig(all, p) }, bin)
			for _, b := range p.blocks {
				counts[b.kind]++
				if b.want != nil {
					compared++
				}
			}
		})
	}
	t.Logf("%d blocks were run and %d in terminals; %d with commands and output; %d that pages need; output of %d compared",
		counts[run], counts[terminal], counts[console], counts[hidden], compared)
}

// runs reports whether a page has commands to run.
func (p *page) runs() bool {
	for _, b := range p.blocks {
		if b.kind != norun && b.kind != hidden {
			return true
		}
	}
	return false
}

// readPage runs the blocks of one page.
func readPage(t *testing.T, p *page, cluster func() (kubeconfig string, err error), bin string) {
	start := time.Now()
	kubeconfig, err := cluster()
	gputest.Must(t, err)
	s, err := newSession(t.Context(), t.TempDir(), bin, kubeconfig)
	gputest.Must(t, err)
	defer func() {
		if err := s.close(); err != nil {
			t.Errorf("%s: %v", p.path, err)
		}
	}()
	ready := time.Now()
	for _, b := range p.blocks {
		if !typeBlock(t, s, p, b) {
			return // what comes after it would fail too
		}
	}
	t.Logf("%s, and %s to get ready", time.Since(ready).Round(100*time.Millisecond), ready.Sub(start).Round(100*time.Millisecond))
}

// typeBlock runs a block and reports whether the result is as the page shows it.
func typeBlock(t *testing.T, s *session, p *page, b *block) bool {
	t.Helper()
	place := fmt.Sprintf("%s:%d", p.path, b.line)
	switch b.kind {
	case norun:
		return true
	case terminal:
		printed, err := s.start(t.Context(), b.code, b.want)
		if err != nil {
			t.Errorf("%s: %v\n%s", place, err, shown(b.code, printed))
		}
		return err == nil
	case console:
		for _, step := range commands(*b.want) {
			if !typeCommand(t, s, place, step.code, &step.want, 0, 1) {
				return false
			}
		}
		return true
	case run, hidden:
		return typeCommand(t, s, place, b.code, b.want, b.status)
	}
	t.Fatalf("%s: a block of kind %q", place, b.kind)
	return false
}

// typeCommand runs commands that must exit with one of the statuses and print the
// output of the page, if it shows any.
func typeCommand(t *testing.T, s *session, place, code string, want *string, statuses ...int) bool {
	t.Helper()
	printed, status, err := s.run(t.Context(), code)
	if err != nil {
		t.Errorf("%s: %v\n%s", place, err, shown(code, printed))
		return false
	}
	if !slices.Contains(statuses, status) {
		t.Errorf("%s: ends with status %d, not %d\n%s", place, status, statuses[0], shown(code, printed))
		return false
	}
	if want != nil && !matches(*want, printed, true) {
		t.Errorf("%s: prints something else (-page +printed)\n%s\n%s", place, shown(code, printed), cmp.Diff(tidy(*want), tidy(printed)))
		return false
	}
	return true
}

// shown returns a block and its output, for a message.
func shown(code, printed string) string {
	return "    $ " + strings.ReplaceAll(code, "\n", "\n    $ ") + "\n" + strings.TrimRight(printed, "\n")
}

// TestSession: what the blocks of a page are run in is what doc.go says.
func TestSession(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	gputest.Must(t, os.WriteFile(kubeconfig, []byte("a cluster"), 0o600))
	bin := t.TempDir()
	gputest.Must(t, os.WriteFile(filepath.Join(bin, "daybreak"), []byte(`#!/bin/sh
echo '{"version": "v9", "commit": "c9"}'
`), 0o755))
	s, err := newSession(t.Context(), t.TempDir(), bin, kubeconfig)
	gputest.Must(t, err)
	for name, step := range map[string]struct {
		blocks []string
		want   string
		status int
	}{
		"the repository is there":                     {blocks: []string{"head -n 1 go.mod"}, want: "module github.com/daybreak-gpu/daybreak\n"},
		"the cluster is":                              {blocks: []string{"cat $KUBECONFIG ~/.kube/config"}, want: "a clustera cluster"},
		"the binaries are, and their version":         {blocks: []string{"daybreak >/dev/null; echo $VERSION $COMMIT"}, want: "v9 c9\n"},
		"variables and the folder stay":               {blocks: []string{"NAME='a b'\ncd examples", `echo "$NAME"; ls cluster.yaml; cd ..`}, want: "a b\ncluster.yaml\n"},
		"the first command that fails ends the block": {blocks: []string{"echo one\nfalse\necho two"}, want: "one\n", status: 1},
		"so does one in a pipe":                       {blocks: []string{"(exit 3) | cat\necho two"}, status: 3},
		"both outputs are printed":                    {blocks: []string{"echo one\necho two >&2"}, want: "one\ntwo\n"},
		"what stays in the background is not waited for": {
			blocks: []string{"sleep 1000 &\necho one"}, want: "one\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			var status int
			for _, code := range step.blocks {
				if got, status, err = s.run(t.Context(), code); err != nil {
					t.Fatal(err)
				}
			}
			if got != step.want || status != step.status {
				t.Errorf("got %q and status %d, want %q and %d", got, status, step.want, step.status)
			}
		})
	}
	line := "ready\n…"
	if _, err := s.start(t.Context(), "echo ready; echo now; exec sleep 1000", &line); err != nil {
		t.Errorf("a terminal: %v", err)
	}
	if err := s.close(); err != nil {
		t.Errorf("what runs in a terminal ends at Ctrl-C: %v", err)
	}
}
