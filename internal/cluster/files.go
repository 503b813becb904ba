package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// ReadFiles reads Nodes, Pods, Devices, workloads and lists of them from the files,
// "-" being standard input, and from the .yaml, .yml and .json files of folders. A
// file may hold several YAML documents, or JSON. An error names the file and the
// document; a Device that can't be decoded affects its node only.
func ReadFiles(paths []string, stdin io.Reader) (*Objects, error) {
	return ReadFilesBelow(paths, false, stdin)
}

// ReadFilesBelow is [ReadFiles], if recursive with the folders below the named ones.
func ReadFilesBelow(paths []string, recursive bool, stdin io.Reader) (*Objects, error) {
	r := &fileReader{decoder: decoder{objects: &Objects{Devices: map[string]Device{}, Settings: map[string]Settings{}}, from: map[string]string{}}}
	files, err := filesOf(paths, recursive)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		if err := r.open(path, stdin); err != nil {
			return nil, err
		}
	}
	return r.objects, nil
}

// endings are those of the files that are read of a folder, as kubectl does.
var endings = []string{".json", ".yaml", ".yml"}

// filesOf replaces folders by the files in them, in the order of their names.
func filesOf(paths []string, recursive bool) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == "-" || err != nil || !info.IsDir() {
			files = append(files, path) // what is wrong with it shows when it is opened
			continue
		}
		before := len(files)
		err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && at != path && !recursive:
				return filepath.SkipDir
			case !entry.IsDir() && slices.Contains(endings, filepath.Ext(at)):
				files = append(files, at)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: the folder has no file that ends in %s", path, strings.Join(endings, ", "))
		}
	}
	return files, nil
}

// fileReader takes files apart into objects.
type fileReader struct {
	decoder
	// file and document are the position; the document is counted from 1, and
	// without those that hold comments only.
	file     string
	document int
}

func (r *fileReader) at() string { return fmt.Sprintf("%s, document %d", r.file, r.document) }

func (r *fileReader) open(path string, stdin io.Reader) error {
	r.file, r.document = path, 1
	if path == "-" {
		r.file = "standard input"
	}
	if _, ok := r.from["file "+r.file]; ok {
		return fmt.Errorf("%s is named twice", r.file)
	}
	r.from["file "+r.file] = r.file
	if path == "-" {
		return r.read(stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.read(f)
}

// largeFile is the size from which JSON is read as a stream. A smaller file may
// begin like JSON and be YAML.
const largeFile = 1 << 20

func (r *fileReader) read(in io.Reader) error {
	text := bufio.NewReaderSize(in, largeFile)
	switch head, err := text.Peek(largeFile); {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case err == nil && bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{")):
		rest, err := r.stream(text)
		if err != nil {
			return err
		}
		text = bufio.NewReader(rest)
	}
	docs := utilyaml.NewYAMLReader(text)
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.at(), err)
		}
		for _, part := range split(doc) {
			if err := r.yaml(part); err != nil {
				return err
			}
		}
	}
}

// split takes apart what stands between two separators: JSON objects may follow
// each other without one, and a line of three dots ends a YAML document. The
// YAML decoder would silently ignore all but the first.
func split(doc []byte) [][]byte {
	rest := bytes.TrimPrefix(doc, []byte("---"))
	var parts [][]byte
	dec := json.NewDecoder(bytes.NewReader(rest))
	for {
		var value json.RawMessage
		end := dec.InputOffset()
		if dec.Decode(&value) != nil || value[0] != '{' {
			rest = rest[end:]
			break
		}
		parts = append(parts, value)
	}
	for _, part := range dots.Split(string(rest), -1) {
		parts = append(parts, []byte(part))
	}
	return parts
}

var dots = regexp.MustCompile(`(?m)^\.{3}[ \t\r]*$`)

// yaml takes in one document.
func (r *fileReader) yaml(doc []byte) error {
	text, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", r.at(), err)
	}
	if bytes.Equal(text, []byte("null")) { // only comments
		return nil
	}
	err = r.object(text, r.at(), metav1.TypeMeta{})
	r.document++
	return err
}
