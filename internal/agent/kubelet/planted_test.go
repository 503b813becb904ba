package kubelet

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// passage is what a file of testdata/planted replaces: a title, the name of a
// source file with a passage of it, and what stands there instead.
var passage = regexp.MustCompile(`(?s)^.*?\n-- (\S+\.go) --\n(.*)\n-- planted --\n(.*)$`)

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
			walk := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-failfast", "-run=^TestWalk$", ".", "-walk.seeds=200")
			out, err := walk.CombinedOutput()
			found := regexp.MustCompile(`walk: .*`).Find(out)
			if err == nil || found == nil {
				t.Fatalf("TestWalk did not find it: %v\n%s", err, out[max(0, len(out)-4000):])
			}
			t.Logf("found: %s", found)
		})
	}
}

// plant writes an overlay in which a passage is replaced.
func plant(t *testing.T, file string) (overlay string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := passage.FindStringSubmatch(string(text))
	if parts == nil {
		t.Fatalf("%s has no passages", file)
	}
	source, err := filepath.Abs(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(code), parts[2]); n != 1 {
		t.Fatalf("%s has the passage that %s replaces %d times: bring it up to date", parts[1], file, n)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, parts[1]), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{changed: strings.Replace(string(code), parts[2], strings.TrimSuffix(parts[3], "\n"), 1), overlay: string(list)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
