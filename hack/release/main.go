// Command release writes everything that is published of a version:
//
//	make release VERSION=v0.2.0
//
// What it writes depends on the commit, the version of Go and the base image's
// packages only: the same ones give the same bytes (make release-check).
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// platform is what a binary is built for. Other systems than Linux get the
// commands that need no server, see cmd/daybreak/app/client.go.
type platform struct{ os, arch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

type options struct {
	version, ldflags, out string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "the version to release, such as v0.2.0")
	flag.StringVar(&o.ldflags, "ldflags", "", "flags of the linker")
	flag.StringVar(&o.out, "out", "dist", "the `folder` to write; whatever is in it is replaced")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make release:", err)
		os.Exit(1)
	}
}

// versionPattern matches versions that are tags of this repository and, without
// the v, versions of a chart.
var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

func run(ctx context.Context, o options) error {
	if !versionPattern.MatchString(o.version) {
		return fmt.Errorf("%q is not the version of a release: write VERSION=vX.Y.Z, such as VERSION=v0.2.0", o.version)
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	notes, err := cutNotes(string(changelog), o.version)
	if err != nil {
		return err
	}
	if strings.HasSuffix(notes.title, "unreleased") {
		fmt.Fprintf(os.Stderr, "make release: CHANGELOG.md has no date for %s: write one before the tag\n", o.version)
	}
	committed, err := commitTime(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "daybreak-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	r := release{options: o, tmp: tmp, time: committed, sums: map[string]string{}}
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.chart(ctx); err != nil {
		return err
	}
	digest, err := r.image(ctx)
	if err != nil {
		return err
	}
	manifest, err := krewManifest(o.version, r.sums)
	if err != nil {
		return err
	}
	if err := r.write("daybreak.yaml", manifest); err != nil {
		return err
	}
	if err := r.write("release-notes.md", []byte(notes.text+"\nDigest of the image: `"+digest+"`\n")); err != nil {
		return err
	}
	return r.checksums()
}

// commitTime returns when the commit that is checked out was made, which is the
// time of everything in an archive. A tree with other changes is an error: no
// commit would say what was released.
func commitTime(ctx context.Context) (time.Time, error) {
	changes, err := output(ctx, "git", "-c", "safe.directory=*", "status", "--porcelain")
	if err != nil {
		return time.Time{}, err
	}
	if changes != "" {
		first, _, _ := strings.Cut(changes, "\n")
		return time.Time{}, fmt.Errorf("the tree has changes that are not committed (%s): commit or stash them first", strings.TrimSpace(first))
	}
	seconds, err := output(ctx, "git", "-c", "safe.directory=*", "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	unix, err := strconv.ParseInt(strings.TrimSpace(seconds), 10, 64)
	return time.Unix(unix, 0).UTC(), err
}

// release is a release in the making.
type release struct {
	options
	tmp  string // what is not published
	time time.Time
	sums map[string]string // checksums of the published files, by name
}

// name returns the name of a published file.
func (r *release) name(suffix string) string { return "daybreak-" + r.version + "-" + suffix }

// binary returns where the binary of a platform is.
func (r *release) binary(p platform) string {
	name := "daybreak"
	if p.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.tmp, p.os+"-"+p.arch, name)
}

// build writes the archive of each platform and the SBOM of its binary.
func (r *release) build(ctx context.Context) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, p := range platforms {
		start, binary := time.Now(), r.binary(p)
		cmd := command(ctx, "go", "build", "-ldflags", r.ldflags, "-o", binary, "./cmd/daybreak")
		// What the environment could change of a binary.
		cmd.Env = append(cmd.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build for %s/%s: %w", p.os, p.arch, err)
		}
		data, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		pages, err := r.manPages(ctx, p)
		if err != nil {
			return err
		}
		packed, err := pack(p.archive(), append(pages, entry{"LICENSE", 0o644, license}, entry{filepath.Base(binary), 0o755, data}), r.time)
		if err != nil {
			return err
		}
		if err := r.write(r.name(p.archive()), packed); err != nil {
			return err
		}
		sbom, err := output(ctx, "go", "tool", "-modfile=hack/images/go.mod", "cyclonedx-gomod",
			"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", r.version, binary)
		if err != nil {
			return fmt.Errorf("SBOM for %s/%s: %w", p.os, p.arch, err)
		}
		if err := r.write(r.name(p.os+"-"+p.arch+".cdx.json"), []byte(sbom)); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "make release: %s/%s after %s\n", p.os, p.arch, time.Since(start).Round(time.Second))
	}
	return nil
}

// manPages returns the man pages of a platform's commands. They are written by a
// binary for this machine with the same commands, and have the month of the commit.
func (r *release) manPages(ctx context.Context, p platform) ([]entry, error) {
	tags := ""
	switch p.os {
	case "windows":
		return nil, nil
	case "darwin":
		tags = "client"
	}
	dir := filepath.Join(r.tmp, "man-"+p.os)
	epoch := fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix())
	if _, err := output(ctx, "env", "TZ=UTC", epoch, "go", "run", "-tags", tags, "-ldflags", r.ldflags, "./cmd/daybreak", "man", dir); err != nil {
		return nil, fmt.Errorf("man pages for %s: %w", p.os, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var pages []entry
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, entry{"share/man/man1/" + file.Name(), 0o644, text})
	}
	return pages, nil
}

// chart writes the chart's package. Helm writes the time of day into it, so it is
// packed again.
func (r *release) chart(ctx context.Context) error {
	version := strings.TrimPrefix(r.version, "v")
	if _, err := output(ctx, "go", "tool", "-modfile=hack/modules/helm/go.mod", "helm", "package", "--destination", r.tmp, "--version", version, "--app-version", r.version, "charts/daybreak"); err != nil {
		return err
	}
	name := "daybreak-" + version + ".tgz"
	data, err := os.ReadFile(filepath.Join(r.tmp, name))
	if err != nil {
		return err
	}
	entries, err := unpack(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	packed, err := pack(name, entries, r.time)
	if err != nil {
		return err
	}
	return r.write(name, packed)
}

// image writes the container image of Linux' platforms, and returns its digest.
func (r *release) image(ctx context.Context) (string, error) {
	args := []string{"-C", "hack/images", "run", ".", "--version", r.version, "--out", filepath.Join(r.tmp, "image")}
	for _, p := range platforms {
		if p.os == "linux" {
			args = append(args, "--binary", r.binary(p))
		}
	}
	named, err := output(ctx, "go", args...)
	if err != nil {
		return "", err
	}
	_, digest, ok := strings.Cut(strings.TrimSpace(named), "@")
	if !ok {
		return "", fmt.Errorf("hack/images printed %q, want a name with a digest", named)
	}
	data, err := os.ReadFile(filepath.Join(r.tmp, "image.tar"))
	if err != nil {
		return "", err
	}
	return digest, r.write(r.name("image.tar"), data)
}

// write writes a published file.
func (r *release) write(name string, data []byte) error {
	r.sums[name] = fmt.Sprintf("%x", sha256.Sum256(data))
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// checksums writes the checksums of all files, as sha256sum -c reads them.
func (r *release) checksums() error {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(r.sums)) {
		fmt.Fprintf(&out, "%s  %s\n", r.sums[name], name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), out.Bytes(), 0o644)
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd
}

// output returns what a command prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var out, message bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &message
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, bytes.TrimSpace(message.Bytes()))
	}
	return out.String(), nil
}
