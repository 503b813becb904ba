package chaos

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// plantedBugs are mistakes that the suite has to notice. Each is put into a copy
// of one source file, and a binary is built with that in place of the original:
// Daybreak's own code knows nothing of it.
var plantedBugs = map[string]struct {
	file, original, planted string
	// agent reports that agents run the binary, and not schedulers.
	agent bool
	// noticed is what the suite has to say.
	noticed string
}{
	"the ledger forgets some bookings": {
		file: "internal/ledger/node.go",
		original: `	for i := range holdings {
		touched |= n.add(&holdings[i])
	}
	n.measure(&n.now, touched)
}

// BookUnknown`,
		planted: `	for i := range holdings {
		sum := uint32(2166136261) // FNV-1a: names that follow each other are far apart
		for _, c := range []byte(holdings[i].Holder) {
			sum = (sum ^ uint32(c)) * 16777619
		}
		if sum%RATE != 0 { // otherwise it is forgotten, whenever it is booked
			touched |= n.add(&holdings[i])
		}
	}
	n.measure(&n.now, touched)
}

// BookUnknown`,
		noticed: `MemoryOverbooked|ComputeOverbooked|SlicesOverbooked|ExclusiveShared|QoSMixed`,
	},
	"a slice is released twice": {
		file: "internal/agent/deviceplugin/slices.go",
		original: `	s.metrics.slicesRemoved.Inc()
	return nil
}`,
		planted: `	s.metrics.slicesRemoved.Inc()
	// The first pod on the card is taken for it the second time.
	if again, err := s.slicer.Slices(ctx, sh.Slice.BDF); err == nil && len(again.Slices) > 0 {
		_ = s.slicer.Remove(ctx, discover.SliceRef{BDF: sh.Slice.BDF, ID: again.Slices[0].ID, UUID: again.Slices[0].UUID})
	}
	return nil
}`,
		agent:   true,
		noticed: `has lost its slice`,
	},
}

// TestPlanted: with a planted bug the suite fails, for the right reason.
func TestPlanted(t *testing.T) {
	list, err := kinds("^pod |^kill scheduler leader$")
	gputest.Must(t, err)
	for name, bug := range plantedBugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary := plant(t, bug.file, bug.original, strings.ReplaceAll(bug.planted, "RATE", strconv.Itoa(*plantedFlag)))
			o := options{machines: 2, scheduler: binary}
			if bug.agent {
				o = options{machines: 2, agent: binary}
			}
			w := newWorld(t, o)
			r := newRun(w, newPlan(*seedFlag, list, max(4, *plantedFlag/20)**roundFlag, max(600, 10**plantedFlag)))
			r.limit = 20 * time.Second
			for i := range r.plan.rounds {
				said := strings.Join(r.round(i), "\n")
				if regexp.MustCompile(bug.noticed).MatchString(said) {
					t.Logf("noticed after %d faults and %d pods: %s", r.figures.total(), w.pods.count(), said)
					return
				}
			}
			t.Errorf("%d faults and %d pods went by unnoticed", r.figures.total(), w.pods.count())
		})
	}
}

// plant builds Daybreak with one passage of one file replaced.
func plant(t *testing.T, file, original, planted string) (binary string) {
	t.Helper()
	path := filepath.Join(root, file)
	text, err := os.ReadFile(path)
	gputest.Must(t, err)
	if n := strings.Count(string(text), original); n != 1 {
		t.Fatalf("%s has the passage that the bug replaces %d times: bring the test up to date", file, n)
	}
	dir := t.TempDir()
	changed, overlay, binary := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "daybreak")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	gputest.Must(t, err)
	for path, text := range map[string][]byte{changed: []byte(strings.Replace(string(text), original, planted, 1)), overlay: list} {
		gputest.Must(t, os.WriteFile(path, text, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./cmd/daybreak")
	build.Dir = root
	// As make builds it, so that nothing of Kubernetes is compiled for this.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with the bug: %v\n%s", err, out)
	}
	return binary
}
