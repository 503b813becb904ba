package dashboard

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/manager/cached"
)

// Options says what a dashboard serves and to whom.
type Options struct {
	Source cached.Source
	// Reviewer is the API server that is asked who may see what. Nil means that
	// everybody who reaches the page sees everything: for loopback addresses
	// only, where other hosts' names are refused too.
	Reviewer kubernetes.Interface
	// Clock is for what waits; nil is the real one.
	Clock clock.Clock
	// Logger is for what goes wrong.
	Logger klog.Logger
}

// server answers browsers.
type server struct {
	feed    *Feed
	reviews *reviews // nil without a login, on loopback only
	assets  *assets
	clock   clock.Clock
	logger  klog.Logger
	streams streams
	// explaining bounds how many pods are explained at once.
	explaining chan struct{}
}

// parallelExplanations is how many pods are explained at once.
const parallelExplanations = 2

// New returns the handler of the page.
func New(o Options) (http.Handler, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	feed, err := NewFeed(o.Source, o.Clock)
	if err != nil {
		return nil, err
	}
	files, err := readAssets()
	if err != nil {
		return nil, err
	}
	s := &server{feed: feed, assets: files, clock: o.Clock, logger: o.Logger, explaining: make(chan struct{}, parallelExplanations)}
	if o.Reviewer != nil {
		s.reviews = newReviews(o.Reviewer, o.Clock)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /assets/{file...}", s.asset)
	mux.HandleFunc("GET /api/v1/state", s.state)
	mux.HandleFunc("GET /api/v1/stream", s.stream)
	mux.HandleFunc("GET /api/v1/pods/{namespace}/{name}", s.pod)
	if s.reviews != nil {
		mux.HandleFunc("POST /login", s.login)
		mux.HandleFunc("POST /logout", s.logout)
	}
	return s.secured(http.NewCrossOriginProtection().Handler(mux)), nil
}

// policy is the page's content security policy: nothing from elsewhere, no
// script or style in the page's text, and the page in nobody's frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// secured sets the headers that every answer has. On loopback it also refuses
// requests that a foreign page made with a name that it pointed to this machine.
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
		if s.reviews == nil && !loopbackHost(r.Host) {
			http.Error(w, fmt.Sprintf("this page is for this machine only: open it as http://localhost, not as %q", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether the Host header names this machine.
func loopbackHost(host string) bool {
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

// page serves the page, or where it is not known who asks the form to log in.
func (s *server) page(w http.ResponseWriter, r *http.Request) {
	if _, err := s.reviews.who(r); err != nil {
		s.askToLogIn(w, r, err)
		return
	}
	s.assets.serve(w, r, pageFile)
}

// asset serves a file of the page. Those of the form to log in are for everybody.
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

// state answers with everything at once, for scripts.
func (s *server) state(w http.ResponseWriter, r *http.Request) {
	v, err := s.view(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	st := v.projection.since(nil)
	st.Viewer = v.Viewer
	s.answer(w, r, st)
}

// view is the world as the sender of a request sees it.
type view struct {
	*Viewer
	world      *world
	sight      *sight
	projection *projection
}

func (s *server) view(r *http.Request) (*view, error) {
	u, err := s.reviews.who(r)
	if err != nil {
		return nil, err
	}
	w, err := s.feed.world(r.Context())
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
	return &view{Viewer: &Viewer{Name: u.Username, Everything: sees.all}, world: w, sight: sees, projection: p}, nil
}

// pod answers why a pod is where it is, or why it waits.
func (s *server) pod(w http.ResponseWriter, r *http.Request) {
	v, err := s.view(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-r.Context().Done():
		return
	}
	pod := v.world.pod(v.sight, r.PathValue("namespace"), r.PathValue("name"))
	if pod == nil {
		s.write(w, http.StatusNotFound, "there is no pod of this name that asks for cards, or you may not see it")
		return
	}
	s.answer(w, r, pod)
}

// answer writes JSON, compressed where that is understood.
func (s *server) answer(w http.ResponseWriter, r *http.Request, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out, done := compressed(w, r)
	defer done()
	// Whoever does not read to the end is gone.
	_, _ = out.Write(text)
}

// compressed returns where to write what the browser may get compressed.
func compressed(w http.ResponseWriter, r *http.Request) (out io.Writer, done func()) {
	w.Header().Add("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return w, func() {}
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil { // there is such a level
		return w, func() {}
	}
	return z, func() { _ = z.Close() }
}

// fail answers with what is wrong.
func (s *server) fail(w http.ResponseWriter, err error) {
	status, text := s.statusOf(err)
	s.write(w, status, text)
}

func (s *server) write(w http.ResponseWriter, status int, text string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, text, status)
}

// statusOf returns the status of an error, and what to tell of it. What went
// wrong inside is for the log.
func (s *server) statusOf(err error) (int, string) {
	switch {
	case errors.Is(err, errNoToken), errors.Is(err, errBadToken):
		return http.StatusUnauthorized, err.Error()
	case errors.Is(err, errForbidden):
		return http.StatusForbidden, err.Error()
	case errors.Is(err, errBusy), errors.Is(err, errUserStreams):
		return http.StatusTooManyRequests, err.Error()
	case errors.Is(err, cached.ErrStarting), errors.Is(err, errMostStreams):
		return http.StatusServiceUnavailable, err.Error()
	}
	s.logger.Error(err, "Dashboard could not answer")
	return http.StatusInternalServerError, "something went wrong; the manager's log says what"
}
