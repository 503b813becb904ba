package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/cmd/daybreak/app"
	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// runAsDaybreak makes the test binary the command itself, so that tests
// see what a shell sees: two outputs and an exit code.
const runAsDaybreak = "DAYBREAK_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsDaybreak) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command is a command line in a folder. Nothing of the machine's own cluster is in
// its environment.
func command(t *testing.T, path, folder string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd, stdout, stderr = exec.CommandContext(t.Context(), path, args...), &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Dir, cmd.Env = folder, []string{runAsDaybreak + "=1"}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// daybreak runs the command in a folder and returns what it prints.
func daybreak(t *testing.T, folder, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd, out, errs := command(t, self(t), folder, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	gputest.Must(t, err)
	return path
}

const (
	node = `apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {metax-tech.com/gpu: 4}}
`
	withoutCards = `apiVersion: v1
kind: Pod
metadata: {name: without-cards}
spec:
  containers:
  - {name: main}
`
	// The example of HAMi's documentation as it stands there.
	oneLineAnnotation = `apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod1
  annotations: hami.io/node-scheduler-policy: "spread" # when this parameter is set to spread, the scheduler will try to find the best topology for this task.
spec:
  containers:
    - name: ubuntu-container
      resources:
        limits:
          metax-tech.com/gpu: 1
`
	brokenDevice = `apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: broken}
spec: {devices: [{type: gpu, id: GPU-1, minor: zero, health: true}]}
`
	// The Device of Koordinator's Chinese documentation has this year.
	deviceOfAnotherTime = `apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: broken}
spec:
  devices:
  - {type: gpu, id: GPU-1, minor: 0, health: true, conditions: [{type: Healthy, status: "True", lastTransitionTime: "20256-03-15T10:00:00Z"}]}
`
	configMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`
)

var (
	docs     = manifest.Join
	fits     = manifest.Pod("fits", "gpu: 4")
	tooWide  = manifest.Pod("too-wide", "gpu: 5")
	mistaken = manifest.Pod("mistaken", "gpu: 1, sgpu: 1")
	device   = manifest.Device("n1", 1, "64Gi")
	running  = manifest.PodOn("n1", "runs", "gpu: 1", `metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-n1-0","compute":100,"vRam":65536}]]'`)
)

// TestSignalsEndCommands: a command that asks ends within a second of a signal,
// with the exit code of one, even where it reads what has no end.
func TestSignalsEndCommands(t *testing.T) {
	cases := map[string][]string{
		"place":        {"place", "-f", "endless"},
		"status":       {"status", "-f", "endless"},
		"explain":      {"explain", "pod", "-f", "endless"},
		"audit":        {"audit", "-f", "endless"},
		"simulate":     {"simulate", "--nodes", "endless", "--pods", "endless"},
		"agent check":  {"agent", "check", "--source", "mx-smi", "--mx-smi", "./mx-smi", "--sysfs", "."},
		"agent --look": {"agent", "--look", "--source", "mx-smi", "--mx-smi", "./mx-smi", "--sysfs", "."},
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir() // what an earlier command started may still read its pipe
			endless := filepath.Join(folder, "endless")
			gputest.Must(t, errors.Join(
				syscall.Mkfifo(endless, 0o600),
				os.MkdirAll(filepath.Join(folder, "bus", "pci", "devices"), 0o700),
				os.WriteFile(filepath.Join(folder, "mx-smi"), []byte("#!/bin/sh\nread line < "+endless+"\n"), 0o700),
			))
			cmd, out, errs := command(t, self(t), folder, args...)
			gputest.Must(t, cmd.Start())
			defer waitForReader(t, endless).Close()
			start := time.Now()
			gputest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
			_ = cmd.Wait() // the exit code shows it
			if code := cmd.ProcessState.ExitCode(); code != 130 || out.Len()+errs.Len() > 0 {
				t.Errorf("exit code %d, %q and %q, want 130, no answer and no message", code, out.String(), errs.String())
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it ended after %v, want a second at most", took)
			}
		})
	}
}

// waitForReader opens the pipe for writing once something reads from it.
func waitForReader(t *testing.T, pipe string) *os.File {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return f
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command does not read %s: %v", pipe, err)
		}
	}
}

// TestInterruptedSimulation: what is done is printed, and the exit code is that of
// a signal.
func TestInterruptedSimulation(t *testing.T) {
	cmd, out, _ := command(t, self(t), t.TempDir(), "simulate", "--topology", "--servers", "2", "--jobs", "100", "--seeds", "1000", "--load", "0.5,0.6,0.7,0.8") // 60 000 runs
	cmd.Stderr = nil
	messages, err := cmd.StderrPipe()
	gputest.Must(t, err)
	gputest.Must(t, cmd.Start())
	lines := bufio.NewScanner(messages)
	last := ""
	for lines.Scan() {
		if last = lines.Text(); strings.Contains(last, "% done") {
			gputest.Must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait() // the exit code shows it
	gputest.Equal(t, "exit code", 130, cmd.ProcessState.ExitCode())
	expect(t, "stderr", last, "runs were completed")
	expect(t, "stdout", out.String(), "Jobs that come and go, zones 2x4, mix mixed")
}

// commandCase is a line in a folder with two files, and what comes of it.
type commandCase struct {
	args  []string
	a, b  string // what the files a.yaml and b.yaml hold
	stdin string
	want  int
	// What stands on the two outputs; an empty text means nothing at all.
	stdout, stderr string
}

func runCases(t *testing.T, cases map[string]commandCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			write(t, folder, "a.yaml", tc.a)
			write(t, folder, "b.yaml", tc.b)
			code, stdout, stderr := daybreak(t, folder, tc.stdin, tc.args...)
			gputest.Equal(t, "exit code", tc.want, code)
			expect(t, "stdout", stdout, tc.stdout)
			expect(t, "stderr", stderr, tc.stderr)
			if strings.HasPrefix(stdout, "{") && !json.Valid([]byte(stdout)) {
				t.Errorf("stdout is not one JSON document: %s", stdout)
			}
			if code == 2 && !strings.HasPrefix(stderr, "daybreak: ") {
				t.Errorf("stderr is %q, want it to begin with the program's name", stderr)
			}
			if strings.Contains(stdout, "\x1b") {
				t.Errorf("colours where there is no terminal: %q", stdout)
			}
		})
	}
}

func TestPlaceExitCodes(t *testing.T) {
	cases := map[string]commandCase{
		"every pod fits":                    {a: docs(node, fits), stdout: "default/fits   n1"},
		"a pod without cards is no trouble": {a: docs(node, withoutCards), stdout: "default/without-cards asks for no MetaX card."},
		"nothing to place":                  {a: node, stderr: "note: no pod to place"},
		"other kinds are passed over":       {a: docs(configMap, node, fits), stdout: "default/fits", stderr: "note: a.yaml, document 1: passed over v1 ConfigMap settings"},

		"two files":      {args: []string{"-f", "b.yaml", "-f", "a.yaml"}, a: node, b: fits, stdout: "default/fits"},
		"standard input": {args: []string{"-f", "-"}, stdin: docs(node, fits), stdout: "default/fits"},
		"both":           {args: []string{"-f", "a.yaml", "-f", "-"}, a: node, stdin: fits, stdout: "default/fits"},

		"a pod does not fit":                 {a: docs(node, fits, tooWide), want: 1, stdout: "default/too-wide fits on 0/1 nodes"},
		"a pod is not admitted":              {a: docs(node, mistaken), want: 1, stdout: "default/mistaken is not admitted"},
		"JSON with an answer of no":          {args: []string{"-f", "a.yaml", "-o", "json"}, a: docs(node, tooWide, mistaken), want: 1, stdout: `"code": "TooFewCards"`},
		"the only node can't be read":        {args: []string{"-f", "a.yaml", "-o", "json"}, a: docs(brokenDevice, fits), want: 1, stdout: `"code": "BadInventory"`, stderr: "note: node broken takes no pods"},
		"the only node is from another time": {args: []string{"-f", "a.yaml", "-o", "json"}, a: docs(deviceOfAnotherTime, fits), want: 1, stdout: `"code": "BadInventory"`, stderr: "note: node broken takes no pods"},
		"another node can't be read":         {a: docs(brokenDevice, node, fits), stdout: "default/fits", stderr: "note: node broken takes no pods"},

		// They would take hours to compute.
		"a huge quantity":       {a: docs(node, hugeQuantity(`{metax-tech.com/gpu: " 1e-999999999"}`)), want: 2, stderr: "is no amount of anything"},
		"no file is named":      {args: []string{"-o", "json"}, want: 2, stderr: "nothing to place: name a file that holds a pod with -f"},
		"a file is missing":     {args: []string{"-f", "c.yaml"}, want: 2, stderr: "open c.yaml: no such file or directory"},
		"no YAML":               {a: docs(node, oneLineAnnotation), want: 2, stderr: "a.yaml, document 2: yaml: line 5: mapping values are not allowed in this context"},
		"an object comes twice": {args: []string{"-f", "a.yaml", "-f", "b.yaml"}, a: docs(node, fits), b: fits, want: 2, stderr: "b.yaml, document 1: Pod default/fits was already read from a.yaml, document 2"},
		"no nodes":              {a: fits, want: 2, stderr: "no nodes: the files hold neither a Node nor a Device"},
		"unknown flag":          {args: []string{"--nodes", "a.yaml"}, want: 2, stderr: "unknown flag: --nodes (see daybreak place --help)"},
		"unknown output":        {args: []string{"-f", "a.yaml", "-o", "xml"}, a: docs(node, fits), want: 2, stderr: `--output "xml": write "table" or "json"`},
		"unknown policy":        {args: []string{"-f", "a.yaml", "--policy", "best"}, a: docs(node, fits), want: 2, stderr: `--policy: "best" is no policy: write "binpack" or "spread"`},
		"a file without -f":     {args: []string{"a.yaml"}, a: docs(node, fits), want: 2, stderr: `unexpected argument "a.yaml": to name a file write -f a.yaml`},
		"no such kubeconfig":    {args: []string{"-f", "a.yaml", "--kubeconfig", "none"}, a: fits, want: 2, stderr: "kubeconfig none: "},
		"nodes of both kinds":   {args: []string{"-f", "a.yaml", "--kubeconfig", "none"}, a: node, want: 2, stderr: "nodes come from the files or from the cluster, not from both"},
	}
	for name, tc := range cases {
		if tc.args == nil {
			tc.args = []string{"-f", "a.yaml"}
		}
		tc.args = append([]string{"place"}, tc.args...)
		cases[name] = tc
	}
	runCases(t, cases)
}

func hugeQuantity(limits string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {limits: " + limits + "}}]}\n"
}

func write(t *testing.T, folder, name, text string) {
	t.Helper()
	gputest.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
}

// expect wants the text in what was printed, or nothing printed for no text.
func expect(t *testing.T, output, got, want string) {
	t.Helper()
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%s is %q, want %q in it, or nothing at all for nothing", output, got, want)
	}
}

// TestCommands: the exit codes of the commands that look at a cluster, and where
// they print what.
func TestCommands(t *testing.T) {
	booked := docs(device, running)
	runCases(t, map[string]commandCase{
		"status":                      {args: []string{"status", "-f", "a.yaml"}, a: node, stdout: "n1    native  vendor     ....             4"},
		"status of one node":          {args: []string{"status", "-f", "a.yaml", "--node", "n1"}, a: node, stdout: "n1"},
		"status of no node":           {args: []string{"status", "-f", "a.yaml", "--node", "n2"}, a: node, want: 2, stderr: "there is no node n2: did you mean n1?"},
		"status of nothing":           {args: []string{"status", "-f", "a.yaml"}, a: fits, want: 2, stderr: "the files hold neither a Node nor a Device"},
		"status without a cluster":    {args: []string{"status"}, want: 2, stderr: "no cluster: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run inside a cluster; or read files with -f"},
		"status of two sources":       {args: []string{"status", "-f", "a.yaml", "--kubeconfig", "x"}, a: node, want: 2, stderr: "not from both"},
		"status in another format":    {args: []string{"status", "-f", "a.yaml", "-o", "yaml"}, a: node, want: 2, stderr: `--output "yaml": write "table", "wide" or "json"`},
		"status in another colour":    {args: []string{"status", "-f", "a.yaml", "--color", "red"}, a: node, want: 2, stderr: `--color "red"`},
		"files are not watched":       {args: []string{"status", "-f", "a.yaml", "--watch"}, a: node, want: 2, stderr: "files don't change"},
		"explain a pod that fits":     {args: []string{"explain", "fits", "-f", "a.yaml"}, a: docs(node, fits), stdout: "default/fits is pending, but not for want of cards: it fits on n1"},
		"explain a pod that does not": {args: []string{"explain", "pod/too-wide", "-f", "a.yaml"}, a: docs(node, tooWide), want: 1, stdout: "default/too-wide is pending: 0/1 nodes: "},
		"explain it as JSON":          {args: []string{"explain", "too-wide", "-f", "a.yaml", "-o", "json"}, a: docs(node, tooWide), want: 1, stdout: `"code": "TooFewCards"`},
		"explain a mistake":           {args: []string{"explain", "mistaken", "-f", "a.yaml"}, a: docs(node, mistaken), want: 1, stdout: "default/mistaken is not admitted:"},
		"explain a pod without cards": {args: []string{"explain", "without-cards", "-f", "a.yaml"}, a: docs(node, withoutCards), stdout: "asks for no MetaX card"},
		"explain no pod":              {args: []string{"explain", "fit", "-f", "a.yaml"}, a: docs(node, fits), want: 2, stderr: "there is no pod fit in namespace default: did you mean fits?"},
		"explain without a name":      {args: []string{"explain", "-f", "a.yaml"}, a: node, want: 2, stderr: "which pod?"},
		"explain elsewhere":           {args: []string{"explain", "fits", "-n", "x", "-f", "a.yaml"}, a: docs(node, fits), want: 2, stderr: "there is no pod fits in namespace x, but one in default: add -n default"},
		"explain everywhere":          {args: []string{"explain", "fits", "-A", "-f", "a.yaml"}, a: docs(node, fits), stdout: "default/fits"},
		"audit":                       {args: []string{"audit", "-f", "a.yaml"}, a: booked, stdout: "1 node, 1 card, 1 pod: no rule is broken"},
		"audit finds something":       {args: []string{"audit", "-f", "a.yaml"}, a: docs(booked, strings.ReplaceAll(running, "name: runs", "name: too")), want: 1, stdout: "ExclusiveShared"},
		"audit finds it as JSON":      {args: []string{"audit", "-f", "a.yaml", "-o", "json"}, a: docs(node, strings.ReplaceAll(running, "GPU-n1-0", "")), stdout: `"violations": []`},
		"audit with an argument":      {args: []string{"audit", "a.yaml"}, a: node, want: 2, stderr: "to name a file write -f a.yaml"},
		"completion":                  {args: []string{"completion", "bash"}, stdout: "bash completion"},
		"completion of zsh":           {args: []string{"completion", "zsh"}, stdout: "#compdef daybreak"},
		"completion of fish":          {args: []string{"completion", "fish"}, stdout: "fish completion"},
		"completion of PowerShell":    {args: []string{"completion", "powershell"}, stdout: "Register-ArgumentCompleter -CommandName 'daybreak'"},
		"words to complete":           {args: []string{"__complete", "status", "--color", ""}, stdout: "auto\nalways\nnever\n:4", stderr: "Completion ended"},
		"no cluster, no words":        {args: []string{"__complete", "explain", ""}, stdout: ":4", stderr: "Completion ended"},
	})
}

// TestPlugin: a link of the right name is a plugin of kubectl, and another one
// completes its words.
func TestPlugin(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "a.yaml", node)
	cases := map[string]struct {
		link string
		args []string
		want string
	}{
		"usage":      {"kubectl-daybreak", []string{"status", "--help"}, "kubectl daybreak status [flags]"},
		"an example": {"kubectl-daybreak", []string{"audit", "--help"}, "| kubectl daybreak audit -f -"},
		"it works":   {"kubectl-daybreak", []string{"status", "-f", "a.yaml"}, "n1    native"},
		"completion": {"kubectl_complete-daybreak", []string{"status", "--color", ""}, "auto\nalways\nnever\n:4"},
		"root":       {"kubectl-daybreak", []string{"--help"}, "\n              $ kubectl daybreak explain trainer-0\n"},
		"in a pod":   {"kubectl-daybreak", []string{"agent", "check", "--help"}, "daybreak-agent-x7k2p -- daybreak agent check"},
		"by itself":  {"daybreak", []string{"status", "--help"}, "  daybreak status [flags]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(t.TempDir(), tc.link)
			gputest.Must(t, os.Symlink(self(t), link))
			cmd, out, errs := command(t, link, folder, tc.args...)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, errs)
			}
			expect(t, "stdout", out.String(), tc.want)
		})
	}
}

// TestPluginHelp: the help of every command names it as the user types it.
func TestPluginHelp(t *testing.T) {
	root := app.NewCommand(cli.NewBuild("dev", ""))
	asPlugin(root)
	alone := regexp.MustCompile(`(^|[^-/.\w])daybreak (status|explain|audit|place|simulate|scheduler|manager|agent|version|\[)`)
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		gputest.Must(t, cmd.Help())
		for line := range strings.Lines(help.String()) {
			line = strings.ReplaceAll(strings.ReplaceAll(line, "kubectl daybreak", ""), "-- daybreak", "")
			if alone.MatchString(line) {
				t.Errorf("help of %s: %s", cmd.CommandPath(), line)
			}
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				check(sub)
			}
		}
	}
	check(root)
}

func TestExitCodes(t *testing.T) {
	runCases(t, map[string]commandCase{
		"no command shows how to use it": {stdout: "  place       Show where pods would be placed, and why not elsewhere\n              $ daybreak place -f pod.yaml\n"},
		"help":                           {args: []string{"--help"}, stdout: "\n\nInspect a cluster:\n  status "},
		"help on a command teaches":      {args: []string{"place", "--help"}, stdout: "Exit codes: 0 every pod is placed; 1"},
		"help on the manager teaches":    {args: []string{"manager", "--help"}, stdout: "daybreak manager --kubeconfig ~/.kube/config --leader-elect=false"},
		"the manager without a cluster":  {args: []string{"manager"}, want: 2, stderr: "daybreak: no cluster: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run inside a cluster"},
		"version":                        {args: []string{"--version"}, stdout: "daybreak version dev"},
		"what it was built from":         {args: []string{"version", "-o", "json"}, stdout: `"kubernetes": "v1.`},
		"help has groups of flags":       {args: []string{"manager", "--help"}, stdout: "\nLeader election flags:\n"},
		"others' flags stand apart":      {args: []string{"scheduler", "--help"}, stdout: "\nkube-scheduler's leader election flags:\n"},
		"a misspelt command":             {args: []string{"plce"}, want: 2, stderr: "daybreak: unknown command \"plce\" for \"daybreak\": did you mean place? (see daybreak --help)\n"},
		"an unknown command":             {args: []string{"xyz", "-f", "a"}, want: 2, stderr: "daybreak: unknown command \"xyz\" for \"daybreak\" (see daybreak --help)\n"},
		"a misspelt subcommand":          {args: []string{"agent", "chek"}, want: 2, stderr: "did you mean check? (see daybreak agent --help)\n"},
		"the client's version":           {args: []string{"version", "--client"}, stdout: "daybreak dev\n"},
		"the version without a cluster":  {args: []string{"version"}, stdout: "daybreak dev\n"},
		"the version of no kubeconfig":   {args: []string{"version", "--kubeconfig", "none"}, want: 2, stderr: "kubeconfig none: the file does not exist"},
		"man pages without a folder":     {args: []string{"man"}, want: 2, stderr: "write one folder, such as ~/.local/share/man/man1"},
		"a misspelt flag":                {args: []string{"status", "--kubeconfg", "x"}, want: 2, stderr: "daybreak: unknown flag: --kubeconfg: did you mean --kubeconfig? (see daybreak status --help)"},
		"a misspelt word":                {args: []string{"simulate", "--policy", "daybrake"}, want: 2, stderr: `did you mean "daybreak"?`},
		"a flag before the command":      {args: []string{"--nodes"}, want: 2, stderr: "daybreak: unknown flag: --nodes (see daybreak --help)"},
	})
}
