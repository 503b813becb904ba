package cluster

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var (
	claims = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// answer is what one API server says of itself.
type answer struct {
	// status is the one of /version; 0: 200.
	status  int
	version apiversion.Info
	serves  []schema.GroupVersionResource
}

func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	write := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	if r.URL.Path == "/version" {
		if a.status != 0 {
			w.WriteHeader(a.status)
			return
		}
		write(a.version)
		return
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, s := range a.serves {
		path := "/apis/" + s.GroupVersion().String()
		if s.Group == "" {
			path = "/api/" + s.Version
		}
		if r.URL.Path == path {
			list.GroupVersion = s.GroupVersion().String()
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: s.Resource})
		}
	}
	if list.GroupVersion == "" {
		http.NotFound(w, r)
		return
	}
	write(list)
}

func minor(text string) answer { return answer{version: apiversion.Info{Major: "1", Minor: text}} }

func TestAskServer(t *testing.T) {
	for name, tt := range map[string]struct {
		answer     answer
		want       string
		wantServed []schema.GroupVersionResource
		wantErr    string
	}{
		"a plain version":                      {answer: minor("28"), want: "1.28"},
		"a vendor's plus":                      {answer: minor("28+"), want: "1.28"},
		"a vendor's suffix":                    {answer: minor("28-eks-1"), want: "1.28"},
		"only the full version, Alibaba Cloud": {answer: answer{version: apiversion.Info{GitVersion: "v1.28.3-aliyun.1"}}, want: "1.28"},
		"only the full version, Google":        {answer: answer{version: apiversion.Info{GitVersion: "v1.28.15-gke.1"}}, want: "1.28"},
		"only the full version, K3s":           {answer: answer{version: apiversion.Info{GitVersion: "v1.30.4+k3s1"}}, want: "1.30"},
		"a server that emulates":               {answer: answer{version: apiversion.Info{Major: "1", Minor: "36", EmulationMajor: "1", EmulationMinor: "33"}}, want: "1.33"},
		"served resources": {
			answer: answer{version: apiversion.Info{Major: "1", Minor: "36"}, serves: []schema.GroupVersionResource{claims, pods}},
			want:   "1.36", wantServed: []schema.GroupVersionResource{claims, pods},
		},
		"another resource of the group": {
			answer: answer{version: apiversion.Info{Major: "1", Minor: "36"}, serves: []schema.GroupVersionResource{claims.GroupVersion().WithResource("deviceclasses")}},
			want:   "1.36",
		},
		"no version":                      {wantErr: `it reports none that can be read: ""`},
		"an unreleased build":             {answer: answer{version: apiversion.Info{GitVersion: "v0.0.0-master+$Format:%H$"}}, wantErr: `it reports none that can be read: "v0.0.0-master+$Format:%H$"`},
		"the version is denied":           {answer: answer{status: http.StatusForbidden}, wantErr: "ask the API server for its version: "},
		"too old":                         {answer: minor("22+"), wantErr: "the API server is Kubernetes 1.22, and Daybreak needs 1.23 or later: upgrade the cluster"},
		"the server fails":                {answer: answer{status: http.StatusInternalServerError}, wantErr: "ask the API server for its version: "},
		"the next major version is newer": {answer: answer{version: apiversion.Info{Major: "2", Minor: "1"}}, want: "2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tt.answer)
			defer s.Close()
			got, err := AskServer(t.Context(), &rest.Config{Host: s.URL}, 1, claims, pods)
			if err != nil || tt.wantErr != "" {
				if err == nil || tt.wantErr == "" || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if got.Version.String() != tt.want || got.Newest.String() != tt.want {
				t.Errorf("version %s, newest %s, want %s", got.Version, got.Newest, tt.want)
			}
			if !got.Served.Equal(got.Served.Clone().Clear().Insert(tt.wantServed...)) {
				t.Errorf("it serves %v, want %v", got.Served.UnsortedList(), tt.wantServed)
			}
		})
	}
}

// TestAskServers: of several servers behind one address, the lowest version and
// what all serve counts. Each time is asked over a connection of its own, and
// one that is down is no matter.
func TestAskServers(t *testing.T) {
	old, newer := minor("33"), minor("34")
	old.serves, newer.serves = []schema.GroupVersionResource{pods}, []schema.GroupVersionResource{pods, claims}
	all := []http.Handler{newer, old, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })}
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all[int(r.Context().Value(connectionKey{}).(int64))%len(all)].ServeHTTP(w, r) //nolint:errcheck // it is set below
	}))
	s.Config.ConnContext = onConnection(&connections)
	s.Start()
	defer s.Close()
	got, err := AskServer(t.Context(), &rest.Config{Host: s.URL}, 6, pods, claims)
	gputest.Must(t, err)
	if got.Version.String() != "1.33" || got.Newest.String() != "1.34" || !got.Serves(pods) || got.Serves(claims) {
		t.Errorf("%s to %s, serves %v; want 1.33 to 1.34 and pods only", got.Version, got.Newest, got.Served.UnsortedList())
	}
	if n := connections.Load(); n != 6 {
		t.Errorf("%d connections, want 6", n)
	}
}

type connectionKey struct{}

// onConnection numbers connections.
func onConnection(n *atomic.Int64) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, n.Add(1))
	}
}

// TestServerTooOld: in a pod, an API server that is too old is also reported by an Event
// on that pod.
func TestServerTooOld(t *testing.T) {
	name, err := os.Hostname()
	gputest.Must(t, err)
	before := namespaceFile
	t.Cleanup(func() { namespaceFile = before })
	namespaceFile = filepath.Join(t.TempDir(), "namespace")
	gputest.Must(t, os.WriteFile(namespaceFile, []byte("daybreak-system"), 0o600))
	var events []corev1.Event
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /api/v1/namespaces/daybreak-system/pods/" + name:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"u1"}}`))
		case "POST /api/v1/namespaces/daybreak-system/events":
			var e corev1.Event
			gputest.Check(t, json.NewDecoder(r.Body).Decode(&e))
			events = append(events, e)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(e)
		default:
			minor("22").ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	const want = "the API server is Kubernetes 1.22, and Daybreak needs 1.23 or later: upgrade the cluster"
	if err := CheckServer(t.Context(), &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}); err == nil || err.Error() != want {
		t.Errorf("CheckServer() = %v, want %q", err, want)
	}
	if len(events) != 1 || events[0].Message != want || events[0].Reason != "ServerTooOld" || events[0].InvolvedObject.Name != name || events[0].InvolvedObject.UID != "u1" {
		t.Errorf("events %+v, want one on pod %s", events, name)
	}
	if err := CheckServer(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}); err != nil {
		t.Errorf("no server: %v, want that it is left to the clients", err)
	}
}
