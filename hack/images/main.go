// Command images writes Daybreak's container image as an OCI layout, without
// Docker and without a registry:
//
//	go -C hack/images run . --binary bin/daybreak --version v1.2.3 --out bin/image
//
// A binary for each architecture, --binary FILE --binary FILE, makes one image for
// all of them.
//
// The folder can be copied to any registry (crane push, skopeo copy), and the
// archive next to it, DIR.tar, loaded into a node's containerd (ctr images
// import). The same binary and packages give the same digest.
//
// The base is what the vendor's library needs of a system: Debian's C and C++
// libraries, unpacked from Debian's packages, with their copyright files. There
// is no shell in it, and no package manager.
package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// packages are what the base consists of. gcc-12-base has the copyright file of
// the two after it.
var packages = []string{"libc6", "gcc-12-base", "libgcc-s1", "libstdc++6"}

// user runs the parts that need no rights on their node. The chart overrides it
// for the agent.
const user = "65532:65532"

type options struct {
	binaries                     []string
	version, name, out, packages string
}

func main() {
	var o options
	flag.Func("binary", "the `file` to put into the image, as /usr/bin/daybreak; once for each architecture", func(name string) error {
		o.binaries = append(o.binaries, name)
		return nil
	})
	flag.StringVar(&o.version, "version", "dev", "the image's tag")
	flag.StringVar(&o.name, "name", "localhost/daybreak", "the image's name; no registry has the default")
	flag.StringVar(&o.out, "out", "bin/image", "the `folder` to write; whatever is in it is replaced")
	flag.StringVar(&o.packages, "packages", "", "a `folder` with Debian's packages (default: they are downloaded)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected %q: use flags only", flag.Args())
	}
	binaries, err := readBinaries(o.binaries)
	if err != nil {
		return err
	}
	if o.packages == "" {
		dir, err := os.MkdirTemp("", "daybreak-packages-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		for arch := range binaries {
			if err := download(ctx, arch, dir); err != nil {
				return err
			}
		}
		o.packages = dir
	}
	var images []mutate.IndexAddendum
	for _, arch := range slices.Sorted(maps.Keys(binaries)) {
		image, err := build(ctx, o, arch, binaries[arch])
		if err != nil {
			return err
		}
		images = append(images, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	digest, err := write(images, o)
	if err != nil {
		return err
	}
	fmt.Printf("%s:%s@%s\n", o.name, o.version, digest)
	return nil
}

// readBinaries returns binaries by their architecture.
func readBinaries(names []string) (map[string][]byte, error) {
	if len(names) == 0 {
		return nil, errors.New("no binary: name one with --binary")
	}
	binaries := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%w; run make build first", err)
		}
		arch, err := architecture(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if binaries[arch] != nil {
			return nil, fmt.Errorf("%s: another binary is for %s too: name one for each architecture", name, arch)
		}
		binaries[arch] = data
	}
	return binaries, nil
}

// architecture returns what Go and Debian call the processor of a binary.
func architecture(binary []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return "", fmt.Errorf("no binary for Linux: %w", err)
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("a binary for %s: use one for amd64 or arm64", file.Machine)
}

// download gets the packages of the machine's own release of Debian. apt-get keeps
// what it knows of them in a folder of its own: the machine may have another
// architecture.
func download(ctx context.Context, arch, dir string) error {
	state, err := os.MkdirTemp("", "daybreak-apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	for _, name := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, name), 0o755); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"update"}, append([]string{"download"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch,
			"-o", "Dir::State=" + state, "-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + filepath.Join(state, "cache")}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s for %s: %w; on a machine without apt-get name a folder with the packages by --packages\n%s", strings.Join(args, " "), arch, err, out)
		}
	}
	return nil
}

// build puts the image of one architecture together.
func build(ctx context.Context, o options, arch string, binary []byte) (v1.Image, error) {
	files, versions, err := baseFiles(ctx, o.packages, arch)
	if err != nil {
		return nil, err
	}
	base, err := layer(files)
	if err != nil {
		return nil, err
	}
	top, err := layer([]file{{name: "usr/bin/daybreak", mode: 0o755, data: binary}})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{CreatedBy: "Debian's " + strings.Join(versions, ", ")}},
		mutate.Addendum{Layer: top, History: v1.History{CreatedBy: "daybreak " + o.version}},
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/daybreak"}, User: user, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "daybreak", "org.opencontainers.image.version": o.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// baseFiles returns what the image takes from an architecture's packages in a
// folder, and which versions they are.
func baseFiles(ctx context.Context, dir, arch string) (files []file, versions []string, err error) {
	for _, name := range packages {
		pattern := name + "_*_" + arch + ".deb"
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, nil, err
		}
		if len(found) != 1 {
			return nil, nil, fmt.Errorf("%s: %d files are called %s, want one", dir, len(found), pattern)
		}
		unpacked, err := unpack(ctx, found[0])
		if err != nil {
			return nil, nil, fmt.Errorf("unpack %s: %w", found[0], err)
		}
		files = append(files, unpacked...)
		versions = append(versions, strings.TrimSuffix(filepath.Base(found[0]), ".deb"))
	}
	files = append(files,
		file{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/none\ndaybreak:x:65532:65532:daybreak:/:/none\n")},
		file{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\ndaybreak:x:65532:\n")},
	)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, versions, nil
}
