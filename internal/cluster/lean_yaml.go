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
	// words remembers how the general decoder reads values that are neither
	// plainly text nor plainly a number.
	words map[string]value
}

// yamlLine is a line without its indentation. What stands behind a dash is a
// line of its own that is indented by as much.
type yamlLine struct {
	indent int
	text   []byte
}

func newYAMLReader(text []byte) (*yamlReader, error) {
	r := &yamlReader{rest: text, words: map[string]value{}}
	return r, r.next()
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
func (r *yamlReader) block(s *shape, depth int) (value, error) {
	switch {
	case r.end || depth > maxDepth:
		return value{}, errUnsure
	case r.line.dash():
		return r.list(s, depth)
	}
	return r.mapping(s, depth)
}

func (r *yamlReader) list(s *shape, depth int) (value, error) {
	v, indent := value{kind: listKind}, r.line.indent
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
		var x value
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
			v.values = append(v.values, x)
		}
	}
	if !r.end && r.line.indent > indent {
		return v, errUnsure
	}
	return v, nil
}

func (r *yamlReader) mapping(s *shape, depth int) (value, error) {
	v, indent := value{kind: mappingKind}, r.line.indent
	for !r.end && r.line.indent == indent && !r.line.dash() {
		key, rest, ok := splitKey(r.line.text)
		if !ok {
			return v, errUnsure
		}
		var field *shape
		if s != nil {
			field = s.field(key)
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
func (r *yamlReader) field(rest []byte, indent int, s *shape, depth int) (value, error) {
	if len(rest) > 0 {
		return r.scalar(rest, indent, s)
	}
	if err := r.next(); err != nil {
		return value{}, err
	}
	if !r.end && (r.line.indent > indent || r.line.indent == indent && r.line.dash()) {
		return r.block(s, depth+1)
	}
	return value{}, nil // nothing is null
}

// splitKey takes a line apart that begins with a plain key.
func splitKey(line []byte) (key string, rest []byte, ok bool) {
	end := 0
	for end < len(line) && isKeyByte(line[end]) {
		end++
	}
	switch {
	case end == 0 || end == len(line) || line[end] != ':' || !isLetter(line[0]):
		return "", nil, false
	case end+1 < len(line) && line[end+1] != ' ':
		return "", nil, false
	}
	key = string(line[:end])
	return key, bytes.TrimLeft(line[end+1:], " "), !isReserved(key)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isKeyByte(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '/' || c == '-' || c == '_'
}

// isReserved tells of words that YAML takes for something else than text.
func isReserved(w string) bool {
	if len(w) > 5 {
		return false
	}
	switch strings.ToLower(w) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// scalar reads a value that stands on the line, and goes to the next one. A
// block of text goes on below, and must be indented further than its key.
func (r *yamlReader) scalar(t []byte, indent int, s *shape) (value, error) {
	if t[0] == '|' {
		return r.literal(t, indent)
	}
	v, err := r.flat(t, s)
	if err != nil {
		return v, err
	}
	if err := r.next(); err != nil {
		return v, err
	}
	if !r.end && r.line.indent > indent {
		return v, errUnsure // it goes on
	}
	return v, nil
}

func (r *yamlReader) flat(t []byte, s *shape) (value, error) {
	switch c := t[0]; {
	case c == '"':
		return quoted(t)
	case c == '\'':
		return singleQuoted(t)
	case c == '{' || c == '[':
		return r.flow(t, s)
	case bytes.IndexByte(indicators, c) >= 0:
		return value{}, errUnsure
	case (c == '-' || c == '?' || c == ':') && (len(t) == 1 || t[1] == ' '):
		return value{}, errUnsure
	case !isPlainText(t) || t[len(t)-1] == ':' || bytes.Contains(t, []byte(" #")) || bytes.Contains(t, []byte(": ")):
		return value{}, errUnsure
	case s == nil:
		return value{}, nil
	}
	return r.plain(string(t))
}

// indicators begin something else than a plain word.
var indicators = []byte("&*!|>%@`#,]}")

// plain decides what a word without quotes is.
func (r *yamlReader) plain(w string) (value, error) {
	switch {
	case isPlainInteger(w):
		return value{kind: number, text: w}, nil
	case w == "true" || w == "false":
		return value{kind: truth, text: w}, nil
	case w == "null":
		return value{}, nil
	case isLetter(w[0]) && !isReserved(w) || isAmount(w):
		return value{kind: text, text: w}, nil
	}
	if v, ok := r.words[w]; ok {
		return v, nil
	}
	v, err := generalYAML([]byte(w), anything)
	if err == nil {
		r.words[w] = v
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
func (r *yamlReader) flow(t []byte, s *shape) (value, error) {
	switch string(t) {
	case "{}":
		return value{kind: mappingKind}, nil
	case "[]":
		return value{kind: listKind}, nil
	}
	return generalYAML(t, s)
}

// generalYAML asks the general decoder.
func generalYAML(t []byte, s *shape) (value, error) {
	asJSON, err := yaml.YAMLToJSONStrict(t)
	if err != nil {
		return value{}, errUnsure
	}
	r := jsonReader{b: asJSON}
	v, err := r.value(s, 0)
	if err == nil && r.space() != 0 {
		err = errUnsure
	}
	return v, err
}

// quoted reads a text in double quotes that ends on its line.
func quoted(t []byte) (value, error) {
	r := jsonReader{b: t}
	s, err := r.text()
	if err != nil || r.i != len(t) {
		return value{}, errUnsure
	}
	return value{kind: text, text: s}, nil
}

// singleQuoted reads a text in single quotes that ends on its line; a quote in
// it is written twice.
func singleQuoted(t []byte) (value, error) {
	if len(t) < 2 || t[len(t)-1] != '\'' || !isPlainText(t) {
		return value{}, errUnsure
	}
	inner := string(t[1 : len(t)-1])
	if without := strings.ReplaceAll(inner, "''", ""); strings.Contains(without, "'") {
		return value{}, errUnsure
	}
	return value{kind: text, text: strings.ReplaceAll(inner, "''", "'")}, nil
}

// literal reads the lines of a block of text.
func (r *yamlReader) literal(t []byte, indent int) (value, error) {
	chomp := string(t)
	if chomp != "|" && chomp != "|-" {
		return value{}, errUnsure
	}
	var lines []string
	inner := -1
	for len(r.rest) > 0 {
		line, rest, _ := bytes.Cut(r.rest, []byte("\n"))
		trimmed := bytes.TrimLeft(line, " ")
		own := len(line) - len(trimmed)
		switch {
		case len(trimmed) == 0 && own > 0 || !isPlainText(line):
			return value{}, errUnsure
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
			return value{}, errUnsure
		}
		lines, r.rest = append(lines, string(line[inner:])), rest
	}
	body := strings.TrimRight(strings.Join(lines, "\n"), "\n")
	if body == "" || lines[0] == "" {
		return value{}, errUnsure
	}
	if chomp == "|" {
		body += "\n"
	}
	return value{kind: text, text: body}, r.next()
}
