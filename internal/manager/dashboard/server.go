package dashboard

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

// Options configures a dashboard.
type Options struct {
	Source cluster.Source
	// Reviewer is the API server that decides who may see what. Nil means that every
	// client sees everything: for loopback addresses only, where requests to other
	// hosts' names are rejected too.
	Reviewer kubernetes.Interface
	// API is the API server that the source reads. It is pinged while a page is open.
	API    kubernetes.Interface
	Clock  clock.Clock
	Logger klog.Logger
}

var errNoPod = errors.New("pod not found: it does not exist, requests no cards, or is in a namespace where the user may not list pods")

// server answers browsers.
type server struct {
	feed    *feed
	reviews *reviews // nil without a login, on loopback only
	assets  *assets
	logger  klog.Logger
	streams streams
	pulse   *pulse
	// explaining bounds how many pods are explained at once.
	explaining *semaphore.Weighted
}

// parallelExplanations is how many pods are explained at once.
const parallelExplanations = 2

// New returns the handler of the page.
func New(o Options) (http.Handler, error) {
	feed, err := newFeed(o.Source, o.Clock)
	if err != nil {
		return nil, err
	}
	files, err := readAssets()
	if err != nil {
		return nil, err
	}
	s := &server{
		feed: feed, assets: files, logger: o.Logger, pulse: newPulse(o.API, o.Clock), explaining: semaphore.NewWeighted(parallelExplanations),
	}
	if o.Reviewer != nil {
		s.reviews = newReviews(o.Reviewer, o.Clock)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /", s.notFound)
	mux.HandleFunc("GET /assets/{file...}", s.asset)
	mux.HandleFunc("GET /api/v1/state", s.answer(s.state))
	mux.HandleFunc("GET /api/v1/stream", s.stream)
	mux.HandleFunc("GET /api/v1/pods/{namespace}/{name}", s.answer(s.pod))
	if s.reviews != nil {
		mux.HandleFunc("POST /login", s.login)
		mux.Handle("GET /login", http.RedirectHandler("./", http.StatusSeeOther))
		mux.HandleFunc("POST /logout", s.logout)
	}
	return s.secured(http.NewCrossOriginProtection().Handler(mux)), nil
}

// policy is the page's content security policy: nothing from other hosts, no
// script or style in the page's text, and the page in no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// secured sets the headers of every answer. On loopback it also rejects requests
// of a foreign page to a name that resolves to this machine (DNS rebinding).
func (s *server) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if s.reviews == nil && !IsLoopback(r.Host) {
			http.Error(w, fmt.Sprintf("this page is for this machine only: open it as http://localhost, not as %q", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// IsLoopback reports whether a host, with or without a port, is this machine only.
func IsLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// page serves the page, or the form to log in.
func (s *server) page(w http.ResponseWriter, r *http.Request) {
	if _, err := s.reviews.who(r); err != nil {
		if errors.Is(err, errBadToken) && r.Header.Get("Authorization") == "" { // it was valid when the cookie was set
			err = errExpired
		}
		s.askToLogIn(w, err)
		return
	}
	s.assets.serve(w, r, pageFile)
}

// notFound answers addresses that are none of the dashboard's.
func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		http.NotFound(w, r)
		return
	}
	// Relative, since a proxy may serve the page below a path of its own.
	root := strings.Repeat("../", strings.Count(r.URL.Path, "/")-1)
	s.assets.serveTemplate(w, http.StatusNotFound, lostPage, struct{ Root, Path string }{cmp.Or(root, "./"), r.URL.Path})
}

// asset serves a file of the page. Those of the form to log in need no login.
func (s *server) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name != loginStyle && name != loginScript {
		if _, err := s.reviews.who(r); err != nil {
			s.fail(w, err)
			return
		}
	}
	s.assets.serve(w, r, name)
}

// state returns everything at once, for scripts.
func (s *server) state(r *http.Request) (any, error) {
	v, err := s.view(r)
	if err != nil {
		return nil, err
	}
	st := v.projection.since(nil)
	st.Viewer = v.Viewer
	return st, nil
}

// userView is the world as the user of a request sees it.
type userView struct {
	*Viewer
	world      *world
	sight      *sight
	projection *projection
}

func (s *server) view(r *http.Request) (*userView, error) {
	u, err := s.reviews.who(r)
	if err != nil {
		return nil, err
	}
	w, err := s.feed.world()
	if err != nil {
		return nil, err
	}
	sees, err := s.reviews.sight(r.Context(), u, w.namespaces)
	if err != nil {
		return nil, err
	}
	p, err := w.see(sees)
	if err != nil {
		return nil, err
	}
	return &userView{Viewer: &Viewer{Name: u.Username, Everything: sees.all}, world: w, sight: sees, projection: p}, nil
}

// pod returns why a pod is where it is, or why it waits.
func (s *server) pod(r *http.Request) (any, error) {
	v, err := s.view(r)
	if err != nil {
		return nil, err
	}
	if err := s.explaining.Acquire(r.Context(), 1); err != nil {
		return nil, err
	}
	defer s.explaining.Release(1)
	pod := v.world.pod(v.sight, r.PathValue("namespace"), r.PathValue("name"))
	if pod == nil {
		return nil, errNoPod
	}
	return pod, nil
}

// answer writes what a function returns as JSON.
func (s *server) answer(compute func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := compute(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		text, err := json.Marshal(value)
		if err != nil {
			s.fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out, done := compressed(w, r)
		defer done()
		_, _ = out.Write(text) // the browser may be gone
	}
}

// compressed returns a writer that compresses if the browser accepts that.
func compressed(w http.ResponseWriter, r *http.Request) (out io.Writer, done func()) {
	w.Header().Add("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // there is such a level
	return z, func() { _ = z.Close() }
}

// fail answers with what is wrong.
func (s *server) fail(w http.ResponseWriter, err error) {
	p := s.problemOf(w, err)
	http.Error(w, p.English, p.status)
}

// answers has the statuses and the texts of errors: in English the error itself unless
// there is a text, in Chinese those that the form to log in shows.
var answers = []struct {
	err              error
	status           int
	english, chinese string
}{
	{err: errNoToken, status: http.StatusUnauthorized},
	{err: errExpired, status: http.StatusUnauthorized, chinese: "登录已过期，请重新登录"},
	{err: errBadToken, status: http.StatusUnauthorized, chinese: "令牌无效或已过期"},
	{err: errForbidden, status: http.StatusForbidden, chinese: "没有访问权限：控制台要求对 nodes 和 devices." + v1alpha1.GroupVersion.Group + " 的 list 权限"},
	{err: errNoPod, status: http.StatusNotFound},
	{err: errLongToken, status: http.StatusRequestEntityTooLarge, chinese: "令牌过长，无法保存在 cookie 中：请使用服务账号的令牌（kubectl create token），或使用发送 Authorization 请求头的反向代理"},
	{err: errBusy, status: http.StatusTooManyRequests, chinese: "来自该地址的未知令牌过多，请稍后重试"},
	{err: errUserStreams, status: http.StatusTooManyRequests},
	// Of a review.
	{err: context.DeadlineExceeded, status: http.StatusServiceUnavailable, english: "the API server does not respond: retry", chinese: "API server 没有响应，请重试"},
	{err: cluster.ErrStarting, status: http.StatusServiceUnavailable, chinese: "尚未读取集群，请稍后重试"},
	{err: errMostStreams, status: http.StatusServiceUnavailable},
	{err: context.Canceled, status: http.StatusServiceUnavailable},
}

// problem is an error as users see it, in both languages.
type problem struct {
	status           int
	English, Chinese string
}

// problemOf returns an error as the user sees it, and sets the headers that go with it.
// Internal errors are logged only.
func (s *server) problemOf(w http.ResponseWriter, err error) *problem {
	p := &problem{http.StatusInternalServerError, "internal error: see the manager's log", "内部错误，请查看 manager 的日志"}
	for _, a := range answers {
		if !errors.Is(err, a.err) {
			continue
		}
		if a.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		return &problem{a.status, cmp.Or(a.english, err.Error()), cmp.Or(a.chinese, p.Chinese)}
	}
	s.logger.Error(err, "Dashboard could not answer")
	return p
}
