package scheduler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestParseArgs(t *testing.T) {
	defaults := Args{
		MinCandidateNodesPercentage: new(int32(10)), MinCandidateNodesAbsolute: new(int32(100)),
		LockWaitSeconds: new(int32(60)), LockExpirySeconds: new(int32(300)), QuotaKeys: "enforce",
	}
	tests := map[string]struct {
		obj        runtime.Object
		want       Args
		wantPolicy place.Policy
		wantErr    string
	}{
		"no args are the defaults": {
			want: defaults,
		},
		"an empty document is the defaults": {
			obj:  unknown(`{}`),
			want: defaults,
		},
		"everything given": {
			obj: unknown(`{"apiVersion":"v1","kind":"DaybreakArgs","policy":"spread","minCandidateNodesPercentage":100,"minCandidateNodesAbsolute":0,"lockWaitSeconds":5,"lockExpirySeconds":3600,"vendorPluginSelector":"app=plugin","quotaKeys":"warn"}`),
			want: Args{
				APIVersion: "v1", Kind: "DaybreakArgs", Policy: "spread",
				MinCandidateNodesPercentage: new(int32(100)), MinCandidateNodesAbsolute: new(int32(0)),
				LockWaitSeconds: new(int32(5)), LockExpirySeconds: new(int32(3600)), VendorPluginSelector: "app=plugin", QuotaKeys: "warn",
			},
			wantPolicy: place.Spread,
		},
		"an unknown field": {
			obj:     unknown(`{"polcy":"spread"}`),
			wantErr: `args of plugin Daybreak: error unmarshaling JSON: while decoding JSON: json: unknown field "polcy"`,
		},
		"a field of the wrong type": {
			obj:     unknown(`{"minCandidateNodesAbsolute":"many"}`),
			wantErr: "args of plugin Daybreak: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go struct field Args.minCandidateNodesAbsolute of type int32",
		},
		"a policy that is none": {
			obj:     unknown(`{"policy":"Binpack"}`),
			wantErr: `args of plugin Daybreak: policy: Invalid value: "Binpack": write "binpack" or "spread", or leave it out`,
		},
		"keys of quotas that are neither enforced nor not": {
			obj:     unknown(`{"quotaKeys":"on"}`),
			wantErr: `args of plugin Daybreak: quotaKeys: Unsupported value: "on": supported values: "enforce", "warn", "off"`,
		},
		"numbers out of range, reported at once": {
			obj: unknown(`{"minCandidateNodesPercentage":101,"minCandidateNodesAbsolute":-1}`),
			wantErr: "args of plugin Daybreak: [minCandidateNodesPercentage: Invalid value: 101: write 0 to 100, " +
				"minCandidateNodesAbsolute: Invalid value: -1: write 0 or more]",
		},
		"a lock that no pod waits for, and one that never ends": {
			obj: unknown(`{"lockWaitSeconds":0,"lockExpirySeconds":3601}`),
			wantErr: "args of plugin Daybreak: [lockWaitSeconds: Invalid value: 0: write 1 to 3600, " +
				"lockExpirySeconds: Invalid value: 3601: write 1 to 3600]",
		},
		"a selector that is none": {
			obj: unknown(`{"vendorPluginSelector":"gpu device"}`),
			wantErr: `args of plugin Daybreak: vendorPluginSelector: Invalid value: "gpu device": "gpu device" is no label selector such as app=gpu-device: ` +
				"unable to parse requirement: found 'device', expected: in, notin, =, ==, !=, gt, lt",
		},
		"a negative percentage": {
			obj:     unknown(`{"minCandidateNodesPercentage":-1}`),
			wantErr: "args of plugin Daybreak: minCandidateNodesPercentage: Invalid value: -1: write 0 to 100",
		},
		"preemption that would try no node": {
			obj: unknown(`{"minCandidateNodesPercentage":0,"minCandidateNodesAbsolute":0}`),
			wantErr: "args of plugin Daybreak: minCandidateNodesAbsolute: Invalid value: 0: " +
				"may not be 0 together with minCandidateNodesPercentage: preemption would try no node",
		},
		"an object of another kind": {
			obj:     &corev1.Pod{},
			wantErr: "args of plugin Daybreak: got a *v1.Pod",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseArgs(tt.obj)
			if said := message(err); said != tt.wantErr {
				t.Fatalf("parseArgs() says\n%s\nwant\n%s", said, tt.wantErr)
			}
			gputest.Equal(t, "args", tt.want, got)
			if policy := got.policy(); policy != tt.wantPolicy {
				t.Errorf("policy() = %v, want %v", policy, tt.wantPolicy)
			}
		})
	}
}

func unknown(raw string) *runtime.Unknown { return &runtime.Unknown{Raw: []byte(raw)} }

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestConfigure(t *testing.T) {
	tests := map[string]struct {
		flags   []string
		wantErr string
	}{
		"--profile with --config": {
			flags:   []string{"--config=mine.yaml", "--profile=other"},
			wantErr: "--profile goes without --config: write it into the configuration file",
		},
		"--policy with --config": {
			flags:   []string{"--config=mine.yaml", "--policy=spread"},
			wantErr: "--policy goes without --config: write it into the configuration file",
		},
		"a policy that is none": {
			flags:   []string{"--policy=fast"},
			wantErr: `--policy "fast": write "binpack" or "spread"`,
		},
		"--vendor-plugin-selector with --config": {
			flags:   []string{"--config=mine.yaml", "--vendor-plugin-selector=app=plugin"},
			wantErr: "--vendor-plugin-selector goes without --config: write it into the configuration file",
		},
		"--quota-keys with --config": {
			flags:   []string{"--config=mine.yaml", "--quota-keys=off"},
			wantErr: "--quota-keys goes without --config: write it into the configuration file",
		},
		"--quota-keys that are none": {
			flags:   []string{"--quota-keys=on"},
			wantErr: `--quota-keys "on": write "enforce", "warn" or "off"`,
		},
		"a configuration of one's own stands alone": {flags: []string{"--config=mine.yaml"}},
		"no flags":            {},
		"policy and profiles": {flags: []string{"--policy=binpack", "--profile=a", "--profile=b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCommand()
			cmd := c.cobra()
			gputest.Must(t, cmd.ParseFlags(tt.flags))
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			remove, err := c.configure(cmd)
			if said := message(err); said != tt.wantErr {
				t.Fatalf("configure() says\n%s\nwant\n%s", said, tt.wantErr)
			}
			if err != nil {
				return
			}
			remove()
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
			if own := strings.Contains(strings.Join(tt.flags, " "), "--config"); own != (c.options.ConfigFile == "mine.yaml") {
				t.Errorf("configuration file is %s", c.options.ConfigFile)
			}
		})
	}
}

// TestElectionIsRequired: a scheduler without leader election does not start, whichever
// way it is turned off.
func TestElectionIsRequired(t *testing.T) {
	file := func(elect string) string {
		path := filepath.Join(t.TempDir(), "config.yaml")
		gputest.Must(t, os.WriteFile(path, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: "+elect+"}\n"), 0o600))
		return "--config=" + path
	}
	for name, tt := range map[string]struct {
		flags []string
		want  error
	}{
		"by flag":                         {[]string{"--leader-elect=false"}, errNoElection},
		"by file":                         {[]string{file("false")}, errNoElection},
		"by file, and by flag again":      {[]string{file("false"), "--leader-elect=true", "--master=http://127.0.0.1:1"}, nil},
		"built-in configuration":          {[]string{"--master=http://127.0.0.1:1"}, nil},
		"by flag, although a file has it": {[]string{file("true"), "--leader-elect=false"}, errNoElection},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCommand()
			cmd := c.cobra()
			gputest.Must(t, cmd.ParseFlags(tt.flags))
			remove, err := c.configure(cmd)
			gputest.Must(t, err)
			defer remove()
			if _, _, err := c.load(); !errors.Is(err, tt.want) {
				t.Errorf("load() = %v, want %v", err, tt.want)
			}
		})
	}
}

// TestPluginFlags: the flags decide whose pods are the vendor's plugin's and Daybreak's,
// also once a profile has set the labels.
func TestPluginFlags(t *testing.T) {
	c := newCommand()
	gputest.Must(t, c.cobra().ParseFlags([]string{"--vendor-namespace=gpus", "--namespace=apps"}))
	s := c.newState(false)
	gputest.Must(t, s.selectVendorPlugin("app=x"))
	if v := &s.nodes.vendor; v.Namespace != "gpus" || v.Daybreak != "apps" || v.String() != "app=x" {
		t.Errorf("vendor's namespace %q, Daybreak's %q, labels %q", v.Namespace, v.Daybreak, v)
	}
}

// TestArgsOfWrappedPlugins: arguments that can't be read as those of the plugin
// that is wrapped stop the start with a sentence.
func TestArgsOfWrappedPlugins(t *testing.T) {
	const version = `"apiVersion":"kubescheduler.config.k8s.io/v1"`
	for name, tt := range map[string]struct{ plugin, args, want string }{
		"none":                      {ResourcesName, "", ""},
		"nothing in them":           {SpreadName, "{}", ""},
		"the wrapped plugin's kind": {SpreadName, `{` + version + `,"kind":"PodTopologySpreadArgs","defaultingType":"System"}`, ""},
		"another plugin's kind":     {SpreadName, `{` + version + `,"kind":"InterPodAffinityArgs"}`, "args of plugin DaybreakSpread: got InterPodAffinityArgs, want PodTopologySpreadArgs"},
		"an unknown kind":           {AffinityName, `{` + version + `,"kind":"DaybreakAffinityArgs"}`, "args of plugin DaybreakAffinity: write those of InterPodAffinity: no kind"},
		"an unknown field":          {BalanceName, `{"weights":[]}`, `args of plugin DaybreakBalance: write those of NodeResourcesBalancedAllocation: strict decoding error: unknown field "weights"`},
		"a value of another type":   {ResourcesName, `{"ignoredResources":"cpu"}`, "args of plugin DaybreakResources: write those of NodeResourcesFit: json: cannot unmarshal string"},
		"a value out of bounds":     {AffinityName, `{"hardPodAffinityWeight":101}`, "hardPodAffinityWeight: Invalid value: 101"},
		"a skew out of bounds":      {SpreadName, `{"defaultingType":"List","defaultConstraints":[{"maxSkew":0,"topologyKey":"x","whenUnsatisfiable":"DoNotSchedule"}]}`, "defaultConstraints[0].maxSkew: Invalid value: 0"},
		"an unknown strategy":       {ResourcesName, `{"scoringStrategy":{"type":"Best"}}`, `Unsupported value: "Best"`},
		"a weight out of bounds":    {BalanceName, `{"resources":[{"name":"cpu","weight":101}]}`, "resources[0].weight: Invalid value: 101"},
		"no arguments there":        {ImagesName, "{}", "args of plugin DaybreakImages: ImageLocality takes none: remove them"},
	} {
		t.Run(name, func(t *testing.T) {
			var obj runtime.Object
			if tt.args != "" {
				obj = &runtime.Unknown{Raw: []byte(tt.args)}
			}
			_, err := NewState(clocktesting.NewFakeClock(start)).standIns()[tt.plugin](t.Context(), obj, newHandle())
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("error %q, want %q in it", got, tt.want)
			}
		})
	}
}
