package cluster

import (
	"bytes"
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// splitDump finds the documents of a file and the objects in them. It fails on
// files whose documents can't be told apart without reading them.
func splitDump(text []byte) (documents []dumpDocument, pieces []piece, err error) {
	if first := bytes.TrimLeft(text, " \n\r\t"); len(first) > 0 && first[0] == '{' {
		return splitJSON(text)
	}
	for len(text) > 0 {
		end, next := endOfDocument(text)
		if next < 0 {
			return nil, nil, errUnsure
		}
		d := dumpDocument{text: text[:end]}
		text = text[next:]
		if d.empty() {
			continue
		}
		more, err := d.splitYAML(len(documents))
		if d.strict = err != nil; !d.strict {
			pieces = append(pieces, more...)
		}
		documents = append(documents, d)
	}
	return documents, pieces, nil
}

// endOfDocument returns where a document ends and the next one begins; no next
// one if the line in between is not a plain separator.
func endOfDocument(text []byte) (end, next int) {
	for i := 0; ; {
		if isSeparator(text[i:]) {
			if !bytes.HasPrefix(text[i:], []byte("---\n")) {
				return 0, -1
			}
			return i, i + 4
		}
		k := bytes.IndexByte(text[i:], '\n')
		if k < 0 || i+k+1 == len(text) {
			return len(text), len(text)
		}
		i += k + 1
	}
}

// empty tells of documents with nothing but comments.
func (d *dumpDocument) empty() bool {
	r, err := newYAMLReader(d.text, newArena())
	return err == nil && r.end
}

// splitYAML cuts a list at the lines that begin with a dash. In a document that
// is a mapping nothing else can stand there, except inside of a text or a flow
// that is then cut in two, and found out since neither half can be read.
func (d *dumpDocument) splitYAML(document int) ([]piece, error) {
	if d.text[0] == '{' {
		return nil, errUnsure
	}
	key := []byte("items:\n")
	start := 0
	if !bytes.HasPrefix(d.text, key) {
		if start = bytes.Index(d.text, append([]byte("\n"), key...)) + 1; start == 0 {
			return []piece{{document: document, text: d.text, format: formatYAML}}, nil
		}
	}
	items := d.text[start+len(key):]
	cuts, end := dashes(items)
	head := append(append([]byte{}, d.text[:start]...), items[end:]...)
	asJSON, err := yaml.YAMLToJSONStrict(head)
	if err != nil || json.Unmarshal(asJSON, &d.list) != nil || !isList(d.list) || len(cuts) == 0 || cuts[0] != 0 {
		return nil, errUnsure
	}
	pieces := make([]piece, len(cuts))
	for i, from := range cuts {
		to := end
		if i+1 < len(cuts) {
			to = cuts[i+1]
		}
		pieces[i] = piece{document: document, item: i + 1, text: items[from:to], format: formatYAMLItem}
	}
	return pieces, nil
}

// dashes returns where lines begin with a dash, and where the list that they
// are the items of ends: at a line that begins with another key.
func dashes(items []byte) (cuts []int, end int) {
	for i := 0; i < len(items); {
		switch items[i] {
		case '-':
			cuts = append(cuts, i)
		case ' ', '\n', '#':
		default:
			return cuts, i
		}
		k := bytes.IndexByte(items[i:], '\n')
		if k < 0 {
			break
		}
		i += k + 1
	}
	return cuts, len(items)
}

// splitJSON finds the objects of a file that has JSON objects one after the
// other, and the items of those that are lists.
func splitJSON(text []byte) (documents []dumpDocument, pieces []piece, err error) {
	r := jsonReader{b: text, arena: newArena()}
	for r.space() != 0 {
		start := r.i
		var d dumpDocument
		items, err := r.document(&d, len(documents))
		if err != nil {
			return nil, nil, err
		}
		d.text = text[start:r.i]
		if !isList(d.list) {
			items = []piece{{document: len(documents), text: d.text, format: formatJSON}}
		}
		pieces = append(pieces, items...)
		documents = append(documents, d)
	}
	return documents, pieces, nil
}

// document passes over a document, takes the kind down, and cuts its items.
func (r *jsonReader) document(d *dumpDocument, number int) (pieces []piece, err error) {
	if err := r.expect('{'); err != nil {
		return nil, err
	}
	for done := false; !done; {
		key, err := r.quoted()
		if err != nil {
			return nil, err
		}
		if err := r.expect(':'); err != nil {
			return nil, err
		}
		switch c := r.space(); {
		case key == "items" && c == '[' && pieces == nil:
			pieces, err = r.items(number)
		case key == "apiVersion" && c == '"':
			d.list.APIVersion, err = r.quoted()
		case key == "kind" && c == '"':
			d.list.Kind, err = r.quoted()
		default:
			err = r.skip(c)
		}
		if err != nil {
			return nil, err
		}
		if done, err = r.next('}'); err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

// items cuts a list into its items.
func (r *jsonReader) items(document int) ([]piece, error) {
	pieces := []piece{}
	r.i++ // [
	if r.space() == ']' {
		r.i++
		return pieces, nil
	}
	for {
		c := r.space()
		start := r.i
		if c != '{' {
			return nil, errUnsure
		}
		if err := r.skip(c); err != nil {
			return nil, err
		}
		pieces = append(pieces, piece{document: document, item: len(pieces) + 1, text: r.b[start:r.i], format: formatJSON})
		if done, err := r.next(']'); done || err != nil {
			return pieces, err
		}
	}
}
