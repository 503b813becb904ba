package scheduler

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// DefaultProfile is the scheduler's name when it runs alongside another one.
	DefaultProfile = "daybreak"
	// resourceGroup is the group of our own resources, which no node counts.
	resourceGroup = "daybreak-gpu.io"
)

// configOptions is what the built-in configuration leaves open.
type configOptions struct {
	kubeconfig string
	profiles   []string
	policy     string
	// vendorPlugin selects the pods of the vendor's plugin.
	vendorPlugin string
	quotaKeys    string
	// betaCapacities puts [VolumesName] in the place of VolumeBinding.
	betaCapacities bool
}

// defaultConfig returns the built-in configuration of the scheduler: one
// profile for each name, all alike. With the name default-scheduler among them
// it replaces kube-scheduler and so shares its lease.
func defaultConfig(o configOptions) ([]byte, error) {
	lease := wire.SchedulerComponent
	if slices.Contains(o.profiles, corev1.DefaultSchedulerName) {
		lease = "kube-scheduler"
	}
	cfg := configv1.KubeSchedulerConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"},
		// The default of 50 a second would be the bound of binding.
		ClientConnection: componentbaseconfig.ClientConnectionConfiguration{Kubeconfig: o.kubeconfig, QPS: 1000, Burst: 2000},
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect: new(true), ResourceName: lease, ResourceNamespace: metav1.NamespaceSystem,
		},
	}
	args, err := yaml.Marshal(Args{Policy: o.policy, VendorPluginSelector: o.vendorPlugin, QuotaKeys: o.quotaKeys})
	if err != nil {
		return nil, err
	}
	if args, err = yaml.YAMLToJSON(args); err != nil {
		return nil, err
	}
	for _, name := range o.profiles {
		p := profile(name, args)
		if all := &p.Plugins.MultiPoint; o.betaCapacities {
			all.Enabled = append(all.Enabled, configv1.Plugin{Name: VolumesName})
			all.Disabled = append(all.Disabled, configv1.Plugin{Name: names.VolumeBinding})
		}
		cfg.Profiles = append(cfg.Profiles, p)
	}
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return text, nil
}

// profile is how the plugin stands among kube-scheduler's own.
func profile(name string, args []byte) configv1.KubeSchedulerProfile {
	ours := []configv1.Plugin{{Name: Name}}
	return configv1.KubeSchedulerProfile{
		SchedulerName: &name,
		Plugins: &configv1.Plugins{
			// Our PostFilter does what DefaultPreemption does, with cards in mind,
			// and what would only stir nodes that are equally good for a pod with
			// cards is for other pods. What users wrote counts (affinity, spread,
			// taints).
			MultiPoint: configv1.PluginSet{
				Enabled: []configv1.Plugin{
					{Name: Name}, {Name: ResourcesName}, {Name: BalanceName}, {Name: ImagesName},
					// These weigh as much as what they stand in for.
					{Name: SpreadName, Weight: new(int32(2))}, {Name: AffinityName, Weight: new(int32(2))},
				},
				Disabled: []configv1.Plugin{
					{Name: names.DefaultPreemption}, {Name: names.NodeResourcesFit}, {Name: names.NodeResourcesBalancedAllocation}, {Name: names.ImageLocality},
					{Name: names.PodTopologySpread}, {Name: names.InterPodAffinity},
				},
			},
			// Plugins named at an extension point come before those of
			// multiPoint: DefaultBinder must not bind a pod with cards, and ours
			// is the refusal to report.
			Filter:     configv1.PluginSet{Enabled: ours},
			PostFilter: configv1.PluginSet{Enabled: ours},
			Bind:       configv1.PluginSet{Enabled: ours},
		},
		PluginConfig: []configv1.PluginConfig{{Name: Name, Args: runtime.RawExtension{Raw: args}}},
	}
}

// kubeconfigOf writes down how a pod reaches its API server. One thing is not as
// client-go would have it: answers are not compressed. That of the list of all
// pods takes an API server seconds, and the stream that kube-scheduler would read
// in its place is not compressed either.
func kubeconfigOf(in *rest.Config) ([]byte, error) {
	const name = "in-cluster"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: in.Host, CertificateAuthority: in.CAFile, DisableCompression: true}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: in.BearerTokenFile}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	return clientcmd.Write(*cfg)
}
