package dashboard

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/reviewer"
)

// apiServer knows users: a token is its user's name, and rights are what the user may
// list, as "nodes", "devices", "pods" or "pods/namespace".
type apiServer struct {
	client *fake.Clientset
	mu     sync.Mutex
	rights map[string][]string
	broken atomic.Bool
}

func newAPIServer(rights map[string][]string) *apiServer {
	s := &apiServer{rights: rights}
	s.client = reviewer.NewClient(s.rightsOf)
	s.client.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return s.broken.Load(), nil, errors.New("away")
	})
	return s
}

// asked returns how many reviews of a kind there were.
func (s *apiServer) asked(resource string) (n int) {
	for _, action := range s.client.Actions() {
		if action.GetResource().Resource == resource {
			n++
		}
	}
	return n
}

func (s *apiServer) rightsOf(user string) ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rights, known := s.rights[user]
	return rights, known
}

func (s *apiServer) withdraw(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rights, user)
}

func (s *apiServer) grant(user string, rights ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rights[user] = rights
}

func with(t *testing.T, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestWho(t *testing.T) {
	server := newAPIServer(map[string][]string{"admin": {"nodes", "devices", "pods"}, "blind": {"pods"}, "half": {"nodes"}})
	cases := map[string]struct {
		request *http.Request
		want    error
		user    string
	}{
		"no token":                       {request: with(t, ""), want: errNoToken},
		"an unknown token":               {request: with(t, "forged"), want: errBadToken},
		"a good one":                     {request: with(t, "admin"), user: "admin"},
		"may list pods, but no nodes":    {request: with(t, "blind"), want: errForbidden},
		"may list nodes, but no Devices": {request: with(t, "half"), want: errForbidden},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u, err := newReviews(server.client, testclock.NewFakeClock(noon())).who(tc.request)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if tc.user != "" && u.Username != tc.user {
				t.Errorf("got user %q, want %q", u.Username, tc.user)
			}
		})
	}
	other := with(t, "")
	other.SetBasicAuth("admin", "x")
	if _, err := newReviews(server.client, testclock.NewFakeClock(noon())).who(other); !errors.Is(err, errNoToken) {
		t.Errorf("with a password: %v", err)
	}
}

func TestSight(t *testing.T) {
	server := newAPIServer(map[string][]string{
		"admin": {"pods"}, "alice": {"pods/team-a", "pods/other"}, "carol": {},
	})
	namespaces := []string{"team-a", "team-b"}
	cases := map[string]*sight{
		"admin": everything, "alice": {namespaces: map[string]bool{"team-a": true}}, "carol": {namespaces: map[string]bool{}},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := newReviews(server.client, testclock.NewFakeClock(noon())).sight(t.Context(), &user{Username: name}, namespaces)
			gputest.Must(t, err)
			gputest.Equal(t, "sight", want, got, cmp.AllowUnexported(sight{}))
		})
	}
}

// TestReviewsAreRemembered: for a short while, good answers and bad ones; what
// the API server could not answer is asked again.
func TestReviewsAreRemembered(t *testing.T) {
	server, clock := newAPIServer(map[string][]string{"admin": {"nodes", "devices"}}), testclock.NewFakeClock(noon())
	g := newReviews(server.client, clock)
	ask := func(token string) error { _, err := g.who(with(t, token)); return err }
	for range 3 {
		gputest.Must(t, ask("admin"))
		if err := ask("forged"); !errors.Is(err, errBadToken) {
			t.Fatal(err)
		}
	}
	if tokens, access := server.asked("tokenreviews"), server.asked("subjectaccessreviews"); tokens != 2 || access != 2 {
		t.Errorf("asked %d and %d times, want 2 and 2", tokens, access)
	}
	server.withdraw("admin")
	clock.Step(reviewed + time.Second)
	if err := ask("admin"); !errors.Is(err, errBadToken) {
		t.Errorf("after the token was withdrawn: %v", err)
	}
	server.broken.Store(true)
	clock.Step(reviewed + time.Second)
	if err := ask("admin"); err == nil || errors.Is(err, errBadToken) {
		t.Errorf("while the API server is away: %v", err)
	}
	server.broken.Store(false)
	server.grant("admin", "nodes", "devices")
	if err := ask("admin"); err != nil {
		t.Errorf("once it is back: %v", err)
	}
}
