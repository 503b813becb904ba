package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// serve returns a dashboard of the example cluster; without an API server it is
// open.
func serve(t *testing.T, source cluster.Source, server *apiServer) http.Handler {
	t.Helper()
	return serveBy(t, source, server, clock.RealClock{})
}

func serveBy(t *testing.T, source cluster.Source, server *apiServer, clk clock.Clock) http.Handler {
	t.Helper()
	o := Options{Source: source, Logger: klog.Background(), Clock: clk}
	if server != nil {
		o.Reviewer = server.client
	}
	h, err := New(o)
	gputest.Must(t, err)
	return h
}

// reply is an answer that was read to its end.
type reply struct {
	StatusCode int
	Status     string
	Header     http.Header
	cookies    []*http.Cookie
	text       string
}

func get(t *testing.T, h http.Handler, target string, change func(*http.Request)) reply {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	r.Host = "localhost:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	result := w.Result()
	defer result.Body.Close()
	return reply{StatusCode: result.StatusCode, Status: result.Status, Header: result.Header, cookies: result.Cookies(), text: w.Body.String()}
}

// TestOpen: on loopback everything is there without a login, and everything is
// served with the headers that keep other pages out.
func TestOpen(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, nil)
	for _, target := range []string{"/", "/assets/app.js", "/assets/style.css", "/assets/strings/zh.js", "/api/v1/state", "/api/v1/pods/team-a/training"} {
		r := get(t, h, target, nil)
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", target, r.Status)
		}
		if p := r.Header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("%s: policy %q", target, p)
		}
		for _, name := range []string{"X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy", "Cache-Control"} {
			if r.Header.Get(name) == "" {
				t.Errorf("%s: no header %s", target, name)
			}
		}
	}
	for target, want := range map[string]int{"/nothing": 404, "/assets/nothing.js": 404, "/assets/../server.go": 404, "/api/v1/pods/team-a/none": 404, "/assets/login.html": 404, "/assets/": 404, "/assets/strings/": 404, "/assets/strings": 404} {
		if r := get(t, h, target, nil); r.StatusCode != want && r.StatusCode != http.StatusMovedPermanently && r.StatusCode != http.StatusTemporaryRedirect {
			t.Errorf("%s: %s, want %d", target, r.Status, want)
		}
	}
}

// TestCaching: a browser that has a file is not sent it again.
func TestCaching(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, nil)
	for target, kind := range map[string]string{"/": "text/html", "/assets/app.js": "javascript", "/assets/style.css": "text/css", "/assets/icon.svg": "image/svg+xml"} {
		r := get(t, h, target, nil)
		tag := r.Header.Get("ETag")
		if tag == "" || !strings.Contains(r.Header.Get("Content-Type"), kind) || r.Header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("%s: %v", target, r.Header)
		}
		if again := get(t, h, target, func(r *http.Request) { r.Header.Set("If-None-Match", tag) }); again.StatusCode != http.StatusNotModified || again.text != "" {
			t.Errorf("%s again: %s", target, again.Status)
		}
	}
}

// TestForeignHosts: a page elsewhere that points a name of its own to this
// machine gets nothing.
func TestForeignHosts(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, nil)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:80": 200,
		"evil.example": 403, "evil.example:8080": 403, "10.0.0.1": 403, "localhost.evil.example": 403, "": 403,
	} {
		if r := get(t, h, "/api/v1/state", func(r *http.Request) { r.Host = host }); r.StatusCode != want {
			t.Errorf("host %q: %s, want %d", host, r.Status, want)
		}
	}
}

// TestOnlyReads: nothing but reading is answered.
func TestOnlyReads(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, nil)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, target := range []string{"/", "/api/v1/state", "/api/v1/stream", "/api/v1/pods/team-a/training", "/login"} {
			if r := get(t, h, target, func(r *http.Request) { r.Method = method }); r.StatusCode < 400 {
				t.Errorf("%s %s: %s", method, target, r.Status)
			}
		}
	}
}

// TestClosed: elsewhere nothing is served without a good token, but for the form
// that asks for one.
func TestClosed(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, newAPIServer(map[string][]string{"admin": {"nodes", "devices", "pods"}, "blind": {"pods"}}))
	for _, target := range []string{"/", "/assets/app.js", "/assets/draw.js", "/api/v1/state", "/api/v1/stream", "/api/v1/pods/team-a/training"} {
		for token, want := range map[string]int{"": 401, "forged": 401, "blind": 403} {
			r := get(t, h, target, bearer(token))
			text := r.text
			if r.StatusCode != want || want == 401 && r.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s with %q: %s, want %d", target, token, r.Status, want)
			}
			for _, word := range []string{"metax-a", "team-a", "GPU-"} {
				if strings.Contains(text, word) {
					t.Errorf("%s with %q contains %s", target, token, word)
				}
			}
		}
		if strings.HasSuffix(target, "stream") {
			continue // it has no end
		}
		if r := get(t, h, target, bearer("admin")); r.StatusCode != http.StatusOK {
			t.Errorf("%s as admin: %s", target, r.Status)
		}
	}
	if form := get(t, h, "/", nil).text; !strings.Contains(form, `name="token"`) {
		t.Errorf("no form: %s", form)
	}
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
}

// TestLogin: a good token in the form becomes a cookie that scripts can't read
// and that goes nowhere else; with it the page is there.
func TestLogin(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, newAPIServer(map[string][]string{"admin": {"nodes", "devices", "pods"}}))
	post := func(target, token string, change func(*http.Request)) reply {
		return get(t, h, target, func(r *http.Request) {
			r.Method = http.MethodPost
			r.Body = io.NopCloser(strings.NewReader(url.Values{"token": {token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if change != nil {
				change(r)
			}
		})
	}
	if r := post("/login", "<b>forged", nil); r.StatusCode != http.StatusUnauthorized || len(r.cookies) > 0 || strings.Contains(r.text, "<b>forged") {
		t.Errorf("with a forged token: %s, cookies %v", r.Status, r.cookies)
	}
	if r := get(t, h, "/login", nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the form's own address: %s", r.Status)
	}
	if r := post("/login", strings.Repeat("x", longestToken+1), nil); r.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(r.text, "令牌过长") {
		t.Errorf("with a huge token: %s", r.Status)
	}
	if r := post("/login", "admin", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); r.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %s", r.Status)
	}
	r := post("/login", "admin", nil)
	if r.StatusCode != http.StatusSeeOther || len(r.cookies) != 1 {
		t.Fatalf("with a good token: %s, cookies %v", r.Status, r.cookies)
	}
	c := r.cookies[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 0 || !c.Expires.IsZero() || c.Path != "/" || c.Domain != "" {
		t.Errorf("the cookie is %+v", c)
	}
	if r := get(t, h, "/api/v1/state", func(r *http.Request) { r.AddCookie(c) }); r.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %s", r.Status)
	}
	if out := post("/logout", "", nil); len(out.cookies) != 1 || out.cookies[0].MaxAge >= 0 {
		t.Errorf("after logging out the cookies are %v", out.cookies)
	}
}

// TestLoginProblems: the form names the problem in both languages.
func TestLoginProblems(t *testing.T) {
	api := newAPIServer(map[string][]string{"admin": {"nodes", "devices", "pods"}, "blind": {"pods"}})
	h := serve(t, &changing{objects: read(t)}, api)
	visit := func(token string) reply {
		return get(t, h, "/", func(r *http.Request) {
			if token != "" {
				r.AddCookie(&http.Cookie{Name: cookie, Value: token})
			}
		})
	}
	if r := visit(""); r.StatusCode != http.StatusUnauthorized || strings.Contains(r.text, "problem") || !strings.Contains(r.text, "Log in") || !strings.Contains(r.text, "登录") {
		t.Errorf("without a token: %s, %s", r.Status, r.text)
	}
	for token, want := range map[string]struct {
		status           int
		english, chinese string
	}{
		"forged": {http.StatusUnauthorized, "login expired: log in again", "登录已过期，请重新登录"},
		"blind":  {http.StatusForbidden, "access denied: user blind may not list nodes", "没有访问权限"},
	} {
		if r := visit(token); r.StatusCode != want.status || !strings.Contains(r.text, `<span lang="en">`+want.english) || !strings.Contains(r.text, `<span lang="zh-CN">`+want.chinese) {
			t.Errorf("%s: %s, %s", token, r.Status, r.text)
		}
	}
	api.broken.Store(true)
	if r := visit("unknown"); r.StatusCode != http.StatusInternalServerError || !strings.Contains(r.text, "内部错误") {
		t.Errorf("while the API server is away: %s, %s", r.Status, r.text)
	}
	if r := get(t, h, "/api/v1/state", nil); r.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(r.text, "authentication required: ") {
		t.Errorf("a script without a token: %s, %s", r.Status, r.text)
	}
}

// TestNotFound: an unknown address gets a page that leads back, from any depth, and a
// script a line.
func TestNotFound(t *testing.T) {
	h := serve(t, &changing{objects: read(t)}, nil)
	for target, root := range map[string]string{"/nothing": "./", "/nodes/metax-a": "../", "/a/b/c/<b>": "../../../"} {
		r := get(t, h, target, nil)
		if r.StatusCode != http.StatusNotFound || !strings.Contains(r.text, `href="`+root+`"`) || !strings.Contains(r.text, `href="`+root+`assets/login.css"`) || strings.Contains(r.text, "<b>") {
			t.Errorf("%s: %s, %s", target, r.Status, r.text)
		}
		if !strings.Contains(r.text, "Page not found") || !strings.Contains(r.text, "未找到页面") {
			t.Errorf("%s is not in both languages: %s", target, r.text)
		}
	}
	if r := get(t, h, "/api/v2/state", nil); r.StatusCode != http.StatusNotFound || strings.Contains(r.text, "<") {
		t.Errorf("a script: %s, %s", r.Status, r.text)
	}
}

// TestStarting: before the cluster was read, one is asked to wait.
func TestStarting(t *testing.T) {
	h := serve(t, &changing{err: cluster.ErrStarting}, nil)
	if r := get(t, h, "/api/v1/state", nil); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %s", r.Status)
	}
}

// listen opens a stream and returns the states that come.
func listen(t *testing.T, h http.Handler, token string) (states <-chan State, ended <-chan struct{}) {
	t.Helper()
	return listenFor[State](t, h, token, "state")
}

// listenFor opens a stream and returns the events of one kind.
func listenFor[E any](t *testing.T, h http.Handler, token, kind string) (events <-chan E, ended <-chan struct{}) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ReadTimeout = 300 * time.Millisecond // for requests, not for streams
	server.Start()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); server.Close() })
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/stream", http.NoBody)
	gputest.Must(t, err)
	bearer(token)(r)
	response, err := server.Client().Do(r) //nolint:bodyclose // with the test
	gputest.Must(t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %s, %s", response.Status, response.Header.Get("Content-Type"))
	}
	out, done := make(chan E, 100), make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 16<<20)
		name := ""
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = text
			}
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			if e := *new(E); ok && name == kind && json.Unmarshal([]byte(text), &e) == nil {
				out <- e
			}
		}
	}()
	return out, done
}

func next(t *testing.T, states <-chan State) State {
	t.Helper()
	select {
	case st := <-states:
		return st
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is sent")
		return State{}
	}
}

// TestStream: first everything, then what changes; many changes at once are one.
func TestStream(t *testing.T) {
	source := &changing{objects: read(t)}
	states, _ := listen(t, serve(t, source, nil), "")
	if first := next(t, states); !first.Full || len(first.Nodes) != 3 || !first.Viewer.Everything {
		t.Fatalf("first comes %+v", first)
	}
	time.Sleep(500 * time.Millisecond) // longer than a request may take
	later := []*cluster.Objects{read(t, running("team-b", "new", card("4"))), read(t, running("team-b", "new", card("5")))}
	before := source.reads()
	for i := range 50 {
		source.set(later[i%2])
	}
	change := next(t, states)
	if change.Full || len(change.Nodes) != 1 || !strings.Contains(string(change.Nodes[0]), `"pod":"new"`) {
		t.Errorf("then comes %+v", change)
	}
	if n := source.reads() - before; n > 10 {
		t.Errorf("fifty changes made %d worlds", n)
	}
}

// TestStreamOfOne: a user who may see some of the namespaces gets only those, until the
// login ends.
func TestStreamOfOne(t *testing.T) {
	server := newAPIServer(map[string][]string{"alice": {"nodes", "devices", "pods/team-a"}})
	source := &changing{objects: read(t, running("covert", "covert-runner", card("3")))}
	clk := testclock.NewFakeClock(noon())
	states, ended := listen(t, serveBy(t, source, server, clk), "alice")
	first := next(t, states)
	text, err := json.Marshal(first)
	gputest.Must(t, err)
	if strings.Contains(string(text), "covert") || !strings.Contains(string(text), "notebook") || *first.Viewer != (Viewer{Name: "alice"}) {
		t.Errorf("alice gets %s", text)
	}
	server.withdraw("alice")
	source.set(read(t, running("team-b", "new", card("4"))))
	for deadline := time.Now().Add(10 * time.Second); ; {
		clk.Step(reviewed + time.Second)
		select {
		case <-ended:
			if len(states) > 0 {
				t.Errorf("still sent: %+v", <-states)
			}
			return
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the stream goes on")
			}
		}
	}
}
