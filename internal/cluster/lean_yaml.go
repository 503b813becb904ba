package cluster

import (
	"bytes"
	"strings"

	"sigs.k8s.io/yaml"
)

// yamlReader walks over YAML as programs write it: mappings and lists in blocks,
// each value on its line.
type yamlReader struct {
	rest []byte
	line yamlLine
	end  bool
	*arena
}

// yamlLine is a line without its indentation. What stands behind a dash is a
// line of its own that is indented by as much.
type yamlLine struct {
	indent int
	text   []byte
}

func newYAMLReader(text []byte, a *arena) (*yamlReader, error) {
	r := &yamlReader{rest: text, arena: a}
	err := r.next()
	return r, err
}

// next goes to the next line that is neither blank nor a comment.
func (r *yamlReader) next() error {
	for len(r.rest) > 0 {
		line := r.rest
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line, r.rest = line[:end], line[end+1:]
		} else {
			r.rest = nil
		}
		indent := 0
		for indent < len(line) && line[indent] == ' ' {
			indent++
		}
		line = line[indent:]
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if line[0] == '\t' || line[len(line)-1] == '\r' || indent == 0 && isSeparator(line) {
			return errUnsure
		}
		r.line = yamlLine{indent, bytes.TrimRight(line, " ")}
		return nil
	}
	r.end = true
	return nil
}

// isSeparator tells of lines that begin or end a document, or might.
func isSeparator(line []byte) bool {
	return len(line) > 2 && (line[0] == '-' || line[0] == '.') && line[0] == line[1] && line[1] == line[2]
}

func (l *yamlLine) dash() bool {
	return l.text[0] == '-' && (len(l.text) == 1 || l.text[1] == ' ')
}

// block reads the mapping or the list that begins on this line.
func (r *yamlReader) block(s *shape, depth int) (*value, error) {
	switch {
	case r.end || depth > maxDepth:
		return nil, errUnsure
	case r.line.dash():
		return r.list(s, depth)
	}
	return r.mapping(s, depth)
}

func (r *yamlReader) list(s *shape, depth int) (*value, error) {
	v, indent := r.make(listKind, ""), r.line.indent
	var each *shape
	if s != nil {
		each = s.each
	}
	for !r.end && r.line.indent == indent && r.line.dash() {
		item := bytes.TrimLeft(r.line.text[1:], " ")
		if len(item) == 0 {
			return v, errUnsure
		}
		r.line = yamlLine{indent + len(r.line.text) - len(item), item}
		var x *value
		var err error
		if _, _, ok := splitKey(item); ok || r.line.dash() {
			x, err = r.block(each, depth+1)
		} else {
			x, err = r.scalar(item, indent, each)
		}
		if err != nil {
			return v, err
		}
		if each != nil {
			v.add(x)
		}
	}
	if !r.end && r.line.indent > indent {
		return v, errUnsure
	}
	return v, nil
}

func (r *yamlReader) mapping(s *shape, depth int) (*value, error) {
	v, indent := r.make(mappingKind, ""), r.line.indent
	for !r.end && r.line.indent == indent && !r.line.dash() {
		name, rest, ok := splitKey(r.line.text)
		if !ok {
			return v, errUnsure
		}
		var field *shape
		var key string
		var err error
		if s != nil {
			key = r.text(name)
			if field, err = s.field(key); err != nil {
				return v, err
			}
		}
		x, err := r.field(rest, indent, field, depth)
		if err != nil {
			return v, err
		}
		if field != nil {
			if err := v.set(key, x); err != nil {
				return v, err
			}
		}
	}
	if !r.end && r.line.indent > indent {
		return v, errUnsure
	}
	return v, nil
}

// field reads what stands behind a key.
func (r *yamlReader) field(rest []byte, indent int, s *shape, depth int) (*value, error) {
	if len(rest) > 0 {
		return r.scalar(rest, indent, s)
	}
	if err := r.next(); err != nil {
		return nil, err
	}
	if !r.end && (r.line.indent > indent || r.line.indent == indent && r.line.dash()) {
		return r.block(s, depth+1)
	}
	return r.make(absent, ""), nil // nothing is null
}

// splitKey takes a line apart that begins with a plain key.
func splitKey(line []byte) (key, rest []byte, ok bool) {
	end := 0
	for end < len(line) && isKeyByte(line[end]) {
		end++
	}
	switch {
	case end == 0 || end == len(line) || line[end] != ':' || !isLetter(line[0]):
		return nil, nil, false
	case end+1 < len(line) && line[end+1] != ' ':
		return nil, nil, false
	}
	key = line[:end]
	return key, bytes.TrimLeft(line[end+1:], " "), !isReserved(key)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isKeyByte(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '/' || c == '-' || c == '_'
}

// isReserved tells of words that YAML takes for something else than text.
func isReserved(w []byte) bool {
	if len(w) > 5 {
		return false
	}
	switch strings.ToLower(string(w)) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// scalar reads a value that stands on the line, and goes to the next one. A
// block of text goes on below, and must be indented further than its key.
func (r *yamlReader) scalar(t []byte, indent int, s *shape) (*value, error) {
	if t[0] == '|' {
		return r.literal(t, indent)
	}
	v, err := r.flat(t, s)
	if err != nil {
		return v, err
	}
	// A value that goes on below is found out there: it is indented further.
	err = r.next()
	return v, err
}

func (r *yamlReader) flat(t []byte, s *shape) (*value, error) {
	switch c := t[0]; {
	case c == '"':
		return r.doubleQuoted(t)
	case c == '\'':
		return r.singleQuoted(t)
	case c == '{' || c == '[':
		return r.flow(t, s)
	case !isPlainWord(t):
		return nil, errUnsure
	case s == nil:
		return nil, nil
	}
	return r.plain(t)
}

// isPlainWord tells of values that need no quotes: neither do they begin like
// something else, nor does a comment or another key follow.
func isPlainWord(t []byte) bool {
	c, last := t[0], t[len(t)-1]
	if (c == '-' || c == '?' || c == ':') && (len(t) == 1 || t[1] == ' ') {
		return false
	}
	return bytes.IndexByte(indicators, c) < 0 && isPlainText(t) && last != ':' &&
		!bytes.Contains(t, []byte(" #")) && !bytes.Contains(t, []byte(": "))
}

// indicators begin something else than a plain word.
var indicators = []byte("&*!|>%@`#,]}")

// plain decides what a word without quotes is.
func (r *yamlReader) plain(t []byte) (*value, error) {
	w := r.text(t)
	switch {
	case isPlainInteger(w):
		return r.make(number, w), nil
	case w == "true" || w == "false":
		return r.make(truth, w), nil
	case w == "null":
		return r.make(absent, ""), nil
	case isLetter(w[0]) && !isReserved(t) || isAmount(w):
		return r.make(text, w), nil
	}
	if v, ok := r.words[w]; ok {
		return r.make(v.kind, v.text), nil
	}
	v, err := r.general(t, anything)
	if err == nil {
		r.words[w] = *v
	}
	return v, err
}

// isAmount tells of whole numbers with a unit, which YAML takes for text.
func isAmount(w string) bool {
	digits := strings.TrimRight(w, "KMGTPikm")
	if digits == w || !isPlainInteger(digits) {
		return false
	}
	switch w[len(digits):] {
	case "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi":
		return true
	}
	return false
}

// flow reads a value in braces or brackets that ends on its line.
func (r *yamlReader) flow(t []byte, s *shape) (*value, error) {
	switch string(t) {
	case "{}":
		return r.make(mappingKind, ""), nil
	case "[]":
		return r.make(listKind, ""), nil
	}
	return r.general(t, s)
}

// general asks the general decoder.
func (r *yamlReader) general(t []byte, s *shape) (*value, error) {
	asJSON, err := yaml.YAMLToJSONStrict(t)
	if err != nil {
		return nil, errUnsure
	}
	j := jsonReader{b: asJSON, arena: r.arena}
	v, err := j.value(s, 0)
	if err == nil && j.space() != 0 {
		err = errUnsure
	}
	return v, err
}

// doubleQuoted reads a text in double quotes that ends on its line.
func (r *yamlReader) doubleQuoted(t []byte) (*value, error) {
	j := jsonReader{b: t, arena: r.arena}
	s, err := j.quoted()
	if err != nil || j.i != len(t) {
		return nil, errUnsure
	}
	return r.make(text, s), nil
}

// singleQuoted reads a text in single quotes that ends on its line; a quote in
// it is written twice.
func (r *yamlReader) singleQuoted(t []byte) (*value, error) {
	if len(t) < 2 || t[len(t)-1] != '\'' || !isPlainText(t) {
		return nil, errUnsure
	}
	inner := t[1 : len(t)-1]
	if bytes.IndexByte(inner, '\'') < 0 {
		return r.make(text, r.text(inner)), nil
	}
	if without := bytes.ReplaceAll(inner, []byte("''"), nil); bytes.IndexByte(without, '\'') >= 0 {
		return nil, errUnsure
	}
	return r.make(text, strings.ReplaceAll(string(inner), "''", "'")), nil
}

// literal reads the lines of a block of text.
func (r *yamlReader) literal(t []byte, indent int) (*value, error) {
	chomp := string(t)
	if chomp != "|" && chomp != "|-" {
		return nil, errUnsure
	}
	var lines []string
	inner := -1
	for len(r.rest) > 0 {
		line, rest, _ := bytes.Cut(r.rest, []byte("\n"))
		trimmed := bytes.TrimLeft(line, " ")
		own := len(line) - len(trimmed)
		switch {
		case len(trimmed) == 0 && own > 0 || !isPlainText(line):
			return nil, errUnsure
		case len(trimmed) == 0:
			lines, r.rest = append(lines, ""), rest
			continue
		case inner < 0:
			inner = own
		}
		if own <= indent {
			break
		}
		if own < inner {
			return nil, errUnsure
		}
		lines, r.rest = append(lines, string(line[inner:])), rest
	}
	body := strings.TrimRight(strings.Join(lines, "\n"), "\n")
	if body == "" || lines[0] == "" {
		return nil, errUnsure
	}
	if chomp == "|" {
		body += "\n"
	}
	err := r.next()
	return r.make(text, body), err
}
