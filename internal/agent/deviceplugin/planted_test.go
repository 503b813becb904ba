package deviceplugin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// passage begins what a file of testdata/planted replaces, below a title: the name
// of a source file, a passage of it, and what stands there instead.
var passage = regexp.MustCompile(`(?m)^-- (\S+\.go) --\n`)

// TestPlanted: with one of the mistakes of testdata/planted in place of the right
// code, TestWalk fails. The mistakes are put into copies; the product's own code
// knows nothing of them.
func TestPlanted(t *testing.T) {
	if !*plantedFlag {
		t.Skip("it compiles the package for each of them: make planted, or -walk.planted")
	}
	files, err := filepath.Glob("testdata/planted/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mistakes to plant: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			overlay := plant(t, file)
			walk := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-failfast", "-run=^TestWalk$", ".")
			out, err := walk.CombinedOutput()
			found := regexp.MustCompile(`walk: .*`).Find(out)
			if err == nil || found == nil {
				t.Fatalf("TestWalk did not find it: %v\n%s", err, out[max(0, len(out)-4000):])
			}
			t.Logf("found: %s", found)
		})
	}
}

// plant writes an overlay in which passages are replaced.
func plant(t *testing.T, file string) (overlay string) {
	t.Helper()
	text, err := os.ReadFile(file)
	gputest.Must(t, err)
	at := passage.FindAllStringSubmatchIndex(string(text), -1)
	if len(at) == 0 {
		t.Fatalf("%s has no passages", file)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		right, wrong, ok := strings.Cut(string(text[m[1]:end]), "\n-- planted --\n")
		if !ok {
			t.Fatalf("%s does not say what to plant", file)
		}
		source, changed := replacePassage(t, dir, string(text[m[2]:m[3]]), right, strings.TrimSuffix(wrong, "\n"))
		replace[source] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		overlay = filepath.Join(dir, "overlay.json")
		err = os.WriteFile(overlay, list, 0o600)
	}
	gputest.Must(t, err)
	return overlay
}

// replacePassage writes a copy of a source file with a passage replaced.
func replacePassage(t *testing.T, dir, name, right, wrong string) (source, changed string) {
	t.Helper()
	source, err := filepath.Abs(name)
	gputest.Must(t, err)
	code, err := os.ReadFile(source)
	gputest.Must(t, err)
	if n := strings.Count(string(code), right); n != 1 {
		t.Fatalf("%s has the passage %d times: bring the planted mistake up to date:\n%s", name, n, right)
	}
	changed = filepath.Join(dir, name)
	gputest.Must(t, os.WriteFile(changed, []byte(strings.Replace(string(code), right, wrong, 1)), 0o600))
	return source, changed
}
