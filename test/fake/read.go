package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Slice is a slice as the fake library keeps it.
type Slice struct {
	Card        int
	ID          int
	MiB         int
	Compute     int
	Minor       int
	UUID, Alias string
}

// Read reads a machine that [Machine.Write] wrote, and the slices that the fake
// library made since.
func Read(path string) (*Machine, []Slice, error) {
	text, err := os.ReadFile(path + machineSuffix)
	if err != nil {
		return nil, nil, err
	}
	m := &Machine{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path+machineSuffix, err)
	}
	list, err := m.readSlices(path + slicesSuffix)
	return m, list, err
}

func (m *Machine) readSlices(path string) ([]Slice, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []Slice
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "slice ")
		if !ok {
			continue
		}
		var s Slice
		var bdf, priority string
		if _, err := fmt.Sscan(rest, &bdf, &s.ID, &s.MiB, &s.Compute, &s.Minor, &priority, &s.UUID); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		if fields := strings.Fields(rest); len(fields) > 7 {
			s.Alias = fields[7]
		}
		s.Card = slices.IndexFunc(m.Cards, func(c Card) bool { return c.BDF == bdf })
		list = append(list, s)
	}
	return list, nil
}
