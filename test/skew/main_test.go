// Package skew tests upgrades: whatever order the parts are replaced in, two
// versions of Daybreak work together, and so do the previous version and the
// policies, rights and definitions of the next, which Helm applies first.
//
// A real control plane runs the chart of an earlier commit with its binary. Helm
// upgrades it to the tree's and rolls it back, once for each order of agents,
// managers and schedulers, while pods run and others arrive. The workloads are
// rolled out by Kubernetes' own controllers; the test is the kubelet of Daybreak's
// pods (see test/deployed): it starts the process of the rendered version with the
// rendered flags and the token of the pod, and decides whose turn it is. The
// machines are those of test/machine.
//
// `make skew` builds the earlier commit and runs it. Until there is a release, that is
// the commit that is checked out, with another version.
package skew

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/harness"
)

const (
	// envBin names the folder with the binaries of the tree, and envOld that with
	// the binary and the chart of the earlier commit.
	envBin = "SKEW_BIN"
	envOld = "SKEW_OLD"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "make skew builds an earlier commit and upgrades it", envBin, envOld))
}

// bin returns the path of a binary of the tree.
func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// version is one of the two versions, and the tag of its image.
type version string

const (
	previous version = "previous"
	next     version = "next"
)

// versions are both, the earlier first.
var versions = []version{previous, next}

// binary returns the path of the version's binary.
func (v version) binary() string {
	if v == previous {
		return filepath.Join(os.Getenv(envOld), "daybreak")
	}
	return bin("daybreak")
}

// chart returns the folder of the version's chart.
func (v version) chart() string {
	if v == previous {
		return filepath.Join(os.Getenv(envOld), "charts", "daybreak")
	}
	return filepath.Join("..", "..", "charts", "daybreak")
}
