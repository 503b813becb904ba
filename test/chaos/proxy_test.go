package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog" //nolint:depguard // to be silent: net/http takes no other logger
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// proxy stands between one part and the API server, as a load balancer does:
// while the API server is away requests wait for it, and those that were on
// their way are cut.
type proxy struct {
	*httptest.Server
	gate *gate

	mu    sync.Mutex
	rules []*rule
	// hooks are called before the Binding of a pod is passed on, and after.
	hooks map[string]hook
	// watches are those that are open, and how to cut them.
	watches map[int]context.CancelFunc
	next    int
	lease   time.Time
	// bindings counts the answers to Bindings by their code; 0 is none.
	bindings map[int]int
}

// hook is what to do around the Binding of one pod.
type hook struct{ before, after func() }

// rule makes some requests go wrong.
type rule struct {
	// is selects which requests, and chance how many of those.
	is     func(*http.Request) bool
	chance float64
	random *rand.Rand // guarded by the proxy's mutex
	// code answers in place of the API server; lost drops the answer after the
	// API server has carried the request out, and held before that; slow holds
	// every piece of a watch up.
	code int
	lost bool
	held time.Duration
	slow time.Duration
}

// errDropped makes the connection end without an answer.
var errDropped = errors.New("the answer is dropped")

// keyRule is where a request carries its rule.
type keyRule struct{}

// newProxy starts a proxy that reaches the API server under the credentials of
// the config.
func newProxy(config *rest.Config, g *gate) (*proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	p := &proxy{gate: g, hooks: map[string]hook{}, watches: map[int]context.CancelFunc{}, bindings: map[int]int{}}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: p.answered,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(forward, w, r) }))
	p.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	p.Start()
	return p, nil
}

// stop ends the proxy and whatever goes through it, without waiting for anyone.
func (p *proxy) stop() { _ = p.Config.Close() }

// config returns how to reach the API server through the proxy.
func (p *proxy) config() *rest.Config { return &rest.Config{Host: p.URL, QPS: -1} }

// kubeconfig writes a kubeconfig that leads to the proxy.
func (p *proxy) kubeconfig(dir, name string) (string, error) {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL}
	cfg.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	cfg.CurrentContext = "proxy"
	path := filepath.Join(dir, name+".proxy.kubeconfig")
	return path, clientcmd.WriteToFile(*cfg, path)
}

func (p *proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	if !p.gate.wait(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	matched := p.match(r)
	if matched != nil {
		if matched.code != 0 {
			answer(w, matched.code)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), keyRule{}, matched))
	}
	switch {
	case isWatch(r):
		ctx, cut := context.WithCancel(r.Context())
		defer p.opened(cut)()
		if matched != nil && matched.slow > 0 {
			w = &slowWriter{ResponseWriter: w, by: matched.slow, ctx: ctx}
		}
		r = r.WithContext(ctx)
	case isBinding(r):
		h := p.hookOf(r)
		if h.before != nil {
			h.before()
		}
		if h.after != nil {
			defer h.after()
		}
	}
	forward.ServeHTTP(w, r)
}

// answered looks at an answer of the API server before the part gets it.
func (p *proxy) answered(r *http.Response) error {
	matched, _ := r.Request.Context().Value(keyRule{}).(*rule)
	lost := matched != nil && (matched.lost || matched.held > 0)
	p.mu.Lock()
	switch code := r.StatusCode; {
	case isBinding(r.Request):
		p.bindings[code]++
	case isLease(r.Request) && r.Request.Method != http.MethodGet && code < 300:
		p.lease = time.Now()
	}
	p.mu.Unlock()
	if !lost {
		return nil
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if matched.held > 0 {
		machine.Sleep(r.Request.Context(), matched.held)
	}
	return errDropped
}

// match returns the rule that strikes the request, if one does.
func (p *proxy) match(r *http.Request) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.rules {
		if x.is(r) && x.random.Float64() < x.chance {
			return x
		}
	}
	return nil
}

// add makes the rule hold until the returned function is called.
func (p *proxy) add(x *rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, x)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(y *rule) bool { return x == y })
	}
}

// opened notes an open watch until the returned function is called.
func (p *proxy) opened(cut context.CancelFunc) (closed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.next
	p.next++
	p.watches[id] = cut
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
		cut()
	}
}

// cutWatches ends all open watches in the middle.
func (p *proxy) cutWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cut := range p.watches {
		cut()
	}
}

// around sets what to do around the Bindings of a pod, until the returned
// function is called.
func (p *proxy) around(pod string, h hook) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks[pod] = h
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.hooks, pod)
	}
}

// everyPod is the name under which a hook is for all pods.
const everyPod = ""

func (p *proxy) hookOf(r *http.Request) hook {
	pod := filepath.Base(filepath.Dir(r.URL.Path))
	p.mu.Lock()
	defer p.mu.Unlock()
	if h, ok := p.hooks[pod]; ok {
		return h
	}
	return p.hooks[everyPod]
}

func (p *proxy) leaseWritten() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lease
}

// bindingsBy returns how many Bindings were answered, by code.
func (p *proxy) bindingsBy() map[int]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.bindings)
}

// answer is what the API server would say.
func answer(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(1))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "made up by the test",
	})
}

// slowWriter holds every piece of an answer up.
type slowWriter struct {
	http.ResponseWriter
	by  time.Duration
	ctx context.Context //nolint:containedctx // of the one request it is for
}

// Write writes after a while.
func (w *slowWriter) Write(b []byte) (int, error) {
	machine.Sleep(w.ctx, w.by)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets the answer be flushed.
func (w *slowWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

func isRead(r *http.Request) bool { return r.Method == http.MethodGet }

func isWrite(r *http.Request) bool { return !isRead(r) }

func isBinding(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/binding")
}

func isLease(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases") }

// gate is closed while the API server is away.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// patience is how long a request waits for the API server.
const patience = 90 * time.Second

// wait returns false when the request has gone away.
func (g *gate) wait(ctx context.Context) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-time.After(patience):
	case <-ctx.Done():
		return false
	}
	return true
}

// set opens or closes the gate.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}
