package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// Quantities are computed exactly: reading 1e-999999999 takes hours and
// gigabytes. The API server guards what passes through it, Devices excepted, so
// whatever else is decoded goes through the functions below. They guard exactly
// the values that the decoder hands to [resource.ParseQuantity]. The places of
// those are taken from the types; a label or an annotation is no quantity,
// whatever it looks like.

const (
	// maxQuantityDigits is how many digits a quantity may have, and
	// maxExponentDigits how many its exponent.
	maxQuantityDigits = 128
	maxExponentDigits = 2
)

// DecodePod decodes the JSON of a Pod that may not come from the API server.
func DecodePod(text []byte) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, decodeGuarded(text, pod, podQuantities())
}

// DecodeNode decodes the JSON of a Node that may not come from the API server.
func DecodeNode(text []byte) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, decodeGuarded(text, node, nodeQuantities())
}

// DecodeDevice decodes a Device. A field of the wrong type makes the whole
// object unreadable, which is its node's problem and nobody else's.
func DecodeDevice(text []byte) (*v1alpha1.Device, error) {
	device := &v1alpha1.Device{}
	if err := decodeGuarded(text, device, deviceQuantities()); err != nil {
		return nil, err
	}
	return device, nil
}

// The places of quantities in the types that are decoded.
var (
	podQuantities    = sync.OnceValue(func() *location { return locationsIn(reflect.TypeFor[corev1.Pod](), nil) })
	nodeQuantities   = sync.OnceValue(func() *location { return locationsIn(reflect.TypeFor[corev1.Node](), nil) })
	deviceQuantities = sync.OnceValue(func() *location { return locationsIn(reflect.TypeFor[v1alpha1.Device](), nil) })
)

func decodeGuarded(text []byte, into any, places *location) error {
	if hugeNumber(text) { // wherever: few objects have one
		if err := findQuantity(text, places, checkQuantity); err != nil {
			return err
		}
	}
	err := json.Unmarshal(text, into)
	if errors.Is(err, resource.ErrFormatWrong) || errors.Is(err, resource.ErrNumeric) || errors.Is(err, resource.ErrSuffix) {
		// The decoder does not say where it stands.
		return cmp.Or(findQuantity(text, places, parseQuantity), err)
	}
	return err
}

// checkQuantity rejects the text of a quantity that takes long to compute.
func checkQuantity(text string) error {
	if hugeNumber([]byte(text)) {
		return fmt.Errorf("%.40q is no amount of anything: write a number without an exponent", text)
	}
	return nil
}

// parseQuantity rejects the text of no quantity.
func parseQuantity(text string) error {
	if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err != nil {
		return fmt.Errorf("%.40q is no quantity: write a number, or one with a unit such as 512Mi or 4Gi", text)
	}
	return nil
}

// hugeNumber reports whether something in the text could be a number with a huge
// exponent or very many digits.
func hugeNumber(text []byte) bool {
	digits := 0
	for i, c := range text {
		switch {
		case c >= '0' && c <= '9', c == '.':
			digits++
		case (c == 'e' || c == 'E') && hugeExponent(text[i+1:]):
			return true
		default:
			digits = 0
		}
		if digits > maxQuantityDigits {
			return true
		}
	}
	return false
}

// hugeExponent reports whether the text begins with a huge exponent.
func hugeExponent(text []byte) bool {
	text = bytes.TrimLeft(bytes.TrimLeft(text, "+-"), "0")
	for i := range maxExponentDigits + 1 {
		if i >= len(text) || text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// location is a place in a type: a quantity, or something with quantities in it. A
// nil location has none.
type location struct {
	quantity bool
	fields   []locationField // of a struct
	each     *location       // of a list or a map
	list     bool
}

type locationField struct {
	name string
	*location
}

// locationsIn returns the places of quantities in the type, as encoding/json reads
// it. Above are the types that it is part of: none of ours is part of itself.
func locationsIn(t reflect.Type, above []reflect.Type) *location {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[resource.Quantity]() {
		return &location{quantity: true}
	}
	if slices.Contains(above, t) {
		return nil
	}
	above = append(above, t)
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil // it reads itself
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		if each := locationsIn(t.Elem(), above); each != nil {
			return &location{each: each, list: t.Kind() != reflect.Map}
		}
	case t.Kind() == reflect.Struct:
		if fields := fieldsIn(t, above); len(fields) > 0 {
			return &location{fields: fields}
		}
	}
	return nil
}

func fieldsIn(t reflect.Type, above []reflect.Type) []locationField {
	var fields []locationField
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		p := locationsIn(f.Type, above)
		switch {
		case p == nil:
		case f.Anonymous && name == "":
			fields = append(fields, p.fields...)
		case name == "":
			fields = append(fields, locationField{f.Name, p})
		default:
			fields = append(fields, locationField{name, p})
		}
	}
	return fields
}

// field returns the place of a field. To encoding/json upper and lower case are
// the same.
func (p *location) field(name string) *location {
	for _, f := range p.fields {
		if strings.EqualFold(f.name, name) {
			return f.location
		}
	}
	return nil
}

// findQuantity returns where the first quantity of the object stands that fails
// the test, and how. It goes through the tokens, since a field that comes twice
// is decoded twice.
func findQuantity(object []byte, places *location, test func(text string) error) error {
	w := walker{dec: json.NewDecoder(bytes.NewReader(object)), test: test}
	w.dec.UseNumber()
	if err := w.walk(places); errors.Is(err, errQuantity) {
		return fmt.Errorf("%.200s: %w", strings.TrimPrefix(strings.Join(w.path, ""), "."), w.found)
	}
	return nil // what is no JSON is the decoder's to report
}

// errQuantity ends the walk at a quantity that fails the test.
var errQuantity = errors.New("quantity found")

type walker struct {
	dec   *json.Decoder
	test  func(text string) error
	path  []string
	found error
}

// walk goes through one value.
func (w *walker) walk(p *location) error {
	if p == nil {
		var skipped json.RawMessage
		return w.dec.Decode(&skipped)
	}
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Number:
		return w.check(p, token.String())
	case string:
		return w.check(p, token)
	case json.Delim:
		return w.inside(p, token)
	}
	return nil
}

func (w *walker) check(p *location, text string) error {
	if !p.quantity {
		return nil
	}
	if w.found = w.test(text); w.found != nil {
		return errQuantity
	}
	return nil
}

// inside goes through the values of a list or an object up to its end. Where the
// type has something else there, the decoder passes over them.
func (w *walker) inside(p *location, open json.Delim) error {
	depth := len(w.path)
	for i := 0; w.dec.More(); i++ {
		next, step := (*location)(nil), fmt.Sprintf("[%d]", i)
		if open == '[' {
			if p.list {
				next = p.each
			}
		} else {
			key, err := w.dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			next, step = p.field(name), "."+name
			if p.each != nil && !p.list {
				next, step = p.each, "["+name+"]"
			}
		}
		w.path = append(w.path[:depth], step)
		if err := w.walk(next); err != nil {
			return err
		}
	}
	w.path = w.path[:depth]
	_, err := w.dec.Token()
	return err
}
