package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Names of the plugins that stand in for kube-scheduler's own in our profile.
// They are these plugins, but pods with cards are ranked by their cards alone.
const (
	// ResourcesName stands in for NodeResourcesFit. It counts cards itself:
	// NodeResourcesFit matches the names of such resources against regular
	// expressions, for every node again, which takes longer than all else that a
	// node is asked.
	ResourcesName = "DaybreakResources"
	// BalanceName stands in for NodeResourcesBalancedAllocation and ImagesName
	// for ImageLocality.
	BalanceName = "DaybreakBalance"
	ImagesName  = "DaybreakImages"
)

// standIns returns the plugins that stand in for kube-scheduler's own.
func (s *State) standIns() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		ResourcesName: newResources, BalanceName: newBalance, ImagesName: newImages,
		AffinityName: s.newNeighbours(AffinityName, names.InterPodAffinity, interpodaffinity.New, func(*corev1.Pod) bool { return false }),
		SpreadName:   s.newNeighbours(SpreadName, names.PodTopologySpread, podtopologyspread.New, isSpreadByDefault),
		VolumesName:  s.newVolumes,
	}
}

func features() feature.Features {
	return feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
}

// newWrapped makes the plugin of kube-scheduler that one of ours wraps.
func newWrapped[T fwk.Plugin](ctx context.Context, name, wrapped string, factory frameworkruntime.PluginFactoryWithFts[fwk.Plugin], obj runtime.Object, h fwk.Handle) (plugin T, err error) {
	args, err := wrappedArgs(name, wrapped, obj)
	if err != nil {
		return plugin, err
	}
	made, err := factory(ctx, args, h, features())
	if err != nil {
		return plugin, err
	}
	plugin, ok := made.(T)
	if !ok {
		return plugin, fmt.Errorf("%s is a %T", wrapped, made)
	}
	return plugin, nil
}

// resources is NodeResourcesFit for pods with and without cards.
type resources struct{ *noderesources.Fit }

// filteringPlugin is what a plugin of kube-scheduler's is that filters and scores.
type filteringPlugin interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.SignPlugin
	fwk.EnqueueExtensions
}

var _ filteringPlugin = (*resources)(nil)

func newResources(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	fit, err := newWrapped[*noderesources.Fit](ctx, ResourcesName, names.NodeResourcesFit, noderesources.NewFit, obj, h)
	return &resources{Fit: fit}, err
}

// Name returns the plugin's name.
func (*resources) Name() string { return ResourcesName }

// counts is what a pod asks for of the resources that nodes count cards in.
type counts []count

type count struct {
	name corev1.ResourceName
	n    int64
}

const countsKey fwk.StateKey = "PreFilter" + ResourcesName

// Clone returns the counts themselves: they are never changed.
func (c counts) Clone() fwk.StateData { return c }

// uncounted reports whether no node advertises the resource: the bounds of a
// slice, and what is ours alone.
func uncounted(name corev1.ResourceName) bool {
	return wire.Uncounted(name) || strings.HasPrefix(string(name), resourceGroup+"/")
}

// PreFilter takes the cards out of what NodeResourcesFit looks at.
func (r *resources) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !wire.Asks(pod) {
		return r.Fit.PreFilter(ctx, cs, pod, infos)
	}
	var c counts
	all := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
	for _, name := range wire.Resources() {
		if q, ok := all[name]; ok && !uncounted(name) && q.Value() > 0 {
			c = append(c, count{name: name, n: q.Value()})
		}
	}
	cs.Write(countsKey, c)
	return r.Fit.PreFilter(ctx, cs, without(pod, func(name corev1.ResourceName) bool {
		return uncounted(name) || slices.Contains(wire.Resources(), name)
	}), infos)
}

// Filter counts cards, and leaves the rest to NodeResourcesFit.
func (r *resources) Filter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	if data, err := cs.Read(countsKey); err == nil {
		c, ok := data.(counts)
		if !ok {
			return fwk.AsStatus(fmt.Errorf("%q of the scheduling cycle is a %T", countsKey, data))
		}
		have, used := ni.GetAllocatable().GetScalarResources(), ni.GetRequested().GetScalarResources()
		for _, want := range c {
			switch all := have[want.name]; {
			case want.n > all:
				return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Insufficient "+string(want.name))
			case want.n > all-used[want.name]:
				return fwk.NewStatus(fwk.Unschedulable, "Insufficient "+string(want.name))
			}
		}
	}
	return r.Fit.Filter(ctx, cs, pod, ni)
}

// PreScore skips pods with cards.
func (r *resources) PreScore(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	if wire.Asks(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	return r.Fit.PreScore(ctx, cs, pod, infos)
}

// EventsToRegister is NodeResourcesFit's, which would never wake a pod that asks
// for something that no node advertises.
func (r *resources) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := r.Fit.EventsToRegister(ctx)
	for i := range events {
		if hint := events[i].QueueingHintFn; hint != nil {
			events[i].QueueingHintFn = func(logger klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
				return hint(logger, without(pod, uncounted), oldObj, newObj)
			}
		}
	}
	return events, err
}

// without returns the pod without the resources that the check names, or the pod
// itself when it has none of them.
func without(pod *corev1.Pod, drop func(corev1.ResourceName) bool) *corev1.Pod {
	trimmed := *pod
	trimmed.Spec.InitContainers = withoutResources(pod.Spec.InitContainers, drop)
	trimmed.Spec.Containers = withoutResources(pod.Spec.Containers, drop)
	return &trimmed
}

func withoutResources(containers []corev1.Container, drop func(corev1.ResourceName) bool) []corev1.Container {
	var copied bool
	for i := range containers {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(containers[i].Resources.Requests)), drop) {
			continue
		}
		if !copied {
			containers, copied = slices.Clone(containers), true
		}
		requests := corev1.ResourceList{}
		for name, q := range containers[i].Resources.Requests {
			if !drop(name) {
				requests[name] = q
			}
		}
		containers[i].Resources.Requests = requests
	}
	return containers
}

// ordinary scores nodes for pods without cards.
type ordinary struct {
	fwk.ScorePlugin
	name string
}

var (
	_ fwk.PreScorePlugin = (*ordinary)(nil)
	_ fwk.ScorePlugin    = (*ordinary)(nil)
	_ fwk.SignPlugin     = (*ordinary)(nil)
)

func newBalance(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	plugin, err := newWrapped[fwk.ScorePlugin](ctx, BalanceName, names.NodeResourcesBalancedAllocation, noderesources.NewBalancedAllocation, obj, h)
	return &ordinary{ScorePlugin: plugin, name: BalanceName}, err
}

func newImages(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	if obj != nil {
		return nil, fmt.Errorf("args of plugin %s: %s takes none: remove them", ImagesName, names.ImageLocality)
	}
	plugin, err := imagelocality.New(ctx, nil, h)
	if err != nil {
		return nil, err
	}
	score, ok := plugin.(fwk.ScorePlugin)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, which scores nothing", names.ImageLocality, plugin)
	}
	return &ordinary{ScorePlugin: score, name: ImagesName}, nil
}

// Name returns the plugin's name.
func (o *ordinary) Name() string { return o.name }

// PreScore skips pods with cards.
func (o *ordinary) PreScore(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	if wire.Asks(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	if plugin, ok := o.ScorePlugin.(fwk.PreScorePlugin); ok {
		return plugin.PreScore(ctx, cs, pod, infos)
	}
	return nil
}

// SignPod signs as the plugin does, so that pods without cards can be batched.
func (o *ordinary) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if plugin, ok := o.ScorePlugin.(fwk.SignPlugin); ok {
		return plugin.SignPod(ctx, pod)
	}
	return nil, nil
}
