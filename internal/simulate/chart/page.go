package chart

import (
	"bytes"
	_ "embed" // for the style sheets and the page's frame
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
)

var (
	//go:embed style.css
	chartStyle string
	//go:embed page.css
	pageStyle string
	//go:embed page.html
	pageFrame string
)

// Page writes one HTML file with the figures, then the tables.
func Page(w io.Writer, title string, figures []Figure, tables []Table) error {
	if title == "" {
		return fmt.Errorf("%w: a page has no title", ErrData)
	}
	if len(figures) == 0 && len(tables) == 0 {
		return fmt.Errorf("%w: page %q has neither figures nor tables", ErrData, title)
	}
	// The style sheets are files of this package, so they need no escaping.
	p := page{Title: title, Style: template.CSS(chartStyle + pageStyle)}
	for i := range figures {
		if err := figures[i].check(); err != nil {
			return err
		}
		p.Figures = append(p.Figures, newPageFigure(&figures[i], "figure-"+strconv.Itoa(i+1)))
	}
	for i := range tables {
		if err := tables[i].check(); err != nil {
			return err
		}
		p.Tables = append(p.Tables, newPageTable(&tables[i]))
	}
	frame, err := template.New("page").Parse(pageFrame)
	if err != nil {
		return fmt.Errorf("chart: page's frame: %w", err)
	}
	var b bytes.Buffer
	if err := frame.Execute(&b, p); err != nil {
		return fmt.Errorf("chart: fill the page's frame: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// page is what the frame is filled with.
type page struct {
	Title   string
	Style   template.CSS
	Figures []pageFigure
	Tables  []pageTable
}

type pageFigure struct {
	Drawing template.HTML
	Notes   []string
}

func newPageFigure(f *Figure, id string) pageFigure {
	var b bytes.Buffer
	newDrawing(&b, f, id).draw()
	// The drawing has escaped all its text.
	return pageFigure{Drawing: template.HTML(b.String()), Notes: f.Notes}
}

type pageTable struct {
	Title   string
	Columns []cell
	Rows    [][]cell
}

type cell struct {
	Name   string
	Number bool
}

// newPageTable puts columns of numbers to the right.
func newPageTable(t *Table) pageTable {
	p := pageTable{Title: t.Title}
	for i, name := range t.Header {
		p.Columns = append(p.Columns, cell{Name: name, Number: t.numbers(i)})
	}
	for _, row := range t.Rows {
		cells := make([]cell, len(row))
		for i, text := range row {
			cells[i] = cell{Name: text, Number: p.Columns[i].Number}
		}
		p.Rows = append(p.Rows, cells)
	}
	return p
}

// numbers tells whether all cells of a column start with a number or are
// blank: "95.2", "95.2 ± 0.1", "-".
func (t *Table) numbers(column int) bool {
	found := false
	for _, row := range t.Rows {
		text := strings.TrimSpace(row[column])
		if text == "" || text == "-" || text == "–" {
			continue
		}
		first, _, _ := strings.Cut(text, " ")
		if _, err := strconv.ParseFloat(strings.TrimSuffix(first, "%"), 64); err != nil {
			return false
		}
		found = true
	}
	return found
}
