package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tree is a root with one command that has flags in two groups and in none.
func tree() *cobra.Command {
	root := &cobra.Command{Use: "sun", SilenceUsage: true, SilenceErrors: true}
	cmd := &cobra.Command{Use: "rise", Short: "Rise", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.Flags().String("output", "table", "in which `FORMAT`")
	Group(cmd, "Warm", func(f *pflag.FlagSet) { f.Bool("zenith", false, "how high") })
	Group(cmd, "Cold", func(f *pflag.FlagSet) {
		f.Bool("autumn", false, "how low")
		f.Bool("secret", false, "not shown")
		if err := f.MarkHidden("secret"); err != nil {
			panic(err)
		}
	})
	Words(cmd, "output", "table", "json")
	root.AddCommand(cmd)
	Setup(root)
	return root
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
	if err != nil {
		t.Fatal(err)
	}
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
	if diff := cmp.Diff(want, flags); diff != "" {
		t.Errorf("help (-want +got):\n%s", diff)
	}
}

func TestFlagErrors(t *testing.T) {
	for arg, want := range map[string]string{
		"--outptu=json": "unknown flag: --outptu: did you mean --output? (see sun rise --help)",
		"--zenit":       "unknown flag: --zenit: did you mean --zenith? (see sun rise --help)",
		"--moon":        "unknown flag: --moon (see sun rise --help)",
		"-x":            "unknown shorthand flag: 'x' in -x (see sun rise --help)",
		"--zenith=7":    `invalid argument "7" for "--zenith" flag: strconv.ParseBool: parsing "7": invalid syntax (see sun rise --help)`,
	} {
		if _, err := run(tree(), "rise", arg); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
}

func TestWordsComplete(t *testing.T) {
	out, err := run(tree(), cobra.ShellCompNoDescRequestCmd, "rise", "--output", "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "table\njson\n:4\n"; !strings.HasPrefix(out, want) {
		t.Errorf("completed as %q, want %q first", out, want)
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
		if got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
