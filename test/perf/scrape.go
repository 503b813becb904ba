package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

type samples = machine.Metrics

// calls counts requests to the API by what they do, leaving out what the API
// server does for itself and the watches, which last.
func calls(s samples) map[string]float64 {
	counts := map[string]float64{}
	for _, x := range s.Of("apiserver_request_total") {
		res, verb := x.Label("resource"), x.Label("verb")
		if verb == "WATCH" || !slices.Contains([]string{"pods", "events", "nodes", "devices", "bindings"}, res) {
			continue
		}
		if sub := x.Label("subresource"); sub != "" {
			res += "/" + sub
		}
		counts[verb+" "+res] += x.Value
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
