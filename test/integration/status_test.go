package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// columns is how wide lines are. With it no line of the golden files is wrapped
// elsewhere when a pod is some seconds older.
const columns = 98

// run runs a command of daybreak on the cluster, as a plugin of kubectl, and
// returns what it prints and its exit code.
func (w *world) run(args ...string) (stdout, stderr string, code int) {
	w.Helper()
	cmd := exec.CommandContext(w.Ctx, bin("kubectl"), append([]string{"daybreak"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+w.Kubeconfig("admin"), "COLUMNS="+strconv.Itoa(columns))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// dump writes the cluster to a file as kubectl shows it.
func (w *world) dump(format string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Ctx, bin("kubectl"), "--kubeconfig", w.Kubeconfig("admin"), "get", "nodes,devices,pods,leases", "-A", "-o", format)
	text, err := cmd.Output()
	w.Must(err)
	path := filepath.Join(w.TempDir(), "dump."+format)
	w.Must(os.WriteFile(path, text, 0o600))
	return path
}

// What differs from one run to the next: ages, and when cards were chosen.
var (
	ages    = regexp.MustCompile(`\(\d+[a-z]+\) wants`)
	moments = regexp.MustCompile(`"\d{19}"`)
	dates   = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?`)
)

func timeless(text string) string {
	text = ages.ReplaceAllString(text, "(0s) wants")
	return dates.ReplaceAllString(moments.ReplaceAllString(text, `"0"`), "2026-01-02 03:04:05")
}

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what a command printed with its file.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", "status", name)
	if *update {
		gputest.Must(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	gputest.Must(t, err)
	gputest.Equal(t, path+"; -update rewrites it", string(want), text)
}

// mixture fills a cluster of three nodes with slices of two QoS classes and
// whole cards, and has two pods that wait. Two cards are not well, one of them
// in use.
func (w *world) mixture() {
	w.Helper()
	w.AddNodes(3)
	w.Scheduler("scheduler")
	w.Must(w.Apply(w.Ctx, strings.NewReader(manifest.Lease("manager", `"toleratedTaint":"metax-tech.com/gpu:NoSchedule"`))))
	fixed := pod("fixed", "sgpu=1", "vcore=50", "vmemory=16")
	fixed.Annotations = map[string]string{wire.AnnotationQoS: "fixed-share"}
	for _, p := range []*corev1.Pod{
		pod("whole", "gpu=2"), pod("slice-a", "sgpu=1", "vcore=30", "vmemory=8"), pod("slice-b", "sgpu=1", "vcore=20", "vmemory=4"), fixed,
	} {
		w.Create(p)
		w.Bound(p.Name)
	}
	sick := w.Bound("fixed")
	w.sicken(sick.Spec.NodeName, w.CardsOf(sick)[0])
	w.sicken("metax-2", 3)
	w.Create(pod("wide", "gpu=16"), pod("deep", "sgpu=1", "vcore=10", "vmemory=100"))
	for _, name := range []string{"wide", "deep"} {
		w.Refused(name, "")
	}
}

// estimate is what is said of a live cluster alone: its scheduler may know more.
var estimate = regexp.MustCompile(`\n *"estimate": \[[^\]]*\],`)

// TestStatus: what status, explain, audit and place say of a live cluster is what
// they say of the same cluster in files; and it is what it should be.
func TestStatus(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.WithoutAgents()) // which would put the Device right
	w.mixture()
	commands := map[string]struct {
		args     []string
		wantCode int
	}{
		"status.txt":         {args: []string{"status"}},
		"status-wide.txt":    {args: []string{"status", "-o", "wide"}},
		"status.json":        {args: []string{"status", "-o", "json"}},
		"status-node.txt":    {args: []string{"status", "--node", "metax-1"}},
		"audit.txt":          {args: []string{"audit"}},
		"audit.json":         {args: []string{"audit", "-o", "json"}},
		"explain-wide.txt":   {args: []string{"explain", "wide"}, wantCode: 1},
		"explain-wide.json":  {args: []string{"explain", "wide", "-o", "json"}, wantCode: 1},
		"explain-deep.txt":   {args: []string{"explain", "deep"}, wantCode: 1},
		"explain-whole.txt":  {args: []string{"explain", "whole"}},
		"explain-slice.txt":  {args: []string{"explain", "slice-a"}},
		"explain-slice.json": {args: []string{"explain", "slice-a", "-o", "json"}},
	}
	files := []string{w.dump("yaml"), w.dump("json")}
	for name, tt := range commands {
		t.Run(name, func(t *testing.T) {
			live, stderr, code := w.run(tt.args...)
			if code != tt.wantCode || stderr != "" {
				t.Errorf("exit code %d, want %d; stderr %q", code, tt.wantCode, stderr)
			}
			golden(t, name, timeless(live))
			live = estimate.ReplaceAllString(live, "")
			for _, file := range files {
				filed, _, code := w.run(append(tt.args, "-f", file)...)
				if diff := cmp.Diff(timeless(live), timeless(filed)); diff != "" || code != tt.wantCode {
					t.Errorf("from %s: exit code %d, (-live +file):\n%s", file, code, diff)
				}
			}
			if lines := strings.Count(live, "\n"); tt.args[0] == "explain" && len(tt.args) == 2 && lines > 10 {
				t.Errorf("%d lines", lines)
			}
			if widest := widestLine(live); (name == "status.txt" || name == "status-node.txt" || name == "audit.txt") && widest > columns {
				t.Errorf("%d columns", widest)
			}
		})
	}
	more := writeYAML(t, "more.yaml", podOf("more", "gpu=4"))
	for name, format := range map[string]string{"place.txt": "table", "place.json": "json"} {
		out, stderr, code := w.run("place", "-f", files[0], "-f", more, "-o", format)
		if code != 1 || stderr != "" {
			t.Errorf("place: exit code %d, stderr %q", code, stderr)
		}
		golden(t, name, timeless(out))
	}
	// The reasons are the event's.
	explained, _, _ := w.run("explain", "wide")
	_, sentence, _ := strings.Cut(strings.SplitN(explained, "\n", 2)[0], " nodes: ")
	if events := strings.Join(w.Refusals("wide"), "\n"); sentence == "" || !strings.Contains(events, sentence) {
		t.Errorf("explain says %q, the events say %q", sentence, events)
	}
}

// podOf is a pod as it stands in a file.
func podOf(name string, limits ...string) *corev1.Pod {
	p := pod(name, limits...)
	p.APIVersion, p.Kind = "v1", "Pod"
	return p
}

func widestLine(text string) int {
	widest := 0
	for line := range strings.Lines(text) {
		widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return widest
}

// sicken makes a card unhealthy, as an agent would.
func (w *world) sicken(node string, card int) {
	w.Helper()
	patch := `[{"op":"replace","path":"/spec/devices/3/health","value":false},` +
		`{"op":"replace","path":"/spec/devices/3/conditions","value":[{"type":"Healthy","status":"False","reason":"UncorrectableECC","message":"two errors","lastTransitionTime":"2026-03-15T10:00:00Z"}]}]`
	w.PatchDevice(node, strings.ReplaceAll(patch, "/3/", "/"+string(rune('0'+card))+"/"))
}

// TestStatusWatch: a change shows up as a new block, also after the API server hung
// or ended; that it does is shown; and Ctrl-C ends it well.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, local.Config{})
	w.AddNodes(1)
	w.Scheduler("scheduler")
	ctx, cancel := context.WithTimeout(w.Ctx, 5*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	w.Must(err)
	defer out.Close()
	cmd := exec.CommandContext(ctx, bin("daybreak"), "status", "--watch", "--kubeconfig", w.Kubeconfig("admin"))
	cmd.Stdout, cmd.Stderr = out, out
	w.Must(cmd.Start())
	shown := func(want string) {
		w.Eventually("the watch shows "+want, time.Minute, func() error {
			text, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(text), want) {
				err = errors.New(string(text))
			}
			return err
		})
	}
	shown(".... ....")
	w.Create(pod("two", "gpu=2"))
	shown("##.. ....")
	// A server that hangs ends no watch, and shows no change.
	w.Must(w.APIServer.Signal(syscall.SIGSTOP))
	shown("connection lost at ")
	w.Must(w.APIServer.Signal(syscall.SIGCONT))
	w.Must(w.WaitReady(w.Ctx))
	change := func(patch string) {
		_, err := w.Client.CoreV1().Nodes().Patch(w.Ctx, "metax-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		w.Must(err)
	}
	change(`{"spec":{"unschedulable":true}}`)
	shown("metax-1: the node is cordoned")
	w.Must(os.Truncate(path, 0))
	w.APIServer.Kill()
	shown("connection lost at ")
	w.Must(w.APIServer.Start())
	w.Must(w.WaitReady(w.Ctx))
	change(`{"spec":{"unschedulable":false,"taints":[{"key":"team","effect":"NoSchedule"}]}}`)
	shown("metax-1: the node has the taint team:NoSchedule")
	w.Must(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
