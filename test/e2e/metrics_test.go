package e2e

import (
	"io"
	"net/http"
	"strings"
)

// logLatency logs how long PreStart took, from the agent's own metrics.
func (w *world) logLatency() {
	w.Helper()
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", http.NoBody)
	w.must(err)
	response, err := http.DefaultClient.Do(request)
	w.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.must(err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "prestart") {
			w.Log(strings.TrimSpace(line))
		}
	}
}
