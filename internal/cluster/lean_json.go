package cluster

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// jsonReader walks over JSON. What is not kept is checked for its form only as
// far as it takes to find its end.
type jsonReader struct {
	b []byte
	i int
	*arena
}

// maxDepth bounds how deep documents may nest.
const maxDepth = 100

// space passes over white space and returns what follows, 0 at the end.
func (r *jsonReader) space() byte {
	for r.i < len(r.b) {
		switch c := r.b[r.i]; c {
		case ' ', '\n', '\t', '\r':
			r.i++
		default:
			return c
		}
	}
	return 0
}

// expect passes over the given character.
func (r *jsonReader) expect(c byte) error {
	if r.space() != c {
		return errUnsure
	}
	r.i++
	return nil
}

// raw returns the string that begins here as it is written, and whether it has
// escapes.
func (r *jsonReader) raw() (s []byte, escapes bool, err error) {
	if err := r.expect('"'); err != nil {
		return nil, false, err
	}
	start := r.i
	for {
		end := bytes.IndexByte(r.b[r.i:], '"')
		if end < 0 {
			return nil, false, errUnsure
		}
		r.i += end
		slashes := 0
		for k := r.i - 1; k >= start && r.b[k] == '\\'; k-- {
			slashes++
		}
		r.i++
		if slashes%2 == 0 {
			s = r.b[start : r.i-1]
			return s, bytes.IndexByte(s, '\\') >= 0, nil
		}
	}
}

// quoted returns the string that begins here.
func (r *jsonReader) quoted() (string, error) {
	raw, escapes, err := r.raw()
	if err != nil {
		return "", err
	}
	if !isPlainText(raw) {
		return "", errUnsure
	}
	if escapes {
		if raw, err = unescape(raw); err != nil {
			return "", err
		}
	}
	return r.text(raw), nil
}

// isPlainText tells of text that needs no thought: letters of whatever script,
// no control characters, no line breaks of any kind.
func isPlainText(t []byte) bool {
	for i, c := range t {
		if c >= utf8.RuneSelf {
			return utf8.Valid(t[i:]) && !bytes.ContainsFunc(t[i:], isControl)
		}
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0x2028 || r == 0x2029
}

// unescape knows the escapes that JSON and YAML have in common and that stand
// for themselves or a line break or a tab.
func unescape(raw []byte) ([]byte, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++
		if i == len(raw) {
			return nil, errUnsure
		}
		switch raw[i] {
		case '"', '\\', '/':
			out = append(out, raw[i])
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		default:
			return nil, errUnsure
		}
	}
	return out, nil
}

// value reads what begins here; a nil shape passes over it.
func (r *jsonReader) value(s *shape, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, errUnsure
	}
	c := r.space()
	if s == nil {
		return nil, r.skip(c)
	}
	switch c {
	case '{':
		return r.mapping(s, depth)
	case '[':
		return r.list(s, depth)
	case '"':
		t, err := r.quoted()
		return r.make(text, t), err
	}
	k, w, err := r.word()
	return r.make(k, w), err
}

// word reads true, false, null or a number.
func (r *jsonReader) word() (kind, string, error) {
	start := r.i
	for r.i < len(r.b) && bytes.IndexByte([]byte(" \n\t\r,]}:\"[{"), r.b[r.i]) < 0 {
		r.i++
	}
	w := string(r.b[start:r.i])
	switch {
	case w == "true" || w == "false":
		return truth, w, nil
	case w == "null":
		return absent, "", nil
	case isPlainInteger(w):
		return number, w, nil
	}
	return absent, "", errUnsure
}

// isPlainInteger: a number that all formats write and read alike.
func isPlainInteger(w string) bool {
	digits := w
	if w != "" && w[0] == '-' {
		digits = w[1:]
	}
	if digits == "" || len(digits) > 15 || digits[0] == '0' && w != "0" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

func (r *jsonReader) mapping(s *shape, depth int) (*value, error) {
	v := r.make(mappingKind, "")
	r.i++ // {
	if r.space() == '}' {
		r.i++
		return v, nil
	}
	for {
		key, err := r.quoted()
		if err != nil {
			return v, err
		}
		if err := r.expect(':'); err != nil {
			return v, err
		}
		field, err := s.field(key)
		if err != nil {
			return v, err
		}
		x, err := r.value(field, depth+1)
		if err != nil {
			return v, err
		}
		if field != nil {
			if err := v.set(key, x); err != nil {
				return v, err
			}
		}
		if done, err := r.next('}'); done || err != nil {
			return v, err
		}
	}
}

func (r *jsonReader) list(s *shape, depth int) (*value, error) {
	v := r.make(listKind, "")
	r.i++ // [
	if r.space() == ']' {
		r.i++
		return v, nil
	}
	for {
		x, err := r.value(s.each, depth+1)
		if err != nil {
			return v, err
		}
		if x != nil {
			v.add(x)
		}
		if done, err := r.next(']'); done || err != nil {
			return v, err
		}
	}
}

// next passes over a comma, or over the given end.
func (r *jsonReader) next(end byte) (done bool, err error) {
	switch r.space() {
	case ',':
		r.i++
		return false, nil
	case end:
		r.i++
		return true, nil
	}
	return false, errUnsure
}

// field returns the shape of a field, nil if it is not kept. The general decoder
// takes a key for a field also when its case is wrong.
func (s *shape) field(key string) (*shape, error) {
	if s.keys == nil {
		return s.each, nil
	}
	if field, ok := s.keys[key]; ok {
		return field, nil
	}
	for name := range s.keys {
		if strings.EqualFold(name, key) {
			return nil, errUnsure
		}
	}
	return nil, nil
}

// skip passes over a value whose first character is given.
func (r *jsonReader) skip(c byte) error {
	switch c {
	case '"':
		_, _, err := r.raw()
		return err
	case '{', '[':
		return r.skipNested()
	}
	_, _, err := r.word()
	return err
}

// skipNested passes over a mapping or a list: brackets that match, strings that
// end, and nothing that is not JSON's.
func (r *jsonReader) skipNested() error {
	var open []byte
	for r.i < len(r.b) {
		switch c := r.b[r.i]; c {
		case '"':
			if _, _, err := r.raw(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if len(open) == maxDepth {
				return errUnsure
			}
			open = append(open, c+2) // the code of the closing bracket
		case '}', ']':
			if open[len(open)-1] != c {
				return errUnsure
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				r.i++
				return nil
			}
		}
		r.i++
	}
	return errUnsure
}
