// Command chart writes what the Helm chart takes from the sources into a folder
// that has the chart's own shape:
//
//	go run ./hack/chart charts/daybreak
//
// `make generate` runs it on the chart, `make verify` on a temporary folder, to
// compare.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	templates, err := policies()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"templates/policies.yaml": templates,
		"files/device.yaml":       crd.Device,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// policies returns the policies and the webhook configurations as templates, with what
// an installation decides left to Helm. The policies are a template of their own:
// objects, or the file that the manager reads.
func policies() ([]byte, error) {
	p := policy.Params{Jobs: true, Helm: map[string]string{"Jobs": ".Values.quota.jobs"}}
	for key, expression := range map[string]string{
		"Namespace": ".Release.Namespace", "FailurePolicy": ".Values.admission.failurePolicy",
		"DirectBinders": ".Values.admission.directBinders | toJson",
		"Schedulers":    `include "daybreak.schedulers" .`, "Agents": `include "daybreak.agents" .`, "Publishers": `include "daybreak.publishers" .`,
		"QuotaNamespaces": `include "daybreak.quotaNamespaces" .`,
		"Managers":        `include "daybreak.managers" .`, "Parts": `include "daybreak.parts" .`, "SchedulerNames": `include "daybreak.schedulerNames" .`,
	} {
		p.Helm[key] = "{{ " + expression + " }}"
	}
	guards, err := policy.Guards(p)
	if err != nil {
		return nil, err
	}
	both := func(write func(policy.Params) ([]byte, error)) string { // for servers with matchConditions and without
		var texts [2][]byte
		for i, without := range []bool{false, true} {
			p.NoMatchConditions = without
			text, writeErr := write(p)
			texts[i], err = text, errors.Join(err, writeErr)
		}
		return fmt.Sprintf("{{- if include \"daybreak.hasMatchConditions\" . }}\n%s{{- else }}\n%s{{- end }}\n", texts[0], texts[1])
	}
	text := fmt.Appendf(nil, frame, guards, both(policy.Validating), both(policy.Webhook))
	return text, err
}

// frame is what is around them in the chart.
const frame = `{{- /* Written by "make generate" from internal/manager/policy/manifests. */}}
{{- define "daybreak.policies" }}
%s{{- end }}
{{- if .Values.admission.policies }}
{{- if include "daybreak.hasPolicies" . }}
{{- include "daybreak.policies" . }}
{{- else }}
---
# What the API server would evaluate from Kubernetes 1.30 on: the manager does it.
apiVersion: v1
kind: ConfigMap
metadata:
  name: daybreak-policies
  namespace: {{ .Release.Namespace }}
  labels: {{- include "daybreak.labels" (dict "root" $ "part" "manager") | nindent 4 }}
data:
  policies.yaml: | {{- include "daybreak.policies" . | trim | nindent 4 }}
%s{{- end }}
{{- end }}
{{- if .Values.admission.webhook }}
%s{{- end }}
`
