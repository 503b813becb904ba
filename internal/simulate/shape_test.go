package simulate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestBest(t *testing.T) {
	cases := map[string]struct {
		shape string
		idle  gpu.Set
		cards int
		want  quality
	}{
		"four of a whole zone":                    {"2x4", gpu.FirstCards(8), 4, quality{pairs: 6, weight: 660}},
		"five of eight: four and one":             {"2x4", gpu.FirstCards(8), 5, quality{pairs: 6, weight: 700}},
		"five of two and four: four and one":      {"2x4", gpu.SetOf(0, 1, 4, 5, 6, 7), 5, quality{pairs: 6, weight: 700}},
		"four of three and three: three and one":  {"2x4", gpu.SetOf(0, 1, 2, 4, 5, 6), 4, quality{pairs: 3, weight: 360}},
		"four of four pairs: two pairs":           {"4x2", gpu.FirstCards(8), 4, quality{pairs: 2, weight: 260}},
		"eight in one zone":                       {"1x8", gpu.FirstCards(8), 8, quality{pairs: 28, weight: 28 * 110}},
		"four of a ring: four links, two without": {"2x4-ring", gpu.FirstCards(8), 4, quality{pairs: 6, weight: 540}},
		"two of a ring: neighbours":               {"2x4-ring", gpu.SetOf(0, 2, 3), 2, quality{pairs: 1, weight: 110}},
		"two of a ring, opposite":                 {"2x4-ring", gpu.SetOf(0, 2, 4), 2, quality{pairs: 1, weight: 50}},
		"three of a ring of eight":                {"1x8-ring", gpu.FirstCards(8), 3, quality{pairs: 3, weight: 270}},
		"no links":                                {"none", gpu.FirstCards(8), 3, quality{pairs: 0, weight: 30}},
		"one card is no pair":                     {"2x4", gpu.FirstCards(8), 1, quality{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := newExhaustive(find(shapes, tc.shape)).best[tc.idle][tc.cards]
			gputest.Equal(t, "best", tc.want, got, cmp.AllowUnexported(quality{}))
		})
	}
}

func TestShapes(t *testing.T) {
	want := map[string]struct{ zones, links int }{
		"2x4": {2, 12}, "4x2": {4, 4}, "1x8": {1, 28}, "2x4-ring": {2, 8}, "1x8-ring": {1, 8}, "none": {0, 0},
	}
	for _, s := range shapes {
		topology, err := s.topology()
		gputest.Must(t, err)
		w := want[s.name]
		links := 0
		for c := range serverCards {
			links += topology.Linked(c).Len()
		}
		if len(topology.Zones()) != w.zones || links != 2*w.links {
			t.Errorf("%s has %d zones and %d links, want %d and %d", s.name, len(topology.Zones()), links/2, w.zones, w.links)
		}
		// What the meter reads from the shape is what the core sees.
		for c := range serverCards {
			zone, ok := topology.ZoneOf(c)
			if ok != s.sameZone(c, c) {
				t.Errorf("%s: card %d is in zone %d of the core", s.name, c, zone)
			}
			if s.zone > 0 && s.zoneCards(c) != topology.Zones()[zone-1] {
				t.Errorf("%s: card %d is with %v, the core says %v", s.name, c, s.zoneCards(c).Indices(), topology.Zones()[zone-1].Indices())
			}
		}
	}
}
