package place

import (
	"slices"
	"testing"
)

func TestForemost(t *testing.T) {
	tests := map[string]struct {
		refusals []Refusal
		want     Code
	}{
		"no node refused":                 {want: Fits},
		"most nodes":                      {refusals: []Refusal{{Code: QoSConflict}, {Code: MemoryShort}, {Code: MemoryShort}}, want: MemoryShort},
		"a tie goes to the earlier check": {refusals: []Refusal{{Code: MemoryShort}, {Code: QoSConflict}}, want: QoSConflict},
		"nodes without cards are no news": {refusals: []Refusal{{Code: NoCards}, {Code: NoCards}, {Code: MemoryShort}}, want: MemoryShort},
		"unless there is nothing else":    {refusals: []Refusal{{Code: NoCards}}, want: NoCards},
		"a permanent reason comes first":  {refusals: []Refusal{{Code: MemoryShort, WhenEmpty: Shortage{Code: TooFewCards}}}, want: TooFewCards},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Foremost(slices.Values(tt.refusals)); got != tt.want {
				t.Errorf("Foremost() = %v, want %v", got, tt.want)
			}
		})
	}
}
