// Command reference writes the reference of the documentation from the sources:
//
//	go run ./hack/reference docs/reference
//
// With a second argument it also writes the refusal codes for the dashboard to
// that file. It is run at the top of the repository. `make generate` runs it on
// the docs, `make verify` on a copy, to compare.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reference FOLDER [CODES]")
		os.Exit(2)
	}
	err := run(os.Args[1])
	if err == nil && len(os.Args) == 3 {
		err = writeCodes(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// pages are the files that are written, each with what writes it.
var pages = map[string]func(*page) error{
	"cli.md":         writeCLI,
	"values.md":      writeValues,
	"annotations.md": writeAnnotations,
	"metrics.md":     writeMetrics,
	"refusals.md":    writeRefusals,
	"refusals-zh.md": writeChinese,
}

func run(dir string) error {
	// The agent's default for --node-name; it is no business of the docs.
	if err := os.Unsetenv("NODE_NAME"); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, write := range pages {
		var p page
		if err := write(&p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), p.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page is a page in the making.
type page struct{ bytes.Buffer }

// begin writes the title and where the page comes from.
func (p *page) begin(title, from, text string) {
	fmt.Fprintf(&p.Buffer, "<!-- Written by hack/reference from %s. Change those, then run make generate. -->\n\n# %s\n\n%s\n", from, title, text)
}

func (p *page) section(title, text string) {
	fmt.Fprintf(&p.Buffer, "\n## %s\n", title)
	if text != "" {
		fmt.Fprintf(&p.Buffer, "\n%s\n", text)
	}
}

// table writes rows under a head.
func (p *page) table(head []string, rows [][]string) {
	fmt.Fprintf(&p.Buffer, "\n| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "|", `\|`), "\n", " ")
		}
		fmt.Fprintf(&p.Buffer, "| %s |\n", strings.Join(row, " | "))
	}
}

// code marks a word as such, and nothing as nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
