package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// stuck is a driver that answers once and never again.
type stuck struct {
	first *discover.Snapshot
	block chan struct{}
}

func (s *stuck) Name() string { return "stuck" }

func (s *stuck) Look(context.Context) (*discover.Snapshot, error) {
	if out := s.first; out != nil {
		s.first = nil
		return out, nil
	}
	<-s.block // not even the end of the context
	return nil, errors.New("too late")
}

// TestDriverHangs: looks never end, and everything else goes on.
func TestDriverHangs(t *testing.T) {
	s := newScene(t)
	source := &stuck{first: seen("a"), block: make(chan struct{})}
	a := newAgent(Config{Node: "n1", Poll: time.Millisecond, LookTimeout: time.Millisecond}, source, s, s, s, clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	address := freeAddress(t)
	go func() { done <- a.Run(ctx) }()
	go func() { done <- a.Serve(ctx, address, address) }()
	for _, path := range []string{"/readyz", "/healthz"} {
		if code, text := get(t, http.DefaultClient, "http://"+address+path); code != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := get(t, http.DefaultClient, "http://"+address+"/metrics"); code != http.StatusOK || !strings.Contains(text, `daybreak_agent_cards{health="healthy"} 1`) {
		t.Errorf("/metrics: %d %s", code, text)
	}
	close(source.block)
	stop()
	for range 2 {
		gputest.Check(t, <-done)
	}
	s.want("0=a")
}

// get returns the answer of a server, once it serves and is ready.
func get(t *testing.T, client *http.Client, url string) (status int, text string) {
	t.Helper()
	for range 200 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		gputest.Must(t, err)
		if response, err := client.Do(request); err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if status, text = response.StatusCode, string(body); status != http.StatusServiceUnavailable {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return status, text
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	gputest.Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestHealthzOfADeadLoop(t *testing.T) {
	s := newScene(t)
	s.look(seen("a"))
	answer := func() int {
		w := httptest.NewRecorder()
		probe(http.StatusInternalServerError, s.agent.alive)(w, nil)
		return w.Code
	}
	gputest.Equal(t, "answer", http.StatusOK, answer())
	s.clock.Step(3 * time.Minute)
	if code := answer(); code != http.StatusInternalServerError {
		t.Errorf("%d although the loop is silent", code)
	}
}

func TestReadyzSaysWhatIsMissing(t *testing.T) {
	s := newScene(t)
	s.seen.node = nil
	s.step()
	w := httptest.NewRecorder()
	probe(http.StatusServiceUnavailable, s.agent.Ready)(w, nil)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "node n1, which the API server does not show") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	s.seen = view{node: newScene(t).seen.node}
	s.step()
	gputest.ErrorHas(t, "Ready", "is their definition installed?", s.agent.Ready())
}

// ofTheMoment are metrics that are never twice the same: how long looks took, and
// the process's own.
var ofTheMoment = regexp.MustCompile(`_duration_seconds|(^|# (HELP|TYPE) )(go|process)_`)

// page returns the metrics.
func (s *scene) page() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(s.agent.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

// scrape returns the metrics without those of the moment.
func (s *scene) scrape() string {
	var lines []string
	for line := range strings.Lines(s.page()) {
		if !ofTheMoment.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestMetrics compares all metrics of two cards, one with a slice
// and links, with a file; see it for names and units.
func TestMetrics(t *testing.T) {
	s := newScene(t)
	if text := s.page(); !strings.Contains(text, "\ngo_goroutines ") || !strings.Contains(text, "\nprocess_open_fds ") {
		t.Error("the process's own metrics are missing")
	}
	zero := s.scrape()
	snapshot := linked(seen("a", "b"), gpu.Link{A: 0, B: 1})
	snapshot.Cards[0].Figures = discover.Figures{
		UsagePercent: new(37.0), MemoryTotalKiB: new(int64(67108864)), MemoryUsedKiB: new(int64(845824)), PowerMilliwatt: new(int64(71250)),
		HotspotCelsius: new(38.5), BIOS: "1.2.3",
		Slices: []discover.Slice{{ID: 3, Memory: 16000, ComputePercent: 25, UsagePercent: new(12.5), MemoryUsed: new(gpu.MiB(128))}},
	}
	snapshot.Cards[0].Vitals.ECC = &discover.ECC{SRAMCorrectable: 1, DRAMCorrectable: 2, RetiredPages: 3}
	s.pods("p a", "q b", "r b")
	s.looks(2, snapshot)
	s.lookFails("x")
	const golden = "testdata/metrics.txt"
	got := "# before the first look\n" + zero + "\n# after two looks and a failed one\n" + s.scrape()
	if os.Getenv("UPDATE") != "" {
		gputest.Must(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		gputest.Must(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	gputest.Must(t, err)
	gputest.Equal(t, "metrics", strings.Split(string(want), "\n"), strings.Split(got, "\n"))
	s.clock.Step(2 * time.Minute)
	if text := s.scrape(); strings.Contains(text, "mx_gpu_usage") {
		t.Error("figures of two minutes ago are served as if they were new")
	}
}

// TestServeTLS: with a certificate metrics are served over TLS alone, and health
// checks, which kubelet makes, as before.
func TestServeTLS(t *testing.T) {
	s := newScene(t)
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	cfg := Config{Node: "n1", MetricsTLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certified.TLS.Certificates}}
	a := newAgent(cfg, &stuck{block: make(chan struct{})}, s, s, s, clock.RealClock{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	metrics, health := freeAddress(t), freeAddress(t)
	go func() { done <- a.Serve(ctx, metrics, health) }()
	for url, want := range map[string]int{"https://" + metrics + "/metrics": http.StatusOK, "http://" + metrics + "/metrics": http.StatusBadRequest, "http://" + health + "/healthz": http.StatusOK} {
		status, _ := get(t, certified.Client(), url)
		gputest.Equal(t, url+": status", want, status)
	}
	stop()
	gputest.Check(t, <-done)
}
