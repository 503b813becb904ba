package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// TestScreenElsewhere: where there is no terminal, a text is printed when it
// differs from the one before.
func TestScreenElsewhere(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	for i, line := range []string{"one", "one", "two"} {
		if err := s.show(func(int, int) []string { return []string{line} }, noon().Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	s.close()
	if want := "one\n\n12:00:02\ntwo\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestPage: what is drawn over the text before has no more lines than the
// terminal, and whatever is left of that text is cleared.
func TestPage(t *testing.T) {
	got := page([]string{"first line", "\x1b[31mred\x1b[0m and more", "third", "fourth"}, 4)
	want := home + clearLine + "first line\r\n" + clearLine + "\x1b[31mred\x1b[0m and more\r\n" + clearLine + "...\r\n" + clearBelow
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if strings.Contains(page([]string{"short"}, 24), "...") {
		t.Error("a text that fits is cut")
	}
}

// TestPageOfAnySize: a terminal may have no lines or one.
func TestPageOfAnySize(t *testing.T) {
	text := []string{"first", "second", "third"}
	for height := range 6 {
		drawn := page(text, height)
		if lines := strings.Count(drawn, "\n"); lines > max(0, height-1) {
			t.Errorf("%d lines of a terminal that has %d: %q", lines, height, drawn)
		}
	}
	if want, got := home+clearLine+"..."+clearBelow, page(text, 1); got != want {
		t.Errorf("on one line %q, want %q", got, want)
	}
	if want, got := home+clearLine+"only"+clearBelow, page([]string{"only"}, 1); got != want {
		t.Errorf("on one line %q, want %q", got, want)
	}
}

func TestColor(t *testing.T) {
	cases := map[string]struct {
		flag    string
		want    bool
		wantErr string
	}{
		"auto, no terminal": {flag: "auto"},
		"always":            {flag: "always", want: true},
		"never":             {flag: "never"},
		"a mistake":         {flag: "yes", wantErr: `--color "yes": write "auto", "always" or "never"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := (&format{output: "table", color: tc.flag}).check(&bytes.Buffer{}, "table")
			if bool(got) != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
				t.Errorf("%v, %v; want %v, %q", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

// TestColorOnTerminal: colors are for terminals, unless NO_COLOR is set or the
// terminal has none.
func TestColorOnTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no pseudo-terminals:", err)
	}
	defer terminal.Close()
	for name, tc := range map[string]struct {
		env  map[string]string
		flag string
		want bool
	}{
		"auto":                    {flag: "auto", want: true},
		"NO_COLOR":                {flag: "auto", env: map[string]string{"NO_COLOR": "1"}},
		"NO_COLOR that is empty":  {flag: "auto", env: map[string]string{"NO_COLOR": ""}, want: true},
		"a terminal without any":  {flag: "auto", env: map[string]string{"TERM": "dumb"}},
		"the flag wins":           {flag: "always", env: map[string]string{"NO_COLOR": "1"}, want: true},
		"never":                   {flag: "never"},
		"a command without color": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "")
			t.Setenv("TERM", "xterm")
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			got, err := (&format{output: "table", color: tc.flag}).check(terminal, "table")
			if err != nil || bool(got) != tc.want {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// TestColorIsNotTheOnlySignal: without its colors a text is what it is in plain. The
// states of cards have different signs, see TestBar.
func TestColorIsNotTheOnlySignal(t *testing.T) {
	files := []string{"-f", exampleCluster, "-f", "../../examples/pending.yaml", "-f", "../../examples/budgets.yaml"}
	for name, tc := range map[string]struct {
		cmd  func() *cobra.Command
		args []string
	}{
		"status":     {NewStatusCommand, files},
		"wide":       {NewStatusCommand, append([]string{"-o", "wide"}, files...)},
		"namespaces": {NewStatusCommand, append([]string{"--namespaces"}, files...)},
		"violations": {NewAuditCommand, []string{"-f", "testdata/broken.yaml"}},
		"explain":    {NewExplainCommand, append([]string{"team-b/nearly"}, files...)},
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{}
			for _, when := range colorWords {
				cmd := tc.cmd()
				var out bytes.Buffer
				cmd.SetOut(&out)
				cmd.SetErr(io.Discard)
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				cmd.SetArgs(append([]string{"--color", when}, tc.args...))
				if err := cmd.Execute(); err != nil && !errors.Is(err, cli.ErrNo) {
					t.Fatal(err)
				}
				text[when] = out.String()
			}
			if text["always"] == text["never"] || text["auto"] != text["never"] {
				t.Error("colors do not follow --color")
			}
			if diff := cmp.Diff(text["never"], uncolored(text["always"])); diff != "" {
				t.Errorf("without colors (-plain +colored):\n%s", diff)
			}
		})
	}
}

// TestBar: a character for each card, zones apart, large nodes in numbers.
func TestBar(t *testing.T) {
	card := func(zone, computeFree, slotsFree int) view.CardStatus {
		return view.CardStatus{Healthy: true, Zone: &zone, Slots: 16, SlotsFree: slotsFree, MemoryMiB: 64, MemoryFreeMiB: 64, ComputeFreePercent: int32(computeFree)}
	}
	sick, whole := card(2, 100, 16), card(2, 0, 15)
	sick.Healthy, whole.Exclusive = false, true
	twice := card(1, 0, 12)
	twice.Violations = []audit.Rule{audit.ComputeOverbooked}
	many := make([]view.CardStatus, 64)
	for i := range many {
		many[i] = card(1, 100-i, 16-min(1, i))
	}
	many[3], many[4], many[5], many[6] = sick, whole, twice, card(1, 84, 0)
	cases := map[string]struct {
		cards []view.CardStatus
		want  string
	}{
		"states":                  {[]view.CardStatus{card(1, 100, 16), card(1, 99, 15), card(1, 45, 15), card(1, 1, 15), sick, whole}, ".169 !#"},
		"slots count too":         {[]view.CardStatus{card(1, 95, 1)}, "9"},
		"no slice left":           {[]view.CardStatus{card(1, 84, 0), card(1, 84, 1)}, "=9"},
		"booked twice":            {[]view.CardStatus{twice, card(1, 100, 16)}, "X."},
		"zones that interleave":   {[]view.CardStatus{card(1, 100, 16), card(2, 100, 16), card(1, 100, 16)}, "..."},
		"more cards than columns": {many, "1x# 59x1-9 1x= 1x. 1xX 1x!"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := view.NodeStatus{Cards: tc.cards}
			if got := bar(&n, false, map[string]bool{}); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
