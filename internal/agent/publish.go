package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// koordlet is the field manager of Koordinator's agent. Where it writes the Device
// ours does not: each would overwrite the other's list of cards.
const koordlet = "koordlet"

// writes reports whether a field manager writes a Device.
func writes(manager string, d metav1.Object) bool {
	return slices.ContainsFunc(d.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager })
}

// publish works out what should be published and writes what differs.
func (a *Agent) publish(ctx context.Context, v *view, current *v1alpha1.Device, st *status) time.Duration {
	now := a.clock.Now()
	a.events.changed(eventYielded, "")
	held := a.holdings(cmp.Or(current, a.device.content), v)
	a.applyOperatorAnnotations(ctx, current, held)
	for _, id := range a.roster.number(held.named) {
		a.events.onNode(corev1.EventTypeNormal, eventReplaced, "card %s was replaced by another one in its slot", id)
	}
	decision := a.modes.decide(a, v, held)
	p, err := a.roster.publication(a.cfg.Node, v.node.UID, &decision, a.service(v, decision.mode), now)
	if err == nil {
		p.ForeignSlices, p.PluginAllocations = a.foreignSlices(v), a.given()
		a.keepTimes(p)
		err = a.device.write(ctx, a, p, current)
	}
	if err != nil {
		st.ready, st.waits = a.previous != nil, err.Error()
		if !errors.Is(err, errHeldBack) {
			klog.FromContext(ctx).Error(err, "Device not published")
		}
		return max(time.Second, a.device.notBefore.Sub(now))
	}
	a.report(ctx, p, held)
	a.previous = p
	st.ready, st.publication, st.holders = true, p, held.holders
	a.updateServer(v, p)
	if waits := a.unserved(v); waits != "" {
		st.ready, st.waits = false, waits
	}
	return a.node.write(ctx, a, v, p)
}

// keepTimes keeps the time of every condition that is as it was.
func (a *Agent) keepTimes(p *inventory.Publication) {
	if a.previous == nil {
		return
	}
	for i := range p.Cards {
		if at, ok := a.previous.Topology.Index(p.Topology.Card(i).ID); ok {
			inventory.KeepTransitions(p.Cards[i].Conditions, a.previous.Cards[at].Conditions)
		}
	}
}

// holdings is which pods hold which cards.
type holdings struct {
	holders map[gpu.CardID][]*corev1.Pod
	kinds   []holder
	// anyone: there may be pods whose cards are not known.
	anyone bool
}

// holdings reads the pods of the node against the cards that are published.
func (a *Agent) holdings(d *v1alpha1.Device, v *view) *holdings {
	h := &holdings{holders: map[gpu.CardID][]*corev1.Pod{}, anyone: !v.podsKnown}
	if d == nil { // there is nothing yet that an allocation could be read against
		for _, pod := range v.pods {
			h.add(pod, wire.CanHold(pod))
		}
		h.anyone = h.anyone || len(h.kinds) > 0
		return h
	}
	n, _ := allocation.NewNode(a.inventory(d, v), v.pods)
	byName := map[ledger.Holder]*corev1.Pod{}
	for _, pod := range v.pods {
		name := allocation.HolderOf(pod)
		byName[name] = pod
		booked := slices.IndexFunc(n.Holdings(), func(h ledger.Holding) bool { return h.Holder == name })
		h.add(pod, booked < 0 || len(n.Holdings()[booked].Parts) > 0)
	}
	h.anyone = h.anyone || len(n.Unknown()) > 0 || n.Problem != nil && len(h.kinds) > 0
	for i := range n.Holdings() {
		holding := &n.Holdings()[i]
		for c := range holding.Cards().All() {
			id := n.Topology().Card(c).ID
			h.holders[id] = append(h.holders[id], byName[holding.Holder])
		}
	}
	return h
}

// add notes which kinds of share the pod has, if it holds any.
func (h *holdings) add(pod *corev1.Pod, holds bool) {
	if whole, parts := request.Kinds(pod); holds && (whole || parts) {
		h.kinds = append(h.kinds, holder{string(allocation.HolderOf(pod)), parts})
	}
}

// inventory reads the Device together with the Node, as other readers do.
func (a *Agent) inventory(d *v1alpha1.Device, v *view) *inventory.Inventory {
	return inventory.ReadInventory(&corev1.Node{ObjectMeta: a.node.current(v).ObjectMeta}, d)
}

// named reports whether a pod names the card, or may do so.
func (h *holdings) named(id gpu.CardID) bool { return h.anyone || len(h.holders[id]) > 0 }

// applyOperatorAnnotations does what an operator annotated the Device with.
func (a *Agent) applyOperatorAnnotations(ctx context.Context, d *v1alpha1.Device, held *holdings) {
	if d == nil {
		return
	}
	var done []string
	if text, ok := d.Annotations[wire.AnnotationRepaired]; ok {
		for _, id := range inventory.CardList(text) {
			if rec := a.roster.member(id); rec != nil {
				rec.health.latched = false
			}
		}
		done = append(done, wire.AnnotationRepaired)
	}
	if text, ok := d.Annotations[wire.AnnotationForget]; ok && a.forget(inventory.CardList(text), held) {
		done = append(done, wire.AnnotationForget)
	}
	if len(done) > 0 {
		if err := a.api.removeAnnotations(ctx, d, done); err != nil {
			klog.FromContext(ctx).Error(err, "Operator's annotation not removed", "keys", done)
		}
	}
}

// forget drops lost cards. It is not done while a pod names one of them.
func (a *Agent) forget(ids []gpu.CardID, held *holdings) (done bool) {
	done = true
	for _, id := range ids {
		rec := a.roster.member(id)
		switch {
		case rec == nil:
		case rec.here:
			a.events.onNode(corev1.EventTypeWarning, eventNotForgotten, "card %s is present, so it is not forgotten", id)
		case held.named(id):
			done = false
		default:
			a.roster.drop(id)
			a.events.onNode(corev1.EventTypeNormal, eventForgotten, "card %s was declared gone", id)
		}
	}
	return done
}

// deviceWriter writes the Device, only when it must.
type deviceWriter struct {
	// applied is the Device as the API server answered our last write.
	applied *v1alpha1.Device
	// content is what we wrote then.
	content *v1alpha1.Device
	at      time.Time
	// retry has the back-off after failed writes, and after writes that only restored
	// what someone else had changed.
	retry     workqueue.TypedRateLimiter[string]
	notBefore time.Time
}

const (
	retryFailed    = "failed"
	retryContested = "contested"
)

// current returns the newest Device that is known, nil if it was deleted.
func (w *deviceWriter) current(v *view) *v1alpha1.Device {
	switch {
	case w.applied == nil, v.device != nil && !older(v.device, w.applied):
		return v.device
	case v.device == nil && v.deviceVersion != "" && !older(&metav1.ObjectMeta{ResourceVersion: v.deviceVersion}, w.applied):
		return nil
	}
	return w.applied
}

func (w *deviceWriter) write(ctx context.Context, a *Agent, p *inventory.Publication, current *v1alpha1.Device) error {
	d, err := inventory.EncodeDevice(p)
	if err != nil {
		return err
	}
	now := a.clock.Now()
	if matches(current, d) {
		w.retry.Forget(retryFailed)
		return nil
	}
	if now.Before(w.notBefore) {
		return errHeldBack
	}
	contested := matches(w.content, d) && now.Sub(w.at) < time.Minute
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	applied, err := w.apply(ctx, a, d)
	a.metrics.write(writtenDevice, err)
	if err != nil {
		w.notBefore = now.Add(w.retry.When(retryFailed))
		return err
	}
	w.retry.Forget(retryFailed)
	w.applied, w.content, w.at, w.notBefore = applied, d, now, now
	if contested {
		w.notBefore = now.Add(w.retry.When(retryContested))
	} else {
		w.retry.Forget(retryContested)
	}
	return nil
}

// apply applies the Device, and removes annotations that another manager keeps.
func (*deviceWriter) apply(ctx context.Context, a *Agent, d *v1alpha1.Device) (*v1alpha1.Device, error) {
	applied, err := a.api.applyDevice(ctx, d)
	if err != nil {
		return nil, err
	}
	if keys := excess(applied, d); len(keys) > 0 {
		if err := a.api.removeAnnotations(ctx, applied, keys); err != nil {
			return nil, err
		}
		applied = applied.DeepCopy()
		for _, key := range keys {
			delete(applied.Annotations, key)
		}
	}
	return applied, nil
}

// errHeldBack means that it is too early to write again.
var errHeldBack = errors.New("the Device was written a moment ago, or could not be")

// matches reports whether the Device has all that it should, and maybe more.
func matches(d, want *v1alpha1.Device) bool {
	if d == nil {
		return false
	}
	return len(excess(d, want)) == 0 && contains(d.Labels, want.Labels) && contains(d.Annotations, want.Annotations) &&
		(len(want.OwnerReferences) == 0 || slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == want.OwnerReferences[0].UID })) &&
		apiequality.Semantic.DeepEqual(d.Spec, want.Spec)
}

// excess returns annotations of ours that the Device should not have.
func excess(d, want *v1alpha1.Device) []string {
	var keys []string
	for _, key := range []string{wire.AnnotationModePending, wire.AnnotationForeignSlices, wire.AnnotationPluginAllocations} {
		_, there := d.Annotations[key]
		if _, wanted := want.Annotations[key]; there && !wanted {
			keys = append(keys, key)
		}
	}
	return keys
}

// contains reports whether a map has all that is in another one.
func contains(all, some map[string]string) bool {
	return labels.SelectorFromSet(some).Matches(labels.Set(all))
}
