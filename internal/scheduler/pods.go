package scheduler

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
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

	mu    sync.Mutex
	byUID map[types.UID]*podRecord
	nodes map[string]*nodeOverlay
	// changed has the nodes whose overlay or Device changed since [pods.takeChanged].
	changed map[string]struct{}
	calls   *calls
}

// calls are the functions that cost most on a pod's path. Tests count them.
type calls struct {
	readRequest      func(*corev1.Pod) (*request.PodRequest, field.ErrorList)
	readBoundRequest func(*corev1.Pod) (*request.PodRequest, bool)
	readHolding      func(*inventory.Inventory, *ledger.Node, *corev1.Pod, *request.PodRequest, bool) (ledger.Holding, bool, []string)
	fit              func(*ledger.Node, *gpu.PodRequest, *place.Preference) (ledger.Offer, place.Refusal)
}

func newCalls() *calls {
	return &calls{readRequest: request.ReadPending, readBoundRequest: request.ReadBound, readHolding: allocation.BookingFor, fit: place.Fit}
}

// podRecord is what this process knows of one pod.
type podRecord struct {
	request     podRequest
	reservation *reservation
	hold        *preemptorHold
	// bindNote is what the event of a pod that was just bound adds: its cards.
	bindNote string
	// overQuota is the refusal of a pod that waits for the budget of its namespace,
	// and quotaWarned is true when an event has reported that it exceeds it.
	overQuota   *place.Refusal
	quotaWarned bool
	// learned is true when the forecast has counted the pod.
	learned bool
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
	// asks for.
	pod         *corev1.Pod
	ask         *request.PodRequest
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
	return &pods{byUID: map[types.UID]*podRecord{}, nodes: map[string]*nodeOverlay{}, changed: map[string]struct{}{}, calls: newCalls()}
}

// record returns the pod's record, a new one if there is none. The lock is held.
func (p *pods) record(uid types.UID) *podRecord {
	r := p.byUID[uid]
	if r == nil {
		r = &podRecord{}
		p.byUID[uid] = r
	}
	return r
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
	p.dropReservation(uid)
	p.dropHold(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byUID, uid)
}

// settle forgets what a bound pod does not need any more. The lock is held.
func (p *pods) settle(uid types.UID) {
	r := p.byUID[uid]
	r.request, r.learned = podRequest{}, false
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
		now.ask, now.problems = p.calls.readRequest(pod)
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
	p.record(pod.UID).request = now
	return now.ask, now.problems
}

// reject remembers that the pod's annotations are too large to be bound.
func (p *pods) reject(pod *corev1.Pod, ask *request.PodRequest, problems field.ErrorList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(pod.UID).request = podRequest{pod: pod, ask: ask, problems: problems, tooLarge: true}
}

// requestChanged reports whether the update of a waiting pod may make it fit where
// it did not before.
func (p *pods) requestChanged(before, after *corev1.Pod) bool {
	return !sameAsk(before, after) || p.peek(after.UID).request.tooLarge && !maps.Equal(before.Annotations, after.Annotations)
}

// setOverQuota records that the pod waits for the budget of its namespace; nil: it
// does not, or not any more.
func (p *pods) setOverQuota(uid types.UID, refusal *place.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refusal != nil {
		p.record(uid).overQuota = refusal
	} else if r := p.byUID[uid]; r != nil {
		r.overQuota = nil
	}
}

// warnQuota reports whether the pod's excess is to be reported, once.
func (p *pods) warnQuota(uid types.UID) bool {
	return p.first(uid, func(r *podRecord) *bool { return &r.quotaWarned })
}

// waitingForQuota returns the pods that wait for the budget of the namespace.
func (p *pods) waitingForQuota(namespace string) map[string]*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := map[string]*corev1.Pod{}
	for _, r := range p.byUID {
		if pod := r.request.pod; r.overQuota != nil && pod != nil && pod.Namespace == namespace {
			waiting[pod.Name] = pod
		}
	}
	return waiting
}

// learn reports whether the forecast counts a pending pod for the first time.
func (p *pods) learn(uid types.UID) bool {
	return p.first(uid, func(r *podRecord) *bool { return &r.learned })
}

// first sets a mark of the pod's record, and reports whether it was not set.
func (p *pods) first(uid types.UID, mark func(*podRecord) *bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	set := mark(p.record(uid))
	first := !*set
	*set = true
	return first
}

// putBindNote sets what the event of the pod's binding adds.
func (p *pods) putBindNote(uid types.UID, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(uid).bindNote = text
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
	p.record(uid).reservation = &res
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
func (p *pods) putHold(uid types.UID, hold preemptorHold) {
	p.dropHold(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record(uid).hold = &hold
	p.touch(hold.node)
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

// preemptors returns the pods that cards are kept for.
func (p *pods) preemptors() (holders []ledger.Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.byUID {
		if r.hold != nil {
			holders = append(holders, r.hold.holding.Holder)
		}
	}
	return holders
}

// dropHold keeps the cards no longer.
func (p *pods) dropHold(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.byUID[uid]; r != nil && r.hold != nil {
		p.touch(r.hold.node)
		r.hold = nil
	}
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
