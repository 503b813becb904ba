package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// root is the top of the repository.
const root = "../.."

// kind is what is done with a block.
type kind string

const (
	run      kind = "run"
	norun    kind = "norun"
	terminal kind = "terminal"
	console  kind = "console"
	hidden   kind = "hidden" // a comment that is run
)

// block is a block of commands on a page.
type block struct {
	line   int // of its fence, from 1
	kind   kind
	reason string // why it is not run
	status int    // exit status of its last command
	code   string
	// want is its output, if the page shows it; for a console block, the commands
	// with their output.
	want *string
}

// counts reports whether the block is one of those of which a tenth may be
// norun.
func (b *block) counts() bool { return b.kind == run || b.kind == norun || b.kind == terminal }

// page is a file of the documentation.
type page struct {
	path   string // from the top of the repository, with slashes
	lines  []string
	fenced []bool // lines of fences and of comments for this test, with what is in them
	fences []int  // first lines of fences, from 0
	blocks []*block
	wants  cluster
}

// cluster is what a page is tried on.
type cluster string

const (
	aPlayground cluster = ""     // one that looks as new
	bareCluster cluster = "bare" // one without Daybreak
	noCluster   cluster = "none" // the page starts its own, or needs none
)

// walk returns the files of the repository with this suffix, sorted, relative to its
// top and with slashes.
func walk(t *testing.T, suffix string) []string {
	t.Helper()
	var paths []string
	gputest.Must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules", "testdata"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		paths = append(paths, filepath.ToSlash(rel))
		return err
	}))
	slices.Sort(paths)
	return paths
}

// loadPages reads all pages, in the order of their names.
func loadPages(t *testing.T) []*page {
	t.Helper()
	var pages []*page
	for _, path := range walk(t, ".md") {
		text, err := os.ReadFile(filepath.Join(root, path))
		gputest.Must(t, err)
		p, problems := parse(path, string(text))
		for _, problem := range problems {
			t.Error(problem)
		}
		pages = append(pages, p)
	}
	return pages
}

var (
	fence   = regexp.MustCompile("^\\s*(```+)(.*)$")
	exits   = regexp.MustCompile(`^exits ([1-9]\d*)$`)
	comment = regexp.MustCompile(`^<!-- docs:(\w+)\s*(.*)$`)
)

// parse returns a page and the errors in its fences.
func parse(path, text string) (p *page, problems []string) {
	p = &page{path: path, lines: strings.Split(text, "\n")}
	p.fenced = make([]bool, len(p.lines))
	complain := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
	}
	for i := 0; i < len(p.lines); i++ {
		if m := comment.FindStringSubmatch(p.lines[i]); m != nil {
			end, err := p.directive(i, m[1], m[2])
			if err != nil {
				complain(i+1, "%v", err)
			}
			for ; i < end; i++ {
				p.fenced[i] = true
			}
			p.fenced[end] = true
			continue
		}
		m := fence.FindStringSubmatch(p.lines[i])
		if m == nil {
			continue
		}
		end := p.until(i+1, m[1])
		if end == len(p.lines) {
			complain(i+1, "the fence does not end")
			return p, problems
		}
		for j := i; j <= end; j++ {
			p.fenced[j] = true
		}
		p.fences = append(p.fences, i)
		if err := p.add(i+1, strings.TrimSpace(m[2]), strings.Join(p.lines[i+1:end], "\n")); err != nil {
			complain(i+1, "%v", err)
		}
		i = end
	}
	return p, problems
}

// until returns the next line that is the given one, or the number of lines.
func (p *page) until(from int, mark string) int {
	for i := from; i < len(p.lines); i++ {
		if strings.TrimSpace(p.lines[i]) == mark {
			return i
		}
	}
	return len(p.lines)
}

// directive adds a comment for this test and returns its last line.
func (p *page) directive(at int, name, rest string) (end int, err error) {
	switch {
	case name == "cluster" && (rest == "bare -->" || rest == "none -->"):
		p.wants = cluster(strings.Fields(rest)[0])
		return at, nil
	case name == "run" && rest == "":
		end := p.until(at+1, "-->")
		if end == len(p.lines) {
			return at, errors.New("the comment does not end with a line -->")
		}
		p.blocks = append(p.blocks, &block{line: at + 1, kind: hidden, code: strings.Join(p.lines[at+1:end], "\n")})
		return end, nil
	}
	return at, fmt.Errorf("docs:%s %s: write docs:run with commands below, docs:cluster bare or docs:cluster none", name, rest)
}

// add adds a fence.
func (p *page) add(line int, info, code string) error {
	language, rest, _ := strings.Cut(info, " ")
	rest = strings.TrimSpace(rest)
	switch language {
	case "sh":
		b, err := shell(rest)
		if err != nil {
			return err
		}
		b.line, b.code = line, code
		p.blocks = append(p.blocks, b)
	case "console":
		if rest != "" || !strings.HasPrefix(code, "$ ") {
			return errors.New("a console block begins with \"$ \" and a command, and its fence says nothing else")
		}
		p.blocks = append(p.blocks, &block{line: line, kind: console, want: &code})
	case "text":
		return p.output(rest, code)
	case "bash", "shell", "zsh", "shell-session":
		return fmt.Errorf("%s: write sh, or console for commands with what they print", language)
	}
	return nil
}

// shell parses the text after sh of a fence.
func shell(rest string) (*block, error) {
	if reason, ok := strings.CutPrefix(rest, "norun:"); ok {
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, errors.New("norun: say why")
		}
		return &block{kind: norun, reason: reason}, nil
	}
	if m := exits.FindStringSubmatch(rest); m != nil {
		status, err := strconv.Atoi(m[1])
		return &block{kind: run, status: status}, err
	}
	switch rest {
	case "":
		return &block{kind: run}, nil
	case "terminal":
		return &block{kind: terminal}, nil
	}
	return nil, fmt.Errorf("sh %s: write sh, sh exits N, sh terminal or sh norun: REASON", rest)
}

// output adds a text block: the output of the block before it, or text.
func (p *page) output(rest, text string) error {
	switch rest {
	case "":
		return nil
	case "output":
		if len(p.blocks) == 0 {
			return errors.New("text output: of which block?")
		}
		b := p.blocks[len(p.blocks)-1]
		if b.want != nil || b.kind == norun || b.kind == hidden {
			return fmt.Errorf("text output: the block of line %d is not run, or has its output already", b.line)
		}
		b.want = &text
		return nil
	}
	return fmt.Errorf("text %s: write text or text output", rest)
}

// command is one command of a console block, and what it prints.
type command struct{ code, want string }

// commands splits a console block.
func commands(text string) []command {
	var out []command
	for line := range strings.SplitSeq(text, "\n") {
		if code, ok := strings.CutPrefix(line, "$ "); ok {
			out = append(out, command{code: code})
			continue
		}
		last := &out[len(out)-1]
		last.want += line + "\n"
	}
	return out
}

// matches reports whether output is as the page shows it.
func matches(want, got string, whole bool) bool {
	var pattern strings.Builder
	pattern.WriteString("^")
	lines := strings.Split(tidy(want), "\n")
	for i, line := range lines {
		switch {
		case strings.TrimSpace(line) == "…":
			pattern.WriteString(`(?:[^\n]*\n)*?`)
		default:
			pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", `[^\n]*`))
			pattern.WriteString(`\n`)
		}
		if i == len(lines)-1 && whole {
			pattern.WriteString("$")
		}
	}
	return regexp.MustCompile(pattern.String()).MatchString(tidy(got) + "\n")
}

// tidy removes blanks at the ends of lines and empty lines at the end.
func tidy(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\r")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
