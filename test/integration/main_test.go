// Package integration tests Daybreak on a real control plane: etcd,
// kube-apiserver, kube-controller-manager and the scheduler run as processes,
// nodes are simulated.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// root is the repository.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

func TestMain(m *testing.M) {
	build := exec.CommandContext(context.Background(), "make", "-s", "build")
	build.Dir = root
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binaries:", err)
		os.Exit(1)
	}
	// Most of the time tests wait; but each has a cluster for itself, which costs something too.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	code := m.Run()
	clusters.Stop()
	os.Exit(code)
}

func bin(name string) string { return filepath.Join(root, "bin", name) }

// clusters are those that tests have in turn.
var clusters = harness.Pool{Bin: bin("")}

// world is a cluster under test.
type world struct{ *harness.World }

// newWorld returns a control plane with the Device definition, the policies of
// admission and no nodes, which is the test's until it ends.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newOpenWorld(t)
	w.Must(w.Guard(w.Ctx, w.Policies()))
	return w
}

// newOpenWorld is a world without the policies, for tests that play the agent or
// another scheduler: there the administrator may write allocations and Devices.
func newOpenWorld(t testing.TB, options ...local.SimulatorOption) *world {
	t.Helper()
	w := &world{clusters.New(t)}
	w.Simulate(options...)
	return w
}

// newOwnWorld is a world with a control plane of its own.
func newOwnWorld(t testing.TB, cfg local.Config) *world {
	t.Helper()
	w := &world{harness.New(t, bin(""), cfg)}
	w.Must(w.Guard(w.Ctx, w.Policies()))
	w.Simulate()
	return w
}

// pod returns a pod with one container and the given limits, "resource=amount".
func pod(name string, limits ...string) *corev1.Pod {
	return harness.PodFor(name, "", strings.ReplaceAll(strings.Join(limits, ", "), "=", ": "))
}

// readJSON reads a golden file.
func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	gputest.Must(t, err)
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// writeYAML writes an object to a file of the test and returns its path.
func writeYAML(t testing.TB, name string, obj any) string {
	t.Helper()
	text, err := yaml.Marshal(obj)
	gputest.Must(t, err)
	path := filepath.Join(t.TempDir(), name)
	gputest.Must(t, os.WriteFile(path, text, 0o600))
	return path
}
