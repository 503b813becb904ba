package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// emulatedVersion is kube-scheduler's flag for older API servers.
const emulatedVersion = "emulated-version"

// oldestEmulated is the oldest version that kube-scheduler can emulate.
var oldestEmulated = version.MajorMinor(1, 33)

var (
	capacities     = storagev1.SchemeGroupVersion.WithResource("csistoragecapacities")
	betaCapacities = storagev1beta1.SchemeGroupVersion.WithResource("csistoragecapacities")
)

// need is a resource that kube-scheduler reads while a feature is on; it reads
// those without a feature always.
type need struct {
	feature  featuregate.Feature
	resource schema.GroupVersionResource
}

// needs are the resources without which an informer would never sync. Those of the
// API's core are left out: every server has them.
var needs = []need{
	{resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")},
	{resource: storagev1.SchemeGroupVersion.WithResource("storageclasses")},
	{resource: storagev1.SchemeGroupVersion.WithResource("csidrivers")},
	{resource: storagev1.SchemeGroupVersion.WithResource("csinodes")},
	{resource: storagev1.SchemeGroupVersion.WithResource("volumeattachments")},
	{resource: coordinationv1.SchemeGroupVersion.WithResource("leases")},
	{kubefeatures.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("resourceclaims")},
	{kubefeatures.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("resourceslices")},
	{kubefeatures.DynamicResourceAllocation, resourcev1.SchemeGroupVersion.WithResource("deviceclasses")},
	{kubefeatures.DRADeviceTaintRules, resourcev1beta2.SchemeGroupVersion.WithResource("devicetaintrules")},
	{kubefeatures.GenericWorkload, schedulingv1alpha2.SchemeGroupVersion.WithResource("podgroups")},
	{kubefeatures.CoordinatedLeaderElection, coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")},
}

// resourcesInQuestion returns all that the API server is asked for.
func resourcesInQuestion() []schema.GroupVersionResource {
	all := []schema.GroupVersionResource{capacities, betaCapacities}
	for _, n := range needs {
		all = append(all, n.resource)
	}
	return all
}

// nameOf returns a resource as kubectl takes it.
func nameOf(r schema.GroupVersionResource) string {
	return strings.Join([]string{r.Resource, r.Version, r.Group}, ".")
}

// setting is what kube-scheduler is set to for an API server.
type setting struct {
	server *cluster.Server
	// emulated is the version that kube-scheduler behaves as, and reason says why.
	emulated *version.Version
	reason   string
	// emulate returns the version to emulate for another server; nil where the user
	// has set it.
	emulate func(*cluster.Server) *version.Version
	// off are the features that are turned off, and missing the resources that the
	// server would have to serve for a better setting.
	off     []featuregate.Feature
	missing []schema.GroupVersionResource
	// inUse are the resources that this process reads.
	inUse []schema.GroupVersionResource
}

// adapt sets kube-scheduler to what the API server serves: it would wait for
// other resources forever. What the user sets is left as it is.
func (c *command) adapt(cmd *cobra.Command, server *cluster.Server, gate featuregate.MutableVersionedFeatureGate) (*setting, error) {
	registry := c.options.ComponentGlobalsRegistry
	s := &setting{server: server, reason: "set by --" + emulatedVersion}
	if !cmd.Flags().Changed(emulatedVersion) {
		s.emulate = func(server *cluster.Server) *version.Version {
			v, _ := c.emulate(server, gate)
			return v
		}
		s.emulated, s.reason = c.emulate(server, gate)
		if err := cmd.Flags().Set(emulatedVersion, "kube="+s.emulated.String()); err != nil {
			return nil, err
		}
	}
	err := registry.Set()
	s.emulated = registry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).EmulationVersion()
	if err != nil {
		return nil, fmt.Errorf("set the features of Kubernetes %s, which is emulated for API server %s: %w; remove the feature from --feature-gates, or emulate another version with --%s",
			s.emulated, server.Version, err, emulatedVersion)
	}
	if err := s.turnOff(gate); err != nil {
		return nil, err
	}
	if err := s.use(gate); err != nil {
		return nil, err
	}
	return s, nil
}

// emulate returns the newest version, up to that of the server, whose features
// can be turned off where the server lacks their resources.
func (c *command) emulate(server *cluster.Server, gate featuregate.MutableVersionedFeatureGate) (v *version.Version, reason string) {
	own := c.options.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).BinaryVersion()
	v, reason = version.MajorMinor(own.Major(), own.Minor()), "this kube-scheduler's own version"
	if server.Version.LessThan(v) {
		v, reason = server.Version, "the version of the API server"
	}
	if v.LessThan(oldestEmulated) {
		v, reason = oldestEmulated, "the oldest version that this kube-scheduler can emulate"
	}
	trial := gate.DeepCopyAndReset()
	for ; v.GreaterThan(oldestEmulated); v = v.SubtractMinor(1) {
		if err := trial.SetEmulationVersion(v); err != nil {
			break // kube-scheduler reports it
		}
		all := trial.GetAll()
		locked := slices.IndexFunc(needs, func(n need) bool {
			spec := all[n.feature]
			return spec.LockToDefault && spec.Default && !server.Serves(n.resource)
		})
		if locked < 0 {
			break
		}
		reason = fmt.Sprintf("newer versions need %s, which the API server does not serve", nameOf(needs[locked].resource))
	}
	return v, reason
}

// turnOff turns off the features whose resources the server does not serve, and
// those that depend on them.
func (s *setting) turnOff(gate featuregate.MutableVersionedFeatureGate) error {
	off, all, dependencies := map[string]bool{}, gate.GetAll(), gate.Dependencies()
	for _, feature := range slices.Sorted(maps.Keys(all)) {
		i := slices.IndexFunc(needs, func(n need) bool {
			return n.feature != "" && dependsOn(dependencies, feature, n.feature) && !s.server.Serves(n.resource)
		})
		if i < 0 || !gate.Enabled(feature) {
			continue
		}
		lacks := fmt.Sprintf("feature %s needs %s, which API server %s does not serve", feature, nameOf(needs[i].resource), s.server.Version)
		switch {
		case gate.ExplicitlySet(feature):
			return fmt.Errorf("%s: remove it from --feature-gates, or enable that API in kube-apiserver", lacks)
		case all[feature].LockToDefault:
			return fmt.Errorf("%s, and can't be turned off in Kubernetes %s: remove --%s", lacks, s.emulated, emulatedVersion)
		}
		off[string(feature)] = false
		s.off, s.missing = append(s.off, feature), append(s.missing, needs[i].resource)
	}
	if err := gate.SetFromMap(off); err != nil {
		return fmt.Errorf("turn off %v for API server %s: %w; set them with --feature-gates", s.off, s.server.Version, err)
	}
	return nil
}

// dependsOn reports whether a feature is the other one or depends on it.
func dependsOn(dependencies map[featuregate.Feature][]featuregate.Feature, feature, on featuregate.Feature) bool {
	return feature == on || slices.ContainsFunc(dependencies[feature], func(f featuregate.Feature) bool { return dependsOn(dependencies, f, on) })
}

// use notes the resources that are in use with the features as they are now.
func (s *setting) use(gate featuregate.FeatureGate) error {
	for _, n := range needs {
		if n.feature == "" || gate.Enabled(n.feature) {
			s.inUse = append(s.inUse, n.resource)
		}
	}
	if s.server.Serves(capacities) || !s.server.Serves(betaCapacities) {
		s.inUse = append(s.inUse, capacities)
	} else {
		s.inUse, s.missing = append(s.inUse, betaCapacities), append(s.missing, capacities)
	}
	for _, r := range s.inUse {
		if !s.server.Serves(r) {
			return fmt.Errorf("API server %s does not serve %s, which kube-scheduler needs: enable that API, see --runtime-config of kube-apiserver", s.server.Version, nameOf(r))
		}
	}
	return nil
}

// readsBeta reports whether CSIStorageCapacities are read as v1beta1: servers
// before 1.24 have no other.
func (s *setting) readsBeta() bool { return slices.Contains(s.inUse, betaCapacities) }
