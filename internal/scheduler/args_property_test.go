package scheduler

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestArgsProperty: whatever is written, arguments that are taken are within
// bounds, and mean the same when they are written out in full. It is no fuzz
// target: to instrument this package is to compile Kubernetes again.
func TestArgsProperty(t *testing.T) {
	seeds := []string{
		"", "{}", "null", "policy: spread", "policy: best", "lockWaitSeconds: 60\nlockExpirySeconds: 300", "lockWaitSeconds: 3601", "minCandidateNodesPercentage: 0\nminCandidateNodesAbsolute: 7",
		`{"lockExpirySeconds": 42, "policy": "binpack"}`, "lockExpirySeconds: 1e2", "policy: [", "unknown: 1", "policy: spread\npolicy: binpack", "a: &a [*a]", "apiVersion: v1\nkind: Args",
	}
	random := rand.New(rand.NewPCG(3, 7))
	taken := 0
	for range 20_000 {
		text := []byte(seeds[random.IntN(len(seeds))])
		for range random.IntN(4) {
			switch at := random.IntN(len(text) + 1); {
			case at < len(text) && random.IntN(3) > 0:
				text[at] = "0123456789-:{}[],\"\n\x00 es"[random.IntN(23)]
			default:
				text = append(text[:at:at], append([]byte(seeds[random.IntN(len(seeds))]), text[at:]...)...)
			}
		}
		args, err := parseArgs(&runtime.Unknown{Raw: text})
		if err != nil {
			continue
		}
		taken++
		checkArgs(t, &args)
		written, err := json.Marshal(&args)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseArgs(&runtime.Unknown{Raw: written})
		if diff := cmp.Diff(args, back); err != nil || diff != "" {
			t.Fatalf("%q, read back from %s: %v\n%s", text, written, err, diff)
		}
	}
	if taken < 1000 {
		t.Errorf("only %d were taken", taken)
	}
}

func checkArgs(t *testing.T, args *Args) {
	t.Helper()
	if w, e := args.lockWait().Seconds(), args.lockExpiry().Seconds(); w < 1 || w > maxLockSeconds || e < 1 || e > maxLockSeconds {
		t.Fatalf("locks wait for %v s and live for %v s", w, e)
	}
	if *args.MinCandidateNodesAbsolute == 0 && *args.MinCandidateNodesPercentage == 0 {
		t.Fatal("preemption would try no node")
	}
}
