package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPodList: an answer that ends early, or is none, is an error and not a shorter list.
func TestPodList(t *testing.T) {
	const pod = `{"metadata":{"name":"a"},"spec":{"nodeName":"n1","containers":[{"name":"c","args":["x"]}]}}`
	for answer, want := range map[string]int{
		`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[` + pod + `,` + pod + `]}`: 2,
		`{"metadata":{"resourceVersion":"7"},"items":[]}`:                                         0,
		`{"metadata":{"resourceVersion":"7"},"items":null}`:                                       0,
		`{"metadata":{"resourceVersion":"7"},"items":[` + pod + `]`:                               -1,
		`{"metadata":{"resourceVersion":"7"},"items":[` + pod:                                     -1,
		`{"metadata":{"resourceVersion":"7"},"items":{}}`:                                         -1,
		`[]`: -1, ``: -1,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("fieldSelector") != "spec.nodeName=n1" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = fmt.Fprint(w, answer)
		}))
		clients, err := NewClients(&rest.Config{Host: server.URL})
		gputest.Must(t, err)
		source := &podSource{client: clients.Core.RESTClient(), node: "n1", vendor: &inventory.VendorPlugin{}}
		got, err := source.list(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		server.Close()
		list, _ := got.(*corev1.PodList)
		switch {
		case (err != nil) != (want < 0):
			t.Errorf("%s: %v", answer, err)
		case err == nil && (len(list.Items) != want || list.ResourceVersion != "7"):
			t.Errorf("%s: %+v", answer, list)
		case want > 0 && (list.Items[0].Name != "a" || list.Items[0].Spec.NodeName != "n1" || list.Items[0].Spec.Containers != nil):
			t.Errorf("%+v", list.Items[0])
		}
	}
}
