package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// gathered returns the metrics by name.
func (r *rig) gathered(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.shared.metrics.collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, family := range families {
		out[family.GetName()] = family
	}
	return out
}

// attempts returns the attempts that are not zero, by result and refusal.
func (r *rig) attempts(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, m := range r.gathered(t)["daybreak_scheduler_attempts_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if v := m.GetCounter().GetValue(); v > 0 {
			out[strings.TrimSpace(labels["result"]+" "+labels["refusal"])] = v
		}
	}
	return out
}

// inDoubt returns how many Bindings are in doubt.
func (r *rig) inDoubt(t *testing.T) float64 {
	t.Helper()
	return r.gathered(t)["daybreak_scheduler_bindings_in_doubt"].GetMetric()[0].GetGauge().GetValue()
}

// TestIncompleteSearchesAreCounted: once an attempt, however many nodes ended
// their search at its limit.
func TestIncompleteSearchesAreCounted(t *testing.T) {
	r := newRig(t)
	for _, refusals := range [][]place.Refusal{
		{{Code: place.MemoryShort, Incomplete: true}, {Code: place.MemoryShort, Incomplete: true}},
		{{Code: place.MemoryShort}},
	} {
		r.shared.metrics.refuse(refusals, time.Millisecond)
	}
	if got := r.gathered(t)["daybreak_scheduler_incomplete_searches_total"].GetMetric()[0].GetCounter().GetValue(); got != 1 {
		t.Errorf("%v attempts with a search that ended at its limit, want 1", got)
	}
}

func TestFiguresAreThereFromTheBeginning(t *testing.T) {
	families := newRig(t).gathered(t)
	if got, want := len(families["daybreak_scheduler_attempts_total"].GetMetric()), len(place.Codes())+4; got != want {
		t.Errorf("attempts have %d series, want %d", got, want)
	}
	for _, name := range []string{"daybreak_scheduler_decision_duration_seconds", "daybreak_scheduler_lock_wait_seconds"} {
		if len(families[name].GetMetric()) == 0 {
			t.Errorf("%s has no series", name)
		}
	}
}

// TestReservationsAreCounted: a pod counts from when its cards are chosen until
// it is gone.
func TestReservationsAreCounted(t *testing.T) {
	r := newRig(t)
	pods := r.shared.pods
	count := func() float64 {
		return r.gathered(t)["daybreak_scheduler_reservations"].GetMetric()[0].GetGauge().GetValue()
	}
	pods.putClaim(claim{pod: makePod("a")})
	pods.putClaim(claim{pod: makePod("b")})
	if got := count(); got != 2 {
		t.Errorf("two pods have cards: %v", got)
	}
	pods.dropClaim("uid-a", reservedClaim)
	pods.dropClaim("uid-a", reservedClaim)
	pods.dropClaim("uid-b", reservedClaim)
	if got := count(); got != 0 {
		t.Errorf("both are gone: %v", got)
	}
}

func TestAttempts(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		run  func(t *testing.T, r *rig, pod *corev1.Pod)
		want map[string]float64
	}{
		"a pod is placed": {
			pod: makePod("p", whole(1)),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				cs := r.cycle(t, pod)
				succeeds(t, r.Reserve(t.Context(), cs, pod, "n1"))
				succeeds(t, r.Bind(t.Context(), cs, pod, "n1"))
			},
			want: map[string]float64{"placed": 1},
		},
		"cards were chosen in vain": {
			pod: makePod("p", whole(1)),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				r.Unreserve(t.Context(), r.cycle(t, pod), pod, "n1")
			},
			want: map[string]float64{"failed": 1},
		},
		"a pod without cards does not count": {
			pod: makePod("p"),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				r.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
				r.Unreserve(t.Context(), framework.NewCycleState(), pod, "n1")
			},
			want: map[string]float64{},
		},
		"an invalid pod": {
			pod: makePod("p", asking(map[corev1.ResourceName]string{wire.ResourceSGPU: "1", wire.ResourceVCore: "120"})),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				r.PreFilter(t.Context(), framework.NewCycleState(), pod, nil)
			},
			want: map[string]float64{"inadmissible": 1},
		},
		"no node has so many cards": {
			pod: makePod("p", whole(3)),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				cs := r.cycle(t, pod)
				ni, err := r.fakes.snapshot.NodeInfos().Get("n1")
				if err != nil {
					t.Fatal(err)
				}
				statuses := framework.NewDefaultNodeToStatus()
				statuses.Set("n1", r.Filter(t.Context(), cs, pod, ni))
				r.PostFilter(t.Context(), cs, pod, statuses)
			},
			want: map[string]float64{"refused TooFewCards": 1},
		},
		"something else than cards": {
			pod: makePod("p", whole(1)),
			run: func(t *testing.T, r *rig, pod *corev1.Pod) {
				t.Helper()
				r.PostFilter(t.Context(), r.cycle(t, pod), pod, framework.NewDefaultNodeToStatus())
			},
			want: map[string]float64{"refused Other": 1},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 2)
			onBind(r.fakes.client)
			tt.run(t, r, tt.pod)
			gputest.Equal(t, "attempts", tt.want, r.attempts(t))
		})
	}
}

// TestDecisionLatency: from PreFilter to the choice of the cards.
func TestDecisionLatency(t *testing.T) {
	r := seen(t, 2)
	pod := makePod("p", whole(1))
	cs := r.cycle(t, pod)
	r.clock.Step(3 * time.Millisecond)
	succeeds(t, r.Reserve(t.Context(), cs, pod, "n1"))
	for _, m := range r.gathered(t)["daybreak_scheduler_decision_duration_seconds"].GetMetric() {
		h, want := m.GetHistogram(), 0.0
		if m.GetLabel()[0].GetValue() == resultPlaced {
			want = 0.003
		}
		if h.GetSampleSum() != want {
			t.Errorf("%v sums up to %v s, want %v", m.GetLabel(), h.GetSampleSum(), want)
		}
	}
}

// spy is a recorder that keeps the last event.
type spy struct {
	note string
	args []any
}

func (s *spy) WithLogger(klog.Logger) events.EventRecorderLogger { return s }

func (s *spy) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	s.note, s.args = note, args
}

func TestAnnouncement(t *testing.T) {
	tests := map[string]struct {
		pod        *corev1.Pod
		candidates int
		want       string
	}{
		"a slice":                     {makePod("p", slice(25, 8)), 3, "25% and 8 GiB of card 0, picked from 3 nodes with room"},
		"a whole card":                {makePod("p", whole(1)), 1, "all of card 0, the only node with room"},
		"linked cards":                {makePod("p", whole(2)), 0, "all of cards 0, 1 (all linked), the only node with room"},
		"a pod without cards as ever": {makePod("p"), 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := seen(t, 2)
			onBind(r.fakes.client)
			if tt.want != "" {
				cs := r.cycle(t, tt.pod)
				c := stateOf(t, cs)
				var scores fwk.NodeScoreList
				for i := range tt.candidates {
					c.rank(cardName(i), place.Worth{}, true)
					scores = append(scores, fwk.NodeScore{Name: cardName(i)})
				}
				succeeds(t, r.NormalizeScore(t.Context(), cs, tt.pod, scores))
				succeeds(t, r.Reserve(t.Context(), cs, tt.pod, "n1"))
				succeeds(t, r.Bind(t.Context(), cs, tt.pod, "n1"))
			}
			var recorded spy
			rec := recorder{EventRecorderLogger: &recorded, pods: r.shared.pods}.WithLogger(testLogger(t))
			want := spy{note: "assigned to %v", args: []any{"n1"}}
			if tt.want != "" {
				want = spy{note: "assigned to %v: %s", args: []any{"n1", tt.want}}
			}
			rec.Eventf(tt.pod, nil, corev1.EventTypeNormal, reasonScheduled, "Binding", "assigned to %v", "n1")
			gputest.Equal(t, "event", want, recorded, cmp.AllowUnexported(spy{}))
			if r.shared.pods.peek(tt.pod.UID).bindNote != "" {
				t.Error("the note is kept")
			}
		})
	}
}
