package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// linksDocument is our own annotation on a Device: which pairs of cards have a
// direct MetaXLink. Row i, column j is "M" for a link between the cards i and j
// of the list, "." for none and "-" on the diagonal. It names the cards, so it
// does not depend on their order in the Device.
type linksDocument struct {
	Cards []gpu.CardID `json:"cards"`
	Links []string     `json:"links"`
}

// EncodeLinks writes the links of a topology.
func EncodeLinks(t *gpu.Topology) (string, error) {
	doc := linksDocument{Cards: []gpu.CardID{}, Links: []string{}}
	for i := range t.Len() {
		row := make([]byte, t.Len())
		for j := range row {
			switch {
			case i == j:
				row[j] = '-'
			case t.Linked(i).Has(j):
				row[j] = 'M'
			default:
				row[j] = '.'
			}
		}
		doc.Cards = append(doc.Cards, t.Card(i).ID)
		doc.Links = append(doc.Links, string(row))
	}
	text, err := json.Marshal(doc)
	return string(text), err
}

// decodeLinks reads the links between the given cards. The matrix must be
// square, symmetric and name every card exactly once: it is our own, so
// anything else is a mistake and not a newer version.
func decodeLinks(text string, cards []gpu.Card) ([]gpu.Link, error) {
	if err := wire.CheckSize(text); err != nil {
		return nil, err
	}
	var doc linksDocument
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	if len(doc.Cards) != len(doc.Links) || len(doc.Cards) != len(cards) {
		return nil, fmt.Errorf("%d cards and %d rows for a Device with %d cards", len(doc.Cards), len(doc.Links), len(cards))
	}
	index := make([]int, len(cards)) // of the matrix, to the inventory's
	seen := make(map[gpu.CardID]bool, len(cards))
	for i, id := range doc.Cards {
		at := slices.IndexFunc(cards, func(c gpu.Card) bool { return c.ID == id })
		if at < 0 || seen[id] {
			return nil, fmt.Errorf("card %.40q is listed twice or not in the Device", id)
		}
		index[i], seen[id] = at, true
	}
	return decodeMatrix(doc.Links, index)
}

func decodeMatrix(rows []string, index []int) ([]gpu.Link, error) {
	var links []gpu.Link
	for i, row := range rows {
		if len(row) != len(rows) {
			return nil, fmt.Errorf("row %d has %d columns, want %d", i, len(row), len(rows))
		}
		for j := range row {
			switch cell := row[j]; {
			case (cell == '-') != (i == j), cell != '-' && cell != 'M' && cell != '.':
				return nil, fmt.Errorf("row %d, column %d is %q: want M, . or - on the diagonal", i, j, cell)
			case j < i && rows[j][i] != cell:
				return nil, fmt.Errorf("row %d, column %d is %q, but %q the other way round", i, j, cell, rows[j][i])
			case j < i && cell == 'M':
				links = append(links, gpu.Link{A: index[j], B: index[i]})
			}
		}
	}
	return links, nil
}
