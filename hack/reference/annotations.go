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
		`All names that Daybreak reads or writes in API objects. Names under `+"`metax-tech.com`"+` and `+"`hami.io`"+` are defined by MetaX and
HAMi, names under `+"`koordinator.sh`"+` by Koordinator; differences are listed in [Migrate from HAMi](../migrate-from-hami.md) and
[Migrate from Koordinator](../migrate-from-koordinator.md). Names under `+"`daybreak-gpu.io`"+` are Daybreak's own and are not required to
read an allocation.

The API server restricts who may write them, see [Admission](../admission.md#write-restrictions). Daybreak does not taint nodes. If GPU
nodes have a taint, set `+"`admission.toleratedTaint`"+` of the [chart](values.md), and pods with cards get the toleration.`)
	p.section("Resources of containers", "")
	p.resources(wire.ResourceTable())
	p.section("Resources of quotas", `The manager writes them to the limits and requests of the first app container of every pod that Daybreak schedules, and
overwrites values of users. Nodes do not advertise them.`)
	p.resources(wire.AmountTable())
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
	p.section("Pod annotations without effect", "A pod that has one is admitted with a warning.")
	var rows [][]string
	for _, x := range wire.IneffectiveAnnotations() {
		rows = append(rows, []string{code(x.Key), x.Of, x.Instead})
	}
	p.table([]string{"name", "of", "what Daybreak does"}, rows)
	return nil
}

// resources writes a table of resources.
func (p *page) resources(table []wire.Resource) {
	var rows [][]string
	for _, r := range table {
		rows = append(rows, []string{code(string(r.Name)), r.Means, r.WrittenBy, r.ReadBy, r.Format})
	}
	p.table([]string{"name", "meaning", "written by", "read by", "format"}, rows)
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
	head := []string{"name", "meaning"}
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
