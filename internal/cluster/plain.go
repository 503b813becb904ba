package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// plain says in words of YAML why the object can't be decoded. The decoder
// names Go types instead.
func plain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s, want %s", cmp.Or(wrong.Field, "the document"), found(wrong.Value), wanted(wrong.Type.Kind()))
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
