package e2e

import (
	"time"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// metrics returns what the agent counts.
func (w *world) metrics() machine.Metrics {
	w.Helper()
	text, err := machine.Get(w.Ctx, "http://"+metricsAddress+"/metrics")
	w.Must(err)
	return machine.Metrics(text)
}

// registrations counts how often the agent has registered a plugin with kubelet.
func (w *world) registrations() int {
	w.Helper()
	return int(w.metrics().Sum("daybreak_agent_registrations_total"))
}

const (
	preStart = "daybreak_agent_prestart_duration_seconds"
	isOK     = `result="ok"`
)

// logPreStarts logs how long PreStart took since an earlier reading, and returns of how
// many containers.
func (w *world) logPreStarts(before machine.Metrics) int {
	w.Helper()
	now := w.metrics()
	n := int(now.Sum(preStart+"_count{"+isOK+"}") - before.Sum(preStart+"_count{"+isOK+"}"))
	quantile := func(q float64) time.Duration {
		return time.Duration(now.Quantile(q, preStart, before, isOK) * float64(time.Second)).Round(100 * time.Microsecond)
	}
	w.Logf("PreStart of %d containers: p50 %s, p99 %s", n, quantile(0.5), quantile(0.99))
	return n
}
