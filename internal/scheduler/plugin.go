package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Name is the plugin's name in a scheduler configuration.
const Name = "Daybreak"

// State is what all profiles of one scheduler process have in common.
type State struct {
	devices   *devices
	pods      *pods
	nodes     *nodes
	index     *index
	hints     *hintAccounts
	term      *term
	clock     clock.WithDelayedExecution
	bindLimit *bindLimit
	// locks are the locks of nodes that the vendor's plugin serves; nil when
	// nothing is to be done for that plugin, see [DevicePluginAdaption].
	locks   *locks
	metrics *metrics
	// quotas has the ResourceQuotas; nil when all profiles ignore them.
	quotas *quotas
	// vendorPlugin is the label selector of the vendor's plugin; nil before the
	// first profile's plugin is made.
	vendorPlugin *string
	// waiting are the pods that wait for their neighbours, by plugin of each profile.
	waiting []*waitingPods
	// betaCapacities makes [VolumesName] read CSIStorageCapacities as v1beta1.
	betaCapacities bool
}

// NewState returns the state of one scheduler process.
func NewState(c clock.WithDelayedExecution) *State {
	s := &State{pods: newPods(), term: newTerm(sinceBoot), clock: c}
	s.bindLimit, s.metrics, s.locks = newBindLimit(firstBinds), newMetrics(s.pods, s.term), newLocks(s)
	s.devices = &devices{pods: s.pods}
	s.nodes = newNodes(s.devices, s.pods)
	s.hints = newHintAccounts(s.nodes)
	s.index = newIndex(s.nodes)
	return s
}

// Plugin places pods that ask for MetaX cards. Each extension point is in the
// file of its name.
type Plugin struct {
	handle fwk.Handle
	shared *State
	policy place.Policy
	// lockWait is how long a pod waits for a node's lock that does not change.
	lockWait time.Duration
	// nodeLister is at hand because hints ask it for every waiting pod.
	nodeLister corelisters.NodeLister
	// podGroups is true when kube-scheduler schedules pod groups as a whole.
	podGroups bool
	quotaKeys string
	// compares is true when tolerations may have comparison operators, a feature of
	// Kubernetes.
	compares bool

	// preemption handles all pods of the profile: those without cards as
	// kube-scheduler always does.
	*defaultpreemption.DefaultPreemption
	evaluator *preemption.Evaluator
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

// Factory returns what makes the plugin for one profile.
func (s *State) Factory() func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return s.newPlugin(ctx, obj, h)
	}
}

func (s *State) newPlugin(ctx context.Context, obj runtime.Object, h fwk.Handle) (*Plugin, error) {
	args, err := parseArgs(obj)
	if err != nil {
		return nil, err
	}
	defaults := &config.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: *args.MinCandidateNodesPercentage,
		MinCandidateNodesAbsolute:   *args.MinCandidateNodesAbsolute,
	}
	gates := features()
	base, err := defaultpreemption.New(ctx, defaults, h, gates)
	if err != nil {
		return nil, fmt.Errorf("preemption: %w", err)
	}
	p := &Plugin{handle: h, shared: s, policy: args.policy(), lockWait: args.lockWait(), podGroups: gates.EnableGenericWorkload, DefaultPreemption: base}
	p.quotaKeys = args.QuotaKeys
	p.compares = gates.EnableTaintTolerationComparisonOperators
	p.nodeLister = h.SharedInformerFactory().Core().V1().Nodes().Lister()
	wakeAfterEvictions(h, base.Executor)
	p.evaluator = preemption.NewEvaluator(Name, h, p, base.Executor)
	if err := s.selectVendorPlugin(args.VendorPluginSelector); err != nil {
		return nil, err
	}
	if err := s.watchQuotas(h, args.QuotaKeys); err != nil {
		return nil, err
	}
	if err := s.locks.watch(h, args.lockExpiry()); err != nil {
		return nil, err
	}
	return p, s.cleanUp(h)
}

// selectVendorPlugin sets how the vendor's plugin is known, once for all
// profiles.
func (s *State) selectVendorPlugin(selector string) error {
	if s.vendorPlugin != nil && *s.vendorPlugin != selector {
		return fmt.Errorf("args of plugin %s: vendorPluginSelector: Invalid value: %q: another profile has %q: write the same in all", Name, selector, *s.vendorPlugin)
	}
	s.vendorPlugin = &selector
	return s.nodes.vendor.Set(selector)
}

// cleanUp forgets pods that are gone.
func (s *State) cleanUp(h fwk.Handle) error {
	informer := h.SharedInformerFactory().Core().V1().Pods()
	s.pods.lister = informer.Lister()
	changed := func(before, after *corev1.Pod) { s.podChanged(h, before, after) }
	return watch(informer.Informer(), "pods", changed, func(pod *corev1.Pod) {
		s.quitLine(h, pod, true)
		s.pods.drop(pod.UID)
		if pod.Spec.NodeName == "" && wire.Asks(pod) {
			s.tryPreemptors(h)
		}
	})
}

// watch calls the functions, either of which may be nil, when an object was added
// (then there is none before) or updated, and when it was deleted.
func watch[T any](informer cache.SharedIndexInformer, kind string, changed func(before, after T), deleted func(T)) error {
	var handler cache.ResourceEventHandlerFuncs
	if changed != nil {
		handler.UpdateFunc = func(before, after any) {
			was, _ := before.(T)
			if now, ok := after.(T); ok {
				changed(was, now)
			}
		}
		handler.AddFunc = func(obj any) { handler.UpdateFunc(nil, obj) }
	}
	if deleted != nil {
		handler.DeleteFunc = func(obj any) {
			if last, ok := unwrapTombstone(obj).(T); ok {
				deleted(last)
			}
		}
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	return nil
}

// unwrapTombstone returns the object of a delete event.
func unwrapTombstone(obj any) any {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return obj
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// nodeFilter returns what keeps the pod off nodes, whatever their cards.
func (p *Plugin) nodeFilter(pod *corev1.Pod) *cluster.NodeFilter {
	filter := cluster.NewNodeFilter(pod)
	filter.Compares = p.compares
	return filter
}

// SignPod keeps pods that ask for cards out of batching, which would reuse one
// pod's ranking of nodes for the next: after each pod another node may be best.
// Other pods are none of this plugin's business.
func (*Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if wire.Asks(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with MetaX cards are placed one by one")
	}
	return nil, nil
}
