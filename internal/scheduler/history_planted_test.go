package scheduler

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var historyPlanted = flag.Bool("history.planted", false, "plant known bugs one by one and see that histories find them; compiles this package for each")

// planted has the bugs in testdata/planted, each with what comes of it.
var planted = map[string]string{
	"01-snapshot-from-before-the-fence": givenTwice,
	"02-fence-without-the-cache":        givenTwice,
	"03-suspended-leader":               givenTwice,
	"05-error-after-a-lost-answer":      givenTwice,
	"06-positions":                      givenTwice,
	"09-untouchable-pod":                sleeps,
	"10-unaccounted":                    sleeps,
	"11-one-map":                        sleeps,
	"14-stale-nomination":               sleeps,
	"15-neighbor-while-refused":         sleeps,
	"16-largest-card":                   sleeps,
	"17-scope-of-a-deadline":            sleeps,
	"18-counts-itself":                  miscounts,
	"19-record-of-an-ended-pod":         leaks,
	"20-ended-pod-waits":                leaks,
	"21-node-of-an-older-snapshot":      leaks,
}

// TestPlantedPatches: every patch has an entry and can be applied to the sources as
// they are. A patch that can't was written for code that has changed since: write
// it again.
func TestPlantedPatches(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("testdata", "planted", "*.patch"))
	if err != nil || len(names) != len(planted) {
		t.Fatalf("%d patches and %d entries (%v)", len(names), len(planted), err)
	}
	for name := range planted {
		if _, err := applyPatch(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlanted plants each bug and plays histories until one goes wrong.
func TestPlanted(t *testing.T) {
	if !*historyPlanted {
		t.Skip("-history.planted is not given")
	}
	for _, name := range slices.Sorted(maps.Keys(planted)) {
		want := planted[name]
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			seed, class := findPlanted(t, name)
			if class != want {
				t.Fatalf("after %d histories: %q, want %q", seed, class, want)
			}
			t.Logf("%s is found by history %d, compiled and played in %s", name, seed, time.Since(began).Round(time.Second))
		})
	}
}

// plantedMost is how many histories are played to find a bug.
const plantedMost = 20_000

// found is how a test with -history.brief reports what it has found.
var found = regexp.MustCompile(`history (\d+) found: (.*)`)

// findPlanted returns the first history that goes wrong with the bug, and how.
func findPlanted(t *testing.T, name string) (seed int, class string) {
	t.Helper()
	patched, err := applyPatch(name)
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for file, text := range patched {
		at := filepath.Join(dir, file)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		absolute, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[absolute] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "histories")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.run", "^TestHistories$", "-test.v", "-history.brief", "-history.n", strconv.Itoa(plantedMost)).CombinedOutput()
	got := found.FindSubmatch(out)
	if err == nil || got == nil {
		t.Fatalf("no history of %d goes wrong (%v)\n%s", plantedMost, err, out[max(0, len(out)-2000):])
	}
	if _, err := fmt.Sscan(string(got[1]), &seed); err != nil {
		t.Fatal(err)
	}
	return seed, string(got[2])
}

// applyPatch returns the sources that the patch changes, changed. Each piece of it
// must be found once, on whatever line.
func applyPatch(name string) (map[string]string, error) {
	patch, err := os.ReadFile(filepath.Join("testdata", "planted", name+".patch"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	file := ""
	var before, after bytes.Buffer
	apply := func() error {
		if before.Len() == 0 {
			return nil
		}
		defer before.Reset()
		defer after.Reset()
		if strings.Count(out[file], before.String()) != 1 {
			return fmt.Errorf("%s: found %d times, want once:\n%s", file, strings.Count(out[file], before.String()), before.String())
		}
		out[file] = strings.Replace(out[file], before.String(), after.String(), 1)
		return nil
	}
	for line := range strings.Lines(string(patch)) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "--- "):
			err = apply()
		case strings.HasPrefix(line, "+++ "):
			file = filepath.Base(strings.TrimSpace(line[len("+++ "):]))
			var text []byte
			text, err = os.ReadFile(file)
			out[file] = string(text)
		case strings.HasPrefix(line, "@@"):
			err = apply()
		case strings.HasPrefix(line, "-"):
			before.WriteString(line[1:])
		case strings.HasPrefix(line, "+"):
			after.WriteString(line[1:])
		default:
			before.WriteString(line[1:])
			after.WriteString(line[1:])
		}
		if err != nil {
			return nil, err
		}
	}
	return out, apply()
}
