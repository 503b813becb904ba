package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// quotaWords are what may be done with HAMi's keys in ResourceQuotas.
var quotaWords = []string{quota.Enforce, quota.Warn, quota.Off}

// quotas has the ResourceQuotas of each namespace as they were last read: a tenant may
// create thousands.
type quotas struct {
	lister corelisters.ResourceQuotaLister

	mu sync.Mutex
	// read has those of namespaces that have some, and version counts the changes.
	read    map[string]*namespaceQuotas
	version uint64
}

// namespaceQuotas is the ResourceQuotas of a namespace that are about cards.
type namespaceQuotas struct {
	quotas   []*quota.Quota
	enforced bool // by this package
}

// of returns the budget of the namespace, nil if it has no ResourceQuota.
func (q *quotas) of(namespace string) *namespaceQuotas {
	q.mu.Lock()
	known, version := q.read[namespace], q.version
	q.mu.Unlock()
	if known != nil {
		return known
	}
	listed, _ := q.lister.ResourceQuotas(namespace).List(labels.Everything()) // of a store with an index by namespace, which returns no error
	if len(listed) == 0 {
		return nil
	}
	b := &namespaceQuotas{quotas: quota.Group(listed)[namespace]}
	b.enforced = slices.ContainsFunc(b.quotas, (*quota.Quota).Enforced)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.version == version {
		q.read[namespace] = b
	}
	return b
}

// forget has the ResourceQuotas of the namespace read again.
func (q *quotas) forget(namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.read, namespace)
	q.version++
}

// watchQuotas lists ResourceQuotas unless they are ignored, and makes kube-scheduler
// try the pods again that wait for one that changes.
func (s *State) watchQuotas(h fwk.Handle, keys string) error {
	if keys == quota.Off || s.quotas != nil {
		return nil
	}
	informers := h.SharedInformerFactory().Core().V1()
	s.quotas, s.index.usage.pods = &quotas{lister: informers.ResourceQuotas().Lister(), read: map[string]*namespaceQuotas{}}, informers.Pods().Lister()
	changed := func(rq *corev1.ResourceQuota) {
		s.quotas.forget(rq.Namespace)
		if first := s.pods.freeBudget(rq.Namespace, s.hints.now(), event{}); first != nil {
			activate(h, first)
		}
	}
	return watch(informers.ResourceQuotas().Informer(), "resourcequotas", func(before, after *corev1.ResourceQuota) {
		if before == nil || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
			changed(after)
		}
	}, changed)
}

// podChanged notes pods that are not to be placed any more: they are deleted or were
// bound, if not by this process then by another one.
func (s *State) podChanged(h fwk.Handle, before, after *corev1.Pod) {
	name := after.Spec.NodeName
	if name == "" && after.DeletionTimestamp == nil {
		return
	}
	s.quitLine(h, after, true)
	if name == "" || before != nil && before.Spec.NodeName != "" {
		return
	}
	if _, err := h.SharedInformerFactory().Core().V1().Nodes().Lister().Get(name); err != nil && wire.Asks(after) {
		s.index.usage.stray(after)
	}
}

// settingsOf returns what answers about this scheduler depend on, of the profiles that
// enable the plugin.
func settingsOf(profiles []config.KubeSchedulerProfile) (cluster.Settings, error) {
	s := cluster.Settings{Profiles: map[string]cluster.Profile{}}
	for i := range profiles {
		p := profiles[i].Plugins
		if p == nil || !slices.Contains(p.Names(), Name) && !enables(p.MultiPoint, Name) {
			continue
		}
		args := Args{QuotaKeys: quota.Enforce}
		if k := slices.IndexFunc(profiles[i].PluginConfig, func(c config.PluginConfig) bool { return c.Name == Name }); k >= 0 {
			var err error
			if args, err = parseArgs(profiles[i].PluginConfig[k].Args); err != nil {
				return s, err
			}
		}
		s.Profiles[profiles[i].SchedulerName] = cluster.Profile{Policy: args.Policy, QuotaKeys: args.QuotaKeys}
	}
	return s, nil
}

// checkQuotaRights returns an error where a profile needs ResourceQuotas and the
// scheduler may not list them: kube-scheduler would wait for the informer without a
// word.
func checkQuotaRights(ctx context.Context, client dynamic.Interface, settings cluster.Settings) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(settings.Profiles)), func(p cluster.Profile) bool { return p.QuotaKeys != quota.Off }) {
		return nil
	}
	_, err := client.Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas")).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("this scheduler may not list resourcequotas: give its account the verbs list and watch on them, or set --quota-keys=%[1]s (with --config, quotaKeys: %[1]s in the args of plugin %[2]s of each profile)", quota.Off, Name)
	}
	return nil
}

// checkQuota returns the refusal of a pod that would exceed the budget of its
// namespace. The index is up to date.
func (p *Plugin) checkQuota(ctx context.Context, pod *corev1.Pod, r *gpu.PodRequest) place.Refusal {
	if p.quotaKeys == quota.Off {
		return place.Refusal{}
	}
	for {
		known := p.shared.quotas.of(pod.Namespace)
		b := p.budgetOf(known, pod.Namespace)
		refusal := b.refusal(pod, r)
		if refusal.Code != place.Fits && p.quotaKeys == quota.Warn {
			if p.shared.pods.warnQuota(pod.UID) {
				klog.FromContext(ctx).Info("Pod exceeds the budget of its namespace", "pod", klog.KObj(pod), "reason", refusal.Message(nil))
				p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, refusal.Code.String(), "Scheduling", "placed nevertheless, since quotaKeys is %s: %s", quota.Warn, refusal.Message(nil))
			}
			return place.Refusal{}
		}
		if refusal.Code == place.Fits {
			p.shared.pods.passesBudget(pod.UID)
		} else {
			refusal = p.shared.pods.awaitBudget(&overBudget{Refusal: refusal, pod: pod, ask: r})
		}
		// A quota that changed before the pod was known to wait has not woken it.
		if p.shared.quotas.of(pod.Namespace) == known {
			p.callNext(pod, b)
			return refusal
		}
	}
}

// budgetCheck compares pods of a namespace with its budget, within one cycle.
type budgetCheck struct {
	namespaceQuotas
	plugin    *Plugin
	namespace string
	used      quota.Used
	// like is the last pod whose largest card was looked for, largest that card, and
	// nodes how many nodes were compared with such pods. Reading what a pod says of its
	// nodes counts as filterNodes.
	like    *corev1.Pod
	largest gpu.MiB
	nodes   int
}

// budgetOf adds up what is used of the namespace's budget.
func (p *Plugin) budgetOf(b *namespaceQuotas, namespace string) *budgetCheck {
	c := &budgetCheck{plugin: p, namespace: namespace}
	if b != nil && b.enforced {
		c.namespaceQuotas = *b
		c.used = p.shared.index.usage.under(p.shared.index, namespace, b.quotas)
	}
	return c
}

// refusal returns the refusal for the first limit that the pod would exceed.
func (c *budgetCheck) refusal(pod *corev1.Pod, r *gpu.PodRequest) place.Refusal {
	if !c.enforced {
		return place.Refusal{}
	}
	return quota.ExceededBy(quota.ByNamespace{c.namespace: c.quotas}, c.used, pod, r, c.plugin.shared.index.largest(), func() gpu.MiB {
		if c.like == nil || !usesLike(c.like, pod) {
			c.like, c.largest = pod, c.largestFor(pod)
		}
		return c.largest
	})
}

// usesLike reports whether both pods may use the same nodes.
func usesLike(a, b *corev1.Pod) bool {
	same := apiequality.Semantic.DeepEqual
	return same(a.Spec.NodeSelector, b.Spec.NodeSelector) && same(a.Spec.Tolerations, b.Spec.Tolerations) && same(wire.RequiredNodes(&a.Spec), wire.RequiredNodes(&b.Spec))
}

// filterNodes is how many nodes are compared in the time that a pod's node affinity takes
// to be read.
const filterNodes = 16

// largestFor returns the memory of the largest card on the nodes that the pod may use.
func (c *budgetCheck) largestFor(pod *corev1.Pod) (largest gpu.MiB) {
	x, filter := c.plugin.shared.index, c.plugin.nodeFilter(pod)
	c.nodes += filterNodes
	for _, id := range x.listed {
		row := &x.rows[id]
		card := row.entry.node.Topology().LargestCard()
		if card <= largest {
			continue
		}
		c.nodes++
		if filter.Exclusion(&cluster.Facts{Name: row.entry.node.Name, Node: row.info.Node()}).Kind == 0 {
			if largest = card; largest == x.largest() {
				break
			}
		}
	}
	return largest
}

// freesQuota reports whether the other pod, which has ended or holds something else
// now, may have freed some of the budget that the pod waits for.
func (p *Plugin) freesQuota(pod, other *corev1.Pod) bool {
	over := p.shared.pods.peek(pod.UID).overQuota
	return over != nil && !over.Permanent && other.Namespace == pod.Namespace
}

// dependsOnCards reports whether the pod waits for a budget of memory. What pods count
// in it depends on the largest cards, which nodes may take away with them.
func (p *Plugin) dependsOnCards(pod *corev1.Pod) bool {
	over := p.shared.pods.peek(pod.UID).overQuota
	return over != nil && over.Budget.Unit == place.UnitMiB
}
