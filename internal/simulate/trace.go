package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Node is a server of the trace.
type Node struct {
	Name string
	// CPU is in thousandths of a core, Memory the host's.
	CPU    int64
	Memory gpu.MiB
	Cards  int
	Model  string
	// Zones has the sizes of the groups of linked cards, in the order of the
	// cards; cards beyond them have no links.
	Zones []int
}

// Pod is an arrival of the trace.
type Pod struct {
	Name string
	// CPU is in thousandths of a core, Memory the host's.
	CPU    int64
	Memory gpu.MiB
	// Cards is how many cards the pod asks for, and Milli how many thousandths
	// of each: below 1000 is a share of one card, in whole percent.
	Cards, Milli int
	// Models are the only card models that will do; none means any.
	Models []string
	// QoS is the class of a share. It counts only when a run says so.
	QoS gpu.QoS
}

// Demand returns how much the pod asks for, in thousandths of a card.
func (p *Pod) Demand() int64 { return int64(p.Cards) * int64(p.Milli) }

// Bounds on what a trace may say: generous, so that nothing overflows.
const (
	maxRows   = 1_000_000
	maxNodes  = 100_000
	maxAmount = 1 << 40
)

// readFile reads a file of the trace with one of the parsers below.
func readFile[T any](file string, parse func(name string, r io.Reader) ([]T, error)) ([]T, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer f.Close()
	return parse(file, f)
}

// parseNodes reads a list of servers: sn, cpu_milli, memory_mib, gpu, model, and
// optionally zones, the sizes of the groups of linked cards ("4|4").
func parseNodes(name string, r io.Reader) ([]Node, error) {
	seen := map[string]int{}
	return parse(name, r, "server", maxNodes, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(t *csvTable) Node {
		n := Node{
			Name: t.name("sn"), CPU: t.number("cpu_milli", maxAmount), Memory: gpu.MiB(t.number("memory_mib", maxAmount)),
			Cards: int(t.number("gpu", gpu.MaxCards)), Model: t.text("model"),
		}
		n.Zones = t.zones(n.Cards)
		if line, ok := seen[n.Name]; ok {
			t.fail("sn", fmt.Sprintf("is also on line %d: give every server a name of its own", line))
		}
		seen[n.Name] = t.line
		return n
	})
}

// parsePods reads a list of pods: name, cpu_milli, memory_mib, num_gpu,
// gpu_milli, and optionally gpu_spec and qos. Other columns are not read.
func parsePods(name string, r io.Reader) ([]Pod, error) {
	return parse(name, r, "pod", maxRows, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(t *csvTable) Pod {
		p := Pod{
			Name: t.name("name"), CPU: t.number("cpu_milli", maxAmount), Memory: gpu.MiB(t.number("memory_mib", maxAmount)),
			Cards: int(t.number("num_gpu", gpu.MaxCards)), Milli: int(t.number("gpu_milli", wholeCard)),
		}
		t.demand(&p)
		p.Models, p.QoS = t.models(), t.qos()
		p.Milli = (p.Milli + milliPercent - 1) / milliPercent * milliPercent
		return p
	})
}

// parse reads the rows of a file, of which there must be one at least. The first
// thing that is wrong ends it.
func parse[T any](file string, r io.Reader, what string, most int, columns []string, read func(*csvTable) T) ([]T, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	t := &csvTable{file: file, column: map[string]int{}}
	header, err := rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty: its first line names the columns: %s", file, strings.Join(columns, ","))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := t.header(header, columns); err != nil {
		return nil, err
	}
	var list []T
	for t.err == nil {
		t.row, err = rows.Read()
		switch {
		case errors.Is(err, io.EOF) && len(list) == 0:
			return nil, fmt.Errorf("%s: no %s in it: below the header, write one line for each", file, what)
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case len(list) == most:
			return nil, fmt.Errorf("%s: more than %d rows: split the file, or take a sample of it", file, most)
		}
		t.line, _ = rows.FieldPos(0)
		list = append(list, read(t))
	}
	return nil, t.err
}

// csvTable is a row of a CSV file by the names of its columns. The first thing
// that is wrong stays in err.
type csvTable struct {
	file   string
	column map[string]int
	row    []string
	line   int
	err    error
}

func (t *csvTable) header(names, required []string) error {
	for i, name := range names {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, ok := t.column[name]; ok && name != "" {
			return fmt.Errorf("%s:1: column %q appears twice: remove one", t.file, name)
		}
		t.column[name] = i
	}
	for _, name := range required {
		if _, ok := t.column[name]; !ok {
			return fmt.Errorf("%s:1: no column %q: the first line names the columns: %s", t.file, name, strings.Join(required, ","))
		}
	}
	return nil
}

func (t *csvTable) fail(column, what string) {
	if t.err == nil {
		t.err = fmt.Errorf("%s:%d: column %s: %q %s", t.file, t.line, column, t.text(column), what)
	}
}

// text returns what stands in a column, or nothing where there is none.
func (t *csvTable) text(column string) string {
	i, ok := t.column[column]
	if !ok {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.row[i]))
}

func (t *csvTable) name(column string) string {
	s := t.text(column)
	if s == "" {
		t.fail(column, "is empty: write a name")
	}
	return s
}

func (t *csvTable) number(column string, most int64) int64 {
	v, err := strconv.ParseInt(t.text(column), 10, 64)
	if err != nil || v < 0 || v > most {
		t.fail(column, fmt.Sprintf("is not in range: write a whole number from 0 to %d", most))
		return 0
	}
	return v
}

// demand checks that the number of cards and the part of each make sense
// together.
func (t *csvTable) demand(p *Pod) {
	switch {
	case p.Cards == 0 && p.Milli != 0:
		t.fail("gpu_milli", "is a part of each card, but num_gpu is 0: write 0, or num_gpu 1")
	case p.Cards > 0 && p.Milli == 0:
		t.fail("gpu_milli", "is no part of a card: write 1 to 1000, or num_gpu 0")
	case p.Cards > 1 && p.Milli != wholeCard:
		t.fail("gpu_milli", fmt.Sprintf("of each of %d cards is not supported: write 1000, or num_gpu 1", p.Cards))
	}
}

// models reads a list of models such as "T4|P100", in order and without
// repeats, so that equal lists are equal texts.
func (t *csvTable) models() []string {
	text := t.text("gpu_spec")
	if text == "" {
		return nil
	}
	var models []string
	for m := range strings.SplitSeq(text, "|") {
		if m = strings.TrimSpace(m); m == "" {
			t.fail("gpu_spec", `has an empty name in it: write models with "|" in between, or nothing for any`)
			return nil
		}
		models = append(models, m)
	}
	slices.Sort(models)
	return slices.Compact(models)
}

// qos reads the trace's classes, or ours.
func (t *csvTable) qos() gpu.QoS {
	switch text := t.text("qos"); text {
	case "", "BE", string(gpu.BestEffort):
		return gpu.BestEffort
	case "LS", "Guaranteed", string(gpu.FixedShare):
		return gpu.FixedShare
	case "Burstable", string(gpu.BurstShare):
		return gpu.BurstShare
	}
	t.fail("qos", "is unknown: write BE, LS, Guaranteed or Burstable, or best-effort, fixed-share or burst-share")
	return gpu.BestEffort
}

// zones reads sizes such as "4|4".
func (t *csvTable) zones(cards int) []int {
	text := t.text("zones")
	if text == "" {
		return nil
	}
	var zones []int
	sum := 0
	for part := range strings.SplitSeq(text, "|") {
		size, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || size < 1 || size > cards {
			t.fail("zones", fmt.Sprintf(`is not a list of sizes: write how many cards each group has, with "|" in between, up to %d in all`, cards))
			return nil
		}
		zones = append(zones, size)
		sum += size
	}
	if sum > cards {
		t.fail("zones", fmt.Sprintf("adds up to %d cards, but the server has %d", sum, cards))
	}
	return zones
}
