package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// FuzzServer: whatever is asked for, by whatever method and under whatever name,
// there is an answer that keeps other pages out. Nothing is shown to a user whose
// token is unknown, nor to a foreign page whose name points here.
func FuzzServer(f *testing.F) {
	for _, path := range []string{
		"/", "/assets/app.js", "/assets/../../go.mod", "/assets/%2e%2e/x", "/assets/strings/zh.js", "/api/v1/state", "/api/v1/stream", "/api/v1/pods/team-a/training", "/api/v1/pods/%00/%ff",
		"/api/v1/pods//", "/login", "/logout", "/api/v1/state?x=\x01", "//evil.example/", "/\\evil", "/api/v1/state/",
	} {
		f.Add(http.MethodGet, path, "localhost:8080", "Bearer unknown", "", "token=x")
	}
	f.Add(http.MethodPost, "/login", "127.0.0.1", "", "gzip", "token="+strings.Repeat("x", 5000))
	f.Add(http.MethodPut, "/api/v1/state", "evil.example", "Basic x", "gzip;q=0", "")
	f.Add("", "/", "[::1]:80", "bearer", "*", "")
	logger := klog.New(nil)
	source := &changing{objects: read(f)}
	api := newAPIServer(map[string][]string{"alice": {"nodes", "devices", "pods"}})
	open, err := New(Options{Source: source, Clock: clock.RealClock{}, Logger: logger})
	gputest.Must(f, err)
	guarded, err := New(Options{Source: &changing{objects: source.objects}, Clock: clock.RealClock{}, Logger: logger, Reviewer: api.client})
	gputest.Must(f, err)
	f.Fuzz(func(t *testing.T, method, path, host, authorization, encoding, body string) {
		if strings.Contains(authorization, "alice") || strings.Contains(body, "alice") {
			return // who is known
		}
		target, err := url.Parse(path)
		if err != nil || !strings.HasPrefix(target.Path, "/") {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // or a stream would go on
		for name, h := range map[string]http.Handler{"open": open, "guarded": guarded} {
			r, err := http.NewRequestWithContext(ctx, method, "http://x/", strings.NewReader(body))
			if err != nil {
				return
			}
			r.URL, r.Host, r.RequestURI = target, host, path
			r.Header.Set("Authorization", authorization)
			r.Header.Set("Accept-Encoding", encoding)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code < 200 || w.Code > 599 || w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("X-Frame-Options") != "DENY" {
				t.Fatalf("%s: %s %q: status %d, %v", name, method, path, w.Code, w.Header())
			}
			if to := w.Header().Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
				t.Fatalf("%s: %q leads to %q", name, path, to)
			}
			text := w.Body.String()
			if (name == "guarded" || !IsLoopback(host)) && (strings.Contains(text, "metax-a") || strings.Contains(text, card("0"))) {
				t.Fatalf("%s: %q shows an unknown user: %.300s", name, path, text)
			}
			if name == "open" && !IsLoopback(host) && w.Code != http.StatusForbidden {
				t.Fatalf("host %q: status %d", host, w.Code)
			}
		}
	})
}
