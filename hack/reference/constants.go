package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// constant is a constant with what its comment says.
type constant struct {
	name string
	// value is that of a string.
	value string
	// text is the comment without the fields.
	text string
	// fields are the lines that begin with a word and a colon, by that word.
	fields map[string]string
}

// block is the constants that are declared together. Fields of its comment are those of
// all constants that do not have them.
type block struct {
	text      string
	constants []constant
}

// field is a line of a comment that fills a column of a table.
var field = regexp.MustCompile(`^(On|Written by|Read by|Format|Do): (.*)$`)

// readConstants returns the exported constants of a file, of those blocks in
// which some have fields.
func readConstants(path string) ([]block, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var blocks []block
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		text, common := readComment(decl.Doc)
		b := block{text: text}
		for _, spec := range decl.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			c, ok, err := readConstant(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if ok {
				for word, value := range common {
					c.fields[word] = cmp.Or(c.fields[word], value)
				}
				b.constants = append(b.constants, c)
			}
		}
		if slices.ContainsFunc(b.constants, func(c constant) bool { return len(c.fields) > 0 }) {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// readConstant reads one that is exported.
func readConstant(spec *ast.ValueSpec) (c constant, ok bool, err error) {
	c.name = spec.Names[0].Name
	if !spec.Names[0].IsExported() {
		return c, false, nil
	}
	c.text, c.fields = readComment(spec.Doc)
	c.text = meaning(c.name, c.text)
	if len(spec.Values) == 1 {
		if literal, isLiteral := spec.Values[0].(*ast.BasicLit); isLiteral && literal.Kind == token.STRING {
			if c.value, err = strconv.Unquote(literal.Value); err != nil {
				return c, false, err
			}
		}
	}
	return c, true, nil
}

// readComment returns a comment in one line, and its fields.
func readComment(doc *ast.CommentGroup) (text string, fields map[string]string) {
	fields = map[string]string{}
	var lines []string
	for line := range strings.Lines(doc.Text()) {
		line = strings.TrimSpace(line)
		if m := field.FindStringSubmatch(line); m != nil {
			fields[m[1]] = strings.TrimSuffix(m[2], ".")
		} else if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " "), fields
}

// links are references to other names of the code, which mean nothing here.
var links = regexp.MustCompile(`; see \[\w+\]|\[(\w+)\]`)

// meaning makes of a comment that begins with the name what follows it.
func meaning(name, text string) string {
	text = links.ReplaceAllString(text, "$1")
	for _, begin := range []string{name + ": ", name + " is ", name + " are ", name + " ", ""} {
		if rest, ok := strings.CutPrefix(text, begin); ok {
			return strings.TrimSuffix(rest, ".")
		}
	}
	return text
}

// need returns the fields of a constant in the order of the words, or what is
// missing.
func (c *constant) need(words ...string) ([]string, error) {
	values := make([]string, len(words))
	for i, w := range words {
		if values[i] = c.fields[w]; values[i] == "" {
			return nil, fmt.Errorf("the comment of %s has no line that begins with %q", c.name, w+":")
		}
	}
	return values, nil
}
