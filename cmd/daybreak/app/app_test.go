package app_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/cmd/daybreak/app"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/scheduler"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// roots returns daybreak and the playground.
func roots() []*cobra.Command {
	playground := local.NewCommand(nil)
	cli.Setup(playground)
	return []*cobra.Command{app.NewCommand(cli.Build{Version: "dev"}), playground}
}

// eachFlag calls f with every flag that the help of every command shows.
func eachFlag(f func(cmd *cobra.Command, group string, flag *pflag.Flag)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, g := range cli.Groups(cmd) {
			g.Flags.VisitAll(func(flag *pflag.Flag) { f(cmd, g.Title, flag) })
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	for _, root := range roots() {
		walk(root)
	}
}

// openEnded are flags of words that no list of values could have, by their names:
// files, folders and devices, addresses, and names that users choose.
var openEnded = []string{
	"filename", "kubeconfig", "nodes", "pods", "bundle", "data", "mxsml", "mx-smi", "sysfs", "procfs", "config", "vmodule",
	"card-device", "control-device", "render-device", "slice-device", "device-root", "device-plugin-dir", "cdi-dir", "state-dir",
	"pod-resources-socket", "runtime-endpoint", "runtime-root", "vendor-plugin-sockets", "assume-cdi",
	"metrics-tls-cert-file", "metrics-tls-key-file", "dashboard-tls-cert-file", "dashboard-tls-key-file",
	"metrics-bind-address", "health-probe-bind-address", "admission-bind-address", "dashboard-bind-address",
	"node-name", "leader-elect-namespace", "admission-host", "scheduler-name", "direct-binder", "vendor-plugin-selector", "tolerated-taint",
	"vendor-namespace", "daybreak-namespace", "vendor-config-selector", "policies",
}

// TestFlagsComplete: every flag that takes words has values to complete, unless
// any word will do. Of kube-scheduler's own flags these are the ones whose usage
// lists the values.
func TestFlagsComplete(t *testing.T) {
	lists := regexp.MustCompile(`(?i)(permitted formats|possible values|preferred values|supported options)`)
	checked := 0
	eachFlag(func(cmd *cobra.Command, group string, flag *pflag.Flag) {
		name := cmd.CommandPath() + " --" + flag.Name
		complete, ok := cmd.GetFlagCompletionFunc(flag.Name)
		if !ok {
			switch flag.Value.Type() {
			case "bool", "int", "int64", "float64", "float64Slice", "duration", "Level", "quantity":
				return
			}
			// What the agent and the manager run in is not asked for its namespaces.
			open := slices.Contains(openEnded, flag.Name) || flag.Name == "namespace" || cmd.Name() == "scheduler" && flag.Name == "profile"
			if strings.HasPrefix(group, scheduler.FlagsOf) {
				open = !lists.MatchString(flag.Usage)
			}
			if !open {
				t.Errorf("%s completes nothing: %s", name, flag.Usage)
			}
			return
		}
		checked++
		if slices.Contains([]string{"node", "context", "namespace"}, flag.Name) {
			return // from a cluster
		}
		words, _ := complete(cmd, nil, "")
		if len(words) == 0 {
			t.Errorf("%s completes from nothing", name)
		}
	})
	if checked < 30 {
		t.Errorf("only %d flags complete", checked)
	}
}

// TestCompletedWordsAreInTheHelp: a flag whose help lists its values completes
// just those.
func TestCompletedWordsAreInTheHelp(t *testing.T) {
	eachFlag(func(cmd *cobra.Command, group string, flag *pflag.Flag) {
		complete, ok := cmd.GetFlagCompletionFunc(flag.Name)
		if !ok || strings.HasPrefix(group, scheduler.FlagsOf) || slices.Contains([]string{"node", "context", "namespace", "profile"}, flag.Name) {
			return
		}
		if cmd.Name() == "simulate" && flag.Name == "policy" {
			return // the text of the command lists them
		}
		words, _ := complete(cmd, nil, "")
		for _, w := range words {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`).MatchString(flag.Usage) {
				t.Errorf("%s --%s completes %q, which its usage does not list: %s", cmd.CommandPath(), flag.Name, w, flag.Usage)
			}
		}
	})
}

// goWords match what only someone who reads the code understands: names of
// packages, functions and types, addresses, and errors of Go's parsers.
var goWords = regexp.MustCompile(`strconv|Slice|Array\b|mapString|float64|%!|<nil>|\bnil\b|0x[0-9a-f]{3}|invalid syntax|invalid argument|\b[a-z]+\.[A-Z][a-z]+[A-Z]|` +
	`\b(time|csv|json|flag|pflag|labels|cobra|churn|simulate|place|command|errors): `)

// wrongValues are values that most flags do not take.
var wrongValues = []string{"", "x", "-1", "1.5", "1e999", "99999999999999999999", "a,b", `a"b`, "a=b=c", "!!", "a b", "真", "NaN"}

// TestFlagErrorsHaveNoGoWords: whatever is written for a flag of any command, the
// answer names the flag and is in plain words.
func TestFlagErrorsHaveNoGoWords(t *testing.T) {
	errorsSeen := 0
	eachFlag(func(cmd *cobra.Command, group string, flag *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(flag); goWords.MatchString(name) && !strings.HasPrefix(group, scheduler.FlagsOf) {
			t.Errorf("%s --%s takes %q", cmd.CommandPath(), flag.Name, name)
		}
		for _, value := range wrongValues {
			err := cmd.ParseFlags([]string{"--" + flag.Name + "=" + value})
			if err == nil {
				continue
			}
			errorsSeen++
			text := cmd.FlagErrorFunc()(cmd, err).Error()
			if goWords.MatchString(text) || !strings.Contains(text, "--"+flag.Name) {
				t.Errorf("%s --%s=%q: %s", cmd.CommandPath(), flag.Name, value, text)
			}
		}
	})
	if errorsSeen < 500 {
		t.Errorf("only %d errors: the values are taken", errorsSeen)
	}
}

// TestAnswersHaveNoGoWords is the same for the commands that ask, run with each
// value: what is wrong with a word is known only then.
func TestAnswersHaveNoGoWords(t *testing.T) {
	const cluster = "../../../examples/cluster.yaml"
	commands := map[string][]string{
		"status": {"-f", cluster}, "explain": {"chat", "-n", "team-a", "-f", cluster}, "audit": {"-f", cluster}, "version": nil,
		"place":    {"-f", cluster, "-f", "../../../examples/hami/sgpu-default.yaml"},
		"simulate": {"--topology", "--jobs", "100", "--servers", "1", "--load", "0.5", "--mix", "mixed", "--policy", "fgd"},
	}
	failed := 0
	eachFlag(func(cmd *cobra.Command, _ string, flag *pflag.Flag) {
		args, ok := commands[cmd.Name()]
		if !ok || cmd.Root().Name() != "daybreak" {
			return
		}
		for _, value := range wrongValues {
			line := slices.Concat([]string{cmd.Name()}, args, []string{fmt.Sprintf("--%s=%s", flag.Name, value)})
			root := app.NewCommand(cli.Build{Version: "dev"})
			var out bytes.Buffer
			root.SetOut(&out)
			root.SetErr(&out)
			root.SetIn(strings.NewReader(""))
			root.SetArgs(line)
			ctx, cancel := context.WithCancel(t.Context())
			err := root.ExecuteContext(ctx)
			cancel()
			if err == nil {
				continue
			}
			failed++
			if goWords.MatchString(err.Error()) {
				t.Errorf("%q: %v", line, err)
			}
		}
	})
	if failed < 200 {
		t.Errorf("only %d lines fail", failed)
	}
}

// TestHelp: every command that the help lists is in a group, says in one line what
// it does, and has an example that is this command.
func TestHelp(t *testing.T) {
	root := app.NewCommand(cli.Build{Version: "dev"})
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(nil)
	gputest.Must(t, root.Execute())
	listed := 0
	for _, cmd := range root.Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "help" {
			continue
		}
		listed++
		entry := regexp.MustCompile(`(?m)^  ` + cmd.Name() + ` +` + regexp.QuoteMeta(cmd.Short) + `\n +\$ .*\bdaybreak ` + cmd.Name() + `\b`)
		if cmd.GroupID == "" || len(cmd.Short) > 80 || !entry.MatchString(out.String()) {
			t.Errorf("%s (group %q) is not in the help, or has no example:\n%s", cmd.Name(), cmd.GroupID, out.String())
		}
	}
	if listed != 11 {
		t.Errorf("%d commands are listed, want 11", listed)
	}
}

// TestMan: each command has a page with its text as it is, its flags and its examples.
func TestMan(t *testing.T) {
	root, texts := app.NewCommand(cli.Build{Version: "v1"}), map[string]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		text := cmd.Long + "\n" + cmd.Example
		for _, g := range cli.Groups(cmd) {
			g.Flags.VisitAll(func(flag *pflag.Flag) { text += "\n--" + flag.Name })
		}
		texts[strings.ReplaceAll(cmd.CommandPath(), " ", "-")] = text
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "completion" { // cobra's text is Markdown
				walk(sub)
			}
		}
	}
	walk(root)
	dir := filepath.Join(t.TempDir(), "man1")
	root.SetArgs([]string{"man", dir})
	gputest.Must(t, root.Execute())
	for name, text := range texts {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		gputest.Check(t, err)
		plain := strings.ReplaceAll(string(page), `\e`, `\`)
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); !strings.Contains(plain, line) {
				t.Errorf("page of %s: no line %q", name, line)
			}
		}
	}
	if len(texts) < 12 {
		t.Errorf("%d commands with pages", len(texts))
	}
	for _, line := range []string{"man", "man a b", "man app_test.go"} {
		root.SetArgs(strings.Fields(line))
		if root.Execute() == nil {
			t.Errorf("%s is no error", line)
		}
	}
	man, _, err := root.Find([]string{"man"})
	gputest.Must(t, err)
	if _, directive := man.ValidArgsFunction(man, nil, ""); directive != cobra.ShellCompDirectiveFilterDirs {
		t.Errorf("man completes with %d, want folders", directive)
	}
}
