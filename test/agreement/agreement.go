// Package agreement asks everything that answers where a pod can go, for tests of
// whether the answers agree with each other and with the scheduler.
package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/manager/dashboard"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// Answers is what is said of one pod without a node.
type Answers struct {
	Place   view.Placement
	Explain *view.Explanation
	Status  view.PendingStatus
}

// Ask asks place, explain and status about the pod, in a cluster where further
// pods without a node wait.
func Ask(objects *cluster.Objects, pod *corev1.Pod) (*Answers, error) {
	a := &Answers{}
	snapshot := about(objects, pod).Snapshot()
	a.Explain = view.Explain(snapshot, pod, place.Default)
	pending := view.NewStatus(snapshot, "").Pending
	if len(pending) != 1 {
		return nil, fmt.Errorf("status lists %d pods that wait, want one", len(pending))
	}
	a.Status = pending[0]
	var err error
	a.Place, err = view.NewPlacer(snapshot, view.PlaceOptions{Now: time.Now}).Place(pod)
	return a, err
}

// about returns the objects with the pod as the only one to be placed.
func about(objects *cluster.Objects, pod *corev1.Pod) *cluster.Objects {
	one := *objects
	one.Pods = nil
	for _, p := range objects.Pods {
		if p.Spec.NodeName != "" {
			one.Pods = append(one.Pods, p)
		} else if p.Name != pod.Name || p.Namespace != pod.Namespace {
			one.Waiting = append(slices.Clip(one.Waiting), p)
		}
	}
	one.Pods = append(one.Pods, pod)
	return &one
}

// Fits returns the node that takes the pod, or nothing.
func (a *Answers) Fits() string { return a.Explain.Fits }

// Agree compares place, explain and status: the same node, or the same reasons in
// the same words for every node.
func (a *Answers) Agree() error {
	e := a.Explain
	switch {
	case e.State == view.StateInadmissible:
		if a.Place.Error != e.Error || a.Status.Code != view.CodeInadmissible || !strings.Contains(a.Status.Message, e.Problems[0]) {
			return fmt.Errorf("explain reports %q, place %q, status %s: %q", e.Error, a.Place.Error, a.Status.Code, a.Status.Message)
		}
	case e.Fits != "":
		if a.Place.Node != e.Fits || a.Status.Code != view.CodeOther || !strings.Contains(a.Status.Message, e.Fits) {
			return fmt.Errorf("explain names node %s, place %q (%s), status %s: %q", e.Fits, a.Place.Node, a.Place.Summary, a.Status.Code, a.Status.Message)
		}
	case len(e.Refusals) == 0 || len(e.Reasons) == 0:
		return fmt.Errorf("explain gives neither a node nor a reason: %+v", e)
	default:
		return a.agreeOnRefusals()
	}
	return nil
}

func (a *Answers) agreeOnRefusals() error {
	e := a.Explain
	if a.Place.Node != "" || a.Place.Summary != e.Summary || a.Status.Message != e.Summary || a.Status.Code != e.Reasons[0].Code.String() {
		return fmt.Errorf("explain reports %v: %q, place %q: %q, status %s: %q", e.Reasons[0].Code, e.Summary, a.Place.Node, a.Place.Summary, a.Status.Code, a.Status.Message)
	}
	if diff := cmp.Diff(e.Refusals, a.Place.Refusals) + cmp.Diff(e.Reasons, a.Status.Reasons); diff != "" {
		return fmt.Errorf("refusals of explain and place, reasons of explain and status: %s", diff)
	}
	return nil
}

// AgreeWithScheduler compares the reasons with the scheduler's sentence about a pod
// that it did not bind, which its event and its condition have. The sentence also
// reports the outcome of preemption, and explain a node that has room but may not
// be used: these follow the list of reasons.
func (a *Answers) AgreeWithScheduler(sentence string) error {
	if a.Explain.State == view.StateInadmissible {
		for _, problem := range a.Explain.Problems {
			if !strings.Contains(sentence, problem) {
				return fmt.Errorf("explain reports %q, the scheduler %q", problem, sentence)
			}
		}
		return nil
	}
	if a.Explain.Fits != "" {
		return fmt.Errorf("explain names node %s, the scheduler refuses: %q", a.Explain.Fits, sentence)
	}
	if want, got := list(a.Explain.Summary), list(sentence); want != got {
		return fmt.Errorf("reasons (-explain +scheduler):\n- %s\n+ %s\nof %q\nand %q", want, got, a.Explain.Summary, sentence)
	}
	return nil
}

// list returns the number of nodes and the reasons of a sentence such as
//
//	0/3 nodes are available: 2 are cordoned, 1 has no idle card; preemption: no room.
func list(sentence string) string {
	head, reasons, _ := strings.Cut(sentence, ": ")
	nodes, _, _ := strings.Cut(head, " ")
	reasons, _, _ = strings.Cut(reasons, "; ")
	return nodes + " " + strings.TrimSuffix(reasons, ".")
}

// AgreeWithPage compares status with the list of waiting pods that the dashboard
// serves, and explain with the pod's own page, field by field.
func (a *Answers) AgreeWithPage(objects *cluster.Objects, pod *corev1.Pod) error {
	handler, err := dashboard.New(dashboard.Options{Source: fixed{about(objects, pod)}, Clock: clock.RealClock{}, Logger: klog.Logger{}})
	if err != nil {
		return err
	}
	var state struct{ Pending []map[string]any }
	page := map[string]any{}
	if err := errors.Join(get(handler, "/api/v1/state", &state), get(handler, "/api/v1/pods/"+pod.Namespace+"/"+pod.Name, &page)); err != nil {
		return err
	}
	if len(state.Pending) != 1 {
		return fmt.Errorf("the page lists %d pods that wait, want one", len(state.Pending))
	}
	if err := includes(state.Pending[0], a.Status); err != nil {
		return fmt.Errorf("the page's list of waiting pods differs from status: %w", err)
	}
	if err := includes(page, a.Explain); err != nil {
		return fmt.Errorf("the page of the pod differs from explain: %w", err)
	}
	return nil
}

// includes returns an error unless the document has every field of the answer.
func includes(document map[string]any, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if diff := cmp.Diff(fields[key], document[key]); diff != "" {
			return fmt.Errorf("field %s (-answer +page):\n%s", key, diff)
		}
	}
	return nil
}

func get(handler http.Handler, path string, into any) error {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://localhost"+path, http.NoBody)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return json.Unmarshal(w.Body.Bytes(), into)
}

// fixed is a cluster that does not change.
type fixed struct{ objects *cluster.Objects }

// Objects returns the objects.
func (f fixed) Objects() (*cluster.Objects, error) { return f.objects, nil }

// OnChange does nothing.
func (fixed) OnChange(func()) error { return nil }
