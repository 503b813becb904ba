package simulate

import (
	_ "embed" // for the page
	"html/template"
	"io"
)

//go:embed page.html
var pageSource string

// writePage writes one HTML file that needs nothing else: the tables, and a
// script that draws the figures from their data.
func (r *report) writePage(w io.Writer) error {
	page, err := template.New("page").Parse(pageSource)
	if err != nil {
		return err
	}
	return page.Execute(w, r)
}
