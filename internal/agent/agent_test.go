package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestNothingChanges(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b"))
	s.want("0=a 1=b")
	s.wantWrites("device", "node")
	before := s.seen.device.DeepCopy()
	s.looks(100, seen("a", "b"))
	s.wantWrites()
	s.wantEvents()
	if s.seen.device.ResourceVersion != before.ResourceVersion {
		t.Error("the Device was written")
	}
	gputest.Check(t, s.agent.Ready())
}

func TestCardFails(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b"))
	s.pods("p b", "q b", "other a")
	s.step()
	s.look(withCard(seen("a", "b"), 1, unavailable("overheated")))
	s.want("0=a 1=b:DeviceUnavailable")
	const what = "card b (minor 1, slot-1): reported by the driver: overheated"
	s.wantEvents("node/n1 CardUnhealthy "+what, "pod/p CardUnhealthy this pod holds "+what, "pod/q CardUnhealthy this pod holds "+what)
	changed := transition(t, s, 1)
	s.looks(5, withCard(seen("a", "b"), 1, unavailable("overheated")))
	s.wantEvents()
	s.look(seen("a", "b"))
	s.want("0=a 1=b:Recovering")
	s.wantEvents()
	if got := transition(t, s, 1); !got.Equal(&changed) {
		t.Errorf("the transition moved from %s to %s without one", changed, got)
	}
	s.looks(4, seen("a", "b"))
	s.want("0=a 1=b")
	const well = "card b (minor 1, slot-1) is healthy again"
	s.wantEvents("node/n1 CardHealthy "+well, "pod/p CardHealthy this pod holds "+well, "pod/q CardHealthy this pod holds "+well)
	if got := transition(t, s, 1); !got.After(changed.Time) {
		t.Errorf("no transition since %s", changed)
	}
}

func withCard(s *discover.Snapshot, i int, change func(*discover.Card)) *discover.Snapshot {
	change(&s.Cards[i])
	return s
}

func transition(t *testing.T, s *scene, card int) metav1.Time {
	t.Helper()
	return s.seen.device.Spec.Devices[card].Conditions[0].LastTransitionTime
}

func TestLookFails(t *testing.T) {
	s := newScene(t)
	s.lookFails("no library")
	s.want("no device")
	s.look(seen("a", "b"))
	s.wantWrites("device", "node")
	for i := range 50 {
		s.lookFails(fmt.Sprintf("the driver does not answer for %ds", 3*i))
	}
	s.want("0=a 1=b")
	s.wantWrites()
	s.wantEvents("node/n1 LookFailed the cards can't be read, the last Device stays: the driver does not answer for 6s")
	s.lookFails("another reason")
	s.wantEvents("node/n1 LookFailed the cards can't be read, the last Device stays: another reason")
	s.look(seen("a", "b"))
	s.wantEvents("node/n1 LookRecovered the cards can be read again")
	s.lookFails("once")
	s.lookFails("once")
	s.look(seen("a", "b"))
	s.wantEvents()
	s.wantWrites()
}

func TestNoCards(t *testing.T) {
	s := newScene(t)
	s.looks(3, seen())
	s.want("no device")
	s.wantWrites()
	if err := s.agent.Ready(); err != nil {
		t.Errorf("a node without cards: %v", err)
	}
}

func TestAllCardsLost(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b"))
	s.look(seen())
	s.want("0=a:CardLost 1=b:CardLost")
	s.restart()
	s.look(seen())
	s.want("0=a:CardLost 1=b:CardLost")
}

func TestRestart(t *testing.T) {
	s := newScene(t)
	s.pods("p b")
	s.look(seen("a", "b", "c"))
	s.looks(5, withCard(&discover.Snapshot{Cards: seen("a", "b", "c").Cards[:1], LinksKnown: true}, 0, errorsOf(0, 1)))
	s.want("0=a:UncorrectableECC 1=b:CardLost 2=c:CardLost")
	s.events, s.writes = nil, nil
	s.restart()
	s.step()
	s.want("0=a:UncorrectableECC 1=b:CardLost 2=c:CardLost")
	s.lookFails("not yet")
	if err := s.agent.Ready(); err == nil {
		t.Error("ready before the first good look")
	}
	s.looks(10, withCard(&discover.Snapshot{Cards: seen("a", "b", "c").Cards[:1], LinksKnown: true}, 0, errorsOf(0, 1)))
	s.want("0=a:UncorrectableECC 1=b:CardLost 2=c:CardLost")
	s.wantWrites()
	s.wantEvents()
}

func TestDeviceIsPutRight(t *testing.T) {
	cases := map[string]func(*v1alpha1.Device){
		"a card made healthy":    func(d *v1alpha1.Device) { d.Spec.Devices[0].Health = false },
		"a card taken out":       func(d *v1alpha1.Device) { d.Spec.Devices = d.Spec.Devices[:1] },
		"a label gone":           func(d *v1alpha1.Device) { delete(d.Labels, wire.LabelVendor) },
		"another mode":           func(d *v1alpha1.Device) { d.Annotations[wire.AnnotationMode] = "shared" },
		"no owner":               func(d *v1alpha1.Device) { d.OwnerReferences = nil },
		"something unreadable":   func(d *v1alpha1.Device) { d.Annotations[wire.AnnotationLinks] = "{" },
		"a card listed for free": func(d *v1alpha1.Device) { d.Spec.Devices[1].Resources = nil },
	}
	// Server-side apply removes only what it owns.
	for _, key := range []string{wire.AnnotationForeignSlices, wire.AnnotationPluginAllocations, wire.AnnotationModePending} {
		cases["garbage in "+key] = func(d *v1alpha1.Device) { d.Annotations[key] = "garbage" }
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.look(seen("a", "b"))
			right := s.seen.device.DeepCopy()
			s.writes = nil
			s.edit(change)
			s.step()
			if len(s.writes) == 0 || s.writes[0] != "device" {
				t.Errorf("writes %q", s.writes)
			}
			if !matches(s.seen.device, right) {
				t.Errorf("it says %+v", s.seen.device)
			}
			s.wantEvents()
		})
	}
	t.Run("what others add is theirs", func(t *testing.T) {
		s := newScene(t)
		s.look(seen("a", "b"))
		s.writes = nil
		s.edit(func(d *v1alpha1.Device) { d.Labels["mine"], d.Annotations["mine"] = "x", "y" })
		s.step()
		s.wantWrites()
	})
	t.Run("deleted", func(t *testing.T) {
		s := newScene(t)
		s.look(seen("a", "b"))
		s.look(seen("a"))
		s.writes = nil
		s.delete()
		s.step()
		s.wantWrites("device")
		s.want("0=a 1=b:CardLost")
	})
	t.Run("deleted while the watch was interrupted", func(t *testing.T) {
		s := newScene(t)
		s.agent.server = &fakeServer{}
		s.look(seen("a", "b"))
		s.writes = nil
		s.seen.device, s.seen.deviceVersion = nil, s.next() // as of the new list
		s.step()
		s.wantWrites("device")
		s.seen.device = nil // not yet in the watch
		s.clock.Step(time.Minute)
		s.step()
		s.wantWrites()
	})
}

// A watch that is behind must not bring the agent to write again.
func TestWatchIsBehind(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b"))
	stale := s.seen.device
	s.look(withCard(seen("a", "b"), 0, unavailable("x")))
	s.writes = nil
	s.seen.device = stale
	s.look(withCard(seen("a", "b"), 0, unavailable("x")))
	s.wantWrites()
	s.seen.device = nil // not even the first version has come in
	s.step()
	s.wantWrites()
}

func TestContestedDevice(t *testing.T) {
	s := newScene(t)
	s.look(seen("a"))
	s.writes = nil
	for range 600 { // someone who puts it wrong every tenth of a second
		s.clock.Step(100 * time.Millisecond)
		s.edit(func(d *v1alpha1.Device) { d.Spec.Devices[0].Health = false })
		s.step()
	}
	if n := len(s.writes); n < 5 || n > 10 {
		t.Errorf("%d writes in a minute of quarrel, want a few", n)
	}
}

func TestWriteFails(t *testing.T) {
	s := newScene(t)
	s.fail = errors.New("the server is busy")
	s.look(seen("a"))
	if wait := s.step(); wait > 2*time.Second {
		t.Errorf("waits %s before it tries again", wait)
	}
	if err := s.agent.Ready(); err == nil {
		t.Error("ready although nothing is published")
	}
	s.looks(20, seen("a"))
	if n := len(s.writes); n < 3 || n > 8 {
		t.Errorf("%d tries in a minute", n)
	}
	s.fail = nil
	s.looks(15, seen("a"))
	s.want("0=a")
	s.wantEvents()
}

func TestKoordletKeepsItsDevice(t *testing.T) {
	s := newScene(t)
	s.seen.device = &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", ResourceVersion: "5", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "koordlet", Operation: metav1.ManagedFieldsOperationUpdate}},
	}}
	s.looks(5, seen("a"))
	s.wantWrites()
	s.wantEvents("node/n1 DeviceNotOurs koordlet writes this node's Device, so Daybreak's agent does not: switch off its feature gate Accelerators and delete the Device on its behalf, or run no agent here")
	s.delete()
	s.look(seen("a"))
	s.want("0=a")
}

func TestForget(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b", "c"))
	s.pods("p c")
	s.step()
	gone := &discover.Snapshot{Cards: seen("a", "b", "c").Cards[:1], LinksKnown: true}
	s.look(gone)
	s.events, s.writes = nil, nil
	s.annotate(wire.AnnotationForget, "a,b,c")
	s.look(gone)
	s.want("0=a 2=c:CardLost")
	s.wantEvents("node/n1 CardNotForgotten card a is present, so it is not forgotten", "node/n1 CardForgotten card b was declared gone")
	if s.seen.device.Annotations[wire.AnnotationForget] == "" {
		t.Error("the note was taken off although a card is left")
	}
	s.pods()
	s.events = nil
	s.look(gone)
	s.want("0=a")
	if _, ok := s.seen.device.Annotations[wire.AnnotationForget]; ok {
		t.Error("the note is still there")
	}
	s.looks(3, seen("a", "b"))
	s.want("0=a 1=b")
}

func TestRepairedNote(t *testing.T) {
	s := newScene(t)
	s.look(seen("a"))
	bad := withCard(seen("a"), 0, errorsOf(0, 1))
	s.looks(10, bad)
	s.want("0=a:UncorrectableECC")
	s.annotate(wire.AnnotationRepaired, "a")
	s.looks(6, bad)
	s.want("0=a")
	if _, ok := s.seen.device.Annotations[wire.AnnotationRepaired]; ok {
		t.Error("the note is still there")
	}
}

func TestNamelessCard(t *testing.T) {
	s := newScene(t)
	s.looks(5, withCard(seen("a", "b"), 1, func(c *discover.Card) { c.UUID, c.Vitals.Available = "", new(false) }))
	s.want("0=a")
	s.wantEvents("node/n1 CardWithoutUUID cards without a UUID are not published: those at slot-1")
}

func modes(cluster string) *corev1.ConfigMap {
	return modesIn("daybreak-system", map[string]string{"cluster-config": "mode: " + cluster})
}

func modesIn(namespace string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ModesConfigMap}, Data: data}
}

func (s *scene) mode() string {
	text := s.seen.device.Annotations[wire.AnnotationMode]
	if pending := s.seen.device.Annotations[wire.AnnotationModePending]; pending != "" {
		text += " → " + pending
	}
	return text
}

func TestModes(t *testing.T) {
	s := newScene(t)
	wantMode := func(want string) {
		t.Helper()
		if got := s.mode(); got != want {
			t.Fatalf("mode %s, want %s", got, want)
		}
	}
	s.look(seen("a", "b"))
	wantMode("sgpu")
	s.seen.modes = modes("native")
	s.step()
	wantMode("native")
	s.wantEvents("node/n1 ModeChanged the node's mode is native, it was sgpu")
	s.seen.modes = modes("nativ")
	s.step()
	wantMode("native")
	s.wantEvents(`node/n1 BadModes ConfigMap daybreak-system/metax-device-config is not used, the last good one stays: cluster-config: mode "nativ": write native, sgpu, shared or vgpu`)
	s.looks(5, seen("a", "b"))
	s.wantEvents()
	s.restart()
	s.looks(2, seen("a", "b"))
	wantMode("native") // what was in force before the agent started
	s.events = nil
	s.seen.modes = modesIn("daybreak-system", map[string]string{"cluster-config": "mode: native", "nodes-config": "- {nodeName: n1, mode: sgpu}"})
	s.step()
	wantMode("sgpu")
	s.pods("p a", "q b whole")
	s.events = nil
	s.seen.modes = modes("native")
	s.step()
	wantMode("sgpu → native")
	s.wantEvents("node/n1 ModePending mode native waits for 1 pod that holds cards")
	for i := range s.seen.device.Spec.Devices {
		found := false
		for _, c := range s.seen.device.Spec.Devices[i].Conditions {
			found = found || c.Type == wire.ConditionModePending && c.Status == metav1.ConditionTrue && c.Reason == reasonPodsHoldCards
		}
		if !found {
			t.Errorf("card %d has no condition of it", i)
		}
	}
	s.looks(3, seen("a", "b"))
	s.wantEvents()
	s.pods("q b whole")
	s.step()
	wantMode("native")
	s.wantEvents("node/n1 ModeChanged the node's mode is native, it was sgpu")
	s.seen.modes = nil
	s.pods()
	s.step()
	wantMode("sgpu")
}

// A pod that holds no card holds up nothing: not a change of mode, not the
// vendor's annotation on the Node.
func TestPodsWithoutCards(t *testing.T) {
	bound := func(limits string) *corev1.Pod {
		pod := gputest.MakePod("p").App(limits).On("n1").Phase(corev1.PodRunning).Obj()
		pod.UID, pod.Spec.SchedulerName = "u1", "another"
		return pod
	}
	cases := map[string]struct {
		pod      *corev1.Pod
		servedBy string
		given    map[types.UID]inventory.PluginAllocation
		waits    bool
	}{
		"Koordinator's words":               {pod: bound("gpu-core: 1")},
		"Koordinator's words, ours":         {pod: bound("gpu-core: 1"), servedBy: wire.ServedByDaybreak},
		"a slice without a giver":           {pod: bound("sgpu: 1, vcore: 10, vmemory: 1"), servedBy: wire.ServedByDaybreak},
		"a slice, another plugin may serve": {pod: bound("sgpu: 1, vcore: 10, vmemory: 1"), waits: true},
		"a slice of another plugin": {
			pod: bound("sgpu: 1, vcore: 10, vmemory: 1"), servedBy: wire.ServedByDaybreak, given: map[types.UID]inventory.PluginAllocation{"u1": {Cards: map[string][]gpu.CardID{"c0": nil}}}, waits: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if tc.given == nil {
				tc.given = map[types.UID]inventory.PluginAllocation{}
			}
			if tc.servedBy != "" {
				s.agent.server = &fakeServer{status: deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, Given: tc.given, GivenKnown: true}}
			}
			s.looks(3, seen("a", "b"))
			if got := s.seen.node.Annotations[wire.AnnotationServedBy]; got != tc.servedBy {
				t.Fatalf("served by %q", got)
			}
			s.seen.pods = []*corev1.Pod{tc.pod}
			s.clock.Step(time.Minute)
			s.step()
			want := int64(65536)
			if tc.waits {
				want = 0
			}
			if got := s.available(0); got != want {
				t.Errorf("%d MiB are available, want %d", got, want)
			}
			s.seen.modes = modes("native")
			s.step()
			wantMode := "native"
			if tc.waits {
				wantMode = "sgpu → native"
			}
			gputest.Equal(t, "mode", wantMode, s.mode())
		})
	}
}

// What is asked for can't be read for a while: what is in force stays.
func TestModesUnknown(t *testing.T) {
	s := newScene(t)
	s.seen.modes = modes("native")
	s.look(seen("a"))
	s.restart()
	s.seen.modesKnown, s.seen.modes = false, nil
	s.look(seen("a"))
	if err := s.agent.Ready(); err == nil {
		t.Error("does not wait for the modes")
	}
	s.looks(10, seen("a"))
	if err := s.agent.Ready(); err != nil {
		t.Errorf("waits for ever: %v", err)
	}
	gputest.Equal(t, "mode", string(gpu.ModeNative), s.mode())
}
