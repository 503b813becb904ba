package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3" //nolint:depguard // comments are read, which sigs.k8s.io/yaml drops
)

const (
	valuesFile = "charts/daybreak/values.yaml"
	schemaFile = "charts/daybreak/values.schema.json"
)

// schema is what the reference uses of a JSON schema.
type schema struct {
	Type       any                `json:"type"`
	Enum       []any              `json:"enum"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	Properties map[string]*schema `json:"properties"`
}

// writeValues writes the values of the chart.
func writeValues(p *page) error {
	p.begin("Values of the Helm chart", valuesFile+" and "+schemaFile,
		"`image.repository`"+` is required; every other value has a default. "Check:" marks the values that depend on the cluster. A
misspelled or invalid value stops the installation with its name. See [Installation](../install.md).`)
	var top schema
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("%s: %w", schemaFile, err)
	}
	if text, err = os.ReadFile(valuesFile); err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%s: %w", valuesFile, err)
	}
	return eachValue(document.Content[0], func(key, value *yaml.Node) error {
		s := top.Properties[key.Value]
		if s == nil {
			return fmt.Errorf("%s is not in %s", key.Value, schemaFile)
		}
		group, about := commentOf(key), ""
		if len(s.Properties) == 0 { // a value of its own
			group, about = about, group
		}
		p.section(key.Value, group)
		var rows [][]string
		if err := collect(&rows, key.Value, about, value, s); err != nil {
			return err
		}
		p.table([]string{"value", "default", "may be", "what it does"}, rows)
		return nil
	})
}

// eachValue goes through a mapping in the order of the file.
func eachValue(mapping *yaml.Node, do func(key, value *yaml.Node) error) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if err := do(mapping.Content[i], mapping.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// collect adds a row for each value below the path. What the schema does not
// look into is one value.
func collect(rows *[][]string, path, about string, value *yaml.Node, s *schema) error {
	if len(s.Properties) == 0 {
		standard, err := defaultOf(value)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if about == "" {
			return fmt.Errorf("%s: no comment in %s says what it does", path, valuesFile)
		}
		*rows = append(*rows, []string{code(path), standard, s.words(), about})
		return nil
	}
	return eachValue(value, func(key, value *yaml.Node) error {
		below := path + "." + key.Value
		child := s.Properties[key.Value]
		if child == nil {
			return fmt.Errorf("%s is not in %s", below, schemaFile)
		}
		text := commentOf(key)
		if text == "" {
			text = about // of a group whose values need no words of their own
		}
		return collect(rows, below, text, value, child)
	})
}

// commentOf returns the comment above a key as one paragraph.
func commentOf(key *yaml.Node) string {
	var words []string
	for line := range strings.Lines(key.HeadComment) {
		words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
	}
	return strings.Join(words, " ")
}

func defaultOf(value *yaml.Node) (string, error) {
	var v any
	if err := value.Decode(&v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	if len(text) > 80 {
		return "see `values.yaml`", nil
	}
	return code(string(text)), nil
}

// words says what a value may be.
func (s *schema) words() string {
	if len(s.Enum) > 0 {
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i] = code(fmt.Sprintf("%#v", e))
		}
		return strings.Join(words, ", ")
	}
	kind := fmt.Sprint(s.Type)
	if list, several := s.Type.([]any); several {
		words := make([]string, len(list))
		for i := range list {
			words[i] = fmt.Sprint(list[i])
		}
		kind = strings.Join(words, " or ")
	}
	if s.Minimum != nil {
		kind += " from " + strconv.FormatFloat(*s.Minimum, 'f', -1, 64)
	}
	if s.Maximum != nil {
		kind += " to " + strconv.FormatFloat(*s.Maximum, 'f', -1, 64)
	}
	return kind
}
