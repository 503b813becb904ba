package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPlayground starts the playground as a newcomer would and types what it
// says to try.
func TestPlayground(t *testing.T) {
	t.Parallel()
	tryPlayground(t, nil, "metax-3", "C500", "pod/gpu-pod1 created", "condition met", `"vRam":4096`, "GPU-")
}

// TestPlaygroundOfVendor is the same with the stand-in for the vendor's plugin.
func TestPlaygroundOfVendor(t *testing.T) {
	t.Parallel()
	tryPlayground(t, []string{"--served-by", "vendor"}, "metax-3", `"availableDevCount":16`, "pod/gpu-pod1 created", "condition met", `"vRam":4096`, "GPU-")
}

// tryPlayground starts the playground, types what it says and looks for texts in
// what comes of it.
func tryPlayground(t *testing.T, args []string, wants ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bin", "examples"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), bin("playground"), append([]string{"--nodes", "3"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	var script []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		if line == "ready" {
			t.Logf("ready after %s", time.Since(start).Round(10*time.Millisecond))
		}
		if rest, ok := strings.CutPrefix(line, "  $ "); ok {
			script = append(script, rest)
		}
		if strings.Contains(line, "daybreak place") {
			break
		}
	}
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if len(script) < 6 {
		t.Fatalf("it says to try %q", script)
	}

	shell := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", strings.Join(script, "\n"))
	shell.Dir = dir
	text, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("what the playground says to try fails: %v\n%s", err, text)
	}
	for _, want := range wants {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the output:\n%s", want, text)
		}
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the playground ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the playground did not end")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
