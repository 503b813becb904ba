package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// NewManCommand returns the command that writes man pages of its root.
func NewManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the man pages to a folder",
		Long: `Man writes a man page for each command to a folder, which is created if it does not
exist. Archives of a release have the man pages in share/man/man1.`,
		Example: `  daybreak man ~/.local/share/man/man1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d arguments: write one folder, such as ~/.local/share/man/man1", len(args))
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(cmd.Root(), args[0])
		},
	}
}

// writeMan writes the pages of a command and its subcommands.
func writeMan(cmd *cobra.Command, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			if err := writeMan(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command in the language of man. Unlike the
// generator of cobra, which reads Markdown, it takes texts as they are and keeps
// the groups of flags.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := manName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s %s\" \"Daybreak\"\n", strings.ToUpper(roff(name)), roff(cmd.Root().Name()), roff(cmd.Root().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(cmd.CommandPath()+" [command]"))
	}
	b.WriteString(".SH DESCRIPTION\n")
	for i, paragraph := range strings.Split(strings.Trim(cmd.Long, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			paragraph = ".nf\n" + roff(paragraph) + "\n.fi"
		} else {
			paragraph = roff(paragraph)
		}
		b.WriteString(paragraph + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".SH COMMANDS\n.nf\n%s\n.fi\n", roff(subcommands(cmd)))
	}
	for _, g := range Groups(cmd) {
		title := "OPTIONS"
		if g.Title != "" {
			title = strings.ToUpper(g.Title) + " OPTIONS"
		}
		fmt.Fprintf(&b, ".SH %s\n", roff(title))
		g.Flags.VisitAll(func(f *pflag.Flag) { b.WriteString(manFlag(f)) })
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var related []string
	if cmd.HasParent() {
		related = append(related, manName(cmd.Parent())+"(1)")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			related = append(related, manName(sub)+"(1)")
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(related, ", ")))
	return b.String()
}

func manFlag(f *pflag.Flag) string {
	name, usage := pflag.UnquoteUsage(f)
	flag := "--" + f.Name
	if f.Shorthand != "" {
		flag = "-" + f.Shorthand + ", " + flag
	}
	switch f.DefValue {
	case "", "[]", "false", "0", "0s":
	default:
		usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
	}
	return fmt.Sprintf(".TP\n\\fB%s\\fR %s\n%s\n", roff(flag), roff(name), roff(usage))
}

// roff returns the text so that man prints it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
