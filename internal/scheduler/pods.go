package scheduler

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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
	// preempting are the pods that cards are kept for.
	preempting map[types.UID]*preemptorHold
	nodes      map[string]*nodeOverlay
	// changed has the nodes whose overlay or Device changed since [pods.takeChanged].
	changed map[string]struct{}
	// lines has the pods that wait for the budgets of namespaces.
	lines map[string]*line
}

// podRecord is what this process knows of one pod.
type podRecord struct {
	request     podRequest
	reservation *reservation
	hold        *preemptorHold
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

// placed is a holding together with the topology that its cards are counted in.
// Topologies are immutable, so the two identify the cards by UUID.
type placed struct {
	holding  ledger.Holding
	topology *gpu.Topology
}

// reservation is what a pod gets and what Bind writes about it.
type reservation struct {
	uid  types.UID
	node string
	placed
	// pod is the version of the pod that the cards were chosen for, and ask what it
	// asks for and counts in the census.
	pod         *corev1.Pod
	ask         *request.PodRequest
	kinds       []place.Kind
	annotations map[string]string
	// candidates is how many nodes had room.
	candidates int
	// inSnapshot is true when the snapshot's NodeInfo had the pod when the node was
	// last folded.
	inSnapshot bool
}

// isFor reports whether the pod still asks for what its cards were chosen for,
// apart from what the Binding adds.
func (r *reservation) isFor(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(wire.AskAnnotations(), func(key string) bool {
		_, added := r.annotations[key]
		return !added && r.pod.Annotations[key] != pod.Annotations[key]
	})
}

// preemptorHold is the cards for which a preemptor had other pods evicted. They
// are kept for it until it has them: otherwise pods that come while the victims
// leave would take what the victims free, bit by bit.
type preemptorHold struct {
	node string
	placed
}

func newPods() *pods {
	return &pods{
		byUID: map[types.UID]*podRecord{}, preempting: map[types.UID]*preemptorHold{}, nodes: map[string]*nodeOverlay{},
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
	if res := p.unreserve(uid); res != nil {
		p.touch(res.node)
	}
	p.unhold(uid)
	p.leaveLine(uid)
	delete(p.byUID, uid)
}

// settle forgets what a bound pod does not need any more. The lock is held.
func (p *pods) settle(uid types.UID) {
	r := p.byUID[uid]
	r.request = podRequest{}
	if r.reservation == nil && r.hold == nil && r.bindNote == "" {
		delete(p.byUID, uid)
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

// putReservation reserves cards for the pod, in place of what it had.
func (p *pods) putReservation(uid types.UID, res reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.unreserve(uid); before != nil {
		p.touch(before.node)
	}
	res.uid = uid
	p.binding(uid).reservation = &res
	n := p.touch(res.node)
	n.reserved = append(n.reserved, &res)
}

// dropReservation releases the pod's cards.
func (p *pods) dropReservation(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if res := p.unreserve(uid); res != nil {
		p.touch(res.node)
	}
}

// reservedOn reports whether the pod has a reservation on the node.
func (p *pods) reservedOn(uid types.UID, node string) bool {
	res := p.peek(uid).reservation
	return res != nil && res.node == node
}

// putHold keeps cards for the preemptor, in place of those kept before.
func (p *pods) putHold(pod *corev1.Pod, hold preemptorHold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unhold(pod.UID)
	if p.record(pod) == p.byUID[pod.UID] {
		p.byUID[pod.UID].hold, p.preempting[pod.UID] = &hold, &hold
		p.touch(hold.node)
	}
}

// getHold returns the cards that are kept for the preemptor on the node.
func (p *pods) getHold(uid types.UID, node *ledger.Node) (ledger.Holding, bool) {
	if hold := p.peek(uid).hold; hold != nil && hold.node == node.Name {
		return hold.in(node)
	}
	return ledger.Holding{}, false
}

// heldOn reports whether cards of the node are kept for the pod.
func (p *pods) heldOn(uid types.UID, node string) bool {
	hold := p.peek(uid).hold
	return hold != nil && hold.node == node
}

// waiting returns the pods that ask for cards and have none yet.
func (p *pods) waiting() (pods []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.byUID {
		if r.request.ask != nil && r.reservation == nil {
			pods = append(pods, r.request.pod)
		}
	}
	return pods
}

// preemptors returns the pods that cards are kept for.
func (p *pods) preemptors() (holders []ledger.Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, hold := range p.preempting {
		holders = append(holders, hold.holding.Holder)
	}
	return holders
}

// dropHold keeps the cards no longer, and returns the node where they were kept.
func (p *pods) dropHold(uid types.UID) (node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unhold(uid)
}

// unhold is the same while the lock is held.
func (p *pods) unhold(uid types.UID) (node string) {
	hold := p.preempting[uid]
	if hold == nil {
		return ""
	}
	p.touch(hold.node)
	p.byUID[uid].hold = nil
	delete(p.preempting, uid)
	return hold.node
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
