package agent

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func (s *scene) available(card int) int64 {
	s.Helper()
	cards, err := inventory.DecodeNodeCards(s.seen.node.Annotations[wire.AnnotationNodeCards])
	if err != nil || card >= len(cards) {
		s.Fatalf("annotation %s: %v", s.seen.node.Annotations[wire.AnnotationNodeCards], err)
	}
	return *cards[card].AvailableVRam
}

func TestNodeAnnotationFollowsPods(t *testing.T) {
	s := newScene(t)
	s.look(seen("a", "b"))
	s.wantWrites("device", "node")
	if got := s.available(0); got != 65536 {
		t.Errorf("%d MiB of an empty card", got)
	}
	// Twenty changes within ten seconds are one write.
	for i := range 20 {
		s.clock.Step(400 * time.Millisecond)
		s.pods("p a")
		if i%2 == 0 {
			s.pods("p a", "q a")
		}
		if wait := s.step(); wait > nodeInterval {
			t.Errorf("sleeps for %s with something to write", wait)
		}
	}
	s.clock.Step(5 * time.Second)
	s.pods("p a")
	s.step()
	s.wantWrites("node")
	if got := s.available(0); got != 65536-16384 {
		t.Errorf("%d MiB left", got)
	}
	s.looks(20, seen("a", "b"))
	s.wantWrites()
}

func TestVendorTakesTheNodeOver(t *testing.T) {
	s := newScene(t)
	s.look(seen("a"))
	s.writes = nil
	const theirs = `[{"uuid":"a","healthy":true}]`
	s.vendorWrites(theirs)
	s.looks(10, seen("a"))
	s.wantWrites()
	s.wantEvents("node/n1 AnnotationsNotOurs another client writes metax-tech.com/node-gpu-devices on this node, so Daybreak's agent does not; an administrator in admission.publishers can remove them")
	s.pods("p a")
	s.looks(10, seen("a"))
	gputest.Equal(t, "the vendor's annotation is now", theirs, s.seen.node.Annotations[wire.AnnotationNodeCards])
	// It is gone again.
	node := s.seen.node.DeepCopy()
	delete(node.Annotations, wire.AnnotationNodeCards)
	s.own(node, "gpu-device", metav1.ManagedFieldsOperationUpdate)
	s.seen.node = node
	s.looks(5, seen("a"))
	s.wantWrites("node")
}

// A plugin that was there first keeps what it wrote, also after a restart of
// the agent.
func TestVendorWasThereFirst(t *testing.T) {
	s := newScene(t)
	s.vendorWrites("[]")
	s.looks(5, seen("a"))
	s.wantWrites("device")
	s.restart()
	s.looks(5, seen("a"))
	s.wantWrites()
}

func TestNodeAnnotationsOfModes(t *testing.T) {
	has := func(s *scene, key string) bool { _, ok := s.seen.node.Annotations[key]; return ok }
	topology := func(c *Config) { c.TopologyAnnotations = true }
	cases := map[string]struct {
		mode          gpu.Mode
		change        func(*Config)
		servedBy      string
		cards, scores bool
	}{
		"slices":                                {mode: "sgpu", cards: true},
		"slices, with tables":                   {mode: "sgpu", change: topology, cards: true, scores: true},
		"whole cards":                           {mode: "native"},
		"whole cards, with tables":              {mode: "native", change: topology, scores: true},
		"seats have no tables":                  {mode: "shared", change: topology},
		"switched off":                          {mode: "sgpu", change: func(c *Config) { c.VendorAnnotations = false }},
		"the vendor's plugin serves":            {mode: "sgpu", servedBy: wire.ServedByVendor},
		"Daybreak's serves, and says the cards": {mode: "sgpu", servedBy: wire.ServedByDaybreak, cards: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*Config) {}
			}
			s := newScene(t, tc.change)
			if tc.servedBy != "" {
				metav1.SetMetaDataAnnotation(&s.seen.node.ObjectMeta, wire.AnnotationServedBy, tc.servedBy)
			}
			s.seen.modes = modes(string(tc.mode))
			s.looks(5, linked(seen("a", "b"), gpu.Link{A: 0, B: 1}))
			if has(s, wire.AnnotationNodeCards) != tc.cards || has(s, wire.AnnotationScores) != tc.scores || has(s, wire.AnnotationLosses) != tc.scores {
				t.Errorf("annotations %v", s.seen.node.Annotations)
			}
			if tc.scores && s.seen.node.Annotations[wire.AnnotationScores] != `{"1":0,"2":110}` {
				t.Errorf("scores %s", s.seen.node.Annotations[wire.AnnotationScores])
			}
		})
	}
}

// What is not wanted any more is taken back.
func TestNodeAnnotationIsTakenBack(t *testing.T) {
	s := newScene(t)
	s.look(seen("a"))
	s.seen.modes = modes("native")
	s.looks(5, seen("a"))
	if text, ok := s.seen.node.Annotations[wire.AnnotationNodeCards]; ok {
		t.Errorf("in mode native the node still has %s", text)
	}
	s.wantWrites("device", "node", "device", "node")
}

// A conflict means that someone else was quicker; it is not overwritten.
func TestNodeAnnotationConflict(t *testing.T) {
	s := newScene(t)
	unseen := s.seen.node
	s.vendorWrites("[]")
	vendors := s.seen.node
	s.look(seen("a"))
	s.seen.node = vendors
	s.agent.watch = &behind{scene: s, node: unseen}
	s.looks(3, seen("a"))
	gputest.Equal(t, "the vendor's annotation is now", "[]", s.seen.node.Annotations[wire.AnnotationNodeCards])
}

// behind shows an old version of the Node.
type behind struct {
	*scene
	node *metav1.PartialObjectMetadata
}

func (b *behind) view() view {
	v := b.scene.view()
	v.node = b.node
	return v
}
