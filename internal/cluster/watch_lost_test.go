package cluster

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// apiServer is an HTTP server with nodes and an empty list of pods, behind a line
// that can be frozen or cut. Its watches show nothing.
type apiServer struct {
	*httptest.Server
	line net.Listener

	mu    sync.Mutex
	thaw  chan struct{} // closed, unless the line is frozen
	conns []net.Conn
	nodes []string
	ready int
}

func newAPIServer(t *testing.T, nodes ...string) *apiServer {
	t.Helper()
	s := &apiServer{thaw: make(chan struct{}), nodes: nodes, ready: http.StatusOK}
	close(s.thaw)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	s.listen(t, "127.0.0.1:0")
	t.Cleanup(s.cut)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	nodes, ready := s.nodes, s.ready
	s.mu.Unlock()
	kinds := map[string]string{"nodes": "Node", "pods": "Pod", "resourcequotas": "ResourceQuota", "namespaces": "Namespace"}
	kind, known := kinds[path.Base(r.URL.Path)]
	switch {
	case r.URL.Path == "/readyz":
		w.WriteHeader(ready)
		return
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusBadRequest) // the client lists and watches instead
		return
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	case !known:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	items := []any{}
	if kind == "Node" {
		for _, name := range nodes {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name}})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "v1", "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
}

// listen opens the line.
func (s *apiServer) listen(t *testing.T, address string) {
	t.Helper()
	var config net.ListenConfig
	line, err := config.Listen(t.Context(), "tcp", address)
	gputest.Must(t, err)
	s.line = line
	ctx := t.Context()
	go func() {
		var dialer net.Dialer
		for {
			conn, err := line.Accept()
			if err != nil {
				return
			}
			server, err := dialer.DialContext(ctx, "tcp", s.Listener.Addr().String())
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn, server)
			s.mu.Unlock()
			go s.forward(conn, server)
			go s.forward(server, conn)
		}
	}()
}

func (s *apiServer) forward(from, to net.Conn) {
	defer to.Close()
	for buffer := make([]byte, 4096); ; {
		n, err := from.Read(buffer)
		s.mu.Lock()
		thaw := s.thaw
		s.mu.Unlock()
		<-thaw
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// freeze lets nothing through, as a process that is stopped answers nothing.
func (s *apiServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.thaw = make(chan struct{})
}

// cut ends all connections and refuses new ones.
func (s *apiServer) cut() {
	_ = s.line.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// TestWatcherLosesConnection: an API server that ends, hangs or is not ready is
// noticed in seconds though nothing changes, what was seen stays, and what has
// changed meanwhile is shown when the server is back.
func TestWatcherLosesConnection(t *testing.T) {
	cases := map[string]struct {
		lose, back func(t *testing.T, s *apiServer)
	}{
		"it ends and starts again": {
			func(_ *testing.T, s *apiServer) { s.cut() },
			func(t *testing.T, s *apiServer) { s.listen(t, s.line.Addr().String()) },
		},
		"it hangs and goes on": {
			func(_ *testing.T, s *apiServer) { s.freeze() },
			func(_ *testing.T, s *apiServer) { s.set(func() { close(s.thaw) }) },
		},
		"it is not ready and then it is": {
			func(_ *testing.T, s *apiServer) { s.set(func() { s.ready = http.StatusInternalServerError }) },
			func(_ *testing.T, s *apiServer) { s.set(func() { s.ready = http.StatusOK }) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, "n1")
			ctx, cancel := context.WithCancel(t.Context())
			client, err := NewClient(&rest.Config{Host: "http://" + s.line.Addr().String()})
			gputest.Must(t, err)
			w, err := NewWatcher(ctx, client, inventory.VendorPlugin{})
			gputest.Must(t, err)
			shown, done := make(chan Sight), make(chan error, 1)
			go func() {
				done <- w.Run(ctx, func(s Sight) error {
					select {
					case shown <- s:
					case <-ctx.Done():
					}
					return nil
				})
			}()
			defer func() {
				cancel()
				<-done
			}()
			await := func(what string, is func(s Sight) bool) Sight {
				t.Helper()
				timeout := time.After(time.Minute)
				for {
					select {
					case s := <-shown:
						if is(s) {
							return s
						}
					case <-timeout:
						t.Fatalf("not shown: %s", what)
					}
				}
			}
			nodes := func(s Sight) string {
				names := namesOf(s.Objects).Nodes
				slices.Sort(names)
				return strings.Join(names, " ")
			}
			first := await("the cluster", func(s Sight) bool { return nodes(s) == "n1" && s.Lost.IsZero() })
			if !first.Objects.Undefined {
				t.Error("the server has no Devices, and that is not known")
			}
			await("a later heartbeat", func(s Sight) bool { return s.Answered.After(first.Answered) && s.Objects == first.Objects })

			tc.lose(t, s)
			lost := await("the loss", func(s Sight) bool { return !s.Lost.IsZero() })
			if nodes(lost) != "n1" || lost.Err == nil || lost.Answered.After(lost.Lost) {
				t.Errorf("lost at %v with nodes %q as of %v, error %v", lost.Lost, nodes(lost), lost.Answered, lost.Err)
			}
			s.set(func() { s.nodes = []string{"n1", "n2"} })
			later := await("the same a moment later", func(s Sight) bool { return s.Lost.Equal(lost.Lost) })
			if later.Objects != lost.Objects || !later.Answered.Equal(lost.Answered) {
				t.Error("there is something new while the connection is lost")
			}

			tc.back(t, s)
			back := await("the connection", func(s Sight) bool { return s.Lost.IsZero() })
			if nodes(back) != "n1 n2" || back.Err != nil || !back.Answered.After(lost.Lost) {
				t.Errorf("back with nodes %q as of %v, error %v", nodes(back), back.Answered, back.Err)
			}
		})
	}
}

// TestPing: a server that rejects the question is there.
func TestPing(t *testing.T) {
	s := newAPIServer(t)
	client, err := NewClient(&rest.Config{Host: s.URL})
	gputest.Must(t, err)
	for code, want := range map[int]bool{
		http.StatusOK: true, http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusNotFound: true,
		http.StatusInternalServerError: false, http.StatusServiceUnavailable: false,
	} {
		s.set(func() { s.ready = code })
		if err := client.ping(t.Context()); (err == nil) != want {
			t.Errorf("code %d: error %v, there is %v", code, err, want)
		}
	}
}
