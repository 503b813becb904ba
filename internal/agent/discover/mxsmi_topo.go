package discover

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

var (
	gpuColumn = regexp.MustCompile(`^GPU(\d{1,4})$`)
	nicColumn = regexp.MustCompile(`^NIC(\d{1,4})$`)
)

// linkTypes are the cells of the matrix, as its legend explains them.
var linkTypes = []string{"X", "SYS", "NODE", "PHB", "PXB", "PIX", "MX", "ETH", "NA"}

const (
	matrixTitle  = "Device link type matrix"
	linkMetaX    = "MX"
	linkSelf     = "X"
	legendPrefix = "Legend"
)

// topology reads mx-smi topo -m line by line. What it leads to is by the cards'
// numbers.
type topology struct {
	attached int
	// titled: the matrix begins; columns: its header was read; done: it ended.
	titled, done bool
	columns      []string
	// affinity: rows end with NUMA nodes and processors, which sysfs has too.
	affinity bool
	cells    [][]string

	// numbers are the cards, in the order of the matrix.
	numbers []int
	// links are pairs of numbers joined by MetaXLink, the lower one first.
	links [][2]int
}

// parseTopo reads mx-smi topo -m. The columns for affinity and for network
// cards are not there in every version.
func parseTopo(text []byte) (*topology, error) {
	t := &topology{attached: -1}
	if _, err := afterVersion(text, t.line); err != nil {
		return nil, err
	}
	err := t.finish()
	return t, err
}

func (t *topology) line(_ int, line string) (err error) {
	key, value, _ := keyValue(line)
	switch {
	case t.done:
	case key == attachedKey:
		t.attached, err = attachedCards(value)
	case strings.HasPrefix(line, matrixTitle):
		t.titled = true
	case !t.titled:
	case line == "":
		t.done = len(t.cells) > 0
	case strings.HasPrefix(line, legendPrefix) || strings.EqualFold(line, endOfLog):
		t.done = true
	case t.columns == nil:
		return t.header(strings.Fields(line))
	default:
		return t.row(strings.Fields(line))
	}
	return err
}

func (t *topology) header(fields []string) error {
	rest := fields
	for len(rest) > 0 && (gpuColumn.MatchString(rest[0]) || nicColumn.MatchString(rest[0])) {
		if slices.Contains(t.columns, rest[0]) {
			return fmt.Errorf("two columns %s", rest[0])
		}
		t.columns = append(t.columns, rest[0])
		rest = rest[1:]
	}
	if len(t.columns) == 0 {
		return errors.New("want the names of the columns, GPU0 and so on")
	}
	if len(t.columns) > 4*gpu.MaxCards {
		return fmt.Errorf("%d columns", len(t.columns))
	}
	switch strings.Join(rest, " ") {
	case "":
	case "Node Affinity CPU Affinity", "Node Affinity":
		t.affinity = true
	default:
		return fmt.Errorf("unknown column %q", strings.Join(rest, " "))
	}
	return nil
}

func (t *topology) row(fields []string) error {
	if nicColumn.MatchString(fields[0]) {
		return nil // a network card's links are its column
	}
	match := gpuColumn.FindStringSubmatch(fields[0])
	if match == nil {
		return fmt.Errorf("want a row of the matrix, GPU%d", len(t.cells))
	}
	if len(t.cells) >= len(t.columns) || t.columns[len(t.cells)] != fields[0] {
		return errors.New("the rows are not in the order of the columns")
	}
	cells := fields[1:]
	if len(cells) < len(t.columns) {
		return fmt.Errorf("%d cells for %d columns", len(cells), len(t.columns))
	}
	cells, rest := cells[:len(t.columns)], cells[len(t.columns):]
	for _, cell := range cells {
		if !slices.Contains(linkTypes, cell) {
			return fmt.Errorf("unknown kind of link %q", cell)
		}
	}
	if len(rest) > 0 && !t.affinity {
		return fmt.Errorf("%d cells for %d columns", len(cells)+len(rest), len(t.columns))
	}
	t.numbers = append(t.numbers, atoi(match[1]))
	t.cells = append(t.cells, cells)
	return nil
}

func (t *topology) finish() error {
	n := len(t.numbers)
	cards := slices.IndexFunc(t.columns, func(c string) bool { return !gpuColumn.MatchString(c) })
	if cards < 0 {
		cards = len(t.columns)
	}
	switch {
	case t.attached < 0:
		return fmt.Errorf("no line %q: the output is cut off", attachedKey)
	case n != t.attached || cards != t.attached:
		return fmt.Errorf("%s is %d, but the matrix has %d rows and %d columns: the output is cut off", attachedKey, t.attached, n, cards)
	}
	for i := range n {
		for j := range i + 1 {
			a, b := t.cells[i][j], t.cells[j][i]
			if (i == j) != (a == linkSelf) || (a == linkMetaX) != (b == linkMetaX) {
				return fmt.Errorf("GPU%d to GPU%d is %q, but the other way round it is %q", t.numbers[i], t.numbers[j], a, b)
			}
			if a == linkMetaX {
				x, y := t.numbers[i], t.numbers[j]
				t.links = append(t.links, [2]int{min(x, y), max(x, y)})
			}
		}
	}
	return nil
}
