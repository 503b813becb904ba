// Command build runs go build and reports its progress on standard error:
//
//	go run ./hack/build -o bin/ ./cmd/daybreak ./cmd/playground
//
// On a terminal one line is rewritten, elsewhere a line is printed from time to
// time. If everything is in the build cache, it prints nothing. It imports the
// standard library only: the first build of a clone starts with it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// terminalInterval and logInterval are the times between two reports.
	terminalInterval = time.Second
	logInterval      = 15 * time.Second
	// killDelay is how long go build may take to end after a signal.
	killDelay = 10 * time.Second
)

func main() {
	var b builder
	flag.StringVar(&b.out, "o", "bin/", "folder or file to write")
	flag.StringVar(&b.ldflags, "ldflags", "", "flags of the linker")
	flag.Parse()
	b.packages, b.goTool, b.w = flag.Args(), "go", os.Stderr
	if name := os.Getenv("GO"); name != "" {
		b.goTool = name
	}
	info, err := os.Stderr.Stat()
	b.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	b.interval = logInterval
	if b.terminal {
		b.interval = terminalInterval
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = b.run(ctx)
	stop()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode())) // go build has printed why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make build:", err)
		os.Exit(1)
	}
}

// builder runs one build.
type builder struct {
	goTool, out, ldflags string
	packages             []string

	w        io.Writer
	terminal bool
	interval time.Duration
}

// run returns when go build has ended.
func (b *builder) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, b.goTool, append([]string{"build", "-v", "-ldflags", b.ldflags, "-o", b.out}, b.packages...)...)
	cmd.Stdout = os.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = killDelay
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for text := bufio.NewReader(pipe); ; {
			line, err := text.ReadString('\n')
			if line != "" {
				lines <- strings.TrimRight(line, "\n")
			}
			if err != nil {
				return
			}
		}
	}()
	p := b.report(ctx, lines)
	err = cmd.Wait()
	b.end(p, err)
	return err
}

// report prints the progress until go build has closed its output, and returns it.
func (b *builder) report(ctx context.Context, lines <-chan string) *progress {
	p := &progress{start: time.Now(), parallel: runtime.GOMAXPROCS(0), targets: b.packages, begun: map[string]bool{}}
	var sizes chan map[string]int64
	tick := time.NewTicker(b.interval)
	defer tick.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				return p
			}
			if !p.read(line) {
				b.show(line + "\n")
			}
			if len(p.order) > 0 && sizes == nil {
				sizes = make(chan map[string]int64, 1)
				go func() { sizes <- b.stale(ctx) }()
			}
		case p.sizes = <-sizes:
		case <-tick.C:
			if text := p.text(time.Now()); text != "" && b.terminal {
				b.show(cut(text, columns()))
			} else if text != "" {
				b.show(text + "\n")
			}
		}
	}
}

// end replaces the last report by a summary of a build that succeeded.
func (b *builder) end(p *progress, err error) {
	text := ""
	if len(p.order) > 0 && err == nil {
		text = fmt.Sprintf("make build: %s in %s\n", count(len(p.order)), time.Since(p.start).Round(time.Second))
	}
	if text != "" || b.terminal && len(p.order)+p.modules > 0 {
		b.show(text)
	}
}

func count(packages int) string {
	if packages == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", packages)
}

// show prints a text; on a terminal, in place of the last report.
func (b *builder) show(text string) {
	if b.terminal {
		text = "\r\x1b[K" + text
	}
	_, _ = io.WriteString(b.w, text) // nothing else is reported if standard error is closed
}

// stale returns the packages that have to be compiled, with the sizes of their
// sources. It returns nothing if go list fails: go build reports why.
func (b *builder) stale(ctx context.Context) map[string]int64 {
	const format = `{{if and .Stale (ne .StaleReason "not installed but available in build cache")}}{{.ImportPath}}{{range .GoFiles}}{{"\t"}}{{$.Dir}}/{{.}}{{end}}{{end}}`
	out, err := exec.CommandContext(ctx, b.goTool, append([]string{"list", "-deps", "-ldflags", b.ldflags, "-f", format}, b.packages...)...).Output()
	if err != nil {
		return nil
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		name, files, _ := strings.Cut(strings.TrimSpace(line), "\t")
		for file := range strings.SplitSeq(files, "\t") {
			if info, err := os.Stat(file); err == nil {
				sizes[name] += info.Size()
			}
		}
	}
	return sizes
}

// progress is what go build has done so far.
type progress struct {
	start    time.Time
	parallel int // how many packages are compiled at a time
	targets  []string
	modules  int // modules downloaded
	module   string
	order    []string // packages in the order in which their compilation began
	begun    map[string]bool
	sizes    map[string]int64 // of the packages to compile; nil if not known yet
}

// packageLine matches what go build -v prints of a package. Its other messages
// have blanks or colons.
var packageLine = regexp.MustCompile(`^[\w./~+-]+$`)

// read reads a line of go build, and reports whether it is about progress.
func (p *progress) read(line string) bool {
	if module, ok := strings.CutPrefix(line, "go: downloading "); ok {
		p.modules++
		p.module = module
		return true
	}
	if !packageLine.MatchString(line) {
		return false
	}
	if len(p.order) == 0 {
		p.start = time.Now() // what is downloaded says nothing about the speed of the compiler
	}
	p.order, p.begun[line] = append(p.order, line), true
	return true
}

// text returns the progress as one line, or nothing if there is none yet.
func (p *progress) text(now time.Time) string {
	switch {
	case len(p.order) == 0 && p.modules == 0:
		return ""
	case len(p.order) == 0:
		return fmt.Sprintf("make build: downloading module %d: %s", p.modules, p.module)
	case p.sizes == nil:
		return fmt.Sprintf("make build: compiling package %d: %s", len(p.order), p.order[len(p.order)-1])
	}
	done, total, packages := p.amounts()
	if last := p.order[len(p.order)-1]; len(p.order) >= packages || p.isTarget(last) {
		return fmt.Sprintf("make build: %d of %d packages, linking %s", len(p.order), packages, last)
	}
	text := fmt.Sprintf("make build: %d of %d packages, %d%%", len(p.order), packages, 100*done/max(1, total))
	if elapsed := now.Sub(p.start); elapsed > 5*time.Second && done > total/50 {
		text += ", about " + rounded(time.Duration(float64(elapsed)*float64(total-done)/float64(done))) + " left"
	}
	return text + ": " + p.order[len(p.order)-1]
}

// isTarget reports whether the package is one to link. Packages that it depends on
// are compiled then; some may have been in the cache after all.
func (p *progress) isTarget(name string) bool {
	return slices.ContainsFunc(p.targets, func(target string) bool { return strings.HasSuffix(name, strings.TrimPrefix(target, "./")) })
}

// amounts returns how much source code was compiled, how much there is, and the
// number of its packages. The time that a package takes is roughly in proportion
// to its size.
func (p *progress) amounts() (done, total int64, packages int) {
	packages = len(p.begun)
	for name, size := range p.sizes {
		total += size
		if !p.begun[name] {
			packages++
		}
	}
	for _, name := range p.order[:max(0, len(p.order)-p.parallel)] { // the last ones are being compiled
		done += p.sizes[name]
	}
	return done, total, packages
}

func rounded(left time.Duration) string {
	if left < time.Minute {
		return fmt.Sprintf("%d s", 10*max(1, int(left.Round(10*time.Second)/(10*time.Second))))
	}
	return fmt.Sprintf("%d min", int(left.Round(time.Minute)/time.Minute))
}

// columns returns how wide the terminal is, as far as the environment shows it.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 20 {
		return n
	}
	return 80
}

// cut cuts a line so that the terminal does not wrap it.
func cut(text string, columns int) string {
	return text[:min(len(text), columns-1)]
}
