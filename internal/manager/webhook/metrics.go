package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// What became of a pod: the values of the label result.
const (
	resultUntouched = "untouched"
	resultCompleted = "completed"
	resultRefused   = "refused"
	resultError     = "error"
)

// What became of a request that was validated: further values of the label.
const (
	resultAllowed = "allowed"
	resultDenied  = "denied"
)

type metrics struct {
	requests *prometheus.CounterVec
	policies *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	factory := promauto.With(registry)
	m := &metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_admission_requests_total",
			Help: "Admission requests for pods by result: untouched, completed, refused, error.",
		}, []string{"result"}),
		policies: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "daybreak_manager_policy_requests_total",
			Help: "Requests validated with the admission policies, on API servers older than 1.30, by result: allowed, denied, error.",
		}, []string{"result"}),
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "daybreak_manager_admission_duration_seconds",
			Help:    "Duration of admission requests, without network time.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1},
		}, nil),
	}
	m.duration.WithLabelValues()
	for _, result := range []string{resultUntouched, resultCompleted, resultRefused, resultError} {
		m.requests.WithLabelValues(result) // so that rates have a beginning
	}
	for _, result := range []string{resultAllowed, resultDenied, resultError} {
		m.policies.WithLabelValues(result)
	}
	return m
}
