package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// Timing of PreStart. kubelet waits 30 s for an answer, and 10 to 15 s after an error
// before it asks again: waiting here is quicker.
const (
	preStartLimit = 25 * time.Second
	firstRetry    = 50 * time.Millisecond
	longestRetry  = time.Second
)

const eventNotStarted = "CardsNotReady"

// errFinal wraps what waiting does not help.
type errFinal struct{ error }

func (e errFinal) Unwrap() error { return e.error }

func isFinal(err error) bool {
	_, is := errors.AsType[errFinal](err)
	return is
}

// preStart prepares the container that has these sorted ids before kubelet's deadline.
func (s *Server) preStart(ctx context.Context, resource string, ids []string) (err error) {
	start := s.clock.Now()
	defer func() { s.metrics.preStarted(s.clock.Since(start), err) }()
	ctx, cancel := s.within(ctx, preStartLimit)
	defer cancel()
	var pod *corev1.Pod
	retry := wait.Backoff{Duration: firstRetry, Factor: 2, Steps: math.MaxInt, Cap: longestRetry}
	for {
		if pod, err = s.try(ctx, resource, ids); err == nil {
			return nil
		}
		if isFinal(err) {
			break
		}
		notify(s.sweepNow) // the pod that holds the card may be gone
		if s.sleep(ctx, retry.Step()) != nil {
			break
		}
	}
	klog.FromContext(ctx).Error(err, "Container not started", "ids", ids, "holder", holderIn(err))
	if pod != nil {
		s.report(pod, err.Error())
	}
	return err
}

// try prepares the container once, and returns its pod, if known, for the event.
func (s *Server) try(ctx context.Context, resource string, ids []string) (pod *corev1.Pod, err error) {
	if isForeign(ids) {
		pod, err = s.tryForeign(ctx, resource, ids)
	} else {
		pod, err = s.tryOnce(ctx, resource, ids, false)
	}
	s.sawWrite(err)
	if err == nil {
		err = s.injects(ctx)
	}
	return pod, err
}

// within returns a context that ends after a time of the agent's clock.
func (s *Server) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := s.clock.NewTimer(limit)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(fmt.Errorf("not done within %s", limit))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

const reportInterval = 5 * time.Minute

// report records a failure on its pod, unless that was done a moment ago.
func (s *Server) report(pod *corev1.Pod, message string) {
	key := string(pod.UID) + message
	if _, done := s.reported.Get(key); done {
		return
	}
	s.reported.Set(key, nil, reportInterval)
	s.pods.Event(pod, corev1.EventTypeWarning, eventNotStarted, message)
}

// Timing of what is done ahead of PreStart.
const (
	aheadDelay = 10 * time.Millisecond // Allocate is answered, and kubelet has taken note
	aheadLimit = 5 * time.Second
)

// ahead prepares the container that was just given these ids while kubelet makes its
// sandbox, so that PreStart finds it done. Nothing depends on it.
func (s *Server) ahead(resource string, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.background.Go(func() {
		ctx, cancel := s.within(context.Background(), aheadLimit)
		defer cancel()
		retry := wait.Backoff{Duration: aheadDelay, Factor: 2, Steps: math.MaxInt}
		for {
			if s.sleep(ctx, retry.Step()) != nil {
				return
			}
			s.mu.Lock()
			ended := s.ended
			s.mu.Unlock()
			_, err := s.tryOnce(ctx, resource, ids, true)
			s.sawWrite(err)
			if err == nil || ended || isFinal(err) {
				return
			}
		}
	})
}

// errTakesTurns is a pod whose containers use the same cards one after the other.
var errTakesTurns = errors.New("its containers take turns")

// tryOnce prepares the container once. Early means that it does not start yet.
func (s *Server) tryOnce(ctx context.Context, resource string, ids []string, early bool) (*corev1.Pod, error) {
	n := s.node.Load()
	if n == nil {
		return nil, errors.New("the agent does not know the node's cards yet")
	}
	h, err := s.holders.find(ctx, resource, ids)
	if err != nil {
		return nil, err
	}
	names := s.namesFor(h, ids)
	known := s.journal.now().find(func(r *record) bool { return r.has(ids) })
	switch again := known != nil && !known.Together && len(known.Names) > 0; {
	case again && !h.is(known):
		return podOf(known), fmt.Errorf("kubelet reports that another container has the ids %v", ids)
	case again:
		r := known.clone()
		r.Names = names
		return podOf(known), s.give(ctx, n, r, nil)
	}
	return s.tryNewcomer(ctx, n, h, ids, names, early)
}

// tryNewcomer prepares a container that was not given all of its cards before.
func (s *Server) tryNewcomer(ctx context.Context, n *Node, h *holder, ids, names []string, early bool) (*corev1.Pod, error) {
	pod, container, together, err := s.identify(ctx, h)
	if err != nil {
		return pod, err
	}
	node := n.Inventory.NewNode()
	claim, err := allocation.ClaimOf(node, pod, container)
	if err != nil {
		return pod, errFinal{fmt.Errorf("container %s: %w", container, err)}
	}
	isInit := func(p ledger.Part) bool { return p.Phase == gpu.Init && len(p.Shares) > 0 }
	if early && slices.ContainsFunc(claim.Holding.Parts, isInit) {
		return pod, errFinal{errTakesTurns}
	}
	if len(claim.Shares) != len(ids) {
		return pod, errFinal{fmt.Errorf("container %s: kubelet gave it %d ids, its allocation has %d cards", container, len(ids), len(claim.Shares))}
	}
	r := &record{
		PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: container, Tokens: ids, Names: names, Together: together,
		QoS: claim.Holding.QoS, Class: claim.Holding.Class, Shares: sharesOf(node, claim.Shares, claim.Seats),
	}
	return pod, s.give(ctx, n, r, &claimed{pod: pod, claim: claim})
}

// namesFor returns the CDI names that the holder's ids have now: of each id the
// newest, as many as the pod has containers with it. A newer name means that kubelet
// has given the id to another pod since.
func (s *Server) namesFor(h *holder, ids []string) (names []string) {
	d := s.journal.now()
	for _, id := range ids {
		names = append(names, d.newest(id, max(1, h.times[id]))...)
	}
	return names
}

// namesOf returns the names that the record has for a token.
func (r *record) namesOf(token string) []string {
	return slices.DeleteFunc(slices.Clone(r.Names), func(name string) bool { return tokenOf(name) != token })
}

// is reports whether the holder is the container of a record.
func (h *holder) is(r *record) bool {
	return (h.uid == "" || h.uid == r.PodUID) && (h.pod.Name == "" || h.pod == types.NamespacedName{Namespace: r.Namespace, Name: r.Pod}) &&
		slices.Contains(h.containers, r.Container)
}

// podOf names the pod of a record, for events.
func podOf(r *record) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = r.Namespace, r.Pod, r.PodUID
	return pod
}

// claimed is a container that was not known before, and what it may take.
type claimed struct {
	pod   *corev1.Pod
	claim *allocation.Claim
}

// give gives the container what the record has. Newcomer is nil for a container that
// was given its cards before and gets the same again.
func (s *Server) give(ctx context.Context, n *Node, r *record, newcomer *claimed) error {
	if err := s.giveLocked(ctx, n, r, newcomer); err != nil {
		return err
	}
	var written time.Time // zero: long ago
	for _, name := range r.Names {
		value, _ := s.written.Get(name)
		if at, _ := value.(time.Time); at.After(written) {
			written = at
		}
	}
	return s.sleep(ctx, s.cfg.Settle-s.clock.Since(written)) // until the runtime has noticed
}

func (s *Server) giveLocked(ctx context.Context, n *Node, r *record, newcomer *claimed) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.sem.Release(1)
	if err := checkCards(n, r, newcomer != nil); err != nil {
		return err
	}
	if err := s.checkOthers(n, r, newcomer); err != nil {
		return err
	}
	if newcomer != nil {
		if err := s.takeOver(ctx, n, r); err != nil {
			return err
		}
	}
	if err := s.makeSlices(ctx, n, r); err != nil {
		return err
	}
	edits, err := s.cfg.Layout.edits(r, n.Cards)
	if err != nil {
		return err
	}
	if err := s.note(r); err != nil {
		return err
	}
	for i, token := range r.Tokens {
		for _, name := range r.namesOf(token) {
			changed, err := s.cdi.write(name, edits[i])
			if err != nil {
				return err
			}
			if changed {
				s.written.Set(name, s.clock.Now(), s.cfg.Settle)
			}
		}
	}
	for _, p := range s.plugins {
		p.refresh() // the tokens stand for cards now
	}
	return nil
}

// acquire takes s.sem: nothing else is given or taken back until it is released.
func (s *Server) acquire(ctx context.Context) error {
	if err := s.sem.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("other containers are being prepared: %w", context.Cause(ctx))
	}
	return nil
}

// note saves the record, unless kubelet has given the ids to another pod meanwhile.
func (s *Server) note(r *record) error {
	if !reflect.DeepEqual(r, s.journal.now().byContainer(r.id())) {
		if err := s.journal.change(func(d *document) error { return d.noteGiven(r) }); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range r.Tokens {
		delete(s.fresh, token)
	}
	return nil
}

func (d *document) noteGiven(r *record) error {
	for _, id := range r.Tokens {
		own := r.namesOf(id)
		switch {
		case len(own) == 0:
			return errFinal{fmt.Errorf("the agent never gave a device for id %s: delete the pod, so that kubelet asks again", id)}
		case !slices.Equal(own, d.newest(id, len(own))):
			return fmt.Errorf("kubelet has given id %s to another pod since", id)
		}
		d.Names[id] = own // the names before were other pods'
	}
	d.put(r)
	return nil
}

// checkCards returns an error for a missing card, and for an unhealthy new one.
func checkCards(n *Node, r *record, first bool) error {
	for i := range r.Shares {
		card, ok := n.Cards[r.Shares[i].Card]
		switch {
		case !ok:
			return fmt.Errorf("card %s is not one of this node's", r.Shares[i].Card)
		case !card.Here:
			return fmt.Errorf("card %s is not found any more", r.Shares[i].Card)
		case first && !card.Healthy:
			return fmt.Errorf("card %s is unhealthy", r.Shares[i].Card)
		}
	}
	return nil
}
