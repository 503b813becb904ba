package discover

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

// topology is the matrix of mx-smi topo -m, by the cards' numbers.
type topology struct {
	// numbers are the cards, in the order of the matrix.
	numbers []int
	// links are pairs of numbers joined by MetaXLink, the lower one first.
	links [][2]int
	// numa is the NUMA node of a card, where the matrix has that column and it
	// names one.
	numa map[int]int
}

// parseTopo reads mx-smi topo -m. The columns for affinity and for network
// cards are not there in every version.
func parseTopo(text []byte) (*topology, error) {
	p := topoParser{attached: -1, out: topology{numa: map[int]int{}}}
	if _, err := eachLine(text, p.line); err != nil {
		return nil, err
	}
	return p.finish()
}

type topoParser struct {
	attached int
	// titled: the matrix begins; columns: its header was read; done: it ended.
	titled, done bool
	columns      []string
	affinity     bool
	cells        [][]string
	out          topology
}

func (p *topoParser) line(_ int, line string) (err error) {
	key, value, _ := keyValue(line)
	switch {
	case p.done:
	case key == attachedKey:
		p.attached, err = attachedCards(value)
	case strings.HasPrefix(line, matrixTitle):
		p.titled = true
	case !p.titled:
	case line == "":
		p.done = len(p.cells) > 0
	case strings.HasPrefix(line, legendPrefix) || strings.EqualFold(line, endOfLog):
		p.done = true
	case p.columns == nil:
		return p.header(strings.Fields(line))
	default:
		return p.row(strings.Fields(line))
	}
	return err
}

func (p *topoParser) header(fields []string) error {
	rest := fields
	for len(rest) > 0 && (gpuColumn.MatchString(rest[0]) || nicColumn.MatchString(rest[0])) {
		if slices.Contains(p.columns, rest[0]) {
			return fmt.Errorf("two columns %s", rest[0])
		}
		p.columns = append(p.columns, rest[0])
		rest = rest[1:]
	}
	if len(p.columns) == 0 {
		return errors.New("want the names of the columns, GPU0 and so on")
	}
	if len(p.columns) > 4*gpu.MaxCards {
		return fmt.Errorf("%d columns", len(p.columns))
	}
	switch strings.Join(rest, " ") {
	case "":
	case "Node Affinity CPU Affinity", "Node Affinity":
		p.affinity = true
	default:
		return fmt.Errorf("unknown column %q", strings.Join(rest, " "))
	}
	return nil
}

func (p *topoParser) row(fields []string) error {
	if nicColumn.MatchString(fields[0]) {
		return nil // a network card's links are its column
	}
	match := gpuColumn.FindStringSubmatch(fields[0])
	if match == nil {
		return fmt.Errorf("want a row of the matrix, GPU%d", len(p.cells))
	}
	if len(p.cells) >= len(p.columns) || p.columns[len(p.cells)] != fields[0] {
		return errors.New("the rows are not in the order of the columns")
	}
	cells := fields[1:]
	if len(cells) < len(p.columns) {
		return fmt.Errorf("%d cells for %d columns", len(cells), len(p.columns))
	}
	cells, rest := cells[:len(p.columns)], cells[len(p.columns):]
	for _, cell := range cells {
		if !slices.Contains(linkTypes, cell) {
			return fmt.Errorf("unknown kind of link %q", cell)
		}
	}
	number := atoi(match[1])
	if p.affinity && len(rest) > 0 {
		if node, err := strconv.Atoi(rest[0]); err == nil && node >= 0 {
			p.out.numa[number] = node
		}
	} else if len(rest) > 0 {
		return fmt.Errorf("%d cells for %d columns", len(cells)+len(rest), len(p.columns))
	}
	p.out.numbers = append(p.out.numbers, number)
	p.cells = append(p.cells, cells)
	return nil
}

func (p *topoParser) finish() (*topology, error) {
	n := len(p.out.numbers)
	cards := slices.IndexFunc(p.columns, func(c string) bool { return !gpuColumn.MatchString(c) })
	if cards < 0 {
		cards = len(p.columns)
	}
	switch {
	case p.attached < 0:
		return nil, fmt.Errorf("no line %q: the output is cut off", attachedKey)
	case n != p.attached || cards != p.attached:
		return nil, fmt.Errorf("%s is %d, but the matrix has %d rows and %d columns: the output is cut off", attachedKey, p.attached, n, cards)
	}
	for i := range n {
		for j := range i + 1 {
			a, b := p.cells[i][j], p.cells[j][i]
			if (i == j) != (a == linkSelf) || (a == linkMetaX) != (b == linkMetaX) {
				return nil, fmt.Errorf("GPU%d to GPU%d is %q, but the other way round it is %q", p.out.numbers[i], p.out.numbers[j], a, b)
			}
			if a == linkMetaX {
				x, y := p.out.numbers[i], p.out.numbers[j]
				p.out.links = append(p.out.links, [2]int{min(x, y), max(x, y)})
			}
		}
	}
	return &p.out, nil
}
