package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// makePackage makes a package of Debian's with the given files.
func makePackage(t *testing.T, dir, name string, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: 1\nArchitecture: amd64\nMaintainer: Test <test@example.com>\nDescription: made up\n"
	for path, text := range files {
		to := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, link := strings.CutPrefix(text, "-> "); link {
			if err := os.Symlink(target, to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", root, filepath.Join(dir, name+"_1_amd64.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// made returns options for an image of made-up parts.
func made(t *testing.T) options {
	t.Helper()
	dir := t.TempDir()
	makePackage(t, dir, "libc6", map[string]string{
		"lib/x86_64-linux-gnu/libc.so.6": "libc", "lib64/ld-linux-x86-64.so.2": "-> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
		"usr/share/doc/libc6/copyright": "terms", "usr/share/doc/libc6/changelog.gz": "news", "usr/lib/x86_64-linux-gnu/gconv/BIG5.so": "no", "etc/ld.so.conf.d/x.conf": "no",
	})
	makePackage(t, dir, "gcc-12-base", map[string]string{"usr/share/doc/gcc-12-base/copyright": "terms"})
	makePackage(t, dir, "libgcc-s1", map[string]string{"lib/x86_64-linux-gnu/libgcc_s.so.1": "libgcc", "usr/share/doc/libgcc-s1": "-> gcc-12-base"})
	makePackage(t, dir, "libstdc++6", map[string]string{"usr/lib/x86_64-linux-gnu/libstdc++.so.6": "-> libstdc++.so.6.0.30", "usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30": "c++"})
	binary := filepath.Join(t.TempDir(), "daybreak")
	if err := os.WriteFile(binary, []byte("the binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	return options{binary: binary, version: "v1", name: "example.com/daybreak", out: filepath.Join(t.TempDir(), "image"), packages: dir}
}

func TestImage(t *testing.T) {
	o := made(t)
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(o.out)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the layout is not valid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%d images, %v; want one", len(manifest.Manifests), err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "example.com/daybreak:v1" {
		t.Errorf("containerd would call it %q", got)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/daybreak"}) || config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("config %+v", config)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, names(t, r)...)
	}
	want := []string{
		"etc/group", "etc/passwd", "lib/x86_64-linux-gnu/libc.so.6", "lib/x86_64-linux-gnu/libgcc_s.so.1",
		"lib64/ld-linux-x86-64.so.2 -> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
		"usr/lib/x86_64-linux-gnu/libstdc++.so.6 -> libstdc++.so.6.0.30", "usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
		"usr/share/doc/gcc-12-base/copyright", "usr/share/doc/libc6/copyright", "usr/share/doc/libgcc-s1 -> gcc-12-base",
		"usr/bin/daybreak",
	}
	if !slices.Equal(got, want) {
		t.Errorf("files\n%q\nwant\n%q", got, want)
	}
}

// names returns the files of a layer, and checks that each comes after its
// folder.
func names(t *testing.T, r io.Reader) []string {
	t.Helper()
	var out []string
	folders := map[string]bool{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.IsZero() && header.ModTime.Unix() != 0 || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s is of %s and belongs to %d:%d", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		name := strings.TrimSuffix(header.Name, "/")
		if dir := filepath.Dir(name); dir != "." && !folders[dir] {
			t.Errorf("%s comes before its folder", name)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			folders[name] = true
			continue
		case tar.TypeSymlink:
			name += " -> " + header.Linkname
		}
		out = append(out, name)
	}
}

// TestReproducible: the same parts make the same archive, byte for byte.
func TestReproducible(t *testing.T) {
	o := made(t)
	var archives [][]byte
	for range 2 {
		if err := run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(o.out + ".tar")
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, text)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two runs wrote different archives")
	}
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		change func(*options)
		want   string
	}{
		"no binary":            {func(o *options) { o.binary = "/nowhere/daybreak" }, "run make build first"},
		"a package too few":    {func(o *options) { o.packages = "/nowhere" }, "0 files are called libc6_*.deb, want one"},
		"a package of no kind": {func(o *options) { _ = os.WriteFile(filepath.Join(o.packages, "libc6_1_amd64.deb"), []byte("x"), 0o600) }, "dpkg-deb"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := made(t)
			tt.change(&o)
			if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("run() = %v, want %q", err, tt.want)
			}
		})
	}
}
