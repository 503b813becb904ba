package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/local"
)

// run runs a command of daybreak on the cluster, as a plugin of kubectl, and
// returns what it prints and its exit code.
func (w *world) run(args ...string) (stdout, stderr string, code int) {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, bin("kubectl"), append([]string{"daybreak"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+w.cluster.Kubeconfig("admin"))
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
	cmd := exec.CommandContext(w.ctx, bin("kubectl"), "--kubeconfig", w.cluster.Kubeconfig("admin"), "get", "nodes,devices,pods", "-A", "-o", format)
	text, err := cmd.Output()
	w.must(err)
	path := filepath.Join(w.TempDir(), "dump."+format)
	w.must(os.WriteFile(path, text, 0o600))
	return path
}

// ages differ from one moment to the next.
var ages = regexp.MustCompile(`\([0-9a-z]+\) wants`)

// TestStatus: what status, explain and audit say of a live cluster, with slices,
// whole cards, an unhealthy card and pods that wait, is what they say of the
// same cluster in files; and it is true.
func TestStatus(t *testing.T) {
	w := newOpenWorld(t, local.Config{}, local.WithoutAgents()) // which would put the Device right
	w.nodes(3)
	w.scheduler("scheduler")
	w.create(pod("whole", "gpu=2"), pod("slice-a", "sgpu=1", "vcore=30", "vmemory=8"), pod("slice-b", "sgpu=1", "vcore=20", "vmemory=4"))
	for _, name := range []string{"whole", "slice-a", "slice-b"} {
		w.bound(name)
	}
	w.create(pod("wide", "gpu=16"), pod("deep", "sgpu=1", "vcore=10", "vmemory=100"))
	w.sicken("metax-2", 3)
	for _, name := range []string{"wide", "deep"} {
		w.eventually("pod "+name+" refused", time.Minute, func() error {
			if len(w.refusals(name)) == 0 {
				return errors.New("no event yet")
			}
			return nil
		})
	}

	stdout, stderr, code := w.run("status")
	t.Logf("kubectl daybreak status\n%s%s", stdout, stderr)
	if code != 0 || stderr != "" {
		t.Errorf("status: exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"3 nodes, 24 cards (24 C500), 1 unhealthy, 2 pods pending", "metax-2 card 3: UncorrectableECC: two errors", "default/wide", "0/3 nodes: 3 need 16 cards that fit (best has 8)"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("status does not say %q:\n%s", want, stdout)
		}
	}
	wantCode := map[string]int{"explain wide": 1, "explain deep": 1}
	for _, format := range []string{"yaml", "json"} {
		file := w.dump(format)
		for _, args := range [][]string{
			{"status"}, {"status", "-o", "wide"}, {"status", "-o", "json"}, {"status", "--node", "metax-1"}, {"audit"}, {"audit", "-o", "json"},
			{"explain", "wide"}, {"explain", "wide", "-o", "json"}, {"explain", "deep"}, {"explain", "whole"}, {"explain", "slice-a", "-o", "json"},
		} {
			live, _, liveCode := w.run(args...)
			filed, _, fileCode := w.run(append(args, "-f", file)...)
			if diff := cmp.Diff(ages.ReplaceAllString(live, "wants"), ages.ReplaceAllString(filed, "wants")); diff != "" {
				t.Errorf("%v from %s (-live +file):\n%s", args, format, diff)
			}
			want := wantCode[strings.Join(args[:min(2, len(args))], " ")]
			if liveCode != want || fileCode != want || live == "" {
				t.Errorf("%v: exit codes %d and %d, want %d; printed %q", args, liveCode, fileCode, want, live)
			}
		}
	}
	// The sentence is the event's.
	explained, _, _ := w.run("explain", "wide")
	_, sentence, _ := strings.Cut(strings.SplitN(explained, "\n", 2)[0], "is pending: ")
	if events := strings.Join(w.refusals("wide"), "\n"); sentence == "" || !strings.Contains(events, sentence) {
		t.Errorf("explain says %q, the events say %q", sentence, events)
	}
}

// sicken makes a card unhealthy, as an agent would.
func (w *world) sicken(node string, card int) {
	w.Helper()
	client, err := dynamic.NewForConfig(w.cluster.REST())
	w.must(err)
	devices := client.Resource(v1alpha1.GroupVersion.WithResource("devices"))
	patch := `[{"op":"replace","path":"/spec/devices/3/health","value":false},` +
		`{"op":"replace","path":"/spec/devices/3/conditions","value":[{"type":"Healthy","status":"False","reason":"UncorrectableECC","message":"two errors","lastTransitionTime":"2026-03-15T10:00:00Z"}]}]`
	patch = strings.ReplaceAll(patch, "/3/", "/"+string(rune('0'+card))+"/")
	_, err = devices.Patch(w.ctx, node, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

// TestStatusWatch: a change shows up as a new block, and Ctrl-C ends it well.
func TestStatusWatch(t *testing.T) {
	w := newWorld(t, local.Config{})
	w.nodes(1)
	w.scheduler("scheduler")
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	w.must(err)
	defer out.Close()
	cmd := exec.CommandContext(ctx, bin("daybreak"), "status", "--watch", "--kubeconfig", w.cluster.Kubeconfig("admin"))
	cmd.Stdout, cmd.Stderr = out, out
	w.must(cmd.Start())
	shown := func(want string) {
		w.eventually("the watch shows "+want, time.Minute, func() error {
			text, err := os.ReadFile(path)
			if err == nil && !strings.Contains(string(text), want) {
				err = errors.New(string(text))
			}
			return err
		})
	}
	shown(".... ....")
	w.create(pod("two", "gpu=2"))
	shown("##.. ....")
	w.must(cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
