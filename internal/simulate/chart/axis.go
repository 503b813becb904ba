package chart

import (
	"math"
	"strconv"
	"strings"
)

// axis maps values to places on paper, and knows where to put ticks.
type axis struct {
	low, high  float64 // values at the two ends
	start, end float64 // places of the two ends
	ticks      []float64
	decimals   int
}

// newAxis makes an axis for values between low and high with about n ticks at
// round numbers. With snap the ends are moved out to ticks.
func newAxis(low, high, start, end float64, n int, snap bool) axis {
	if high-low <= 1e-9*max(math.Abs(low), math.Abs(high), 1e-200) {
		// One value, or as good as one, has no extent of its own: give it room.
		room := max(math.Abs(low)/10, 1)
		low, high = low-room, high+room
	}
	step := roundStep((high - low) / float64(n))
	if snap {
		low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	}
	a := axis{low: low, high: high, start: start, end: end, decimals: decimalsOf(step)}
	const slack = 1e-9
	first := int(math.Ceil(low/step - slack)) // an integer, so that zero has no sign
	for i := first; float64(i) <= high/step+slack; i++ {
		a.ticks = append(a.ticks, float64(i)*step)
	}
	return a
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten that is at
// least the given step.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func decimalsOf(step float64) int {
	return max(0, int(-math.Floor(math.Log10(step)+1e-9)))
}

// at returns the place of a value.
func (a *axis) at(v float64) float64 {
	return a.start + (v-a.low)/(a.high-a.low)*(a.end-a.start)
}

// label writes a tick's value with no more digits than its step has.
func (a *axis) label(v float64) string {
	if limit := math.Max(math.Abs(a.low), math.Abs(a.high)); limit >= 1e7 || a.decimals > 6 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return fixed(v, a.decimals)
}

// fixed writes v with the given number of decimals, and never a negative zero.
func fixed(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.HasPrefix(s, "-") && strings.Trim(s, "-0.") == "" {
		return s[1:]
	}
	return s
}
