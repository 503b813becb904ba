package app

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newManCommand returns the command that writes man pages of its root.
func newManCommand() *cobra.Command {
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
			root := cmd.Root()
			root.DisableAutoGenTag = true // it has the day
			asMarkdown(root)
			return doc.GenManTree(root, &doc.GenManHeader{Source: root.Name() + " " + root.Version, Manual: "Daybreak"}, args[0])
		},
	}
}

// asMarkdown marks the texts of a command and its subcommands so that the generator,
// which reads Markdown, takes them as they are: paragraphs with aligned lines are
// blocks, and no character is markup.
func asMarkdown(cmd *cobra.Command) {
	paragraphs := strings.Split(strings.Trim(cmd.Long, "\n"), "\n\n")
	for i, text := range paragraphs {
		if strings.Contains("\n"+text, "\n ") || strings.HasPrefix(text, "\t") {
			paragraphs[i] = "```\n" + text + "\n```"
		} else {
			paragraphs[i] = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, "[", `\[`).Replace(text)
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	for _, sub := range cmd.Commands() {
		asMarkdown(sub)
	}
}
