package command

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/daybreak-gpu/daybreak/internal/cli"
)

// format is how a command answers: the flags -o and --color.
type format struct {
	output string
	// color is empty for a command without colors.
	color string
}

// colorWords are the values of --color.
var colorWords = []string{"auto", "always", "never"}

// registerOutput adds -o with the formats that the command has.
func (f *format) registerOutput(cmd *cobra.Command, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "output `FORMAT`: "+strings.Join(formats[:last], ", ")+" or "+formats[last])
	cli.Words(cmd, "output", formats...)
}

// registerColor adds --color.
func (f *format) registerColor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.color, "color", "auto", "`WHEN` to use colors: auto (on a terminal, unless NO_COLOR is set), always or never")
	cli.Words(cmd, "color", colorWords...)
}

// check validates both flags, and returns whether to paint what goes to the
// writer. Auto means on a terminal that can, unless NO_COLOR is set.
func (f *format) check(out io.Writer, formats ...string) (palette, error) {
	if err := cli.OneOf("output", f.output, formats...); err != nil || f.color == "" {
		return false, err
	}
	if err := cli.OneOf("color", f.color, colorWords...); err != nil {
		return false, err
	}
	if f.color != "auto" {
		return f.color == "always", nil
	}
	_, terminal := terminalOf(out)
	return palette(terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"), nil
}

// terminalOf returns the terminal behind a writer, if there is one.
func terminalOf(out io.Writer) (*os.File, bool) {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, false
	}
	return f, true
}

// answer prints the document of that kind as JSON, or the table, and returns
// [cli.ErrNo] where the answer is no.
func (f *format) answer(out io.Writer, yes bool, kind string, document any, table func() string) error {
	var err error
	if f.output == "json" {
		err = writeDocument(out, kind, document)
	} else {
		_, err = io.WriteString(out, table())
	}
	if err == nil && !yes {
		err = cli.ErrNo
	}
	return err
}
