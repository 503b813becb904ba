package gpu_test

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestAdmits(t *testing.T) {
	cases := map[string]struct {
		allow, deny []gpu.CardID
		want        []gpu.CardID // of "a", "b", "c" and the card without an id
	}{
		"no lists":                           {want: []gpu.CardID{"a", "b", "c", ""}},
		"an allow list leaves its cards":     {allow: []gpu.CardID{"a", "c"}, want: []gpu.CardID{"a", "c"}},
		"a deny list leaves the others":      {deny: []gpu.CardID{"b"}, want: []gpu.CardID{"a", "c"}},
		"a card on both lists is denied":     {allow: []gpu.CardID{"a", "b"}, deny: []gpu.CardID{"b"}, want: []gpu.CardID{"a"}},
		"a list of unknown cards":            {allow: []gpu.CardID{"x"}},
		"an unknown card denied":             {deny: []gpu.CardID{"x"}, want: []gpu.CardID{"a", "b", "c"}},
		"an empty id on the list is no card": {allow: []gpu.CardID{""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &gpu.PodRequest{Allow: tc.allow, Deny: tc.deny}
			var got []gpu.CardID
			for _, id := range []gpu.CardID{"a", "b", "c", ""} {
				if r.Admits(id) {
					got = append(got, id)
				}
			}
			gputest.Equal(t, "admitted cards", tc.want, got)
		})
	}
}

func TestPodRequestCards(t *testing.T) {
	r := gputest.Ask(gputest.Whole(2), gpu.Request{}, gputest.Share(10, 128))
	gputest.Equal(t, "Cards", 3, r.Cards())
}

func TestQoSSet(t *testing.T) {
	var all gpu.QoSSet
	for _, q := range gpu.QoSClasses() {
		if q.Set() == 0 || all&q.Set() != 0 {
			t.Errorf("the set of %q is empty or shared with another class", q)
		}
		if got := q.Set().Only(); got != q {
			t.Errorf("the only class of %q is %q", q, got)
		}
		all |= q.Set()
	}
	if len(gpu.QoSClasses()) != 3 {
		t.Errorf("classes %v, want three", gpu.QoSClasses())
	}
	none, two := gpu.QoS("").Set(), gpu.BestEffort.Set()|gpu.BurstShare.Set()
	if none != 0 || none.Only() != "" || two.Only() != "" || all.Only() != "" {
		t.Error("a set of no class, or of several, has an only class")
	}
}
