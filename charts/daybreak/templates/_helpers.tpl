{{/*
MAJOR.MINOR of the API server to render for. Suffixes of distributions (v1.28.3-aliyun.1, 1.28+) are removed, because a version
with a suffix compares as older than the version itself.
*/}}
{{- define "daybreak.kubeVersion" -}}
{{- $version := .Values.kubeVersionOverride | default .Capabilities.KubeVersion.Version }}
{{- if not (regexMatch "^v?[0-9]+[.][0-9]+([.+-]|$)" $version) }}
{{- fail (printf "invalid Kubernetes version %q: set kubeVersionOverride to a version such as 1.28 or v1.28.3" $version) }}
{{- end }}
{{- regexFind "[0-9]+[.][0-9]+" $version }}
{{- end }}

{{/*
Whether the API server has ValidatingAdmissionPolicies; without them the manager evaluates the policies. With access to the
server, Helm knows its kinds; without it, as in helm template, the version decides.
*/}}
{{- define "daybreak.hasPolicies" -}}
{{- $apis := .Capabilities.APIVersions }}
{{- if and (semverCompare ">=1.30" (include "daybreak.kubeVersion" .)) (or ($apis.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (not ($apis.Has "v1/Pod"))) }}yes{{ end }}
{{- end }}

{{/* Whether the API server evaluates the matchConditions of webhooks. */}}
{{- define "daybreak.hasMatchConditions" -}}
{{- if semverCompare ">=1.28" (include "daybreak.kubeVersion" .) }}yes{{ end }}
{{- end }}

{{/* Labels of every object; call with (dict "root" $ "part" "scheduler"). */}}
{{- define "daybreak.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "daybreak.selector" . }}
{{- end }}

{{/* Selector of the pods of a part. It must not change: the selector of a Deployment is immutable. */}}
{{- define "daybreak.selector" -}}
app.kubernetes.io/name: daybreak
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "daybreak.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* User names of the API server, as a CEL list. */}}
{{- define "daybreak.schedulers" -}}
{{ concat (list (printf "system:serviceaccount:%s:daybreak-scheduler" .Release.Namespace)) .Values.admission.otherSchedulers | toJson }}
{{- end }}

{{- define "daybreak.agents" -}}
{{ list (printf "system:serviceaccount:%s:daybreak-agent" .Release.Namespace) | toJson }}
{{- end }}

{{- define "daybreak.managers" -}}
{{ list (printf "system:serviceaccount:%s:daybreak-manager" .Release.Namespace) | toJson }}
{{- end }}

{{/* Daybreak's own components, which the policies restrict to their own fields. */}}
{{- define "daybreak.parts" -}}
{{- $parts := list }}
{{- range list "agent" "manager" "scheduler" }}
{{- $parts = append $parts (printf "system:serviceaccount:%s:daybreak-%s" $.Release.Namespace .) }}
{{- end }}
{{- $parts | toJson }}
{{- end }}

{{/* Names that the policies know the scheduler by: both names of scheduler.mode, since an upgrade may change it, and those in extraArgs. */}}
{{- define "daybreak.schedulerNames" -}}
{{ concat (list "default-scheduler" "daybreak") (include "daybreak.profiles" . | fromJsonArray) | uniq | toJson }}
{{- end }}

{{- define "daybreak.publishers" -}}
{{ .Values.admission.publishers | toJson }}
{{- end }}

{{/* Selector of the namespaces in which GPU pods without quota amounts are rejected. */}}
{{- define "daybreak.quotaNamespaces" -}}
{{- if eq .Values.quota.enforce "all" }}{}{{ else }}{matchLabels: {daybreak-gpu.io/quota: enforced}}{{ end }}
{{- end }}

{{/*
Scheduler names of Daybreak: those of scheduler.mode, and --profile in scheduler.extraArgs. The first is set on pods without
a scheduler name. Scheduler and manager have the same, so that quotas count every pod that the scheduler places.
*/}}
{{- define "daybreak.profiles" -}}
{{- $names := eq .Values.scheduler.mode "replace" | ternary (list "default-scheduler" "daybreak") (list "daybreak") }}
{{- range .Values.scheduler.extraArgs }}
{{- if hasPrefix "--profile=" . }}{{ $names = append $names (trimPrefix "--profile=" .) }}{{ end }}
{{- end }}
{{- $names | uniq | toJson }}
{{- end }}

{{/* For a container without access to its node. */}}
{{- define "daybreak.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "daybreak.nobody" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Prefer different nodes for replicas. */}}
{{- define "daybreak.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "daybreak.selector" . | nindent 12 }}
{{- end }}

{{/*
Whether an optional object is rendered: true, false, or auto, which depends on the API that the object belongs to. Call
with (dict "root" $ "wanted" .Values.x "api" "group/version").
*/}}
{{- define "daybreak.wanted" -}}
{{- if or (eq (toString .wanted) "true") (and (eq (toString .wanted) "auto") (.root.Capabilities.APIVersions.Has .api)) }}yes{{ end }}
{{- end }}

{{/*
GOMEMLIMIT: Go collects garbage more often near this limit. It is below the limit of the container, which also counts
memory outside of Go. Call with (dict "resources" .Values.x.resources "percent" 90).
*/}}
{{- define "daybreak.memory" -}}
{{- $limit := dig "limits" "memory" "" (.resources | default dict) }}
{{- if kindIs "float64" $limit }}{{ $limit = int64 $limit }}{{ end }}
{{- with toString $limit }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" . }}
{{- $unit := trimPrefix $number . }}
{{- if or (not $number) (not (hasKey $units $unit)) }}
{{- fail (printf "resources.limits.memory is %s: write a number, optionally with one of the units k, M, G, T, Ki, Mi, Gi and Ti" .) }}
{{- end }}
- name: GOMEMLIMIT
  value: {{ divf (mulf (float64 $number) (index $units $unit) $.percent) 100 | int64 | quote }}
{{- end }}
{{- end }}

{{/* Directories of the driver to mount. Directories below /opt may be absent, so /opt itself is mounted. */}}
{{- define "daybreak.driverDirs" -}}
{{- $dirs := list }}
{{- range .Values.agent.driverDirs }}
{{- $dirs = append $dirs (hasPrefix "/opt/" . | ternary "/opt" .) }}
{{- end }}
{{ $dirs | uniq | toJson }}
{{- end }}

{{/* TLS for the metrics of manager and agents: flags, mounts and volumes, and the endpoint for Prometheus. */}}
{{- define "daybreak.metrics.args" -}}
{{- if .Values.monitoring.tlsSecret -}}
- --metrics-tls-cert-file=/etc/daybreak/metrics/tls.crt
- --metrics-tls-key-file=/etc/daybreak/metrics/tls.key
{{- end }}
{{- end }}

{{- define "daybreak.metrics.mounts" -}}
{{- if .Values.monitoring.tlsSecret -}}
- {name: metrics, mountPath: /etc/daybreak/metrics, readOnly: true}
{{- end }}
{{- end }}

{{- define "daybreak.metrics.volumes" -}}
{{- with .Values.monitoring.tlsSecret -}}
- name: metrics
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}

{{- define "daybreak.metrics.endpoint" -}}
{{- with .Values.monitoring.tlsSecret -}}
scheme: https
tlsConfig:
  serverName: daybreak-metrics
  ca: {secret: {name: {{ . }}, key: ca.crt}}
{{- end }}
{{- end }}

{{/* Socket of the container runtime below /run: in a container /var/run is not a link to the host's /run. */}}
{{- define "daybreak.agent.runtimeSocket" -}}
{{- regexReplaceAll "^/var/run/" .Values.agent.runtimeSocket "/run/" -}}
{{- end }}

{{/* Directories of the host that contain runtime sockets: /run and that of agent.runtimeSocket. */}}
{{- define "daybreak.agent.runtimeDirs" -}}
{{- list "/run" (regexFind "^/[^/]+" (include "daybreak.agent.runtimeSocket" .)) | uniq | toJson -}}
{{- end }}
