package fake

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

//go:embed mxsml *.go mxsmi
var sources embed.FS

// Variant is which functions the fake library exports.
type Variant int

// The variants of the library.
const (
	// Core has the five functions that every caller needs.
	Core Variant = 0
	// V228 is version 2.2.8, without the functions that came later.
	V228 Variant = 228
	// V231 is version 2.3.1.
	V231 Variant = 231
)

// Library compiles the fake library, once for all tests of a machine, and
// returns its path. A test is skipped where there is no C compiler.
func Library(t testing.TB, v Variant) string {
	t.Helper()
	cc := compiler()
	if cc == "" {
		t.Skip("no C compiler")
	}
	return cached(t, fmt.Sprintf("libmxsml-%d.so", v), func(path string) *exec.Cmd {
		work := t.TempDir()
		gputest.Must(t, os.CopyFS(work, sources))
		return exec.CommandContext(t.Context(), cc, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
			fmt.Sprintf("-DFAKE_MXSML=%d", v), "-o", path, filepath.Join(work, "mxsml", "libmxsml.c"), "-lpthread")
	})
}

// MXSMI builds the fake mx-smi, once for all tests of a machine, and returns
// its path.
func MXSMI(t testing.TB) string {
	t.Helper()
	return cached(t, "mx-smi", func(path string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./mxsmi")
		cmd.Dir = folder(t)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
		return cmd
	})
}

// cached builds a file unless it was built from the same sources before.
func cached(t testing.TB, name string, build func(path string) *exec.Cmd) string {
	t.Helper()
	sum := sha256.New()
	gputest.Must(t, fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		sum.Write(text)
		return err
	}))
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir() // no home folder: build for this test alone
	}
	path := filepath.Join(cache, "daybreak-test", runtime.GOARCH, hex.EncodeToString(sum.Sum(nil))[:16], name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	gputest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if out, err := build(temporary).CombinedOutput(); err != nil {
		t.Fatalf("build the fake %s: %v\n%s", name, err, out)
	}
	// Another test may have been faster; what it built is the same.
	gputest.Must(t, os.Rename(temporary, path))
	return path
}

// compiler is the C compiler that Go would use, if there is one.
func compiler() string {
	names := []string{"cc", "gcc"}
	if cc, _, _ := strings.Cut(os.Getenv("CC"), " "); cc != "" {
		names = []string{cc}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// folder is this package's folder. Tests run in theirs, below the module's.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	gputest.Must(t, err)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "test", "fake")
		}
	}
	t.Fatal("no go.mod in any folder above")
	return ""
}
