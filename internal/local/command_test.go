package local

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// run types a line that starts nothing.
func run(args ...string) (string, error) {
	cmd := NewCommand(nil)
	cli.Setup(cmd)
	cmd.AddCommand(cli.NewVersionCommand("playground", cli.Build{Version: "v1"}))
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

// TestCommandHelp: help, completion and version.
func TestCommandHelp(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"help lists the profiles":          {[]string{"--help"}, "Profiles: c500-1x8, c500-2x4,"},
		"help has examples":                {[]string{"--help"}, "playground --nodes 100 --profile c500-pcie"},
		"profiles complete":                {[]string{cobra.ShellCompNoDescRequestCmd, "--profile", ""}, "c500-2x4\n"},
		"who serves completes":             {[]string{cobra.ShellCompNoDescRequestCmd, "--served-by", ""}, "daybreak\nvendor\n:4"},
		"the version":                      {[]string{"version"}, "playground v1\n"},
		"a script for the shell to source": {[]string{"completion", "fish"}, "fish completion for playground"},
	} {
		if out, err := run(tc.args...); err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, tc.want, out)
		}
	}
}

// TestBadFlags: invalid flags are rejected before anything is started.
func TestBadFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no nodes":              {[]string{"--nodes", "0"}, "--nodes 0: write 1 to 5000"},
		"too many nodes":        {[]string{"--nodes", "5001"}, "--nodes 5001: write 1 to 5000"},
		"served by a misspelt":  {[]string{"--served-by", "vender"}, `--served-by "vender": write "daybreak" or "vendor"; did you mean "vendor"?`},
		"no such profile":       {[]string{"--profile", "c500"}, `no profile "c500": write one of c500-1x8, c500-2x4,`},
		"no such profile file":  {[]string{"--profile", "./none.yaml"}, "profile ./none.yaml: open ./none.yaml: no such file"},
		"a port past all ports": {[]string{"--port-dashboard", "65536"}, "--port-dashboard 65536: write 1 to 65535, or 0 for no dashboard"},
		"a misspelt flag":       {[]string{"--node", "3"}, "unknown flag: --node: did you mean --nodes? (see playground --help)"},
		"a misspelt command":    {[]string{"verson"}, `unknown command "verson" for "playground"`},
	} {
		_, err := run(tc.args...)
		gputest.ErrorHas(t, name, tc.want, err)
	}
}
