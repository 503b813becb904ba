package check

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// WriteBundle writes a tar.gz with a report and the answers that it came from,
// without names of pods, namespaces, processes and foreign slices.
func WriteBundle(w io.Writer, version string, r *Report, f *Facts, now time.Time) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		header := &tar.Header{Name: "daybreak-check/" + name, Mode: 0o644, Size: int64(len(content)), ModTime: now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	files := map[string]any{"checks.json": r, "facts.json": f}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := json.MarshalIndent(files[name], "", "  ")
		if err != nil {
			return err
		}
		if err := add(name, content); err != nil {
			return err
		}
	}
	for _, args := range slices.Sorted(maps.Keys(f.Printed)) {
		if err := add("mx-smi"+strings.ReplaceAll(" "+strings.ReplaceAll(args, "-", ""), " ", "-")+".txt", []byte(f.Printed[args])); err != nil {
			return err
		}
	}
	if err := add("version.txt", []byte(version+"\n")); err != nil {
		return err
	}
	return errors.Join(archive.Close(), zip.Close())
}
