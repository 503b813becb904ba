package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Code is what was counted.
type Code struct {
	Files     []Sized
	Functions []Function
	// Lines are neither blank nor comments; Comments are lines of comments alone.
	Lines, Comments int
	// Exported names, and those without a comment.
	Exported    int
	Unexplained []string
	// Globals are package-level variables.
	Globals int
	// Wrapped and Unwrapped are calls of fmt.Errorf with %w and without.
	Wrapped, Unwrapped int
}

// Sized is something with a length in lines.
type Sized struct {
	Name  string
	Lines int
}

// Function is a function with a body.
type Function struct {
	Sized
	// Complexity is 1 and 1 more for each branch: McCabe's number.
	Complexity int
}

// AddFolder adds the Go files of a folder and all below it.
func (c *Code) AddFolder(folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return c.AddFile(path, text)
	})
}

// AddFile adds a file, unless it is generated.
func (c *Code) AddFile(path string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	code, comments := countLines(text)
	c.Lines, c.Comments = c.Lines+code, c.Comments+comments
	c.Files = append(c.Files, Sized{path, bytes.Count(text, []byte("\n"))})
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			c.addFunction(set, path, d)
		case *ast.GenDecl:
			c.addDeclaration(set, d)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			c.addCall(call)
		}
		return true
	})
	return nil
}

// countLines counts the lines with code, and those with nothing but a comment.
func countLines(text []byte) (code, comments int) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	hasCode, hasComment := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue // the scanner's own
		}
		lines := hasCode
		if tok == token.COMMENT {
			lines = hasComment
		}
		first := file.Line(pos)
		for i := range strings.Count(literal, "\n") + 1 {
			lines[first+i] = true
		}
	}
	for line := range hasComment {
		if !hasCode[line] {
			comments++
		}
	}
	return len(hasCode), comments
}

func (c *Code) addFunction(set *token.FileSet, path string, d *ast.FuncDecl) {
	name := d.Name.Name
	if d.Recv != nil {
		name = receiver(d.Recv.List[0].Type) + "." + name
	}
	where := set.Position(d.Pos())
	if d.Body != nil {
		c.Functions = append(c.Functions, Function{
			Sized{fmt.Sprintf("%s:%d %s", path, where.Line, name), set.Position(d.End()).Line - where.Line + 1}, complexity(d.Body),
		})
	}
	if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
		c.explain(set, d.Name, d.Doc)
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// complexity counts the ways to branch in a body, those of its function literals
// among them.
func complexity(body ast.Node) int {
	n := 1
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// addDeclaration counts exported names and variables. A comment of a group of
// constants or variables explains all of it.
func (c *Code) addDeclaration(set *token.FileSet, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				c.explain(set, s.Name, s.Doc, d.Doc)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() {
					c.explain(set, name, s.Doc, s.Comment, d.Doc)
				}
				if d.Tok == token.VAR && name.Name != "_" {
					c.Globals++
				}
			}
		}
	}
}

// explain counts an exported name by whether one of the comments is there.
func (c *Code) explain(set *token.FileSet, name *ast.Ident, comments ...*ast.CommentGroup) {
	c.Exported++
	for _, comment := range comments {
		if comment != nil {
			return
		}
	}
	where := set.Position(name.Pos())
	c.Unexplained = append(c.Unexplained, fmt.Sprintf("%s:%d %s", where.Filename, where.Line, name.Name))
}

// addCall counts fmt.Errorf by whether it wraps.
func (c *Code) addCall(call *ast.CallExpr) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Errorf" || len(call.Args) == 0 {
		return
	}
	if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "fmt" {
		return
	}
	if strings.Contains(constant(call.Args[0]), "%w") {
		c.Wrapped++
	} else {
		c.Unwrapped++
	}
}

// constant returns what is written out in an expression of strings.
func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err != nil {
			return ""
		}
		return text
	case *ast.BinaryExpr:
		return constant(e.X) + constant(e.Y)
	}
	return ""
}
