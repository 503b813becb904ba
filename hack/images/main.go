// Command images writes Daybreak's container image as an OCI layout, without
// Docker and without a registry:
//
//	go -C hack/images run . --binary bin/daybreak --version v1.2.3 --out bin/image
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
	"context"
	"flag"
	"fmt"
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
	binary, version, name, out, packages string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/daybreak", "the `file` to put into the image, as /usr/bin/daybreak")
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
	if o.packages == "" {
		dir, err := os.MkdirTemp("", "daybreak-packages-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := download(ctx, dir); err != nil {
			return err
		}
		o.packages = dir
	}
	image, err := build(ctx, o)
	if err != nil {
		return err
	}
	if err := write(image, o); err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s:%s@%s\n", o.name, o.version, digest)
	return nil
}

// download gets the packages of the machine's own release of Debian.
func download(ctx context.Context, dir string) error {
	get := func() ([]byte, error) {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"download", "-qq"}, packages...)...)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	out, err := get()
	if err != nil { // a machine that never asked for a package knows none
		if text, err := exec.CommandContext(ctx, "apt-get", "update", "-qq").CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get update: %w\n%s", err, text)
		}
		out, err = get()
	}
	if err != nil {
		return fmt.Errorf("download %s: %w; on a machine without apt-get name a folder with them by --packages\n%s", strings.Join(packages, ", "), err, out)
	}
	return nil
}

// build puts the image together.
func build(ctx context.Context, o options) (v1.Image, error) {
	files, versions, err := baseFiles(ctx, o.packages)
	if err != nil {
		return nil, err
	}
	base, err := layer(files)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, fmt.Errorf("%w; run make build first", err)
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
	config.OS, config.Architecture = "linux", "amd64" // as the vendor's driver
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

// baseFiles returns what the image takes from the packages in a folder, and
// which versions they are.
func baseFiles(ctx context.Context, dir string) (files []file, versions []string, err error) {
	for _, name := range packages {
		found, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
		if err != nil {
			return nil, nil, err
		}
		if len(found) != 1 {
			return nil, nil, fmt.Errorf("%s: %d files are called %s_*.deb, want one", dir, len(found), name)
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
