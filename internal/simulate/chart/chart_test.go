package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what is drawn as what is wanted")

// curves returns n lines of different heights, each with the given points.
func curves(n, points int) Figure {
	f := Figure{
		Title: "Cards allocated as pods arrive", XLabel: "arrived, % of all cards", YLabel: "allocated, % of all cards",
		Notes: []string{"Ten seeds, mean. " + strings.Repeat("A note can be longer than a line. ", 5), "第二条说明:中文也要能换行。"},
	}
	for i := range n {
		l := Line{Name: fmt.Sprintf("policy-%d", i)}
		for k := range points {
			x := 60 + 70*float64(k)/float64(max(1, points-1))
			l.X = append(l.X, x)
			l.Y = append(l.Y, math.Min(x, 96-1.3*float64(i))+0.01*float64(k))
		}
		f.Lines = append(f.Lines, l)
	}
	return f
}

// hostile is full of characters that mean something to a browser.
func hostile() Figure {
	const bad = `</text><script>alert("1")</script>&'<!--` + "\x00"
	return Figure{
		Title: bad, XLabel: bad, YLabel: bad, Notes: []string{bad},
		Lines: []Line{{Name: bad, X: []float64{1, 2}, Y: []float64{3, 4}}},
	}
}

func tables() []Table {
	return []Table{{
		Title:  "Refused pods <per class>",
		Header: []string{"policy", "mean", "8 cards"},
		Rows:   [][]string{{"daybreak & co", "95.83 ± 0.03", "2.0"}, {"fgd", "95.17 ± 0.14", "-"}},
	}}
}

func TestGolden(t *testing.T) {
	cases := map[string]func(io.Writer) error{
		"lines.svg":   func(w io.Writer) error { return SVG(w, curves(4, 6)) },
		"many.svg":    func(w io.Writer) error { return SVG(w, curves(13, 60)) },
		"point.svg":   func(w io.Writer) error { return SVG(w, curves(1, 1)) },
		"hostile.svg": func(w io.Writer) error { return SVG(w, hostile()) },
		"page.html": func(w io.Writer) error {
			return Page(w, "What <if>?", []Figure{curves(3, 5), hostile()}, tables())
		},
	}
	for name, draw := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := draw(&b); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("%s is not what it was; look at it, then run go test -update (-want +got):\n%s", file, diff)
			}
		})
	}
}

// TestSVGIsXML reads drawings back: they must be well formed, and text must
// come out as it went in.
func TestSVGIsXML(t *testing.T) {
	figures := map[string]Figure{"plain": curves(5, 10), "hostile": hostile(), "a point": curves(1, 1)}
	for name, f := range figures {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := SVG(&b, f); err != nil {
				t.Fatal(err)
			}
			title := ""
			for d := xml.NewDecoder(&b); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				start, ok := token.(xml.StartElement)
				if !ok {
					continue
				}
				if start.Name.Local == "script" {
					t.Error("a script made its way in")
				}
				if start.Name.Local == "title" && title == "" {
					if err := d.DecodeElement(&title, &start); err != nil {
						t.Fatal(err)
					}
				}
			}
			if want := strings.ReplaceAll(f.Title, "\x00", "�"); title != want {
				t.Errorf("title %q, want %q", title, want)
			}
		})
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	var b bytes.Buffer
	if err := Page(&b, "t", []Figure{curves(3, 5), hostile()}, tables()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "src=", "href=", "url(", "@import", "http://", "https://"} {
		got := strings.ReplaceAll(b.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
		if strings.Contains(got, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, id := range []string{`id="figure-1-title"`, `id="figure-2-title"`} {
		if strings.Count(b.String(), id) != 1 {
			t.Errorf("%s is there %d times, want once", id, strings.Count(b.String(), id))
		}
	}
}

func TestNumbersGoRight(t *testing.T) {
	table := Table{Header: []string{"a", "b", "c", "d"}, Rows: [][]string{{"x", "1", "-", "12%"}, {"2", "2.5 ± 0.1", "-", "-"}}}
	var got []bool
	for _, c := range newPageTable(&table).Columns {
		got = append(got, c.Number)
	}
	if diff := cmp.Diff([]bool{false, true, false, true}, got); diff != "" {
		t.Errorf("columns of numbers (-want +got):\n%s", diff)
	}
}

func TestBadData(t *testing.T) {
	line := func(change func(*Line)) Figure {
		f := curves(2, 3)
		change(&f.Lines[1])
		return f
	}
	cases := map[string]struct {
		figure Figure
		want   string
	}{
		"no title":    {Figure{Lines: curves(1, 2).Lines}, "a figure has no title"},
		"no lines":    {Figure{Title: "T"}, `figure "T" has no lines`},
		"no name":     {line(func(l *Line) { l.Name = "" }), "line 2 of figure"},
		"same name":   {line(func(l *Line) { l.Name = "policy-0" }), `are called "policy-0"`},
		"no points":   {line(func(l *Line) { l.X, l.Y = nil, nil }), `line "policy-1" of figure "Cards allocated as pods arrive" has no points`},
		"short":       {line(func(l *Line) { l.Y = l.Y[:2] }), "has 3 x values and 2 y values"},
		"not a y":     {line(func(l *Line) { l.Y[1] = math.NaN() }), "at point 2: (95, NaN)"},
		"not an x":    {line(func(l *Line) { l.X[0] = math.Inf(-1) }), "at point 1: (-Inf"},
		"beyond axes": {line(func(l *Line) { l.Y[2] = math.MaxFloat64 }), "at point 3"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			for what, err := range map[string]error{"SVG": SVG(&b, tc.figure), "Page": Page(&b, "p", []Figure{tc.figure}, nil)} {
				if !errors.Is(err, ErrData) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v, want ErrData with %q", what, err, tc.want)
				}
			}
			if b.Len() != 0 {
				t.Errorf("%d bytes written of what can't be drawn", b.Len())
			}
		})
	}
}

func TestBadPages(t *testing.T) {
	cases := map[string]struct {
		title  string
		tables []Table
		want   string
	}{
		"no title":        {"", tables(), "a page has no title"},
		"nothing on it":   {"t", nil, `page "t" has neither figures nor tables`},
		"no header":       {"t", []Table{{Title: "x"}}, `table "x" has no header`},
		"a row too short": {"t", []Table{{Title: "x", Header: []string{"a", "b"}, Rows: [][]string{{"1", "2"}, {"1"}}}}, `row 2 of table "x" has 1 cells under 2 headings`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Page(io.Discard, tc.title, nil, tc.tables)
			if !errors.Is(err, ErrData) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want ErrData with %q", err, tc.want)
			}
		})
	}
}

func TestWriteFails(t *testing.T) {
	broken := errors.New("disk full")
	if err := SVG(failing{broken}, curves(1, 2)); !errors.Is(err, broken) {
		t.Errorf("SVG: error %v, want %v", err, broken)
	}
	if err := Page(failing{broken}, "t", nil, tables()); !errors.Is(err, broken) {
		t.Errorf("Page: error %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
