package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// scene is an agent with a cluster around it in which only the test moves.
type scene struct {
	*testing.T
	agent  *Agent
	clock  *clocktesting.FakeClock
	events []string

	// The cluster, which is also what the agent sees of it.
	seen    view
	version int
	writes  []string // "device", "node" and "note", in order
	fail    error    // what the next writes fail with
	// ours are the annotations of the Device that apply takes off again.
	ours map[string]bool
}

// newScene is an agent on node n1, without cards, pods or Device.
func newScene(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	s := &scene{T: t, clock: clocktesting.NewFakeClock(start)}
	s.seen = view{devicesKnown: true, podsKnown: true, modesKnown: true}
	s.seen.node = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1", ResourceVersion: "1"}}
	s.restart(change...)
	return s
}

// restart puts an agent in place that knows nothing.
func (s *scene) restart(change ...func(*Config)) {
	cfg := Config{Node: "n1", Namespace: "daybreak-system", VendorAnnotations: true}
	for _, f := range change {
		f(&cfg)
	}
	s.agent = newAgent(cfg, nil, s, s, s, s.clock)
	s.agent.started = s.clock.Now()
}

// The scene is the agent's watcher, API and recorder.
func (s *scene) run(context.Context)      {}
func (s *scene) changed() <-chan struct{} { return nil }
func (s *scene) view() view               { return s.seen }

func (s *scene) Event(object runtime.Object, _, reason, message string) {
	ref, ok := object.(*corev1.ObjectReference)
	if !ok {
		s.Fatalf("event on a %T", object)
	}
	s.events = append(s.events, fmt.Sprintf("%s/%s %s %s", strings.ToLower(ref.Kind), ref.Name, reason, message))
}

func (s *scene) next() string {
	s.version++
	return strconv.Itoa(100 + s.version)
}

func (s *scene) applyDevice(_ context.Context, d *v1alpha1.Device) (*v1alpha1.Device, error) {
	s.writes = append(s.writes, "device")
	if s.fail != nil {
		return nil, s.fail
	}
	out := d.DeepCopy()
	if s.seen.device != nil {
		for k, v := range s.seen.device.Annotations {
			if _, ok := out.Annotations[k]; !ok && !s.ours[k] {
				out.Annotations[k] = v
			}
		}
	}
	s.ours = map[string]bool{}
	for k := range d.Annotations {
		s.ours[k] = true
	}
	out.ResourceVersion = s.next()
	s.seen.device = out
	return out, nil
}

func (s *scene) removeAnnotations(_ context.Context, d *v1alpha1.Device, keys []string) error {
	s.writes = append(s.writes, "note")
	out := d.DeepCopy()
	for _, k := range keys {
		delete(out.Annotations, k)
	}
	out.ResourceVersion = s.next()
	s.seen.device = out
	return nil
}

func (s *scene) applyNode(_ context.Context, _ string, annotations map[string]string) (*metav1.PartialObjectMetadata, error) {
	s.writes = append(s.writes, "node")
	if s.fail != nil {
		return nil, s.fail
	}
	out := s.seen.node.DeepCopy()
	ours, others := owners(out)
	for key := range ours {
		if !others[key] {
			delete(out.Annotations, key)
		}
	}
	for key, value := range annotations {
		if others[key] {
			return nil, apierrors.NewConflict(nodeResource.GroupResource(), "n1", errors.New("another manager's"))
		}
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
	}
	s.own(out, FieldManager, metav1.ManagedFieldsOperationApply, slices.Sorted(maps.Keys(annotations))...)
	s.seen.node = out
	return out, nil
}

// own makes a manager the owner of exactly these annotations.
func (s *scene) own(node *metav1.PartialObjectMetadata, manager string, how metav1.ManagedFieldsOperationType, keys ...string) {
	fields := map[string]any{}
	for _, k := range keys {
		fields["f:"+k] = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:annotations": fields}})
	gputest.Must(s, err)
	node.ManagedFields = slices.DeleteFunc(node.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager })
	node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: how, FieldsV1: metav1.NewFieldsV1(string(raw))})
	node.ResourceVersion = s.next()
}

// vendorWrites is a plugin of the vendor's that takes the annotation over.
func (s *scene) vendorWrites(text string) {
	node := s.seen.node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, wire.AnnotationNodeCards, text)
	s.own(node, FieldManager, metav1.ManagedFieldsOperationApply)
	s.own(node, "gpu-device", metav1.ManagedFieldsOperationUpdate, wire.AnnotationNodeCards)
	s.seen.node = node
}

// look lets three seconds pass and then look at the cards.
func (s *scene) look(snapshot *discover.Snapshot) {
	s.clock.Step(3 * time.Second)
	s.agent.observe(s.Context(), look{snapshot: snapshot})
	s.step()
}

// looks lets the agent see the same for a while.
func (s *scene) looks(n int, snapshot *discover.Snapshot) {
	for range n {
		s.look(snapshot)
	}
}

func (s *scene) lookFails(text string) {
	s.clock.Step(3 * time.Second)
	s.agent.observe(s.Context(), look{err: errors.New(text)})
	s.step()
}

func (s *scene) step() time.Duration { return s.agent.step(s.Context()) }

// pods puts pods on the node, each "name UUID" of a slice or "name UUID whole".
func (s *scene) pods(texts ...string) {
	s.seen.pods = nil
	for _, text := range texts {
		f := strings.Fields(text)
		b := gputest.MakePod(f[0]).On("n1").Phase(corev1.PodRunning)
		if len(f) == 3 {
			b.App("gpu: 1").Annotate(wire.AnnotationAllocated, fmt.Sprintf(`[[{"uuid":%q,"compute":100,"vRam":65536}]]`, f[1]))
		} else {
			b.App("sgpu: 1, vcore: 25, vmemory: 16").Annotate(wire.AnnotationAllocated, fmt.Sprintf(`[[{"uuid":%q,"compute":25,"vRam":16384}]]`, f[1]))
		}
		s.seen.pods = append(s.seen.pods, b.Obj())
	}
}

// edit changes the Device as someone else would.
func (s *scene) edit(change func(*v1alpha1.Device)) {
	d := s.seen.device.DeepCopy()
	change(d)
	d.ResourceVersion = s.next()
	s.seen.device = d
}

func (s *scene) annotate(key, value string) {
	s.edit(func(d *v1alpha1.Device) { metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value) })
}

func (s *scene) delete() {
	s.seen.device, s.seen.deviceVersion = nil, s.next()
}

// cards returns the published cards, "minor=ID", unhealthy ones with the reason.
func (s *scene) cards() string {
	s.Helper()
	if s.seen.device == nil {
		return "no device"
	}
	p, err := inventory.DecodePublication(s.seen.device)
	gputest.Must(s, err)
	var list []string
	for i := range p.Cards {
		c := p.Topology.Card(i)
		text := fmt.Sprintf("%d=%s", c.Minor, c.ID)
		if !c.Healthy {
			text += ":" + conditionOf(&p.Cards[i], wire.ConditionHealthy).Reason
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

func (s *scene) want(cards string) {
	s.Helper()
	if got := s.cards(); got != cards {
		s.Fatalf("published %s, want %s", got, cards)
	}
}

// wantEvents compares the events since the last call.
func (s *scene) wantEvents(want ...string) {
	s.Helper()
	if !slices.Equal(s.events, want) {
		s.Errorf("events\n got  %s\n want %s", strings.Join(s.events, "\n      "), strings.Join(want, "\n      "))
	}
	s.events = nil
}

// wantWrites compares the writes since the last call.
func (s *scene) wantWrites(want ...string) {
	s.Helper()
	gputest.Equal(s, "writes", want, s.writes)
	s.writes = nil
}
