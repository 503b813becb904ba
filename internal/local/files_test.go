package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestTakeLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	// A process that was killed leaves the file, with a longer text.
	gputest.Must(t, os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o600))
	release, err := takeLock(path, "process 1")
	gputest.Must(t, err)
	_, err = takeLock(path, "process 2")
	if held, ok := errors.AsType[*heldError](err); !ok || held.holder != "process 1" {
		t.Errorf("a second lock: %v", err)
	}
	release()
	if _, err := os.Stat(path); err == nil {
		t.Error("the file stays")
	}
	release, err = takeLock(path, "process 2")
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	release()
}

// TestClaimFiles: two playgrounds never have the same kubeconfig or folder, and a
// file of the user stays.
func TestClaimFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	first := &playground{kubeconfig: "a.kubeconfig"}
	dir, release, err := first.claimFiles()
	gputest.Must(t, err)
	if target, err := filepath.EvalSymlinks("a.files"); err != nil || target != dir {
		t.Errorf("the link leads to %q (%v), want %q", target, err, dir)
	}
	kept := &playground{kubeconfig: "b.kubeconfig", data: "data"}
	_, releaseKept, err := kept.claimFiles()
	gputest.Must(t, err)
	gputest.Must(t, clientcmd.WriteToFile(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"production": {}}}, "config"))
	stale := clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{contextName: {}}, CurrentContext: contextName}
	gputest.Must(t, clientcmd.WriteToFile(stale, "stale.kubeconfig"))
	killed := filepath.Join(os.Getenv("TMPDIR"), folderPrefix+"1")
	for _, folder := range []string{killed, "mine.files", "stale-kept"} {
		gputest.Must(t, os.Mkdir(folder, 0o700))
	}
	for link, folder := range map[string]string{"stale.files": killed, "old.files": abs(t, "stale-kept")} {
		gputest.Must(t, os.Symlink(folder, link))
	}
	for name, tc := range map[string]struct {
		p    playground
		want []string // of the error; none if it may start
	}{
		"the same kubeconfig": {playground{kubeconfig: "./a.kubeconfig"}, []string{
			"--kubeconfig ./a.kubeconfig is in use by the playground of process ", "(kubeconfig " + abs(t, "a.kubeconfig") + ", files in " + dir + ")",
			": stop that one, or start this one with --kubeconfig other.kubeconfig",
		}},
		"the same folder": {playground{kubeconfig: "c.kubeconfig", data: abs(t, "data")}, []string{
			"--data " + abs(t, "data") + " is in use by the playground of process ", "start this one with --data other-folder",
		}},
		"another file of the user":   {playground{kubeconfig: "config"}, []string{"--kubeconfig config: the file exists and is not a playground's: name another"}},
		"another folder of the user": {playground{kubeconfig: "mine.kubeconfig"}, []string{"mine.files is in the way"}},
		"no such folder":             {playground{kubeconfig: "none/x.kubeconfig"}, []string{"--kubeconfig none/x.kubeconfig: ", "no such file or directory"}},
		"what a killed one left":     {playground{kubeconfig: "stale.kubeconfig"}, nil},
		"what a kept one left":       {playground{kubeconfig: "old.kubeconfig"}, nil},
		"one of its own":             {playground{kubeconfig: "d.kubeconfig"}, nil},
	} {
		_, release, err := tc.p.claimFiles()
		if len(tc.want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			release()
		}
		for _, want := range tc.want {
			gputest.ErrorHas(t, name, want, err)
		}
	}
	release()
	releaseKept()
	for _, kept := range []string{"config", "mine.files", "stale-kept", "data"} {
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}
	var left []string
	for _, pattern := range []string{"*.lock", "*/lock", "[a-d].*", "stale.*", "old.*", filepath.Join(os.Getenv("TMPDIR"), "*")} {
		found, err := filepath.Glob(pattern)
		gputest.Must(t, err)
		left = append(left, found...)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	gputest.Must(t, err)
	return path
}
