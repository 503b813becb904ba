package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// samples is a page of metrics, as text: it is read when nothing is measured
// any more.
type samples string

// sample is one line of it.
type sample struct {
	labels string
	value  float64
}

// label returns the value of a label, which has no quotes in it.
func (s sample) label(name string) string {
	_, rest, ok := strings.Cut(s.labels, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// of returns the samples of one metric.
func (s samples) of(name string) []sample {
	var found []sample
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
		found = append(found, sample{labels: rest[:at], value: value})
	}
	return found
}

// sum adds up all samples of a metric.
func (s samples) sum(name string) float64 {
	total := 0.0
	for _, x := range s.of(name) {
		total += x.value
	}
	return total
}

// mean returns the mean of the observations of a histogram that have a label; 0
// where there are none.
func (s samples) mean(name, label, value string) float64 {
	sum := func(part string) (total float64) {
		for _, x := range s.of(name + part) {
			if x.label(label) == value {
				total += x.value
			}
		}
		return total
	}
	return sum("_sum") / max(sum("_count"), 1)
}

// calls counts requests to the API by what they do, leaving out what the API
// server does for itself and the watches, which last.
func (s samples) calls() map[string]float64 {
	counts := map[string]float64{}
	for _, x := range s.of("apiserver_request_total") {
		res, verb := x.label("resource"), x.label("verb")
		if verb == "WATCH" || !slices.Contains([]string{"pods", "events", "nodes", "devices", "bindings"}, res) {
			continue
		}
		if sub := x.label("subresource"); sub != "" {
			res += "/" + sub
		}
		counts[verb+" "+res] += x.value
	}
	return counts
}

// fewer returns the counts less those of before.
func fewer(after, before map[string]float64) map[string]float64 {
	left := maps.Clone(after)
	for key, n := range before {
		left[key] -= n
	}
	maps.DeleteFunc(left, func(_ string, n float64) bool { return n == 0 })
	return left
}

// quantile returns what a part of the observations of a histogram stay under,
// of those that came after an earlier page. Within a bucket they are taken to
// be even.
func (s samples) quantile(q float64, name string, before samples) float64 {
	type bucket struct{ le, n float64 }
	counts := map[float64]float64{}
	add := func(page samples, sign float64) {
		for _, x := range page.of(name + "_bucket") {
			le, err := strconv.ParseFloat(x.label("le"), 64)
			if err == nil {
				counts[le] += sign * x.value
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

// apiMetrics asks the API server for its metrics.
func (w *world) apiMetrics(ctx context.Context) (samples, error) {
	text, err := w.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("metrics of the API server: %w", err)
	}
	return samples(text), nil
}

// get asks the scheduler for one of its pages.
func (s *scheduler) get(ctx context.Context, path string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its certificate is its own, on this machine
		DisableKeepAlives: true,
	}, Timeout: 2 * time.Minute}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", s.port, path), http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask the scheduler for %s: %s", path, res.Status)
	}
	return text, err
}

func (s *scheduler) metrics(ctx context.Context) (samples, error) {
	text, err := s.get(ctx, "/metrics")
	return samples(text), err
}
