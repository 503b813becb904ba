package scheduler

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	apicompatibility "k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// server returns an API server of the version that serves what one of that
// version serves by default, but for the resources left out.
func server(v string, without ...schema.GroupVersionResource) *cluster.Server {
	s := &cluster.Server{Version: version.MustParse(v), Served: sets.New[schema.GroupVersionResource]()}
	s.Newest = s.Version
	for _, n := range needs {
		if n.feature == "" || n.feature == kubefeatures.DynamicResourceAllocation && s.Version.AtLeast(version.MajorMinor(1, 34)) {
			s.Served.Insert(n.resource)
		}
	}
	if s.Version.AtLeast(version.MajorMinor(1, 24)) {
		s.Served.Insert(capacities)
	}
	if s.Version.LessThan(version.MajorMinor(1, 27)) {
		s.Served.Insert(betaCapacities)
	}
	s.Served.Delete(without...)
	return s
}

var claims = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}

// adapted returns the setting for a server and these flags, and the features.
// Nothing of it is the process's own.
func adapted(t *testing.T, s *cluster.Server, flags ...string) (*setting, featuregate.FeatureGate, error) {
	t.Helper()
	// The process's gate is closed once it was made a flag, its copies are not.
	gate := utilfeature.DefaultFeatureGate.DeepCopy()
	registry := basecompatibility.NewComponentGlobalsRegistry()
	effective := apicompatibility.DefaultBuildEffectiveVersion()
	if err := registry.Register(basecompatibility.DefaultKubeComponent, effective, gate); err != nil {
		t.Fatal(err)
	}
	c := newCommand()
	c.options.ComponentGlobalsRegistry = registry
	cmd := c.cobra()
	cmd.ResetFlags()
	registry.AddFlags(cmd.Flags())
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	set, err := c.adapt(cmd, s, gate)
	if err == nil {
		for _, err := range registry.Validate() {
			t.Errorf("kube-scheduler would reject it: %v", err)
		}
	}
	return set, gate, err
}

func TestAdapt(t *testing.T) {
	// What depends on dynamic resource allocation is on in 1.34.
	dra := []featuregate.Feature{"DRAAdminAccess", "DRAPrioritizedList", "DRASchedulerFilterTimeout", "DynamicResourceAllocation"}
	for name, tt := range map[string]struct {
		server       *cluster.Server
		flags        []string
		wantEmulated string
		wantReason   string
		wantOff      []featuregate.Feature
		wantDRA      bool
		wantBeta     bool
		wantErr      string
	}{
		"its own version":         {server: server("1.36"), wantEmulated: "1.36", wantReason: "this kube-scheduler's own version", wantDRA: true},
		"a newer server":          {server: server("1.37"), wantEmulated: "1.36", wantReason: "this kube-scheduler's own version", wantDRA: true},
		"an older server":         {server: server("1.35"), wantEmulated: "1.35", wantReason: "the version of the API server", wantDRA: true},
		"the oldest emulated":     {server: server("1.33"), wantEmulated: "1.33", wantReason: "the version of the API server"},
		"older than is emulated":  {server: server("1.28"), wantEmulated: "1.33", wantReason: "the oldest version that this kube-scheduler can emulate"},
		"1.24 has the capacities": {server: server("1.24"), wantEmulated: "1.33", wantReason: "the oldest version that this kube-scheduler can emulate"},
		"1.23":                    {server: server("1.23"), wantEmulated: "1.33", wantReason: "the oldest version that this kube-scheduler can emulate", wantBeta: true},
		"1.36 without claims, which can't be turned off there": {
			server: server("1.36", claims), wantEmulated: "1.34", wantOff: dra,
			wantReason: "newer versions need resourceclaims.v1.resource.k8s.io, which the API server does not serve",
		},
		"1.34 without claims": {server: server("1.34", claims), wantEmulated: "1.34", wantReason: "the version of the API server", wantOff: dra},
		"all alpha features are on, but for those without an API": {
			server: server("1.36"), flags: []string{"--feature-gates=AllAlpha=true"}, wantEmulated: "1.36", wantReason: "this kube-scheduler's own version", wantDRA: true,
			wantOff: []featuregate.Feature{"DRAWorkloadResourceClaims", "GangScheduling", "GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption", "WorkloadWithJob"},
		},
		"the user's version": {server: server("1.36"), flags: []string{"--emulated-version=1.34"}, wantEmulated: "1.34", wantReason: "set by --emulated-version", wantDRA: true},
		"the user's version for an older server": {
			server: server("1.28"), flags: []string{"--emulated-version=kube=1.34"}, wantEmulated: "1.34", wantReason: "set by --emulated-version", wantOff: dra,
		},
		"what was typed by hand until now": {
			server: server("1.28"), flags: []string{"--emulated-version=kube=1.33", "--feature-gates=DynamicResourceAllocation=false"},
			wantEmulated: "1.33", wantReason: "set by --emulated-version",
		},
		"the user's version can't do without an API": {
			server: server("1.28"), flags: []string{"--emulated-version=1.36"},
			wantErr: "feature DRAAdminAccess needs resourceclaims.v1.resource.k8s.io, which API server 1.28 does not serve, and can't be turned off in Kubernetes 1.36: remove --emulated-version",
		},
		"the user's feature lacks its API": {
			server: server("1.28"), flags: []string{"--feature-gates=DynamicResourceAllocation=true"},
			wantErr: "feature DynamicResourceAllocation needs resourceclaims.v1.resource.k8s.io, which API server 1.28 does not serve: remove it from --feature-gates, or enable that API in kube-apiserver",
		},
		"the user's feature is newer than the server": {
			server: server("1.28"), flags: []string{"--feature-gates=GangScheduling=true"},
			wantErr: "set the features of Kubernetes 1.33, which is emulated for API server 1.28: cannot set feature gate GangScheduling to true, feature is PreAlpha at emulated version 1.33",
		},
		"the user's feature is locked": {
			server: server("1.36"), flags: []string{"--feature-gates=DynamicResourceAllocation=false"},
			wantErr: "set the features of Kubernetes 1.36, which is emulated for API server 1.36: cannot set feature gate DynamicResourceAllocation to false, feature is locked to true; remove the feature from --feature-gates, or emulate another version with --emulated-version",
		},
		"a stable API is disabled": {
			server:  server("1.30", schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}),
			wantErr: "API server 1.30 does not serve poddisruptionbudgets.v1.policy, which kube-scheduler needs: enable that API, see --runtime-config of kube-apiserver",
		},
		"no capacities at all": {
			server:  server("1.23", betaCapacities),
			wantErr: "API server 1.23 does not serve csistoragecapacities.v1.storage.k8s.io, which kube-scheduler needs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, gate, err := adapted(t, tt.server, tt.flags...)
			if err != nil || tt.wantErr != "" {
				if err == nil || tt.wantErr == "" || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if got.emulated.String() != tt.wantEmulated || got.reason != tt.wantReason {
				t.Errorf("emulates %s: %s; want %s: %s", got.emulated, got.reason, tt.wantEmulated, tt.wantReason)
			}
			if diff := cmp.Diff(tt.wantOff, got.off); diff != "" {
				t.Errorf("off (-want +got):\n%s", diff)
			}
			if on := gate.Enabled(kubefeatures.DynamicResourceAllocation); on != tt.wantDRA || slices.Contains(got.inUse, claims) != on {
				t.Errorf("dynamic resource allocation is on: %v, want %v; in use: %v", on, tt.wantDRA, got.inUse)
			}
			if got.readsBeta() != tt.wantBeta {
				t.Errorf("reads v1beta1: %v, want %v", got.readsBeta(), tt.wantBeta)
			}
		})
	}
}

// TestOldestEmulated: kube-scheduler takes the oldest version, and none before.
func TestOldestEmulated(t *testing.T) {
	for v, want := range map[*version.Version]bool{oldestEmulated: true, oldestEmulated.SubtractMinor(1): false} {
		effective := apicompatibility.DefaultBuildEffectiveVersion()
		effective.SetEmulationVersion(v)
		if errs := effective.Validate(); (len(errs) == 0) != want {
			t.Errorf("%s: %v, want it accepted: %v", v, errs, want)
		}
	}
}

// TestServerWatch: answers arrive every 30 seconds from the start on, each repeated
// for so many minutes.
func TestServerWatch(t *testing.T) {
	type phase struct {
		minutes int
		// answers alternate; nil: the server can't be asked.
		answers []*cluster.Server
	}
	old, same, newer := server("1.28"), server("1.30"), server("1.34")
	const newFeatures = "API server 1.34 has newer features than 1.28, which answered at the start: ending, so that the next process uses what it serves"
	for name, tt := range map[string]struct {
		start  *cluster.Server
		flags  []string
		phases []phase
		// want is the reason to end, and wantAfter the minute in which that is.
		want      string
		wantAfter int
	}{
		"nothing changes": {start: old, phases: []phase{{600, []*cluster.Server{old}}}},
		"an upgrade that takes its time, and never ends": {
			start: old, phases: []phase{{600, []*cluster.Server{old, newer, newer}}},
		},
		"an upgrade that changes no setting": {start: old, phases: []phase{{5, []*cluster.Server{old, same}}, {600, []*cluster.Server{same}}}},
		"an upgrade soon after the start waits for an hour": {
			start: old, phases: []phase{{600, []*cluster.Server{newer}}}, want: newFeatures, wantAfter: 60,
		},
		"an upgrade later waits for ten minutes": {
			start: old, phases: []phase{{90, []*cluster.Server{old}}, {20, []*cluster.Server{old, newer}}, {600, []*cluster.Server{newer}}}, want: newFeatures, wantAfter: 120,
		},
		"a server that can't be asked may be the old one": {
			start: old, phases: []phase{{90, []*cluster.Server{newer, newer, nil}}},
		},
		"the user's version is kept": {start: newer, flags: []string{"--emulated-version=1.34"}, phases: []phase{{600, []*cluster.Server{server("1.36")}}}},
		"a roll-back to servers without an API in use": {
			start: newer, phases: []phase{{9, []*cluster.Server{newer, newer, newer, old}}},
			want: "API server 1.28 does not serve resourceclaims.v1.resource.k8s.io, which is in use: ending, so that the next process uses what it serves", wantAfter: 6,
		},
		"an incomplete answer now and then": {
			start: newer, phases: []phase{{6, []*cluster.Server{newer}}, {1, []*cluster.Server{server("1.34", claims)}}, {12, []*cluster.Server{newer}}, {1, []*cluster.Server{server("1.34", claims)}}, {12, []*cluster.Server{newer}}},
		},
		"v1beta1 is gone": {
			start: server("1.23"), phases: []phase{{20, []*cluster.Server{server("1.23")}}, {20, []*cluster.Server{server("1.27")}}},
			want: "API server 1.27 does not serve csistoragecapacities.v1beta1.storage.k8s.io, which is in use: ending, so that the next process uses what it serves", wantAfter: 21,
		},
		"v1 takes the place of v1beta1": {
			start: server("1.23"), phases: []phase{{90, []*cluster.Server{server("1.24")}}},
			want: "API server 1.24 has newer features than 1.23, which answered at the start: ending, so that the next process uses what it serves", wantAfter: 60,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, _, err := adapted(t, tt.start, tt.flags...)
			if err != nil {
				t.Fatal(err)
			}
			clk := clocktesting.NewFakeClock(start)
			w := newServerWatch(set, clk, nil)
			if w.settled < serverSettled || w.settled > 2*serverSettled {
				t.Errorf("waits for %v", w.settled)
			}
			w.settled = serverSettled
			for _, p := range tt.phases {
				for i := range 2 * p.minutes {
					clk.Step(serverPoll)
					var down error
					answer := p.answers[i%len(p.answers)]
					if answer == nil {
						down = errors.New("connection refused")
					}
					err := w.take(klog.Logger{}, answer, down)
					if err == nil {
						continue
					}
					if got := clk.Since(start).Truncate(time.Minute); err.Error() != tt.want || got != time.Duration(tt.wantAfter)*time.Minute {
						t.Errorf("ends after %v: %v; want after %d minutes: %s", got, err, tt.wantAfter, tt.want)
					}
					return
				}
			}
			if tt.want != "" {
				t.Error("it does not end")
			}
		})
	}
}
