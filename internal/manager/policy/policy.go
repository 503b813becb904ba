// Package policy configures the API server for pods with MetaX cards: the webhook
// configuration that sends them to the manager, and the
// ValidatingAdmissionPolicies that keep allocations from being forged and limit
// Daybreak's own parts to what is theirs.
//
// The manifests are YAML in the folder manifests, with a few parameters
// ([Params]). [Guards], [Webhook] and [Validating] fill them in, for the playground
// and the tests. [Chart] leaves the parameters to Helm. The names of resources and
// annotations come from package wire, so that what is guarded is what is read.
//
// The API server itself applies policies: they hold while no manager runs. They
// name the users who may write; rights (RBAC) come first, and what no policy covers
// passes.
//
// API servers below 1.30 have no policies. There a second webhook configuration
// ([Validating]) sends requests to the manager, whose [Evaluator] applies the same
// manifests.
package policy

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/template"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// Name is the name of the webhook configuration, and begins the names of
	// the policies.
	Name = "daybreak"
	// Path is where the manager answers for pods.
	Path = "/admit"
	// PathPrivileged is the same for pods of namespaces where privileged
	// containers may have cards.
	PathPrivileged = "/admit/privileged"
	// PathJobs is where the manager answers for Jobs.
	PathJobs = "/admit/jobs"
	// PathValidate is where the manager evaluates the policies.
	PathValidate = "/validate"
	// DefaultService is the manager's Service.
	DefaultService = "daybreak-manager"
	// DefaultServicePort is that Service's port.
	DefaultServicePort = 443
	// Secret is the Secret in the manager's namespace that holds the
	// certificates of its webhook. The chart creates it, empty.
	Secret = "daybreak-manager-webhook" //nolint:gosec // its name, not what is in it
	// HandOver is the verb on Nodes by which an administrator may leave a node to
	// the vendor's plugin, and take it back.
	HandOver = "hand-over"
)

// Params is what an installation decides.
type Params struct {
	// Namespace is the manager's own. Service and ServicePort are what the API
	// server reaches it by; empty means [DefaultService] there.
	Namespace   string
	Service     string
	ServicePort int32
	// URL is used in place of the Service where the manager runs outside of the
	// cluster: "https://127.0.0.1:9443".
	URL string
	// FailurePolicy is what becomes of pods that ask for MetaX cards while no
	// manager answers: "Fail", the default, or "Ignore".
	FailurePolicy string
	// NoMatchConditions is for API servers below 1.28, whose webhooks have none.
	NoMatchConditions bool
	// QuotaEverywhere rejects pods with cards but without the amounts that quotas
	// count in every namespace, not only in those with [wire.LabelQuota].
	QuotaEverywhere bool
	// Jobs sends Jobs to the manager too, which writes on their pod templates what
	// quotas count.
	Jobs bool

	// Schedulers are the users of Daybreak's scheduler: they write allocations,
	// and on nodes the lock and nothing else.
	Schedulers []string
	// OtherSchedulers are the users of schedulers that write allocations and locks
	// alongside, during a migration. What else they write is their own business.
	OtherSchedulers []string
	// SchedulerNames are the names under which Daybreak's scheduler places pods
	// and writes Events; empty means default-scheduler and daybreak.
	SchedulerNames []string
	// DirectBinders are users that may create pods with cards on a node of their
	// choice, past every scheduler: the vendor operator's, whose validators do.
	DirectBinders []string
	// Agents are the users of Daybreak's agents: each may write on its own node
	// only, which its token names.
	Agents []string
	// Managers are the users of Daybreak's manager.
	Managers []string
	// Publishers are further users that may describe any node's cards and take
	// locks off: the vendor's device plugin, Koordinator's koordlet.
	Publishers []string
}

//go:embed manifests/*.yaml
var manifests embed.FS

// The manifests: the policies, and the webhook configurations.
var (
	guardFiles      = []string{"pods", "quota", "bindings", "nodes", "devices", "configurations", "secrets", "events"}
	webhookFiles    = []string{"webhook"}
	validatingFiles = []string{"validating"}
)

// Guards returns the policies: they need no manager.
func Guards(p Params) ([]byte, error) { return p.render(guardFiles) }

// Webhook returns the configuration that sends pods to the manager.
func Webhook(p Params) ([]byte, error) { return p.render(webhookFiles) }

// Validating returns the configuration that sends to the manager what the policies
// are about, for API servers below 1.30.
func Validating(p Params) ([]byte, error) { return p.render(validatingFiles) }

func (p Params) render(names []string) ([]byte, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("render the policies: %w", err)
	}
	return render(p.values(), names)
}

// Chart returns the templates of the chart: the policies and the webhook
// configurations, with what an installation decides left to Helm. The policies are
// a template of their own: objects, or the file that the manager reads.
func Chart() ([]byte, error) {
	values, entries := Params{}.values(), Params{Jobs: true}.entries()
	entries[len(entries)-1].If = "(.Values.quota).jobs" // there is none in the values of an earlier chart
	values["Webhooks"] = entries
	for key, expression := range map[string]string{
		"Namespace": ".Release.Namespace", "FailurePolicy": ".Values.admission.failurePolicy",
		"DirectBinders": ".Values.admission.directBinders | default list | toJson",
		"Schedulers":    `include "daybreak.schedulers" .`, "Agents": `include "daybreak.agents" .`, "Publishers": `include "daybreak.publishers" .`,
		"QuotaNamespaces": `include "daybreak.quotaNamespaces" .`,
		"Managers":        `include "daybreak.managers" .`, "Parts": `include "daybreak.parts" .`, "SchedulerNames": `include "daybreak.schedulerNames" .`,
	} {
		values[key] = "{{ " + expression + " }}"
	}
	policies, err := render(values, guardFiles)
	if err != nil {
		return nil, err
	}
	both := func(names []string) string { // for servers with matchConditions and without
		var texts [2][]byte
		for i, conditions := range []bool{true, false} {
			values["MatchConditions"] = conditions
			text, renderErr := render(values, names)
			texts[i], err = text, errors.Join(err, renderErr)
		}
		return fmt.Sprintf("{{- if include \"daybreak.hasMatchConditions\" . }}\n%s{{- else }}\n%s{{- end }}\n", texts[0], texts[1])
	}
	return fmt.Appendf(nil, chart, policies, both(validatingFiles), both(webhookFiles)), err
}

// chart is the frame of the chart's templates.
const chart = `{{- /* Written by "make generate" from internal/manager/policy/manifests. */}}
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

// render fills values into manifests.
func render(values map[string]any, names []string) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range names {
		t, err := template.New(name+".yaml").Funcs(template.FuncMap{"quote": quote}).Option("missingkey=error").ParseFS(manifests, "manifests/"+name+".yaml")
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		if err := t.Execute(&out, values); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// values is what the manifests see. Lists are written as CEL reads them.
func (p Params) values() map[string]any {
	return map[string]any{
		"Name": Name, "Namespace": p.Namespace, "Service": cmp.Or(p.Service, DefaultService), "ServicePort": cmp.Or(p.ServicePort, DefaultServicePort),
		"URL": strings.TrimSuffix(p.URL, "/"), "FailurePolicy": cmp.Or(p.FailurePolicy, "Fail"), "MatchConditions": !p.NoMatchConditions,
		"PathValidate": PathValidate, "AdmittedLabel": wire.LabelAdmitted,
		"Webhooks":        p.entries(),
		"PrivilegedLabel": wire.LabelPrivileged,
		"QuotaNamespaces": p.quotaNamespaces(),
		"Resources":       list(wire.Resources()...), "Amounts": list(wire.AmountResources()...),
		"Prefixes": wire.ResourcePrefixes(), "OtherResources": list(wire.OtherResources()...),
		"Schedulers": list(slices.Concat(p.Schedulers, p.OtherSchedulers)...), "Publishers": list(p.Publishers...),
		"Agents": list(p.Agents...), "Managers": list(p.Managers...), "Parts": list(slices.Concat(p.Agents, p.Managers, p.Schedulers)...),
		"SchedulerNames": list(p.schedulerNames()...), "AgentComponent": wire.AgentComponent, "ManagerComponent": wire.ManagerComponent,
		"DirectBinders": list(p.DirectBinders...), "Secret": Secret, "HandOver": HandOver,
		"MetaXAllocations":  list(wire.AnnotationAllocated, wire.AnnotationPredicateTime),
		"SharedAllocations": list(wire.AnnotationKoordAllocated, wire.AnnotationHAMiNode),
		"HAMiPrefix":        quote(allocation.HAMiMetaXPrefix),
		"Allocated":         quote(wire.AnnotationAllocated),
		"Frozen":            list(wire.AskAnnotations()...),
		"MetaXResources":    list(wire.MetaXResources()...),
		"Mirror":            quote(corev1.MirrorPodAnnotationKey),
		"HostLabel":         corev1.LabelHostname,
		"NodeAnnotations":   list(wire.AnnotationNodeCards, wire.AnnotationServedBy),
		"Instructions":      list(wire.AnnotationForget, wire.AnnotationRepaired),
		"NodeResources":     list(wire.DeviceResources()...),
		"AgentAnnotations":  list(wire.AgentAnnotations()...), "ManagerAnnotations": list(wire.AnnotationAdvertised),
		"ManagerLabels": list(wire.AdvertisedLabels()...), "ManagerResources": list(wire.AdvertisedResources()...),
		"ServedBy": wire.AnnotationServedBy, "ServedByVendor": wire.ServedByVendor, "ServedByDaybreak": wire.ServedByDaybreak,
		"Lock":          wire.AnnotationLock,
		"TermCondition": wire.ConditionTerm,
		"VendorLabel":   wire.LabelVendor, "Vendor": wire.VendorMetaX,
	}
}

// entry is a webhook of the configuration that sends objects to the manager. Spec is
// where an object has the specification of its pods, Operator selects namespaces by
// the label for privileged containers, and If is the chart's condition, if any.
type entry struct{ Name, Path, Group, Resource, Spec, Operator, If string }

func (p Params) entries() []entry {
	list := []entry{
		{Name: "pods.daybreak-gpu.io", Path: Path, Resource: "pods", Spec: "object.spec", Operator: "NotIn"},
		{Name: "privileged.pods.daybreak-gpu.io", Path: PathPrivileged, Resource: "pods", Spec: "object.spec", Operator: "In"},
	}
	if p.Jobs {
		list = append(list, entry{Name: "jobs.daybreak-gpu.io", Path: PathJobs, Group: "batch", Resource: "jobs", Spec: "object.spec.template.spec"})
	}
	return list
}

func (p Params) schedulerNames() []string {
	if len(p.SchedulerNames) > 0 {
		return p.SchedulerNames
	}
	return []string{corev1.DefaultSchedulerName, "daybreak"}
}

// quotaNamespaces selects the namespaces whose quotas must hold.
func (p Params) quotaNamespaces() string {
	if p.QuotaEverywhere {
		return "{}"
	}
	return fmt.Sprintf("{matchLabels: {%s: %s}}", wire.LabelQuota, wire.QuotaEnforced)
}

func (p Params) validate() error {
	var errs []error
	if p.URL == "" && p.Namespace == "" {
		errs = append(errs, errors.New("neither a URL nor a namespace of the manager: name one"))
	}
	if p.URL != "" {
		if u, err := url.Parse(p.URL); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("URL %q: write it as https://HOST:PORT", p.URL))
		}
	}
	if !slices.Contains([]string{"", "Fail", "Ignore"}, p.FailurePolicy) {
		errs = append(errs, fmt.Errorf("failure policy %q: write Fail or Ignore", p.FailurePolicy))
	}
	if len(p.Schedulers)+len(p.OtherSchedulers) == 0 {
		errs = append(errs, errors.New("no scheduler is named: no pod could be placed"))
	}
	for _, user := range slices.Concat(p.Schedulers, p.OtherSchedulers, p.SchedulerNames, p.DirectBinders, p.Agents, p.Managers, p.Publishers) {
		if user == "" || strings.ContainsFunc(user, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("user %q: write the name that the API server knows it by, such as system:serviceaccount:NAMESPACE:NAME", user))
		}
	}
	return errors.Join(errs...)
}

// list writes strings as a list that both YAML and CEL understand.
func list[S ~string](items ...S) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = quote(string(item))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// quote writes a string with the escapes of JSON, which are also those of YAML
// and CEL.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("quote %q: %v", s, err)) // a string: can't fail
	}
	return string(text)
}

// ServiceAccount returns the user name of a service account.
func ServiceAccount(namespace, name string) string {
	return "system:serviceaccount:" + cmp.Or(namespace, corev1.NamespaceDefault) + ":" + name
}
