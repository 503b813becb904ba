package allocation

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// checkSentence wants an error that says something, and neither everything that
// is wrong nor in bytes that upset a terminal.
func checkSentence(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("it was read")
	}
	text := err.Error()
	if text == "" || len(text) > 1000 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
		t.Errorf("it is said in %d bytes: %.300q", len(text), text)
	}
}

// TestHostileDevices: what can't be read costs the node and is said in a
// sentence; the rest is sound.
func TestHostileDevices(t *testing.T) {
	for _, tc := range hostile.Devices() {
		t.Run(tc.Name, func(t *testing.T) {
			d, err := wire.DecodeDevice(tc.JSON("n1"))
			inv := (&inventory.NodeObjects{Name: "n1", Node: gputest.MakeNode(""), Device: d, Err: err, Vendor: true}).Inventory()
			if err == nil {
				_, _ = inventory.DecodePublication(d) // of an agent that restarts: no panic
			}
			checkInventory(t, inv)
			if tc.Harmless {
				if inv.Problem != nil {
					t.Errorf("it can't be read: %v", inv.Problem)
				}
				return
			}
			checkSentence(t, inv.Problem)
			n, _ := NewNode(inv, nil)
			if _, refusal := place.Fit(n, gputest.AskSlice(10, 1024), &place.Preference{}); refusal.Code != place.BadInventory {
				t.Errorf("refusal is %s, want BadInventory", refusal.Code)
			}
		})
	}
}

func TestHostileNodeAnnotations(t *testing.T) {
	for _, tc := range hostile.NodeAnnotations() {
		t.Run(tc.Name, func(t *testing.T) {
			inv := inventory.ReadInventory(gputest.MakeNode("gpu: 2", tc.Key, tc.Value), nil)
			checkInventory(t, inv)
			checkSentence(t, inv.Problem)
		})
	}
	for name, text := range hostile.Locks() {
		t.Run("lock-"+name, func(t *testing.T) {
			_, err := ParseLock(text)
			checkSentence(t, err)
		})
	}
}

// TestHostileAllocations: a bound pod whose annotation can't be read holds cards
// that can't be named, and the note about it can be printed.
func TestHostileAllocations(t *testing.T) {
	inv := inventory.ReadInventory(gputest.MakeNode(""), gputest.MakeDevice(gputest.CardInfos(2)...))
	for _, tc := range hostile.Allocations() {
		t.Run(tc.Name, func(t *testing.T) {
			pod := app("sgpu: 1, vcore: 10, vmemory: 1").On("n1").Annotate(tc.Key, tc.Value).Obj()
			n, notes := NewNode(inv, podList(pod))
			if len(n.Unknown()) != 1 || len(n.Holdings()) != 0 {
				t.Fatalf("booked as %+v", n.Holdings())
			}
			for _, note := range notes {
				checkSentence(t, errorText(note))
			}
			// Another annotation that can be read is enough to know.
			if tc.Key != wire.AnnotationAllocated {
				pod.Annotations[wire.AnnotationAllocated] = `[[{"uuid":"GPU-1","compute":10,"vRam":1024}]]`
				if n, _ := NewNode(inv, podList(pod)); len(n.Unknown()) != 0 || n.Now().Usage[1].Memory != 1024 {
					t.Errorf("unknown %v, usage %+v", n.Unknown(), n.Now().Usage)
				}
			}
		})
	}
}

type errorText string

func (e errorText) Error() string { return string(e) }

func TestHostileWishes(t *testing.T) {
	for _, tc := range hostile.Wishes() {
		t.Run(tc.Name, func(t *testing.T) {
			ask, problems := request.Read(app("sgpu: 1, vcore: 10").Annotate(tc.Key, tc.Value).Obj())
			if ask != nil || len(problems) == 0 {
				t.Fatalf("it asks for %+v", ask)
			}
			checkSentence(t, problems.ToAggregate())
		})
	}
}

// TestHostileModes: none is read, and none takes long.
func TestHostileModes(t *testing.T) {
	for name, data := range hostile.ConfigMaps() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := inventory.DecodeModes(data)
			t.Logf("%s", time.Since(start).Round(time.Millisecond))
			checkSentence(t, err)
		})
	}
}
