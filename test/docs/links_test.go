package docs

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var (
	codeSpan   = regexp.MustCompile("``.*?``|`[^`]*`")
	inline     = regexp.MustCompile(`\]\(\s*<?([^)>\s]*)>?(?:\s+"[^"]*")?\s*\)`)
	definition = regexp.MustCompile(`^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s+"[^"]*")?\s*$`)
	html       = regexp.MustCompile(`(?:src|srcset|href)="([^"]*)"`)
	bracketed  = regexp.MustCompile(`<(https?://[^>]*)>`)
	heading    = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	named      = regexp.MustCompile(`<a (?:name|id)="([^"]*)"`)
	markup     = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)|[*` + "`" + `]`)
	sourceLine = regexp.MustCompile(`^L(\d+)(?:-L(\d+))?$`)
)

// link is a link of a page.
type link struct {
	line   int
	target string
}

// links returns the links and pictures of a page, without those in code.
func (p *page) links() []link {
	var out []link
	for i, line := range p.lines {
		if p.fenced[i] {
			continue
		}
		line = codeSpan.ReplaceAllStringFunc(line, func(code string) string { return strings.Repeat("x", len(code)) })
		for _, pattern := range []*regexp.Regexp{inline, definition, html, bracketed} {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				out = append(out, link{i + 1, m[1]})
			}
		}
	}
	return out
}

// anchors returns the anchors of a page, as GitHub derives them from headings.
func (p *page) anchors() []string {
	var out []string
	seen := map[string]int{}
	for i, line := range p.lines {
		if p.fenced[i] {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			out = append(out, m[1])
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := slugOf(m[1])
		if n := seen[slug]; n > 0 {
			out = append(out, slug+"-"+strconv.Itoa(n))
		} else {
			out = append(out, slug)
		}
		seen[slug]++
	}
	return out
}

// slugOf returns the anchor of a heading.
func slugOf(text string) string {
	text = markup.ReplaceAllString(text, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// TestLinks: every link and picture within the repository resolves, and other links are
// valid addresses.
func TestLinks(t *testing.T) {
	pages := map[string]*page{}
	for _, p := range loadPages(t) {
		pages[p.path] = p
	}
	inside, outside := 0, 0
	for _, p := range pages {
		for _, l := range p.links() {
			var err error
			if strings.Contains(l.target, ":") {
				outside++
				err = checkAddress(l.target)
			} else {
				inside++
				err = checkPath(pages, p.path, l.target)
			}
			if err != nil {
				t.Errorf("%s:%d: %q: %v", p.path, l.line, l.target, err)
			}
		}
	}
	t.Logf("%d links within the repository, %d out of it", inside, outside)
}

// TestPictures: every file of docs/images is on a page.
func TestPictures(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range loadPages(t) {
		for _, l := range p.links() {
			shown[path.Join(path.Dir(p.path), l.target)] = true
		}
	}
	for _, file := range walk(t, "") {
		if path.Dir(file) == "docs/images" && !shown[file] {
			t.Errorf("%s is on no page", file)
		}
	}
}

// TestIndex: every page of docs is on the index of its language.
func TestIndex(t *testing.T) {
	pages := loadPages(t)
	listed := map[string]bool{}
	for _, p := range pages {
		if p.path == "docs/README.md" || p.path == "docs/zh/README.md" {
			for _, l := range p.links() {
				listed[path.Dir(p.path)+" "+path.Join(path.Dir(p.path), l.target)] = true
			}
		}
	}
	for _, p := range pages {
		index := "docs"
		if strings.HasPrefix(p.path, "docs/zh/") || strings.HasSuffix(p.path, "-zh.md") {
			index = "docs/zh"
		}
		if strings.HasPrefix(p.path, "docs/") && p.path != index+"/README.md" && !listed[index+" "+p.path] {
			t.Errorf("%s is not on %s/README.md", p.path, index)
		}
	}
}

// checkAddress validates the form of an address, without a request.
func checkAddress(target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	switch {
	case u.Scheme == "mailto" && strings.Contains(u.Opaque, "@"):
		return nil
	case u.Hostname() == "":
		return errors.New("no address")
	case u.Scheme == "http" && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1"):
		return nil
	case u.Scheme != "https":
		return errors.New("write https")
	}
	return nil
}

// checkPath validates a link from one file of the repository to another.
func checkPath(pages map[string]*page, from, target string) error {
	name, anchor, _ := strings.Cut(target, "#")
	name, err := url.PathUnescape(name)
	if err != nil {
		return err
	}
	if anchor, err = url.PathUnescape(anchor); err != nil {
		return err
	}
	to := from
	if name != "" {
		to = path.Join(path.Dir(from), name)
	}
	if name == "" && anchor == "" || strings.HasPrefix(to, "..") || path.IsAbs(name) {
		return errors.New("leads out of the repository, or nowhere")
	}
	if p := pages[to]; p != nil {
		if anchor != "" && !slices.Contains(p.anchors(), anchor) {
			return fmt.Errorf("%s has no heading #%s, but %q", to, anchor, p.anchors())
		}
		return nil
	}
	info, err := os.Stat(filepath.Join(root, to))
	if err != nil {
		return fmt.Errorf("there is no %s", to)
	}
	if anchor == "" {
		return nil
	}
	return checkLines(to, anchor, info)
}

// checkLines validates a link to lines of a source file.
func checkLines(to, anchor string, info os.FileInfo) error {
	m := sourceLine.FindStringSubmatch(anchor)
	if m == nil || info.IsDir() {
		return fmt.Errorf("%s has no #%s", to, anchor)
	}
	text, err := os.ReadFile(filepath.Join(root, to))
	if err != nil {
		return err
	}
	for _, number := range m[1:] {
		if number == "" {
			continue
		}
		if n, err := strconv.Atoi(number); err != nil || n < 1 || n > strings.Count(string(text), "\n") {
			return fmt.Errorf("%s has no line %s", to, number)
		}
	}
	return nil
}

// TestLinksOfAPage: links are found, and wrong ones are reported.
func TestLinksOfAPage(t *testing.T) {
	p, _ := parse("docs/x.md", "# A `title`, 标题 2!\n## Twice\n## Twice\n[a](b.md#c) ![d](e.png \"f\") `[no](no)`\n[g]: h.md\n<img src=\"i.svg\">\n```\n[no](no)\n```\n<https://j>\n")
	var got []string
	for _, l := range p.links() {
		got = append(got, l.target)
	}
	gputest.Equal(t, "links", []string{"b.md#c", "e.png", "h.md", "i.svg", "https://j"}, got)
	gputest.Equal(t, "anchors", []string{"a-title-标题-2", "twice", "twice-1"}, p.anchors())
	pages := map[string]*page{"docs/x.md": p}
	for target, ok := range map[string]bool{
		"#twice-1": true, "#twice-2": false, "../README.md": true, "../NOTHING.md": false, "../../x": false, "/docs/x.md": false, "#": false,
		"../go.mod#L1": true, "../go.mod#L99999": false, "../go.mod#x": false, "../docs": true, "../docs#x": false,
	} {
		if err := checkPath(pages, "docs/x.md", target); (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
	for target, ok := range map[string]bool{
		"https://example.com/a#b": true, "http://example.com": false, "http://127.0.0.1:8080": true, "https://": false, "ftp://example.com": false,
		"mailto:a@example.com": true, "javascript:x": false,
	} {
		if err := checkAddress(target); (err == nil) != ok {
			t.Errorf("%s: %v", target, err)
		}
	}
}
