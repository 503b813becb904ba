package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// vast matches numbers with an exponent of three digits or more. Quantities are
// computed exactly, and one of 1e-999999999 would take hours to read.
var vast = regexp.MustCompile(`^[+-]?(?:\d+\.?\d*|\.\d+)[eE][+-]?\d{3,}$`)

// maybeVast finds what may be one, wherever it stands.
var maybeVast = regexp.MustCompile(`[0-9.][eE][+-]?\d{3}`)

// CheckAmounts refuses the JSON of a Node or a Pod with a quantity that would
// take hours to decode, for whoever decodes objects that did not come from the
// API server. Devices look out for that themselves. What stands elsewhere, such
// as in an annotation, is nobody's amount, however it looks.
func CheckAmounts(object []byte) error {
	if !maybeVast.Match(object) {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil //nolint:nilerr // the decoder of the object will tell
	}
	if number := findVast(value, false); number != "" {
		return fmt.Errorf("%.40q is no amount of anything: write a number without an exponent", number)
	}
	return nil
}

// amounts are the fields of Nodes and Pods that hold quantities, alone or by
// name.
var amounts = []string{"allocatable", "allocatedResources", "capacity", "divisor", "limits", "overhead", "requests", "resources", "sizeLimit"}

// isAmount reports whether a field holds quantities. To the decoder of the object
// upper and lower case are the same.
func isAmount(field string) bool {
	return slices.ContainsFunc(amounts, func(a string) bool { return strings.EqualFold(a, field) })
}

// findVast returns the first vast number of a quantity, or of anything that is
// written as a number.
func findVast(value any, quantity bool) string {
	switch value := value.(type) {
	case json.Number:
		if vast.MatchString(value.String()) {
			return value.String()
		}
	case string:
		if quantity && vast.MatchString(value) {
			return value
		}
	case []any:
		for _, item := range value {
			if number := findVast(item, quantity); number != "" {
				return number
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key == "metadata" {
				continue
			}
			if number := findVast(value[key], quantity || isAmount(key)); number != "" {
				return number
			}
		}
	}
	return ""
}
