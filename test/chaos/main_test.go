// Package chaos tests what Daybreak promises whatever dies: no card booked
// twice, no booking lost, no pod stuck for ever. A real control plane, two
// schedulers, two managers and several agents run as processes; they are killed
// and paused, a proxy between them and the API server fails, loses and delays
// what they say, and objects are deleted under them, while pods of both dialects
// come and go. After every round everything has to add up.
//
// Two things are not real. Hardware is the fake libmxsml of test/fake. kubelet
// and the container runtime are played at their sockets (see kubelet), since
// test/e2e has the real ones and none of the faults is theirs.
//
// The seed decides which faults come in which order, to whom and for how long,
// and which pods come and go. When exactly each of them happens is up to the
// machine: the same seed gives the same plan, not the same interleaving.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What a run is like. Without flags it is the short form.
var (
	seedFlag    = flag.Uint64("chaos.seed", 1, "seed of the plan of faults and pods")
	faultsFlag  = flag.Int("chaos.faults", 54, "least number of faults of TestChaos")
	roundFlag   = flag.Int("chaos.round", 27, "faults of one round, which come over 10 s, or proportionally longer")
	podsFlag    = flag.Int("chaos.pods", 300, "least number of pods of TestChaos")
	kindsFlag   = flag.String("chaos.kinds", "", "regular expression of the kinds of faults; empty for all, and for kills in TestRecovery")
	samplesFlag = flag.Int("chaos.samples", 1, "how often each part is killed in TestRecovery")
	plantedFlag = flag.Int("chaos.planted", 20, "TestPlanted's ledger forgets one booking in as many")
	buildFlag   = flag.Bool("chaos.build", true, "build the binaries first")
	leaseFlag   = flag.Duration("chaos.lease", 6*time.Second, "how long a leader's lease lasts; 15s is what a cluster has")
)

// root is the repository.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

func bin(name string) string { return filepath.Join(root, "bin", name) }

func TestMain(m *testing.M) {
	flag.Parse()
	if !*buildFlag {
		os.Exit(m.Run())
	}
	build := exec.CommandContext(context.Background(), "make", "-s", "build")
	build.Dir = root
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binaries:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
