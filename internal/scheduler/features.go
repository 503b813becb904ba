package scheduler

import (
	"fmt"

	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
)

// DevicePluginAdaption makes the scheduler do what the vendor's device plugin
// needs of it: write the annotations that only that plugin reads, and take the
// lock of nodes that it serves. The name is Koordinator's, whose users set it;
// there it is off unless they do.
const DevicePluginAdaption featuregate.Feature = "DevicePluginAdaption"

// addFeatures makes our features known to kube-scheduler's --feature-gates. They
// are of no version of Kubernetes, so they do not depend on the one emulated.
func addFeatures(gate featuregate.MutableFeatureGate) error {
	// The gate is one for the whole process, and takes nothing any more once it
	// was made a flag.
	if _, known := gate.GetAll()[DevicePluginAdaption]; known {
		return nil
	}
	err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		DevicePluginAdaption: {Default: true, PreRelease: featuregate.GA},
	})
	if err != nil {
		return fmt.Errorf("add feature %s: %w", DevicePluginAdaption, err)
	}
	return nil
}

// adaptsToPlugin reports whether the feature is on; it is where it is not
// known.
func adaptsToPlugin(gate featuregate.FeatureGate) bool {
	known, ok := gate.(featuregate.MutableFeatureGate)
	if !ok {
		return true
	}
	if _, ok := known.GetAll()[DevicePluginAdaption]; !ok {
		return true
	}
	return gate.Enabled(DevicePluginAdaption)
}

// preferLists makes informers begin with a list in place of a stream of single
// objects, unless the user has decided that. With 100 000 pods that saves five
// seconds of twenty-four, and API servers from 1.33 on encode a list piece by
// piece: it costs them no more memory than a stream does.
func preferLists(gate featuregate.MutableVersionedFeatureGate) error {
	const feature = featuregate.Feature(clientfeatures.WatchListClient)
	if _, known := gate.GetAll()[feature]; !known || gate.ExplicitlySet(feature) {
		return nil
	}
	if err := gate.SetFromMap(map[string]bool{string(feature): false}); err != nil {
		return fmt.Errorf("turn %s off: %w", feature, err)
	}
	return nil
}
