package scheduler

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzArgs: arguments that are taken are within bounds, and mean the same when
// they are written out in full.
func FuzzArgs(f *testing.F) {
	for _, text := range []string{
		"", "{}", "null", "policy: spread", "policy: best", "lockWaitSeconds: 0", "lockWaitSeconds: 3601", "minCandidateNodesPercentage: 0\nminCandidateNodesAbsolute: 0",
		`{"lockExpirySeconds": 4294967297}`, "lockExpirySeconds: 1e2", "policy: [", "unknown: 1", "policy: spread\npolicy: binpack", "a: &a [*a]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		args, err := parseArgs(&runtime.Unknown{Raw: text})
		if err != nil {
			return
		}
		if w, e := args.lockWait().Seconds(), args.lockExpiry().Seconds(); w < 1 || w > maxLockSeconds || e < 1 || e > maxLockSeconds {
			t.Fatalf("locks wait for %v s and live for %v s", w, e)
		}
		if *args.MinCandidateNodesAbsolute == 0 && *args.MinCandidateNodesPercentage == 0 {
			t.Fatal("preemption would try no node")
		}
		written, err := json.Marshal(&args)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseArgs(&runtime.Unknown{Raw: written})
		if diff := cmp.Diff(args, back); err != nil || diff != "" {
			t.Fatalf("read back from %s: %v\n%s", written, err, diff)
		}
	})
}
