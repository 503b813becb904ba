package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// proxy stands between a scheduler and the API server.
type proxy struct {
	*httptest.Server
	// answer, if set, is asked about each Binding after the API server has
	// carried it out; false means that the answer gets lost.
	answer atomic.Pointer[func() bool]
	// delay, if set, is called before a Binding is passed on.
	delay atomic.Pointer[func()]
	// delayLock, if set, is called before a write to a node is passed on.
	delayLock atomic.Pointer[func()]
	// bindings counts those carried out.
	bindings atomic.Int64
}

// newProxy starts a proxy that reaches the API server as the scheduler's user.
func (w *world) newProxy() *proxy {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig("scheduler"))
	w.Must(err)
	transport, err := rest.TransportFor(config)
	w.Must(err)
	target, err := url.Parse(w.URL())
	w.Must(err)
	p := &proxy{}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if !isBinding(r.Request) {
				return nil
			}
			p.bindings.Add(1)
			if answer := p.answer.Load(); answer != nil && !(*answer)() {
				_, _ = io.Copy(io.Discard, r.Body)
				return errors.New("the answer is dropped")
			}
			return nil
		},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if delay := p.delay.Load(); delay != nil && isBinding(r) {
			(*delay)()
		}
		if delay := p.delayLock.Load(); delay != nil && r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
			(*delay)()
		}
		forward.ServeHTTP(rw, r)
	}))
	w.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

func isBinding(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/binding")
}

// kubeconfig writes a kubeconfig that leads to the proxy.
func (p *proxy) kubeconfig(t *testing.T) string {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL}
	cfg.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	cfg.CurrentContext = "proxy"
	path := t.TempDir() + "/proxy.kubeconfig"
	gputest.Must(t, clientcmd.WriteToFile(*cfg, path))
	return path
}

// load is pods that together ask for all there is on the given number of nodes
// with eight cards, in sizes that leave no room for a mistake.
func load(nodes int) []*corev1.Pod {
	var pods []*corev1.Pod
	for n := range nodes {
		pods = append(pods, pod(fmt.Sprintf("whole-%d", n), "gpu=2"))
		for i := range 24 {
			pods = append(pods, pod(fmt.Sprintf("slice-%d-%d", n, i), "sgpu=1", "vcore=25", "vmemory=16"))
		}
	}
	return pods
}

// TestAnswersLost: Bindings are carried out, but the scheduler never hears of
// it. No card is given twice, no pod is lost.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.AddNodes(8)
	p := w.newProxy()
	var dropped atomic.Int64
	drop := func() bool { return dropped.Add(1) > 200 }
	p.answer.Store(&drop)
	w.Scheduler("scheduler", "--kubeconfig="+p.kubeconfig(t))
	pods := load(8) // 8 whole-card pods and 192 slices: exactly all there is
	w.Create(pods...)
	w.AllBound(2 * time.Minute)
	t.Logf("%d pods bound, %d Bindings carried out, the answers of %d lost", len(pods), p.bindings.Load(), min(dropped.Load(), 200))
	if dropped.Load() < 200 {
		t.Errorf("only %d answers were dropped, want 200", dropped.Load())
	}
	w.Audit()
}
