package integration

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPlayground starts the playground as a newcomer would and types what it
// says to try; then another one in the same folder.
func TestPlayground(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	p.start("--nodes", "3")
	p.try("metax-3", "C500", "pod/gpu-pod1 created", "condition met", "has         ubuntu-container: card 0, 60% and 4 GiB", "3 nodes, 24 cards", "job.batch/nap condition met", "pod/sgpu-online condition met")
	if err := p.refused("--nodes", "1"); !strings.Contains(err, fmt.Sprintf("--kubeconfig playground.kubeconfig is in use by the playground of process %d ", p.cmd.Process.Pid)) {
		t.Errorf("a second playground says %q", err)
	}
	said, err := os.ReadFile(p.said)
	if want := "scheduler ended (signal: killed), restarting\nplayground: scheduler restarted as process "; err != nil || !strings.Contains(string(said), want) {
		t.Errorf("the playground does not say %q (%v):\n%s", want, err, said)
	}
	for what, metric := range map[string]string{"scheduler": "scheduler_schedule_attempts_total", "manager": "daybreak_manager_"} {
		p.metrics(what, metric)
	}
	p.shell("kill -9 $(cat playground.files/manager.pid)", "kubectl delete pod gpu-pod1 --now",
		"until kubectl apply -f examples/hami/sgpu-default.yaml; do sleep 0.2; done", "kubectl wait --for=condition=Ready pod/gpu-pod1 --timeout=60s")
	log, err := os.ReadFile(filepath.Join(p.dir, "playground.files", "logs", "etcd.log"))
	if requests := bytes.Count(log, []byte("took too long")); err != nil || requests > 100 {
		t.Errorf("etcd has logged %d requests (%v)", requests, err)
	}
	p.stop()
	left, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// TestPlaygroundOfVendor is the same with the stand-in for the vendor's plugin.
func TestPlaygroundOfVendor(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	p.start("--nodes", "3", "--served-by", "vendor")
	p.try("metax-3", `"availableDevCount":16`, "pod/gpu-pod1 created", "condition met", "ubuntu-container: card 0, 60% and 4 GiB", "3 nodes, 24 cards")
	p.stop()
}

// TestPlaygroundKept: a folder keeps the cluster with its nodes. Other nodes are
// added, removed and replaced, but not those on which pods run.
func TestPlaygroundKept(t *testing.T) {
	t.Parallel()
	p := newPlayground(t)
	p.start("--data", "kept", "--nodes", "3")
	p.shell(`kubectl run busy --image=none --overrides='{"spec":{"nodeSelector":{"kubernetes.io/hostname":"metax-3"}}}'`,
		"kubectl wait --for=condition=Ready pod/busy --timeout=60s")
	p.stop()

	if err := p.refused("--data", "kept", "--nodes", "2"); !strings.Contains(err, "--nodes 2: pods run on nodes that would be removed or replaced (default/busy on metax-3): start without --nodes 2, delete them and try again") {
		t.Errorf("it says %q", err)
	}

	p.start("--data", "kept")
	p.shell("kubectl wait --for=condition=Ready node metax-1 metax-2 metax-3 --timeout=60s", "kubectl get pod busy", "kubectl delete pod busy --now")
	p.stop()

	p.start("--data", "kept", "--nodes", "2", "--profile", "c500-pcie")
	gputest.Equal(t, "nodes", "node/metax-1\nnode/metax-2\n", p.shell("kubectl get nodes -o name"))
	gputest.Equal(t, "Devices", "device.scheduling.koordinator.sh/metax-1\ndevice.scheduling.koordinator.sh/metax-2\n", p.shell("kubectl get devices -o name"))
	if got := p.shell(`kubectl get device metax-1 -o jsonpath='{.metadata.annotations.daybreak-gpu\.io/links}'`); strings.Contains(got, "M") {
		t.Errorf("metax-1 has links, as those of the last run: %s", got)
	}
	p.stop()
}

// typed is a playground in a folder of its own.
type typed struct {
	testing.TB
	dir   string
	cmd   *exec.Cmd
	said  string   // the path of what it wrote to stderr
	lines []string // that it printed when it was ready
	ended chan error
}

func newPlayground(t testing.TB) *typed {
	t.Helper()
	p := &typed{TB: t, dir: t.TempDir(), said: filepath.Join(t.TempDir(), "stderr")}
	for _, name := range []string{"bin", "examples"} {
		gputest.Must(t, os.Symlink(filepath.Join(root, name), filepath.Join(p.dir, name)))
	}
	return p
}

func (p *typed) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.Context(), bin("playground"), args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+p.dir)
	return cmd
}

// start returns when the playground has said what to try.
func (p *typed) start(args ...string) {
	p.Helper()
	p.cmd, p.lines, p.ended = p.command(args...), nil, make(chan error, 1)
	said, err := os.OpenFile(p.said, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	gputest.Must(p, err)
	defer said.Close()
	p.cmd.Stderr = said
	out, err := p.cmd.StdoutPipe()
	gputest.Must(p, err)
	begin := time.Now()
	gputest.Must(p, p.cmd.Start())
	cmd := p.cmd
	p.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.lines = append(p.lines, lines.Text())
		if strings.Contains(lines.Text(), "daybreak place") {
			p.Logf("ready after %s", time.Since(begin).Round(10*time.Millisecond))
			break
		}
	}
	ended := p.ended
	go func() { ended <- cmd.Wait() }()
	if len(p.lines) == 0 || p.lines[0] != "ready" {
		text, _ := os.ReadFile(p.said)
		p.Fatalf("it prints %q\n%s", p.lines, text)
	}
}

// refused starts a playground that does not start, and returns what it says.
func (p *typed) refused(args ...string) string {
	p.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err == nil {
		p.Fatalf("it ran:\n%s", out)
	}
	return string(out)
}

// try types what the playground says, and looks for texts in what comes of it.
func (p *typed) try(wants ...string) {
	p.Helper()
	var script []string
	for _, line := range p.lines {
		if rest, ok := strings.CutPrefix(line, "  $ "); ok {
			script = append(script, rest)
		}
	}
	if len(script) < 6 {
		p.Fatalf("it says to try %q", script)
	}
	text := p.shell(script...)
	for _, want := range wants {
		if !strings.Contains(text, want) {
			p.Errorf("no %q in the output:\n%s", want, text)
		}
	}
}

// shell types commands on the playground, and returns what they print.
func (p *typed) shell(script ...string) string {
	p.Helper()
	script = append([]string{"export KUBECONFIG=playground.kubeconfig PATH=$PWD/bin:$PATH"}, script...)
	shell := exec.CommandContext(p.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(script, "\n"))
	shell.Dir = p.dir
	text, err := shell.CombinedOutput()
	if err != nil {
		p.Fatalf("%q fails: %v\n%s", script, err, text)
	}
	return string(text)
}

// metrics checks that the metrics of a component are where the playground says.
func (p *typed) metrics(of, want string) {
	p.Helper()
	url := regexp.MustCompile(`(https?://\S+/metrics) of the ` + of).FindStringSubmatch(strings.Join(p.lines, "\n"))
	if url == nil {
		p.Fatalf("no metrics of the %s in %q", of, p.lines)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as curl -k
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, url[1], http.NoBody)
	gputest.Must(p, err)
	answer, err := client.Do(request)
	gputest.Must(p, err)
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), want) {
		p.Errorf("no %q at %s: %v\n%.500s", want, url[1], err, text)
	}
}

// stop ends the playground as Ctrl-C does.
func (p *typed) stop() {
	p.Helper()
	gputest.Must(p, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ended:
		if err != nil {
			p.Errorf("the playground ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		p.Fatal("the playground did not end")
	}
}
