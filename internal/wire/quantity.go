package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// Quantities are computed exactly: reading 1e-999999999 takes hours and
// gigabytes. The API server guards what passes through it, Devices excepted; all
// else is decoded by unmarshalGuarded. It guards exactly the values that the
// decoder hands to [resource.ParseQuantity], by their place in the type: a label
// or an annotation is no quantity, whatever it looks like.

const (
	maxQuantityDigits = 128
	maxExponentDigits = 2
)

// DecodeDevice decodes a Device. A field of the wrong type makes the whole
// object unreadable, which affects its node only.
func DecodeDevice(text []byte) (*v1alpha1.Device, error) { return Decode[v1alpha1.Device](text) }

// DeviceOf decodes a Device that a client returned without its Go type.
func DeviceOf(u *unstructured.Unstructured) (*v1alpha1.Device, error) {
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return DecodeDevice(text)
}

// Decode decodes the JSON of an object that may not come from the API server.
func Decode[T any](text []byte) (*T, error) {
	object := new(T)
	if err := unmarshalGuarded(text, object); err != nil {
		return nil, err
	}
	return object, nil
}

// DecodeAnnotation decodes the JSON of an annotation, within [MaxAnnotation].
func DecodeAnnotation(text string, into any) error {
	if err := CheckSize(text); err != nil {
		return err
	}
	return unmarshalGuarded([]byte(text), into)
}

// unmarshalGuarded decodes JSON and rejects quantities that take long to compute.
func unmarshalGuarded(text []byte, into any) error {
	if hugeNumber(text) { // wherever it is: few objects have one
		if err := checkQuantities(text, into); err != nil {
			return err
		}
	}
	err := json.Unmarshal(text, into)
	if errors.Is(err, resource.ErrFormatWrong) || errors.Is(err, resource.ErrNumeric) || errors.Is(err, resource.ErrSuffix) {
		return cmp.Or(checkQuantities(text, into), err) // the decoder does not report the field
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && len(wrong.Value) > maxShown {
		wrong.Value = wrong.Value[:maxShown] + "…" // a number may have as many digits as the text
	}
	return err
}

// maxShown is how much of an invalid value an error shows.
const maxShown = 64

// checkQuantity rejects a quantity that takes long to compute, or is none.
func checkQuantity(text string) error {
	if hugeNumber([]byte(text)) {
		return fmt.Errorf("%.40q is no amount of anything: write a number without an exponent", text)
	}
	if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err != nil {
		return fmt.Errorf("%.40q is no quantity: write a number, or one with a unit such as 512Mi or 4Gi", text)
	}
	return nil
}

// hugeNumber reports whether something in the text could be a number with a huge
// exponent or very many digits. Part of a word, such as a digest, is none.
func hugeNumber(text []byte) bool {
	for i := 0; i < len(text); i++ {
		start := i
		for i < len(text) && isDigit(text[i]) {
			i++
		}
		if digits := i - start; digits > maxQuantityDigits || digits > 0 && hugeExponent(text[i:]) && !inWord(text[:start]) {
			return true
		}
	}
	return false
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

// inWord reports whether a number that follows the text, with or without a sign,
// continues a word.
func inWord(text []byte) bool {
	text = bytes.TrimRight(text, "+-")
	if colon := bytes.TrimSuffix(text, []byte(":")); len(colon) > 0 {
		c := colon[len(colon)-1]
		return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	return false
}

// hugeExponent reports whether the text begins with a huge exponent.
func hugeExponent(text []byte) bool {
	if len(text) == 0 || text[0] != 'e' && text[0] != 'E' {
		return false
	}
	text = bytes.TrimLeft(bytes.TrimLeft(text[1:], "+-"), "0")
	return len(text)-len(bytes.TrimLeft(text, "0123456789")) > maxExponentDigits
}

// checkQuantities checks the quantities of the object, by the type that it is
// decoded into. It goes through the tokens, since a field that comes twice is
// decoded twice; what is no JSON is left to the decoder to report.
func checkQuantities(object []byte, into any) (found error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	_ = walk(dec, reflect.TypeOf(into), "", func(path, text string) error {
		if err := checkQuantity(text); err != nil {
			found = fmt.Errorf("%.200s: %w", strings.TrimPrefix(path, "."), err)
		}
		return found
	})
	return found
}

// walk goes through one value of the type, and calls check with each quantity in
// it. The type is nil where the decoder passes over the value.
func walk(dec *json.Decoder, t reflect.Type, path string, check func(path, text string) error) error {
	if t == nil {
		return dec.Decode(&json.RawMessage{})
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := dec.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		if t == reflect.TypeFor[resource.Quantity]() && token != nil {
			return check(path, fmt.Sprint(token))
		}
		return nil
	}
	for i := 0; dec.More(); i++ {
		step, name := fmt.Sprintf("[%d]", i), ""
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			name = fmt.Sprint(key)
			step = "." + name
			if t.Kind() == reflect.Map {
				step = "[" + name + "]"
			}
		}
		if err := walk(dec, inside(t, open, name), path+step, check); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// inside returns the type of an element of a list or a map, or of the field with
// the name. To encoding/json upper and lower case are the same.
func inside(t reflect.Type, open json.Delim, name string) reflect.Type {
	switch kind := t.Kind(); {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil // it reads itself
	case open == '[' && (kind == reflect.Slice || kind == reflect.Array), open == '{' && kind == reflect.Map:
		return t.Elem()
	case open == '{' && kind == reflect.Struct:
		return fieldType(t, name)
	}
	return nil
}

func fieldType(t reflect.Type, name string) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil // a pointer that is inlined: our types have none
	}
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" {
			if inlined := fieldType(f.Type, name); inlined != nil {
				return inlined
			}
		} else if strings.EqualFold(cmp.Or(tag, f.Name), name) {
			return f.Type
		}
	}
	return nil
}
