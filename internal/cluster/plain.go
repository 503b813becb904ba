package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// plain says in words of YAML why the object can't be decoded. The decoder
// names Go types instead, and of a quantity not even where it stands.
func plain(err error, object []byte) error {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s is a %s, want %s", cmp.Or(wrong.Field, "the document"), found(wrong.Value), wanted(wrong.Type.Kind()))
	case errors.Is(err, resource.ErrFormatWrong), errors.Is(err, resource.ErrNumeric), errors.Is(err, resource.ErrSuffix):
		var value any
		if json.Unmarshal(object, &value) == nil {
			if at, text, ok := badQuantity("", value); ok {
				return fmt.Errorf("%s: %q is no quantity: write a number, or one with a unit such as 512Mi or 4Gi", at, text)
			}
		}
	}
	return err
}

func found(value string) string {
	switch {
	case value == "object":
		return "mapping"
	case value == "array":
		return "list"
	case strings.HasPrefix(value, "number"): // "number 1.5"
		return "number"
	}
	return value
}

func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string (in quotes)"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	}
	return "a whole number in range"
}

// quantities are the fields of Nodes, Pods and Devices that map resources to
// quantities.
var quantities = []string{"allocatable", "capacity", "limits", "requests", "resources"}

// badQuantity finds the first text that stands for a quantity and is none.
func badQuantity(path string, value any) (at, text string, ok bool) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			if at, text, ok = badQuantity(fmt.Sprintf("%s[%d]", path, i), item); ok {
				break
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if at, text, ok = badQuantity(strings.TrimPrefix(path+"."+key, "."), value[key]); ok {
				break
			}
			if amounts, isMap := value[key].(map[string]any); isMap && slices.Contains(quantities, key) {
				if at, text, ok = badAmount(path+"."+key, amounts); ok {
					break
				}
			}
		}
	}
	return at, text, ok
}

func badAmount(path string, amounts map[string]any) (at, text string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		// Numbers are quantities, mappings are other fields of the same name.
		if text, ok := amounts[name].(string); ok {
			if _, err := resource.ParseQuantity(text); err != nil {
				return fmt.Sprintf("%s[%s]", path, name), text, true
			}
		}
	}
	return "", "", false
}
