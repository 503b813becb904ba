package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// archive returns the end of the name of a platform's archive.
func (p platform) archive() string {
	if p.os == "windows" {
		return p.os + "-" + p.arch + ".zip"
	}
	return p.os + "-" + p.arch + ".tar.gz"
}

// pack returns an archive: a zip file by its name, or a compressed tar file. Its
// entries are in the order of their names, of one time and of root's.
func pack(name string, entries []entry, at time.Time) ([]byte, error) {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	var out bytes.Buffer
	var err error
	if strings.HasSuffix(name, ".zip") {
		err = writeZip(&out, entries, at)
	} else {
		err = writeTar(&out, entries, at)
	}
	return out.Bytes(), err
}

func writeZip(out io.Writer, entries []entry, at time.Time) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		header.SetMode(e.mode)
		to, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := to.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeTar(out io.Writer, entries []entry, at time.Time) error {
	compressed := gzip.NewWriter(out) // without a name and a time
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

// unpack returns the files of a compressed tar file.
func unpack(data []byte) ([]entry, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{header.Name, header.FileInfo().Mode().Perm(), content})
	}
}
