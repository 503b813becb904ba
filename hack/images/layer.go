package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a file or a link of a layer. All belong to root and are of no time.
type file struct {
	name string // without a leading slash
	mode int64
	data []byte
	link string // what a symbolic link points to
}

// unpack returns what the image takes of a package.
func unpack(ctx context.Context, deb string) ([]file, error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-deb: %w: %s", err, bytes.TrimSpace(message.Bytes()))
	}
	var files []file
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		f := file{name: strings.TrimPrefix(path.Clean(header.Name), "/"), mode: header.Mode & 0o777, link: header.Linkname}
		if !wanted(f.name) {
			continue
		}
		switch header.Typeflag {
		case tar.TypeReg:
			f.link = ""
			if f.data, err = io.ReadAll(r); err != nil {
				return nil, err
			}
		case tar.TypeSymlink:
			f.mode = 0o777
		case tar.TypeDir:
			continue
		default:
			return nil, fmt.Errorf("%s is neither a file nor a symbolic link", header.Name)
		}
		files = append(files, f)
	}
}

// library matches libraries and the loader.
var library = regexp.MustCompile(`^(lib|lib64|(usr/)?lib/[a-z0-9_]+-linux-gnu)/[^/]*\.so[^/]*$`)

// wanted are libraries and the loader, and the terms that they come under.
func wanted(name string) bool {
	if strings.HasPrefix(name, "usr/share/doc/") {
		return path.Base(name) == "copyright" || strings.Count(name, "/") == 3 // a link to another package's
	}
	return library.MatchString(name)
}

// layer writes the files as a layer, each folder before what is in it.
func layer(files []file) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var folders []string
	for _, f := range files {
		for _, dir := range parents(f.name) {
			if slices.Contains(folders, dir) {
				continue
			}
			folders = append(folders, dir)
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, Format: tar.FormatUSTAR}); err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Format: tar.FormatUSTAR}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// parents returns the folders above a file, the outermost first.
func parents(name string) []string {
	var dirs []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	return dirs
}

// write writes the layout and its archive, and returns the digest of what the
// image's name stands for: the image, or the index of one for each architecture.
func write(images []mutate.IndexAddendum, o options) (v1.Hash, error) {
	named := images[0]
	if len(images) > 1 {
		named = mutate.IndexAddendum{Add: mutate.IndexMediaType(mutate.AppendManifests(empty.Index, images...), types.OCIImageIndex)}
	}
	named.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": o.version,
		"io.containerd.image.name":          o.name + ":" + o.version, // what containerd calls it after an import
	}
	if err := os.RemoveAll(o.out); err != nil {
		return v1.Hash{}, err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return v1.Hash{}, err
	}
	if _, err := layout.Write(o.out, mutate.IndexMediaType(mutate.AppendManifests(empty.Index, named), types.OCIImageIndex)); err != nil {
		return v1.Hash{}, err
	}
	if err := archive(o.out, o.out+".tar"); err != nil {
		return v1.Hash{}, err
	}
	return named.Add.Digest()
}

// archive writes a folder as a tar file, in order and of no time.
func archive(dir, to string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
