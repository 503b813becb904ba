package scheduler

import (
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
)

// pods has one record for each pod that this process places or has placed and not
// yet seen bound, and the overlay that these make on each node. All profiles of a
// process share it.
type pods struct {
	// version counts the changes of all nodes' overlays. It is read without the
	// lock.
	version atomic.Uint64

	// lister has the pods that exist; nil: all do. It is set before the scheduler runs.
	lister corelisters.PodLister

	mu    sync.Mutex
	byUID map[types.UID]*podRecord
	// claims has what pods were promised: one claim of a pod at most.
	claims map[types.UID]*claim
	nodes  map[string]*nodeOverlay
	// changed has the nodes whose overlay or Device changed since [pods.takeChanged].
	changed map[string]struct{}
	// lines has the pods that wait for the budgets of namespaces.
	lines map[string]*line
}

// podRecord is what this process knows of one pod.
type podRecord struct {
	request podRequest
	// bindNote is what the event of a pod that was just bound adds: its cards.
	bindNote string
	// overQuota is set while the pod waits for the budget of its namespace, and
	// quotaWarned is true when an event has reported that it exceeds it.
	overQuota   *overBudget
	quotaWarned bool
}

// podRequest is what one version of a pod asks for.
type podRequest struct {
	pod *corev1.Pod
	ask *request.PodRequest
	// problems are why the pod is rejected whatever the nodes have, and tooLarge
	// is true when they are about the size of its annotations.
	problems field.ErrorList
	tooLarge bool
}

func newPods() *pods {
	return &pods{
		byUID: map[types.UID]*podRecord{}, claims: map[types.UID]*claim{}, nodes: map[string]*nodeOverlay{},
		changed: map[string]struct{}{}, lines: map[string]*line{},
	}
}

// record returns the pod's record, a new one if there is none. It is not kept of a pod
// that has ended: the store forgets a pod before drop is called, which waits for the
// lock. The lock is held.
func (p *pods) record(pod *corev1.Pod) *podRecord {
	r := p.byUID[pod.UID]
	if r == nil {
		r = &podRecord{}
		if p.lister == nil || !isGone(p.lister, pod) {
			p.byUID[pod.UID] = r
		}
	}
	return r
}

// binding returns the record of a pod that is being bound, kept even if the pod has
// ended meanwhile: Unreserve drops it, or the event of the binding. The lock is held.
func (p *pods) binding(uid types.UID) *podRecord {
	r := p.byUID[uid]
	if r == nil {
		r = &podRecord{}
		p.byUID[uid] = r
	}
	return r
}

// isGone reports whether the store shows that the pod does not exist.
func isGone(lister corelisters.PodLister, pod *corev1.Pod) bool {
	now, err := lister.Pods(pod.Namespace).Get(pod.Name)
	return err != nil || now.UID != pod.UID
}

// peek returns a copy of the pod's record, an empty one if there is none.
func (p *pods) peek(uid types.UID) podRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byUID[uid]; r != nil {
		return *r
	}
	return podRecord{}
}

// drop forgets a pod that is gone.
func (p *pods) drop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclaim(p.claims[uid])
	p.leaveLine(uid)
	delete(p.byUID, uid)
}

// settle forgets what a bound pod does not need any more. The lock is held.
func (p *pods) settle(uid types.UID) {
	if r := p.byUID[uid]; r != nil {
		r.request = podRequest{}
		if r.bindNote == "" {
			delete(p.byUID, uid)
		}
	}
}

// request returns what the pod asks for, or why it is rejected whatever the nodes
// have. It is read once for all versions of the pod that ask for the same. The
// result is shared and must not be changed.
func (p *pods) request(pod *corev1.Pod) (*request.PodRequest, field.ErrorList) {
	known, now := p.peek(pod.UID).request, podRequest{pod: pod}
	switch {
	case known.pod == pod:
		return known.ask, known.problems
	case known.pod == nil || !sameAsk(known.pod, pod):
		now.ask, now.problems = request.ReadPending(pod)
	case known.tooLarge && !maps.Equal(known.pod.Annotations, pod.Annotations):
		now.ask = known.ask
	default:
		now.ask, now.problems, now.tooLarge = known.ask, known.problems, known.tooLarge
	}
	if now.ask == nil && len(now.problems) == 0 {
		return nil, nil
	}
	if now.ask != nil { // CPU and models may change between versions
		if now.ask == known.ask {
			own := *known.ask
			now.ask = &own
		}
		request.Describe(pod, &now.ask.Request)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(pod).request = now
	return now.ask, now.problems
}

// reject remembers that the pod's annotations are too large to be bound.
func (p *pods) reject(pod *corev1.Pod, ask *request.PodRequest, problems field.ErrorList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(pod).request = podRequest{pod: pod, ask: ask, problems: problems, tooLarge: true}
}

// requestChanged reports whether the update of a waiting pod may make it fit where
// it did not before.
func (p *pods) requestChanged(before, after *corev1.Pod) bool {
	return !sameAsk(before, after) || p.peek(after.UID).request.tooLarge && !maps.Equal(before.Annotations, after.Annotations)
}

// warnQuota reports whether the pod's excess is to be reported, once.
func (p *pods) warnQuota(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byUID[uid]
	return r == nil || first(&r.quotaWarned)
}

// first sets the mark, and reports whether it was not set.
func first(mark *bool) bool {
	was := *mark
	*mark = true
	return !was
}

// putBindNote sets what the event of the pod's binding adds.
func (p *pods) putBindNote(uid types.UID, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.binding(uid).bindNote = text
}

// takeBindNote returns what the event of the pod's binding adds, once.
func (p *pods) takeBindNote(uid types.UID) (text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byUID[uid]; r != nil && r.bindNote != "" {
		text, r.bindNote = r.bindNote, ""
		p.settle(uid)
	}
	return text
}

// waiting returns the pods that ask for cards and have none yet.
func (p *pods) waiting() (pods []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, r := range p.byUID {
		if c := p.claims[uid]; r.request.ask != nil && (c == nil || c.kind != reservedClaim) {
			pods = append(pods, r.request.pod)
		}
	}
	return pods
}

// withDefaultPolicy returns what the pod asks for with a policy where it names none.
func withDefaultPolicy(ask *request.PodRequest, policy place.Policy) *request.PodRequest {
	if policy == place.Default {
		return ask
	}
	own := *ask
	own.WithDefaultPolicy(policy)
	return &own
}
