package scheduler

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Answers that say nothing for certain once an earlier one was lost.
var (
	errUnauthorized = apierrors.NewUnauthorized("no token yet")
	errBadRequest   = apierrors.NewBadRequest("what?")
	errInvalid      = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), "p", nil)
	errNotFound     = apierrors.NewNotFound(podResource, "p")
)

// apiServer has one pod. A Binding is carried out, and a touch changes the pod,
// only at the version it names.
type apiServer struct {
	pod *corev1.Pod
	// onBind returns the answer to the n-th Binding, and whether it is carried
	// out; onGet and onPatch return the error of the n-th such request.
	onBind         func(n int) (carryOut bool, err error)
	onGet, onPatch func(n int) error

	binds, gets, patches int
	versions             []string // of the Bindings
}

func (s *apiServer) react(action clienttesting.Action) (bool, runtime.Object, error) {
	switch a := action.(type) {
	case clienttesting.PatchAction:
		s.patches++
		if s.onPatch != nil {
			if err := s.onPatch(s.patches); err != nil {
				return true, nil, err
			}
		}
		return s.patch(a.GetPatch())
	case clienttesting.CreateAction:
		binding, ok := a.GetObject().(*corev1.Binding)
		if !ok {
			return true, nil, errBroken
		}
		return true, nil, s.bind(binding)
	}
	s.gets++
	if s.onGet != nil {
		if err := s.onGet(s.gets); err != nil {
			return true, nil, err
		}
	}
	if s.pod == nil {
		return true, nil, errNotFound
	}
	return true, s.pod.DeepCopy(), nil
}

func (s *apiServer) bind(b *corev1.Binding) error {
	s.binds++
	s.versions = append(s.versions, b.ResourceVersion)
	carryOut, err := true, error(nil)
	if s.onBind != nil {
		carryOut, err = s.onBind(s.binds)
	}
	switch {
	case !carryOut:
		return err
	case s.pod == nil:
		return errNotFound
	case s.pod.Spec.NodeName != "" || s.pod.ResourceVersion != b.ResourceVersion:
		return errConflict
	}
	s.pod.Spec.NodeName = b.Target.Name
	maps.Copy(s.pod.Annotations, b.Annotations)
	s.pod.ResourceVersion += "-bound"
	return err
}

func (s *apiServer) patch(text []byte) (bool, runtime.Object, error) {
	var patch corev1.Pod
	if err := json.Unmarshal(text, &patch); err != nil {
		return true, nil, err
	}
	if s.pod == nil {
		return true, nil, errNotFound
	}
	if patch.UID != s.pod.UID || patch.ResourceVersion != s.pod.ResourceVersion {
		return true, nil, errConflict
	}
	if !cmp.Equal(patch.Status.Conditions, s.pod.Status.Conditions) { // otherwise nothing is written
		s.pod.Status.Conditions = patch.Status.Conditions
		s.pod.ResourceVersion += "-touched"
	}
	return true, s.pod.DeepCopy(), nil
}

// inDoubt returns a rig with a pod that has a card of n1, and the API server
// with the pod.
func inDoubt(t *testing.T) (*rig, *corev1.Pod, *apiServer) {
	t.Helper()
	r, pod := reserved(t)
	s := &apiServer{pod: pod.DeepCopy()}
	r.fakes.client.PrependReactor("*", "pods", s.react)
	return r, pod, s
}

// answers gives these answers to Bindings, none of which is carried out, and
// carries out what follows.
func answers(errs ...error) func(int) (bool, error) {
	return func(n int) (bool, error) {
		if n > len(errs) {
			return true, nil
		}
		return false, errs[n-1]
	}
}

// TestAnAnswerThatMayBeWrongFreesNothing is a sentence of docs/scheduler.md:
// whatever is answered after a Binding that was carried out, the pod has its
// cards.
func TestAnAnswerThatMayBeWrongFreesNothing(t *testing.T) {
	for name, definite := range map[string]error{
		"401": errUnauthorized, "403": errForbidden, "400": errBadRequest, "422": errInvalid, "404": errNotFound, "409": errConflict, "429": errThrottled,
	} {
		t.Run(name, func(t *testing.T) {
			r, pod, s := inDoubt(t)
			s.onBind = func(n int) (bool, error) {
				if n == 1 {
					return true, errTimeout
				}
				return false, definite
			}
			s.onGet = func(n int) error { return []error{errForbidden, errUnauthorized, errTimeout, nil}[min(n, 4)-1] }
			if errors.Is(definite, errThrottled) {
				s.onBind = func(n int) (bool, error) { return n == 1, []error{errTimeout, errThrottled, errForbidden}[min(n, 3)-1] }
			}
			if got := r.bind(t.Context(), pod); !got.IsSuccess() {
				t.Errorf("Bind() = %v of a pod that is bound", got)
			}
			if got := r.inDoubt(t); got != 0 {
				t.Errorf("%v Bindings in doubt", got)
			}
		})
	}
}

// TestCardsAreFreedForCertain: after an uncertain answer the cards are freed only
// when no Binding that was sent can be carried out any more. After a conflict the pod
// is looked at, and bound at its new version if the decision holds for that.
func TestCardsAreFreedForCertain(t *testing.T) {
	const elsewhere, changed, notFound = "bind to n1: the pod is bound elsewhere", "bind to n1: the pod is being deleted, or asks for something else than when its cards were chosen", `bind to n1: pods "p" not found`
	// newer changes the pod, which then has another version than the Binding.
	newer := func(change podOption) func(*apiServer, map[string]string) {
		return func(s *apiServer, _ map[string]string) {
			s.pod.ResourceVersion = "8"
			change(s.pod)
		}
	}
	bound := func(node string) func(*apiServer, map[string]string) {
		return func(s *apiServer, reserved map[string]string) {
			newer(boundTo(node))(s, nil)
			maps.Copy(s.pod.Annotations, reserved)
		}
	}
	tests := map[string]struct {
		answers     []error
		change      func(s *apiServer, reserved map[string]string)
		wantErr     string
		wantPatches int
		wantVersion string   // of the pod in the end
		wantSent    []string // the versions in the Bindings, if they matter
	}{
		"a conflict, and an earlier try went through":       {change: bound("n1"), wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and bound to our node by someone else": {change: newer(boundTo("n1")), wantErr: elsewhere, wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and bound elsewhere":                   {change: bound("n2"), wantErr: elsewhere, wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and only changed":                      {change: newer(ofApp("new")), wantVersion: "8-bound", wantSent: []string{"7", "8"}},
		"a conflict, and it asks for another QoS class now": {change: newer(annotated(wire.AnnotationQoS, "fixed-share")), wantErr: changed, wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and it is being deleted":               {change: newer(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(start)) }), wantErr: changed, wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and another pod of its name":           {change: newer(func(p *corev1.Pod) { p.UID = "other" }), wantErr: notFound, wantVersion: "8", wantSent: []string{"7"}},
		"a conflict, and it is gone":                        {answers: []error{errConflict}, change: func(s *apiServer, _ map[string]string) { s.pod = nil }, wantErr: notFound, wantSent: []string{"7"}},
		"a conflict, only changed, and the first look fails": {
			change: func(s *apiServer, _ map[string]string) {
				newer(ofApp("new"))(s, nil)
				s.onGet = func(n int) error { return []error{errTimeout, nil}[min(n, 2)-1] }
			}, wantVersion: "8-bound", wantSent: []string{"7", "7", "8"},
		},
		"no uncertain answer": {
			answers: []error{errForbidden}, wantErr: "bind to n1: " + errForbidden.Error(), wantVersion: "7",
		},
		"unbound at the version of the Binding": {
			answers: []error{errTimeout, errForbidden}, wantErr: "bind to n1: " + errForbidden.Error(), wantPatches: 1, wantVersion: "7-touched",
		},
		"unbound at a newer version": {
			answers: []error{errTimeout, errForbidden}, change: newer(func(*corev1.Pod) {}),
			wantErr: "bind to n1: " + errForbidden.Error(), wantVersion: "8",
		},
		"touches fail for a while": {
			answers: []error{errTimeout, errForbidden, errForbidden, errForbidden, errForbidden},
			change: func(s *apiServer, _ map[string]string) {
				s.onPatch = func(n int) error { return []error{errForbidden, errInternal, errConflict, nil}[min(n, 4)-1] }
			},
			wantErr: "bind to n1: " + errForbidden.Error(), wantPatches: 4, wantVersion: "7-touched",
		},
		"gone": {
			answers: []error{errTimeout, errForbidden}, change: func(s *apiServer, _ map[string]string) { s.pod = nil },
			wantErr: `bind to n1: pods "p" not found`,
		},
		"another pod of its name": {
			answers: []error{errTimeout, errForbidden}, change: func(s *apiServer, _ map[string]string) { s.pod.UID = "other" },
			wantErr: `bind to n1: pods "p" not found`, wantVersion: "7",
		},
		"bound elsewhere": {
			answers: []error{errTimeout, errForbidden}, change: func(s *apiServer, _ map[string]string) { s.pod.Spec.NodeName = "n2" },
			wantErr: "bind to n1: the pod is bound elsewhere", wantVersion: "7",
		},
		"touched by an earlier leader, late": {
			answers: []error{errTimeout, errForbidden}, change: newer(touchedBy("other")),
			wantErr: "bind to n1: " + errTouched.Error(), wantPatches: 1, wantVersion: "8-touched",
		},
		"a conflict that no version explains": {
			answers: []error{errTimeout, errConflict}, wantPatches: 1, wantVersion: "7-touched-bound",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, pod, s := inDoubt(t)
			s.onBind = answers(tt.answers...)
			if tt.change != nil {
				tt.change(s, r.shared.pods.claimOf(pod.UID, reservedClaim).annotations)
			}
			got := r.bind(t.Context(), pod)
			if said := message(got.AsError()); said != tt.wantErr {
				t.Errorf("Bind() says %q, want %q", said, tt.wantErr)
			}
			if s.patches != tt.wantPatches {
				t.Errorf("touched %d times, want %d", s.patches, tt.wantPatches)
			}
			if tt.wantSent != nil {
				gputest.Equal(t, "versions sent", tt.wantSent, s.versions)
			}
			if s.pod != nil && s.pod.ResourceVersion != tt.wantVersion {
				t.Errorf("the pod is at version %s, want %s", s.pod.ResourceVersion, tt.wantVersion)
			}
			if got := r.inDoubt(t); got != 0 {
				t.Errorf("%v Bindings in doubt", got)
			}
		})
	}
}

// TestEveryTouchChangesThePod: a pod that this process touched before is at a
// new version after the next touch too.
func TestEveryTouchChangesThePod(t *testing.T) {
	r, pod, s := inDoubt(t)
	touchedBy("me")(s.pod)
	touchedBy("me")(pod)
	for _, want := range []string{"7-touched", "7-touched-touched"} {
		s.binds, s.onBind = 0, answers(errTimeout, errForbidden)
		if got := r.bind(t.Context(), pod); got.IsSuccess() || s.pod.ResourceVersion != want {
			t.Fatalf("Bind() = %v, the pod is at version %s, want %s", got, s.pod.ResourceVersion, want)
		}
		pod = s.pod.DeepCopy()
	}
}

// TestADoubtIsReported: the cards stay reserved while nothing is known, which a
// metric and an event report.
func TestADoubtIsReported(t *testing.T) {
	r, pod, s := inDoubt(t)
	s.onBind = func(n int) (bool, error) { return n > 60, []error{nil, errTimeout}[min(1, max(0, 61-n))] }
	s.onGet = func(int) error { return errTimeout }
	highest := 0.0
	r.fakes.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		highest = max(highest, r.inDoubt(t))
		return false, nil, nil
	})
	succeeds(t, r.bind(t.Context(), pod))
	if highest != 1 || r.inDoubt(t) != 0 {
		t.Errorf("at most %v Bindings in doubt and %v in the end, want 1 and 0", highest, r.inDoubt(t))
	}
	close(r.fakes.recorder.Events)
	var written []string
	for event := range r.fakes.recorder.Events {
		written = append(written, event)
	}
	want := "Warning BindingInDoubt not known whether the pod is bound to n1, its cards stay reserved there: " + errTimeout.Error()
	gputest.Equal(t, "events", []string{want}, written)
}

// TestAStaleLeaderFindsOut: the first try may have been carried out, so a lease
// that has gone stale since does not free the cards by itself.
func TestAStaleLeaderFindsOut(t *testing.T) {
	for name, carriedOut := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			r, pod, s := inDoubt(t)
			r.shared.term.elect(&fakeLock{}, 10*time.Second)
			r.shared.term.renew(0)
			s.onBind = func(int) (bool, error) {
				r.suspended = time.Hour // the lease is stale
				return carriedOut, errTimeout
			}
			got := r.bind(t.Context(), pod)
			if got.IsSuccess() != carriedOut || !carriedOut && !errors.Is(got.AsError(), errStale) {
				t.Errorf("Bind() = %v", got)
			}
			if s.binds != 1 {
				t.Errorf("%d Bindings were sent, want none with a stale lease", s.binds-1)
			}
			if !carriedOut && s.pod.ResourceVersion != "7-touched" {
				t.Errorf("the pod is at version %s: the Binding may yet be carried out", s.pod.ResourceVersion)
			}
		})
	}
}

// TestASuspendedLeader: its clock stood still, so it takes itself for the
// leader; the pod that the next leader touched is not bound all the same.
func TestASuspendedLeader(t *testing.T) {
	t.Run("a clock that counts suspension", func(t *testing.T) {
		r, pod, s := inDoubt(t)
		r.shared.term.elect(&fakeLock{}, 10*time.Second)
		r.shared.term.renew(0)
		r.suspended = 10 * time.Second
		if got := r.bind(t.Context(), pod); !errors.Is(got.AsError(), errStale) || s.binds != 0 {
			t.Errorf("Bind() = %v after %d Bindings", got, s.binds)
		}
	})
	t.Run("touched, as the API server says", func(t *testing.T) {
		r, pod, s := inDoubt(t)
		touchedBy("other")(s.pod)
		s.pod.ResourceVersion = "8"
		if got := r.bind(t.Context(), pod); !errors.Is(got.AsError(), errTouched) || s.binds != 1 || s.pod.Spec.NodeName != "" {
			t.Errorf("Bind() = %v after %d Bindings", got, s.binds)
		}
	})
	t.Run("touched, as the informer says", func(t *testing.T) {
		r, pod, s := inDoubt(t)
		now := pod.DeepCopy()
		touchedBy("other")(now)
		gputest.Must(t, r.fakes.informers.Core().V1().Pods().Informer().GetIndexer().Add(now))
		if got := r.bind(t.Context(), pod); !errors.Is(got.AsError(), errTouched) || s.binds != 0 {
			t.Errorf("Bind() = %v after %d Bindings", got, s.binds)
		}
	})
	t.Run("touched by itself", func(t *testing.T) {
		r, pod, s := inDoubt(t)
		touchedBy("me after version 7")(s.pod)
		s.pod.ResourceVersion = "8"
		if got := r.bind(t.Context(), pod); !got.IsSuccess() || !cmp.Equal(s.versions, []string{"7", "8"}) {
			t.Errorf("Bind() = %v with versions %v", got, s.versions)
		}
	})
}

// TestAnAnswerThatClientGoKeepsToItself: client-go sends a request again by
// itself after a 5xx with a Retry-After, and returns the last answer only.
func TestAnAnswerThatClientGoKeepsToItself(t *testing.T) {
	r, pod := reserved(t)
	bound := pod.DeepCopy()
	res := r.shared.pods.claimOf(pod.UID, reservedClaim)
	binds := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case strings.HasSuffix(req.URL.Path, "/binding"):
			binds++
			if binds == 1 { // carried out
				bound.Spec.NodeName = "n1"
				maps.Copy(bound.Annotations, res.annotations)
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			answer = errForbidden.ErrStatus
			w.WriteHeader(http.StatusForbidden)
		default:
			bound.APIVersion, bound.Kind = "v1", "Pod"
			answer = bound
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	r.fakes.real = client
	if got := r.bind(t.Context(), pod); !got.IsSuccess() || binds != 2 {
		t.Errorf("Bind() = %v after %d Bindings: the first was carried out", got, binds)
	}
}

// TestALateTouch: the touch of an earlier leader arrives after this process has
// touched the pod. The leader touches the pod again; who may not be the leader any
// more does not.
func TestALateTouch(t *testing.T) {
	for name, age := range map[string]time.Duration{"the leader": 0, "no longer the leader": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			r, pod, s := inDoubt(t)
			r.shared.term.elect(&fakeLock{}, 10*time.Second)
			r.shared.term.renew(0)
			touchedBy("earlier")(s.pod)
			s.pod.ResourceVersion = "8"
			s.onBind = func(int) (bool, error) {
				r.suspended = age
				return true, nil
			}
			if got := r.bind(t.Context(), pod); !errors.Is(got.AsError(), errTouched) || s.binds != 1 {
				t.Errorf("Bind() = %v after %d Bindings", got, s.binds)
			}
			wantPatches := 1
			if age > 0 {
				wantPatches = 0
			}
			if s.patches != wantPatches || r.shared.term.foreign(s.pod) != (age > 0) {
				t.Errorf("%d touches, and the pod was last touched by %q", s.patches, allocation.TermOf(s.pod))
			}
		})
	}
}
