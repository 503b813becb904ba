package machine

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Metrics is a page of metrics, as text: it is read when nothing is measured
// any more.
type Metrics string

// Sample is one line of it.
type Sample struct {
	labels string
	Value  float64
}

// Label returns the value of a label, which has no quotes in it.
func (s Sample) Label(name string) string {
	_, rest, ok := strings.Cut(s.labels, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Of returns the samples of one metric, or the one of a series that is named with all
// its labels.
func (s Metrics) Of(name string) []Sample {
	var found []Sample
	lines := bufio.NewScanner(strings.NewReader(string(s)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(rest, ' ')
		value, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			continue
		}
		found = append(found, Sample{labels: rest[:at], Value: value})
	}
	return found
}

// Sum adds up all samples of a metric.
func (s Metrics) Sum(name string) float64 {
	total := 0.0
	for _, x := range s.Of(name) {
		total += x.Value
	}
	return total
}

// Value returns the value of a series, such as `x_total{result="applied"}`.
func (s Metrics) Value(series string) (float64, error) {
	found := s.Of(series)
	if len(found) != 1 {
		return 0, fmt.Errorf("%d series %s", len(found), series)
	}
	return found[0].Value, nil
}

// Mean returns the mean of the observations of a histogram that have a label; 0
// where there are none.
func (s Metrics) Mean(name, label, value string) float64 {
	sum := func(part string) (total float64) {
		for _, x := range s.Of(name + part) {
			if x.Label(label) == value {
				total += x.Value
			}
		}
		return total
	}
	return sum("_sum") / max(sum("_count"), 1)
}

// Quantile returns what a part of the observations of a histogram stay under, of those
// that came after an earlier page and have the labels, such as `result="ok"`. Within a
// bucket they are taken to be even.
func (s Metrics) Quantile(q float64, name string, before Metrics, has ...string) float64 {
	type bucket struct{ le, n float64 }
	counts := map[float64]float64{}
	add := func(page Metrics, sign float64) {
		for _, x := range page.Of(name + "_bucket") {
			le, err := strconv.ParseFloat(x.Label("le"), 64)
			if err == nil && !slices.ContainsFunc(has, func(label string) bool { return !strings.Contains(x.labels, label) }) {
				counts[le] += sign * x.Value
			}
		}
	}
	add(s, 1)
	add(before, -1)
	var buckets []bucket
	for le, n := range counts {
		buckets = append(buckets, bucket{le, n})
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	if len(buckets) < 2 || buckets[len(buckets)-1].n == 0 {
		return 0
	}
	rank := q * buckets[len(buckets)-1].n
	last := bucket{}
	for _, b := range buckets[:len(buckets)-1] { // the last one is endless
		if b.n >= rank && b.n > last.n {
			return last.le + (b.le-last.le)*(rank-last.n)/(b.n-last.n)
		}
		last = b
	}
	return last.le
}
