package manager

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// reviewer is an API server that allows all but some rights, which are written
// as "verb group/resource/subresource namespace".
func reviewer(denied ...string) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		review, ok := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
		if !ok {
			return false, nil, nil
		}
		a := review.Spec.ResourceAttributes
		right := a.Verb + " " + a.Group + "/" + a.Resource + "/" + a.Subresource + " " + a.Namespace
		review.Status.Allowed = !slices.Contains(denied, right)
		return true, review, nil
	})
	return client
}

func TestCheckRights(t *testing.T) {
	needs := []need{
		{resource: devices, verbs: []string{"list", "watch"}},
		{resource: "nodes", subresource: "status", verbs: []string{"patch"}},
		{resource: "leases.coordination.k8s.io", namespace: "ns", verbs: []string{"create"}},
	}
	cases := map[string]struct {
		denied []string
		want   string
	}{
		"all is allowed":                {},
		"another's rights are no worry": {denied: []string{"patch /nodes/ "}},
		"one is missing":                {denied: []string{"patch /nodes/status "}, want: "this manager may not patch nodes/status: give its account a role with these verbs"},
		"several are missing": {
			denied: []string{"list scheduling.koordinator.sh/devices/ ", "watch scheduling.koordinator.sh/devices/ ", "create coordination.k8s.io/leases/ ns"},
			want:   "this manager may not list, watch devices.scheduling.koordinator.sh; create leases.coordination.k8s.io in namespace ns: give its account a role with these verbs",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := checkRights(t.Context(), reviewer(tc.denied...), needs)
			gputest.Equal(t, "message", tc.want, message(err))
		})
	}
}

// TestNeeds: what an informer lists is a need: without the right it would never fill.
func TestNeeds(t *testing.T) {
	needs := (&Manager{cfg: Config{}.withDefaults()}).needs()
	err := checkRights(t.Context(), reviewer("list /resourcequotas/ ", "watch /namespaces/ "), needs)
	gputest.Equal(t, "message", "this manager may not watch namespaces; list resourcequotas: give its account a role with these verbs", message(err))
}

func TestCheckRightsOfSilentServer(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	err := checkRights(t.Context(), client, []need{{resource: "nodes", verbs: []string{"list", "watch"}}})
	gputest.Equal(t, "message", "ask the API server what this manager may do: connection refused", message(err))
}

func TestCheckLease(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	cases := map[string]struct {
		answer error
		want   string // in the message; nothing means that all is well
	}{
		"it could be created": {},
		"it is there":         {answer: apierrors.NewAlreadyExists(leases, LeaseName)},
		"no such namespace":   {answer: apierrors.NewNotFound(corev1.Resource("namespaces"), "ns"), want: "there is no namespace ns for the lease daybreak-manager: create it, or name another with --leader-elect-namespace"},
		"something else":      {answer: apierrors.NewInternalError(errors.New("out of order")), want: "try the lease ns/daybreak-manager: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
				create, ok := action.(clienttesting.CreateActionImpl)
				if !ok || !slices.Contains(create.CreateOptions.DryRun, "All") {
					t.Error("the lease is not only tried, but created")
				}
				return tc.answer != nil, nil, tc.answer
			})
			m := &Manager{cfg: Config{LeaderElectNamespace: "ns"}, client: client}
			got := message(m.checkLease(t.Context()))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNewWithoutServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	_, err := New(Config{}, &rest.Config{Host: server.URL})
	if want := "reach the API server at " + server.URL + ": "; !strings.HasPrefix(message(err), want) {
		t.Errorf("got %q, want it to begin with %q", message(err), want)
	}
}
