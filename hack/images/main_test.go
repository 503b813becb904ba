package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/cmd/crane/cmd"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// makePackage makes a package of Debian's with the given files.
func makePackage(t *testing.T, dir, name, arch string, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: 1\nArchitecture: " + arch + "\nMaintainer: Test <test@example.com>\nDescription: made up\n"
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
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", root, filepath.Join(dir, name+"_1_"+arch+".deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// machines are the architectures, with what is theirs in the packages.
var machines = map[string]struct {
	elf             elf.Machine
	triplet, loader string
}{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1"},
}

// made returns options for an image of made-up parts.
func made(t *testing.T, arches ...string) options {
	t.Helper()
	dir := t.TempDir()
	o := options{version: "v1", name: "example.com/daybreak", out: filepath.Join(t.TempDir(), "image"), packages: dir}
	for _, arch := range arches {
		m := machines[arch]
		lib, usrLib := "lib/"+m.triplet+"/", "usr/lib/"+m.triplet+"/"
		makePackage(t, dir, "libc6", arch, map[string]string{
			lib + "libc.so.6": "libc", m.loader: "-> /" + lib + filepath.Base(m.loader),
			"usr/share/doc/libc6/copyright": "terms", "usr/share/doc/libc6/changelog.gz": "news", usrLib + "gconv/BIG5.so": "no", "etc/ld.so.conf.d/x.conf": "no",
		})
		makePackage(t, dir, "gcc-12-base", arch, map[string]string{"usr/share/doc/gcc-12-base/copyright": "terms"})
		makePackage(t, dir, "libgcc-s1", arch, map[string]string{lib + "libgcc_s.so.1": "libgcc", "usr/share/doc/libgcc-s1": "-> gcc-12-base"})
		makePackage(t, dir, "libstdc++6", arch, map[string]string{
			usrLib + "libstdc++.so.6": "-> libstdc++.so.6.0.30", usrLib + "libstdc++.so.6.0.30": "c++",
			"usr/share/gdb/auto-load/" + usrLib + "libstdc++.so.6.0.30-gdb.py": "no",
		})
		o.binaries = append(o.binaries, makeBinary(t, m.elf))
	}
	return o
}

// makeBinary makes a file that has a binary's header and nothing else.
func makeBinary(t *testing.T, machine elf.Machine) string {
	t.Helper()
	var out bytes.Buffer
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	if err := binary.Write(&out, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "daybreak")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestImage: the layout has an image of each architecture, and so has a registry that
// the archive is pushed to.
func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	for name, arches := range map[string][]string{"one": {"arm64"}, "both": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			o := made(t, arches...)
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
				t.Fatalf("%d things have a name, %v; want one", len(manifest.Manifests), err)
			}
			if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "example.com/daybreak:v1" {
				t.Errorf("containerd would call it %q", got)
			}
			reference := strings.TrimPrefix(server.URL, "http://") + "/" + name + "/daybreak:v1"
			push(t, o.out+".tar", reference)
			if got, err := crane.Digest(reference); err != nil || got != manifest.Manifests[0].Digest.String() {
				t.Errorf("the registry has digest %s, %v; want that of the release notes, %s", got, err, manifest.Manifests[0].Digest)
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
			if len(arches) == 1 {
				return
			}
			all, err := index.ImageIndex(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			if manifest, err = all.IndexManifest(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range manifest.Manifests {
				got = append(got, m.Platform.Architecture)
			}
			if !slices.Equal(got, arches) {
				t.Errorf("images for %v, want %v", got, arches)
			}
		})
	}
}

// push pushes the archive of a release by the commands of docs/install-offline.md.
func push(t *testing.T, archive, reference string) {
	t.Helper()
	image := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--file", archive, "--directory", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	push := cmd.NewCmdPush(&[]crane.Option{})
	push.SetArgs([]string{image, reference})
	if err := push.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/daybreak"}) || config.OS != "linux" || config.Architecture != arch {
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
	m := machines[arch]
	lib, usrLib := "lib/"+m.triplet+"/", "usr/lib/"+m.triplet+"/"
	base := []string{
		"etc/group", "etc/passwd", lib + "libc.so.6", lib + "libgcc_s.so.1", m.loader + " -> /" + lib + filepath.Base(m.loader),
		usrLib + "libstdc++.so.6 -> libstdc++.so.6.0.30", usrLib + "libstdc++.so.6.0.30",
		"usr/share/doc/gcc-12-base/copyright", "usr/share/doc/libc6/copyright", "usr/share/doc/libgcc-s1 -> gcc-12-base",
	}
	if want := append(base, "usr/bin/daybreak"); !slices.Equal(got, want) {
		t.Errorf("files of %s\n%q\nwant\n%q", arch, got, want)
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
	o := made(t, "amd64", "arm64")
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
		"no binary":            {func(o *options) { o.binaries = nil }, "name one with --binary"},
		"a binary too few":     {func(o *options) { o.binaries[0] = "/nowhere/daybreak" }, "run make build first"},
		"a binary of no kind":  {func(o *options) { o.binaries[0] = "main.go" }, "main.go: no binary for Linux"},
		"another processor":    {func(o *options) { o.binaries[0] = makeBinary(t, elf.EM_RISCV) }, "a binary for EM_RISCV: use one for amd64 or arm64"},
		"two of one kind":      {func(o *options) { o.binaries = append(o.binaries, o.binaries[0]) }, "another binary is for amd64 too"},
		"a package too few":    {func(o *options) { o.packages = "/nowhere" }, "0 files are called libc6_*_amd64.deb, want one"},
		"a package of no kind": {func(o *options) { _ = os.WriteFile(filepath.Join(o.packages, "libc6_1_amd64.deb"), []byte("x"), 0o600) }, "dpkg-deb"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := made(t, "amd64")
			tt.change(&o)
			if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("run() = %v, want %q", err, tt.want)
			}
		})
	}
}
