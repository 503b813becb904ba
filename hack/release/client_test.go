package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// root is the repository, as seen from this package.
const root = "../.."

// TestClient: what other systems than Linux get has no parts of a cluster, and
// works without them. Here it is built for this machine.
func TestClient(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "daybreak")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "client", "-o", binary, "./cmd/daybreak")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	offline(t, binary)
	if out, _ := daybreak(t, binary, "--help"); strings.Contains(out, "agent") || !strings.Contains(out, "simulate") {
		t.Errorf("the help lists what is missing:\n%s", out)
	}
	man := t.TempDir()
	if out, code := daybreak(t, binary, "man", man); code != 0 {
		t.Errorf("daybreak man: exit code %d, %s", code, out)
	}
	for page, want := range map[string]bool{"daybreak-status.1": true, "daybreak-agent.1": false} {
		if _, err := os.Stat(filepath.Join(man, page)); (err == nil) != want {
			t.Errorf("man page %s: %v, want it %v", page, err, want)
		}
	}
	for _, part := range []string{"scheduler", "manager", "agent"} {
		out, code := daybreak(t, binary, part, "--kubeconfig", "x")
		if want := "daybreak: this build has no " + part + ": "; code != 2 || !strings.HasPrefix(out, want) {
			t.Errorf("daybreak %s: exit code %d, %q; want 2, %q", part, code, out, want)
		}
	}
}

// TestClientLinks: the binaries for other systems than Linux link neither the parts
// nor Kubernetes itself.
func TestClientLinks(t *testing.T) {
	for _, p := range platforms {
		if p.os == "linux" {
			continue
		}
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/daybreak")
		list.Dir = root
		list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOWORK=off")
		out, err := list.Output()
		gputest.Must(t, err)
		packages := strings.Fields(string(out))
		if !slices.Contains(packages, "github.com/daybreak-gpu/daybreak/internal/place") {
			t.Errorf("%s/%s: %d packages without internal/place", p.os, p.arch, len(packages))
		}
		for _, name := range packages {
			if strings.HasPrefix(name, "k8s.io/kubernetes/") || strings.HasPrefix(name, "github.com/daybreak-gpu/daybreak/internal/agent") {
				t.Errorf("%s/%s links %s", p.os, p.arch, name)
			}
		}
	}
}

// TestDist runs the binary that `make release` wrote for this machine, the folder
// is $RELEASE_DIST.
func TestDist(t *testing.T) {
	dist := os.Getenv("RELEASE_DIST")
	if dist == "" {
		t.Skip("make release-check runs this with what it wrote")
	}
	found, err := filepath.Glob(filepath.Join(dist, "daybreak-v*-linux-"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("archives for this machine: %v, %v; want one", found, err)
	}
	data, err := os.ReadFile(found[0])
	gputest.Must(t, err)
	entries, err := unpack(data)
	gputest.Must(t, err)
	dir := t.TempDir()
	pages := 0
	for _, e := range entries {
		if strings.HasPrefix(e.name, "share/man/man1/daybreak") {
			pages++
			continue
		}
		gputest.Must(t, os.WriteFile(filepath.Join(dir, e.name), e.data, e.mode))
	}
	if pages < 10 {
		t.Errorf("%d man pages, want one for each command", pages)
	}
	binary := filepath.Join(dir, "daybreak")
	offline(t, binary)
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "daybreak-"), "-linux-"+runtime.GOARCH+".tar.gz")
	if out, _ := daybreak(t, binary, "version"); !strings.HasPrefix(out, "daybreak "+version+"\n") {
		t.Errorf("daybreak version prints %q, want %s", out, version)
	}
	if out, _ := daybreak(t, binary, "--help"); !strings.Contains(out, "agent") {
		t.Errorf("the help has no agent:\n%s", out)
	}
}

// documented matches commands of the documentation that read files only.
var documented = regexp.MustCompile(`(?m)^(?:\$ )?(?:bin/)?daybreak ((?:place|status|audit|explain) [^|>\n\\]*-f examples/[^|>\n\\]*)$`)

// offline runs what needs no cluster: what the first pages say, and some more.
func offline(t *testing.T, binary string) {
	t.Helper()
	commands := 0
	for _, page := range []string{"README.md", "docs/quickstart.md", "docs/cli.md", "docs/guide-topology.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		gputest.Must(t, err)
		for _, found := range documented.FindAllStringSubmatch(string(text), -1) {
			commands++
			if out, code := daybreak(t, binary, strings.Fields(found[1])...); code > 1 || out == "" {
				t.Errorf("%s: daybreak %s: exit code %d\n%s", page, found[1], code, out)
			}
		}
	}
	if commands < 2 {
		t.Errorf("the pages have %d commands that read files only, want more", commands)
	}
	for args, want := range map[string]string{
		"status -f examples/cluster.yaml": "24 cards (16 C500, 8 C550)",
		"audit -f examples/cluster.yaml":  "no rule is broken",
		"simulate --topology --servers 2 --jobs 100 --seeds 1 --policy daybreak --policy hami": "zones 2x4, mix training",
	} {
		if out, code := daybreak(t, binary, strings.Fields(args)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("daybreak %s: exit code %d, want %q in\n%s", args, code, want, out)
		}
	}
}

// daybreak runs a command in the repository, and returns what it prints.
func daybreak(t *testing.T, binary string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
