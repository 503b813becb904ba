package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/cmd/crane/cmd"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestPush: the archive of a release is pushed to a registry by the commands of
// docs/install-offline.md. The registry then has every architecture, under the
// digest of the release notes.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	for name, arches := range map[string][]string{"one architecture": {"amd64"}, "both": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			o := made(t, arches...)
			if err := run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			index, err := layout.ImageIndexFromPath(o.out)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			want := manifest.Manifests[0].Digest.String()

			image := filepath.Join(t.TempDir(), "image")
			if err := os.Mkdir(image, 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--file", o.out+".tar", "--directory", image).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			reference := strings.TrimPrefix(server.URL, "http://") + "/" + strings.ReplaceAll(name, " ", "-") + "/daybreak:v1"
			push := cmd.NewCmdPush(&[]crane.Option{})
			push.SetArgs([]string{image, reference})
			if err := push.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}

			if got, err := crane.Digest(reference); err != nil || got != want {
				t.Errorf("the registry has digest %s, %v; want %s", got, err, want)
			}
			for _, arch := range arches {
				pulled, err := crane.Pull(reference, crane.WithPlatform(&v1.Platform{OS: "linux", Architecture: arch}))
				if err != nil {
					t.Fatal(err)
				}
				if err := validate.Image(pulled); err != nil {
					t.Errorf("image of %s: %v", arch, err)
				}
				checkImage(t, pulled, arch)
			}
		})
	}
}
