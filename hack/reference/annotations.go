package main

import (
	"fmt"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	keysFile      = "internal/wire/keys.go"
	resourcesFile = "internal/wire/resources.go"
)

// writeAnnotations writes every name that stands in an API object.
func writeAnnotations(p *page) error {
	p.begin("Resources, annotations, labels and conditions", "the comments in "+keysFile+" and the table in "+resourcesFile,
		`Every name by which Daybreak, pods and nodes speak to each other, with who writes it and who reads it. Names under
`+"`metax-tech.com`"+` and `+"`hami.io`"+` are the vendor's and HAMi's, those under `+"`koordinator.sh`"+` are Koordinator's: they mean
here what they mean there, as far as [the pages on migration](../migrate-from-hami.md) do not say otherwise. Names under
`+"`daybreak-gpu.io`"+` are Daybreak's own; none of them is needed to read an allocation.

Who may write what is guarded by the API server: [admission](../admission.md#nobody-forges-an-allocation). Daybreak puts
no taint on nodes and needs none; one that keeps other pods off your cards is yours to choose.`)
	var rows [][]string
	for _, r := range wire.ResourceTable() {
		rows = append(rows, []string{code(string(r.Name)), r.Means, r.WrittenBy, r.ReadBy, r.Format})
	}
	p.section("Resources that containers ask for", "")
	p.table([]string{"name", "what it is", "written by", "read by", "format"}, rows)
	blocks, err := readConstants(keysFile)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		title, _, _ := strings.Cut(b.text, ".")
		p.section(title, "")
		if err := p.keys(b.constants); err != nil {
			return err
		}
	}
	return nil
}

// keys writes a table. Columns that no name of the block has are left out.
func (p *page) keys(constants []constant) error {
	words := []string{"Written by", "Read by"}
	if constants[0].fields["On"] != "" {
		words = append([]string{"On"}, words...)
	}
	if constants[0].fields["Format"] != "" {
		words = append(words, "Format")
	}
	head := []string{"name", "what it is"}
	for _, w := range words {
		head = append(head, strings.ToLower(w))
	}
	var rows [][]string
	for i := range constants {
		c := &constants[i]
		if c.value == "" {
			return fmt.Errorf("%s is no string constant", c.name)
		}
		values, err := c.need(words...)
		if err != nil {
			return err
		}
		rows = append(rows, append([]string{code(c.value), c.text}, values...))
	}
	p.table(head, rows)
	return nil
}
