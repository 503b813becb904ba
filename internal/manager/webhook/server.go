package webhook

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

// Options says how pods are admitted.
type Options struct {
	// Schedulers, DirectBinders and Taint are as in [Rules].
	Schedulers, DirectBinders []string
	Taint                     Taint
	// Metrics is where the figures go.
	Metrics prometheus.Registerer
}

// Handler returns what the API server calls, with the two paths that the
// configuration of package policy names: which of them it takes says whether the
// pod's namespace lets privileged containers have cards.
func Handler(o Options) http.Handler {
	m := newMetrics(o.Metrics)
	mux := http.NewServeMux()
	for path, privileged := range map[string]bool{policy.Path: false, policy.PathPrivileged: true} {
		h := &handler{rules: Rules{Schedulers: o.Schedulers, DirectBinders: o.DirectBinders, Taint: o.Taint, Privileged: privileged}, metrics: m}
		mux.Handle(path, m.timed(&admission.Webhook{Handler: h}))
	}
	return mux
}
