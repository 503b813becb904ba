package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// tree is a root with one command that has flags in two groups and in none.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "sun", SilenceUsage: true, SilenceErrors: true}
	cmd := &cobra.Command{Use: "rise", Short: "Rise", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	f := cmd.Flags()
	f.String("output", "table", "in which `FORMAT`")
	hide(f, func(f *pflag.FlagSet) {
		f.Int("height", 0, "")
		f.Float64Slice("hue", nil, "")
		f.StringSlice("colours", nil, "")
		f.Duration("every", 0, "")
		f.Func("ray", "", func(string) error { return errors.New("no ray") })
	})
	Group(cmd, "Warm", func(f *pflag.FlagSet) { f.Bool("zenith", false, "how high") })
	Group(cmd, "Cold", func(f *pflag.FlagSet) {
		f.Bool("autumn", false, "how low")
		hide(f, func(f *pflag.FlagSet) { f.Bool("secret", false, "not shown") })
	})
	Words(cmd, "output", "table", "json")
	Words(cmd, "colours", "red", "green", "blue")
	root.AddCommand(cmd)
	Setup(root)
	return root
}

// hide adds flags that help does not show.
func hide(f *pflag.FlagSet, add func(*pflag.FlagSet)) {
	hidden := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(hidden)
	hidden.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	f.AddFlagSet(hidden)
}

func run(root *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// TestGroups: help shows flags under the titles of their groups, in the order in
// which those were added, and leaves hidden ones out.
func TestGroups(t *testing.T) {
	out, err := run(tree(), "rise", "--help")
	gputest.Must(t, err)
	_, flags, _ := strings.Cut(out, "\n\n") // the usage line
	_, flags, _ = strings.Cut(flags, "\n\n")
	want := `Flags:
  -h, --help            help for rise
      --output FORMAT   in which FORMAT (default "table")

Warm flags:
      --zenith   how high

Cold flags:
      --autumn   how low
`
	gputest.Equal(t, "help", want, flags)
}

func TestFlagErrors(t *testing.T) {
	for arg, want := range map[string]string{
		"--outptu=json":                 "unknown flag: --outptu: did you mean --output? (see sun rise --help)",
		"--zenit":                       "unknown flag: --zenit: did you mean --zenith? (see sun rise --help)",
		"--moon":                        "unknown flag: --moon (see sun rise --help)",
		"-x":                            "unknown shorthand flag: 'x' in -x (see sun rise --help)",
		"--zenith=7":                    `--zenith "7": write true or false (see sun rise --help)`,
		"--height=x":                    `--height "x": write a whole number (see sun rise --help)`,
		"--height=1e9":                  `--height "1e9": write a whole number (see sun rise --help)`,
		"--height=99999999999999999999": `--height "99999999999999999999": out of range (see sun rise --help)`,
		"--hue=red,1":                   `--hue "red,1": write numbers separated by commas (see sun rise --help)`,
		`--colours=a"b`:                 `--colours "a\"b": write words separated by commas (see sun rise --help)`,
		"--every=5":                     `--every "5": write a duration such as "30s" or "5m" (see sun rise --help)`,
		"--ray=x":                       `--ray "x": no ray (see sun rise --help)`,
		"--height":                      "flag needs an argument: --height (see sun rise --help)",
	} {
		if _, err := run(tree(), "rise", arg); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

func TestWordsComplete(t *testing.T) {
	for line, want := range map[string]string{
		"--output ":             "table\njson\n:4\n",
		"--colours ":            "red\ngreen\nblue\n:6\n",
		"--colours green,":      "green,red\ngreen,blue\n:6\n",
		"--colours green,blue,": "green,blue,red\n:6\n",
	} {
		flag, typed, _ := strings.Cut(line, " ")
		out, err := run(tree(), cobra.ShellCompNoDescRequestCmd, "rise", flag, typed)
		gputest.Must(t, err)
		if !strings.HasPrefix(out, want) {
			t.Errorf("%s: completed as %q, want %q first", line, out, want)
		}
	}
}

func TestOneOf(t *testing.T) {
	modes := []string{"native", "sgpu", "shared", "vgpu"}
	for word, want := range map[string]string{
		"sgpu": "",
		"sgp":  `--mode "sgp": write "native", "sgpu", "shared" or "vgpu"; did you mean "sgpu"?`,
		"x":    `--mode "x": write "native", "sgpu", "shared" or "vgpu"`,
		"":     `--mode "": write "native", "sgpu", "shared" or "vgpu"`,
	} {
		got := ""
		if err := OneOf("mode", word, modes...); err != nil {
			got = err.Error()
		}
		gputest.Equal(t, fmt.Sprintf("%q", word), want, got)
	}
}

// TestSubcommands: help lists commands by group, each with its first example.
func TestSubcommands(t *testing.T) {
	root := tree()
	root.AddGroup(&cobra.Group{ID: "day", Title: "By day:"})
	rise := root.Commands()[0]
	rise.GroupID, rise.Example = "day", "  # In summer\n  sun rise --zenith\n\n  sun rise"
	AddCompletion(root, "day")
	out, err := run(root)
	const want = "\nBy day:\n  rise        Rise\n              $ sun rise --zenith\n" +
		"  completion  Print the completion script for bash, zsh, fish or PowerShell\n              $ source <(sun completion bash)\n"
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("%v, want %q in\n%s", err, want, out)
	}
}

func TestAdvise(t *testing.T) {
	for line, want := range map[string]string{
		"ris":         `unknown command "ris" for "sun": did you mean rise? (see sun --help)`,
		"moon -f ris": `unknown command "moon" for "sun": did you mean rise? (see sun --help)`,
		"moon":        `unknown command "moon" for "sun" (see sun --help)`,
		"rise --moon": "unknown flag: --moon (see sun rise --help)",
	} {
		root, args := tree(), strings.Fields(line)
		_, err := run(root, args...)
		if err = Advise(root, args, err); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
