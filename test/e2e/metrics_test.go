package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// histogram counts by upper limits, in seconds.
type histogram map[float64]float64

var preStartBucket = regexp.MustCompile(`prestart_duration_seconds_bucket\{.*result="ok".*\}`)

// get returns what a page says.
func (w *world) get(url string) (string, error) {
	request, err := http.NewRequestWithContext(w.Ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// registrations counts how often the agent has registered a plugin with kubelet.
func (w *world) registrations() int {
	w.Helper()
	text, err := w.get("http://" + metricsAddress + "/metrics")
	w.Must(err)
	sum := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "daybreak_agent_registrations_total{") {
			fields := strings.Fields(line)
			n, err := strconv.Atoi(fields[len(fields)-1])
			w.Must(err)
			sum += n
		}
	}
	return sum
}

// preStarts reads from the agent's metrics how long PreStart took.
func (w *world) preStarts() histogram {
	w.Helper()
	text, err := w.get("http://" + metricsAddress + "/metrics")
	w.Must(err)
	h := histogram{}
	for line := range strings.Lines(text) {
		if !preStartBucket.MatchString(line) {
			continue
		}
		_, limit, _ := strings.Cut(line, `le="`)
		limit, _, _ = strings.Cut(limit, `"`)
		fields := strings.Fields(line)
		at, err := strconv.ParseFloat(limit, 64)
		w.Must(err)
		count, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		w.Must(err)
		h[at] = count
	}
	return h
}

// since returns what was counted after an earlier reading.
func (h histogram) since(before histogram) histogram {
	out := maps.Clone(h)
	for limit, count := range before {
		out[limit] -= count
	}
	return out
}

// quantile estimates how long the given part of all took at most.
func (h histogram) quantile(part float64) time.Duration {
	limits := slices.SortedFunc(maps.Keys(h), cmp.Compare[float64])
	if len(limits) == 0 || h[limits[len(limits)-1]] == 0 {
		return 0
	}
	rank, below, floor := part*h[limits[len(limits)-1]], 0.0, 0.0
	for _, limit := range limits {
		if math.IsInf(limit, 1) {
			break
		}
		if h[limit] >= rank {
			within := (rank - below) / (h[limit] - below)
			return time.Duration((floor + within*(limit-floor)) * float64(time.Second))
		}
		below, floor = h[limit], limit
	}
	return time.Duration(floor * float64(time.Second))
}

func (h histogram) String() string {
	return fmt.Sprintf("PreStart of %.0f containers: p50 %s, p99 %s", h[math.Inf(1)], h.quantile(0.5).Round(100*time.Microsecond), h.quantile(0.99).Round(100*time.Microsecond))
}
