package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

{{subcommands .}}{{end}}{{if .HasAvailableLocalFlags}}

{{flagsByGroup .}}{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
`

// Setup makes a root command and its subcommands show flags and commands by
// group, and suggest a flag for a mistyped one.
func Setup(root *cobra.Command) {
	cobra.EnableCommandSorting = false // the order is that of the help
	cobra.AddTemplateFunc("flagsByGroup", usage)
	cobra.AddTemplateFunc("subcommands", subcommands)
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.DisableSuggestions = true // Advise has them
	// Cobra shows the process's own flags with every command. Libraries put
	// theirs there, such as a --version that is Kubernetes'.
	pflag.CommandLine.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
}

// subcommands lists the subcommands by group, each with its first example where
// there are groups.
func subcommands(cmd *cobra.Command) string {
	if len(cmd.Groups()) == 0 {
		return list("Available Commands:", cmd, "", false)
	}
	var parts []string
	for _, group := range cmd.Groups() {
		parts = append(parts, list(group.Title, cmd, group.ID, true))
	}
	return strings.Join(parts, "\n\n")
}

func list(title string, parent *cobra.Command, group string, examples bool) string {
	var b strings.Builder
	b.WriteString(title)
	for _, cmd := range parent.Commands() {
		if !cmd.IsAvailableCommand() || cmd.GroupID != group {
			continue
		}
		fmt.Fprintf(&b, "\n  %-*s %s", parent.NamePadding(), cmd.Name(), cmd.Short)
		if example := firstExample(cmd); examples && example != "" {
			fmt.Fprintf(&b, "\n  %-*s $ %s", parent.NamePadding(), "", example)
		}
	}
	return b.String()
}

// firstExample returns the first command of the examples.
func firstExample(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// AddCompletion adds the command that writes scripts of shells for completion to a
// group, once the root has its other commands.
func AddCompletion(root *cobra.Command, group string) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.GroupID = group
			cmd.Short = "Print the completion script for bash, zsh, fish or PowerShell"
			cmd.Example = "  source <(" + root.Name() + " completion bash)"
		}
	}
	root.SetHelpCommandGroupID(group)
}

// Advise adds to the error of an unknown command the commands that it resembles,
// and where the commands are listed. Other errors stay as they are.
func Advise(root *cobra.Command, args []string, err error) error {
	if err == nil || !strings.HasPrefix(err.Error(), "unknown command ") { // cobra has no type for it
		return err
	}
	cmd, _, _ := root.Find(args) // the last command that is known
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	near := ""
	for _, word := range args {
		if near == "" && !strings.HasPrefix(word, "-") {
			near = resembling(word, names)
		}
	}
	return fmt.Errorf("%w%s (see %s --help)", err, near, cmd.CommandPath())
}
