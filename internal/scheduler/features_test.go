package scheduler

import (
	"testing"

	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestAddFeatures(t *testing.T) {
	gate := featuregate.NewFeatureGate()
	if !adaptsToPlugin(gate) {
		t.Error("where the feature is not known it is on")
	}
	for range 2 { // a second command in one process
		gputest.Must(t, addFeatures(gate))
	}
	if !adaptsToPlugin(gate) {
		t.Error("it is off by default")
	}
	gputest.Must(t, gate.Set("DevicePluginAdaption=false"))
	if adaptsToPlugin(gate) {
		t.Error("it can't be switched off")
	}
	closed := featuregate.NewFeatureGate()
	closed.Close()
	if err := addFeatures(closed); err == nil {
		t.Error("a gate that takes nothing any more: want an error")
	}
}

// TestPreferLists: informers begin with lists, unless the user wants streams.
func TestPreferLists(t *testing.T) {
	const feature = featuregate.Feature(clientfeatures.WatchListClient)
	tests := map[string]struct {
		unknown bool
		flag    string
		want    bool
	}{
		"by default":               {},
		"the user wants streams":   {flag: "WatchListClient=true", want: true},
		"the user wants lists":     {flag: "WatchListClient=false"},
		"the user wants all betas": {flag: "AllBeta=true"},
		"the feature is not known": {unknown: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			gate := featuregate.NewFeatureGate()
			if !tt.unknown {
				gputest.Must(t, gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{feature: {Default: true, PreRelease: featuregate.Beta}}))
			}
			gputest.Must(t, gate.Set(tt.flag))
			gputest.Must(t, preferLists(gate))
			if !tt.unknown && gate.Enabled(feature) != tt.want {
				t.Errorf("streams are on: %v, want %v", !tt.want, tt.want)
			}
		})
	}
}
