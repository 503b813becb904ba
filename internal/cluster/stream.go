package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// stream takes in JSON objects that follow each other, and returns what follows
// them.
func (r *fileReader) stream(in io.Reader) (rest io.Reader, err error) {
	dec := json.NewDecoder(in)
	for dec.More() { // skips blanks
		first := make([]byte, 1)
		if n, _ := dec.Buffered().Read(first); n == 0 || first[0] != '{' {
			break
		}
		if err := r.streamObject(dec); err != nil {
			return nil, err
		}
	}
	return io.MultiReader(dec.Buffered(), in), nil
}

// streamObject takes in one JSON object, and the items of a list one by one: a
// dump of a large cluster is never in memory as a whole.
func (r *fileReader) streamObject(dec *json.Decoder) error {
	if _, err := r.token(dec); err != nil { // {
		return err
	}
	fields := map[string]any{}
	for dec.More() {
		key, err := r.token(dec)
		if err != nil {
			return err
		}
		name, _ := key.(string)
		if _, twice := fields[name]; twice {
			return fmt.Errorf("%s: key %q already set in map", r.at(), name)
		}
		if name == "items" {
			fields[name], err = r.streamItems(dec, fields)
		} else {
			fields[name], err = r.value(dec)
		}
		if err != nil {
			return err
		}
	}
	if _, err := r.token(dec); err != nil { // }
		return err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%s: %w", r.at(), err)
	}
	return r.yaml(text)
}

// streamItems takes in the items of the list that begins with the given fields.
// It returns items without a kind if that of the list has yet to come.
func (r *fileReader) streamItems(dec *json.Decoder, fields map[string]any) (held []json.RawMessage, err error) {
	var list, implied metav1.TypeMeta
	if text, err := json.Marshal(fields); err == nil && json.Unmarshal(text, &list) == nil && isList(list) {
		implied = itemsOf(list)
	}
	if open, err := r.token(dec); err != nil || open != json.Delim('[') {
		return nil, cmp.Or(err, fmt.Errorf("%s: not a Kubernetes object: items is no list", r.at()))
	}
	for n := 1; dec.More(); n++ {
		item, err := r.value(dec)
		if err != nil {
			return nil, err
		}
		at := fmt.Sprintf("%s, item %d", r.at(), n)
		text, err := yaml.YAMLToJSONStrict(item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		err = r.object(text, at, implied)
		if errors.Is(err, errNoKind) && !isList(list) {
			held = append(held, item)
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = r.token(dec) // ]
	return held, err
}

func (r *fileReader) token(dec *json.Decoder) (json.Token, error) {
	token, err := dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.at(), err)
	}
	return token, nil
}

func (r *fileReader) value(dec *json.Decoder) (json.RawMessage, error) {
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return nil, fmt.Errorf("%s: %w", r.at(), err)
	}
	return value, nil
}
