package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/cmd/daybreak/app"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
)

// writeCLI writes every command with its flags.
func writeCLI(p *page) error {
	p.begin("Commands and flags", "the commands themselves", `All commands with their flags, as shown by `+"`--help`"+`. [Command line](../cli.md) shows the output of the commands.

Exit codes: 0 success; 1 the answer is no (JSON is printed nevertheless); 2 invalid flags or unreadable input; 130 interrupted.
JSON is one document on standard output; messages go to standard error. With the link `+"`kubectl-daybreak`"+` in the PATH,
`+"`kubectl daybreak …`"+` is the same as `+"`daybreak …`"+`.`)
	root := app.NewCommand(cli.Build{Version: "dev"})
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" && cmd.Name() != "completion" {
			p.command(cmd)
			for _, sub := range cmd.Commands() {
				p.command(sub)
			}
		}
	}
	p.completion()
	playground := local.NewCommand(nil)
	cli.Setup(playground)
	p.command(playground)
	return nil
}

func (p *page) command(cmd *cobra.Command) {
	p.section(cmd.CommandPath(), cmd.Short+".")
	fmt.Fprintf(&p.Buffer, "\n```text\n%s\n```\n", cmd.UseLine())
	if cmd.Long != "" {
		fmt.Fprintf(&p.Buffer, "\n```text\n%s\n```\n", cmd.Long)
	}
	if cmd.HasExample() {
		fmt.Fprintf(&p.Buffer, "\nExamples:\n\n```text\n%s\n```\n", cmd.Example)
	}
	foreign := false
	for _, g := range cli.Groups(cmd) {
		if strings.HasPrefix(g.Title, scheduler.FlagsOf) {
			foreign = true
			continue
		}
		p.flags(g)
	}
	if foreign {
		fmt.Fprint(&p.Buffer, "\nAnd all flags of kube-scheduler; `--help` lists them.\n")
	}
}

func (p *page) flags(g cli.FlagGroup) {
	var rows [][]string
	g.Flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		rows = append(rows, []string{code(strings.TrimSpace(flag + " " + name)), standard(f), usage})
	})
	if len(rows) == 0 {
		return
	}
	if g.Title != "" {
		fmt.Fprintf(&p.Buffer, "\n%s:\n", g.Title)
	}
	p.table([]string{"flag", "default", "meaning"}, rows)
}

// standard returns what holds when the flag is not given, if that says something.
func standard(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "[]", "false", "0s":
		return ""
	}
	return code(strings.Trim(f.DefValue, "[]"))
}

// completion writes how to set up completion; cobra's help for each shell is long.
func (p *page) completion() {
	p.section("daybreak completion", "Print the completion script for bash, zsh, fish or PowerShell. Commands, flags, and the names of pods, nodes, namespaces and contexts are completed.")
	fmt.Fprint(&p.Buffer, "\n```text\nsource <(daybreak completion bash)\nsource <(daybreak completion zsh)\ndaybreak completion fish | source\n"+
		"daybreak completion powershell | Out-String | Invoke-Expression\n```\n")
}
