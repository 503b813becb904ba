package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// fakeGo writes a go command: build and list are the shell scripts that it runs.
func fakeGo(t *testing.T, build, list string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "go")
	script := "#!/bin/sh\ncase $1 in\nbuild)\n" + build + "\n;;\nlist)\n" + list + "\n;;\nesac\n"
	gputest.Must(t, os.WriteFile(file, []byte(script), 0o700))
	return file
}

func build(ctx context.Context, t *testing.T, b *builder) (string, error) {
	t.Helper()
	var out bytes.Buffer
	b.w, b.packages = &out, []string{"./x"}
	if b.interval == 0 {
		b.interval = time.Hour
	}
	err := b.run(ctx)
	return out.String(), err
}

// TestCached: nothing is printed, and go list is not run.
func TestCached(t *testing.T) {
	listed := filepath.Join(t.TempDir(), "listed")
	out, err := build(t.Context(), t, &builder{goTool: fakeGo(t, "exit 0", "touch "+listed)})
	if out != "" || err != nil {
		t.Errorf("%q, %v; want nothing", out, err)
	}
	if _, err := os.Stat(listed); err == nil {
		t.Error("go list was run")
	}
}

// TestErrors: errors of the compiler are printed, and the exit code is go's.
func TestErrors(t *testing.T) {
	const script = `echo fmt >&2; echo example.com/a/v2 >&2
echo '# example.com/a/v2' >&2; echo './a.go:1:1: undefined: x' >&2; exit 3`
	for _, terminal := range []bool{false, true} {
		out, err := build(t.Context(), t, &builder{goTool: fakeGo(t, script, "exit 1"), terminal: terminal})
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("error %v, want exit code 3", err)
		}
		out = strings.ReplaceAll(out, "\r\x1b[K", "")
		gputest.Equal(t, fmt.Sprintf("terminal %v", terminal), "# example.com/a/v2\n./a.go:1:1: undefined: x\n", out)
	}
}

// TestReports: while go build runs, the packages are reported of all that have to
// be compiled.
func TestReports(t *testing.T) {
	source := filepath.Join(t.TempDir(), "a.go")
	gputest.Must(t, os.WriteFile(source, []byte("package a"), 0o600))
	list := `printf 'fmt\t` + source + `\nnet\t` + source + `\n\nos\t` + source + `\n'`
	b := &builder{goTool: fakeGo(t, "echo fmt >&2; sleep 1; exit 0", list), interval: 50 * time.Millisecond}
	out, err := build(t.Context(), t, b)
	if err != nil || !strings.Contains(out, "make build: 1 of 3 packages, 0%: fmt\n") || !strings.Contains(out, "\nmake build: 1 package in ") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestInterrupted: go build is interrupted too.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := build(ctx, t, &builder{goTool: fakeGo(t, "exec sleep 60", "")})
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("error %v after %s, want one at once", err, time.Since(start))
	}
}

func TestProgress(t *testing.T) {
	p := &progress{parallel: 1, begun: map[string]bool{}}
	var got []string
	say := func(after time.Duration) { got = append(got, p.text(p.start.Add(after))) }
	say(0)
	p.read("go: downloading k8s.io/api v0.36.3")
	say(time.Second)
	p.read("fmt")
	say(time.Second)
	p.sizes = map[string]int64{"fmt": 100, "k8s.io/api/core/v1": 300, "example.com/big": 1600}
	say(6 * time.Second)
	p.read("k8s.io/api/core/v1")
	say(6 * time.Second)
	p.read("example.com/new") // go list ran after it was compiled
	say(20 * time.Second)
	p.read("example.com/big")
	say(60 * time.Second)
	want := []string{
		"",
		"make build: downloading module 1: k8s.io/api v0.36.3",
		"make build: compiling package 1: fmt",
		"make build: 1 of 3 packages, 0%: fmt",
		"make build: 2 of 3 packages, 5%, about 2 min left: k8s.io/api/core/v1",
		"make build: 3 of 4 packages, 20%, about 1 min left: example.com/new",
		"make build: 4 of 4 packages, linking example.com/big",
	}
	gputest.Equal(t, "progress", want, got)
	p.sizes["example.com/cached"], p.targets = 1, []string{"./big"}
	gputest.Equal(t, "progress", "make build: 4 of 5 packages, linking example.com/big", p.text(p.start))
	if p.read("./a.go:1:1: undefined: x") || p.read("# example.com/a") || p.read("go: module example.com: not found") {
		t.Error("an error is taken for a package")
	}
}
