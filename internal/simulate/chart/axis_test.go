package chart

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTicks(t *testing.T) {
	cases := map[string]struct {
		low, high float64
		n         int
		snap      bool
		want      string
	}{
		"percent":                        {low: 60, high: 130, n: 10, want: "60 70 80 90 100 110 120 130"},
		"ends that are no ticks":         {low: 61, high: 96, n: 7, want: "65 70 75 80 85 90 95"},
		"ends moved out to ticks":        {low: 61, high: 96, n: 7, snap: true, want: "60 65 70 75 80 85 90 95 100"},
		"small steps":                    {low: 0.7, high: 0.95, n: 5, want: "0.70 0.75 0.80 0.85 0.90 0.95"},
		"around zero":                    {low: -1, high: 1, n: 4, snap: true, want: "-1.0 -0.5 0.0 0.5 1.0"},
		"one value":                      {low: 5, high: 5, n: 4, want: "4.0 4.5 5.0 5.5 6.0"},
		"values that hardly differ":      {low: 5, high: 5 + 1e-12, n: 4, want: "4.0 4.5 5.0 5.5 6.0"},
		"the smallest number there is":   {low: 0, high: 5e-324, n: 4, want: "-1.0 -0.5 0.0 0.5 1.0"},
		"very large":                     {low: 0, high: 4e9, n: 4, want: "0 1e+09 2e+09 3e+09 4e+09"},
		"a step of one and its rounding": {low: 0, high: 7, n: 7, want: "0 1 2 3 4 5 6 7"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAxis(tc.low, tc.high, 0, 100, tc.n, tc.snap)
			var got []string
			for _, v := range a.ticks {
				got = append(got, a.label(v))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("ticks (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTicksAreFewAndInside tries axes of all sizes.
func TestTicksAreFewAndInside(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		scale := math.Pow(10, r.Float64()*24-12)
		low := (r.Float64() - 0.5) * scale
		high := low + r.Float64()*scale
		a := newAxis(low, high, 10, 90, 7, r.IntN(2) == 0)
		if len(a.ticks) < 2 || len(a.ticks) > 10 {
			t.Fatalf("%d ticks from %g to %g", len(a.ticks), low, high)
		}
		for _, v := range append(a.ticks, low, high) {
			if at := a.at(v); !(at > 9.99 && at < 90.01) {
				t.Fatalf("%g is drawn at %g, outside the axis from %g to %g", v, at, low, high)
			}
		}
	}
}

func TestSpread(t *testing.T) {
	cases := map[string]struct{ want, anchors []float64 }{
		"far apart stays":                 {anchors: []float64{10, 50, 90}, want: []float64{10, 50, 90}},
		"two at one place part evenly":    {anchors: []float64{50, 50}, want: []float64{42.5, 57.5}},
		"a block pushes its neighbour":    {anchors: []float64{50, 50, 60}, want: []float64{115.0 / 3, 160.0 / 3, 205.0 / 3}},
		"the top holds":                   {anchors: []float64{0, 0, 0}, want: []float64{0, 15, 30}},
		"the bottom holds":                {anchors: []float64{100, 100}, want: []float64{85, 100}},
		"the bottom pushes a block above": {anchors: []float64{80, 99, 99}, want: []float64{70, 85, 100}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			labels := make([]label, len(tc.anchors))
			for i := range labels {
				labels[i].anchor = tc.anchors[i]
			}
			spread(labels, 0, 100)
			for i := range labels {
				if math.Abs(labels[i].at-tc.want[i]) > 1e-9 {
					t.Errorf("label %d is at %g, want %g", i, labels[i].at, tc.want[i])
				}
			}
		})
	}
}

func TestWrap(t *testing.T) {
	cases := map[string]struct {
		text  string
		chars float64
		want  []string
	}{
		"fits":              {"one two", 10, []string{"one two"}},
		"between words":     {"one two three", 8, []string{"one two", "three"}},
		"a word too long":   {"a abcdefghij b", 4, []string{"a", "abcd", "efgh", "ij b"}},
		"no spaces":         {"卡与卡之间", 4, []string{"卡与", "卡之", "间"}},
		"wider than a line": {"卡卡", 1, []string{"卡", "卡"}},
		"nothing":           {" ", 5, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wrap(tc.text, tc.chars*charWidth)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
