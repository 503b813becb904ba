package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestScreenElsewhere: where there is no terminal, a text is printed when it
// differs from the one before.
func TestScreenElsewhere(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	for i, line := range []string{"one", "one", "two"} {
		gputest.Must(t, s.show(func(int, int) []string { return []string{line} }, noon().Add(time.Duration(i)*time.Second)))
	}
	s.close()
	gputest.Equal(t, "printed", "one\n\n12:00:02\ntwo\n", out.String())
}

// TestPage: what is drawn over the text before has no more lines than the
// terminal, which may have none or one, and whatever is left of that text is cleared.
func TestPage(t *testing.T) {
	const red = "\x1b[31mred\x1b[0m and more"
	for _, tc := range []struct {
		lines  []string
		height int
		want   string
	}{
		{[]string{"first", red, "third", "fourth"}, 4, home + clearLine + "first\r\n" + clearLine + red + "\r\n" + clearLine + "...\r\n" + clearBelow},
		{[]string{"short"}, 24, home + clearLine + "short\r\n" + clearBelow},
		{[]string{"first", "second"}, 2, home + clearLine + "...\r\n" + clearBelow},
		{[]string{"first", "second"}, 1, home + clearLine + "..." + clearBelow},
		{[]string{"first", "second"}, 0, home + clearLine + "..." + clearBelow},
		{[]string{"only"}, 1, home + clearLine + "only" + clearBelow},
	} {
		gputest.Equal(t, fmt.Sprintf("%q on %d lines", tc.lines, tc.height), tc.want, page(tc.lines, tc.height))
	}
}

// TestColor: colors are for terminals, unless NO_COLOR is set or the terminal has
// none.
func TestColor(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no pseudo-terminals:", err)
	}
	defer terminal.Close()
	for name, tc := range map[string]struct {
		out     io.Writer
		env     map[string]string
		flag    string
		want    bool
		wantErr string
	}{
		"auto, no terminal":       {out: io.Discard, flag: "auto"},
		"always, no terminal":     {out: io.Discard, flag: "always", want: true},
		"a mistake":               {out: terminal, flag: "yes", wantErr: `--color "yes": write "auto", "always" or "never"`},
		"auto":                    {out: terminal, flag: "auto", want: true},
		"NO_COLOR":                {out: terminal, flag: "auto", env: map[string]string{"NO_COLOR": "1"}},
		"NO_COLOR that is empty":  {out: terminal, flag: "auto", env: map[string]string{"NO_COLOR": ""}, want: true},
		"a terminal without any":  {out: terminal, flag: "auto", env: map[string]string{"TERM": "dumb"}},
		"the flag wins":           {out: terminal, flag: "always", env: map[string]string{"NO_COLOR": "1"}, want: true},
		"never":                   {out: terminal, flag: "never"},
		"a command without color": {out: terminal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "")
			t.Setenv("TERM", "xterm")
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			got, err := (&format{output: "table", color: tc.flag}).check(tc.out, "table")
			if bool(got) != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && err.Error() != tc.wantErr {
				t.Errorf("%v, %v; want %v, %q", got, err, tc.want, tc.wantErr)
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
			gputest.Equal(t, "text without and with colors", text["never"], uncolored(text["always"]))
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
			gputest.Equal(t, "bar", tc.want, bar(&n, false, map[string]bool{}))
		})
	}
}
