package agent

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// execute runs the command and returns what it prints, or the error's text.
func execute(t *testing.T, args ...string) (out, failure string) {
	t.Helper()
	cmd := NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var buffer bytes.Buffer
	cmd.SetOut(&buffer)
	cmd.SetErr(&buffer)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		failure = err.Error()
	}
	return buffer.String(), failure
}

func TestCommandRefuses(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	simulated := []string{"--source=simulated", "--kubeconfig=" + filepath.Join(t.TempDir(), "none")}
	cases := map[string]struct {
		args []string
		want string
	}{
		"no node":                {simulated, "--node-name: write the name of the node that the agent runs on, or set NODE_NAME"},
		"a node of odd letters":  {append(simulated, "--node-name=A_B"), `--node-name "A_B": `},
		"an unknown source":      {[]string{"--source=guess"}, `--source "guess": write "auto", "mxsml", "mx-smi", "sysfs" or "simulated"`},
		"an unknown profile":     {[]string{"--source=simulated", "--profile=c999"}, "--profile: "},
		"a profile of several":   {[]string{"--source=simulated", "--profile=mixed"}, "profile mixed: "},
		"an unknown mode":        {append(simulated, "--node-name=n1", "--mode=half"), `--mode "half": write "native", "sgpu", "shared" or "vgpu"`},
		"no time between looks":  {append(simulated, "--node-name=n1", "--poll=0s"), "--poll 0s, --look-timeout 10s: write at least 100ms"},
		"a kubeconfig not there": {append(simulated, "--node-name=n1"), "reach the API server: "},
		"no runtime to ask":      {append(simulated, "--node-name=n1", "--runtime-endpoint="), `--runtime-endpoint "": write unix:// and the absolute path of the socket`},
		"a check not there":      {append(simulated, "--node-name=n1", "--waive=card-device"), `--waive: there is no check "card-device": did you mean card-devices?`},
		"a certificate alone":    {append(simulated, "--node-name=n1", "--metrics-tls-cert-file=c"), "if any flags in the group [metrics-tls-cert-file metrics-tls-key-file] are set they must all be set"},
		"an argument":            {[]string{"now"}, `unknown command "now"`},
		"a cleanup of no node":   {append([]string{"cleanup"}, simulated...), "--node-name: write the name of the node"},
		"a cleanup of a look":    {[]string{"cleanup", "--look"}, "unknown flag: --look"},
		"a cleanup, no cluster":  {append([]string{"cleanup", "--node-name=n1"}, simulated...), "reach the API server: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, failure := execute(t, tc.args...); !strings.HasPrefix(failure, tc.want) {
				t.Errorf("got %q, want %q", failure, tc.want)
			}
		})
	}
}

// The namespace of the vendor's operator is where the pods of its plugin count.
func TestVendorNamespace(t *testing.T) {
	c, cmd := &command{}, &cobra.Command{}
	c.flags(cmd)
	gputest.Must(t, cmd.ParseFlags([]string{"--node-name=n1", "--vendor-namespace=gpus", "--vendor-plugin-selector=app=x"}))
	gputest.Must(t, c.complete())
	if v := &c.VendorPlugin; v.Namespace != "gpus" || v.String() != "app=x" {
		t.Errorf("pods with labels %q count in namespace %q", v, v.Namespace)
	}
}

func TestReadCertificate(t *testing.T) {
	c := &command{certFile: filepath.Join(t.TempDir(), "none"), keyFile: filepath.Join(t.TempDir(), "none")}
	if err := c.readCertificate(t.Context()); err == nil || c.MetricsTLS != nil {
		t.Errorf("a certificate without files: %v, %v", c.MetricsTLS, err)
	}
}

func TestCommandLook(t *testing.T) {
	out, failure := execute(t, "--look", "--source=simulated", "--profile=c500-2x4", "--node-name=n1")
	if failure != "" || strings.Count(out, "UUID: GPU-") != 8 || !strings.Contains(out, "Driver: 3.8.30") {
		t.Errorf("%s\n%s", failure, out)
	}
	_, failure = execute(t, "--look", "--source=mx-smi", "--mx-smi="+filepath.Join(t.TempDir(), "none"), "--sysfs="+t.TempDir())
	if !strings.HasPrefix(failure, "look at the cards: ") {
		t.Errorf("without mx-smi: %q", failure)
	}
}
