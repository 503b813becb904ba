// Package policy configures the API server for pods with MetaX cards: the webhook
// configuration that sends them to the manager, and the
// ValidatingAdmissionPolicies that keep allocations from being forged and limit
// Daybreak's own parts to what is theirs.
//
// The manifests are YAML in the folder manifests, with a few parameters
// ([Params]). [Guards], [Webhook] and [Validating] fill them in, for the playground
// and the tests; for the chart they leave the parameters to Helm. The names of resources
// and annotations come from package wire, so that what is guarded is what is read.
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
	"fmt"
	"slices"
	"strings"
	"text/template"

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
	// Service is the manager's Service, by which the API server reaches it.
	Service = "daybreak-manager"
	// ServicePort is the port of the Service.
	ServicePort = 443
	// Secret is the Secret in the manager's namespace that holds the
	// certificates of its webhook. The chart creates it, empty.
	Secret = "daybreak-manager-webhook" //nolint:gosec // its name, not what is in it
	// HandOver is the verb on Nodes by which an administrator may leave a node to
	// the vendor's plugin, and take it back.
	HandOver = "hand-over"
)

// Params is what an installation decides.
type Params struct {
	// Namespace is the manager's own.
	Namespace string
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

	// Helm has values of the manifests that are used in place of what the other
	// parameters make of them: expressions of the chart's templates.
	Helm map[string]string
}

//go:embed manifests/*.yaml
var manifests embed.FS

// Guards returns the policies: they need no manager.
func Guards(p Params) ([]byte, error) {
	return render(p.values(), "pods", "quota", "bindings", "nodes", "devices", "configurations", "events")
}

// Webhook returns the configuration that sends pods to the manager.
func Webhook(p Params) ([]byte, error) { return render(p.values(), "webhook") }

// Validating returns the configuration that sends to the manager what the policies
// are about, for API servers below 1.30.
func Validating(p Params) ([]byte, error) { return render(p.values(), "validating") }

// render fills values into manifests.
func render(values map[string]any, names ...string) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range names {
		t, err := template.New(name+".yaml").Funcs(template.FuncMap{"quote": quote}).Option("missingkey=error").
			ParseFS(manifests, "manifests/shared.yaml", "manifests/"+name+".yaml")
		if err != nil {
			return nil, err
		}
		values["Policy"] = name
		out.WriteString("---\n")
		if err := t.Execute(&out, values); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// values is what the manifests see. Lists are written as CEL reads them.
func (p Params) values() map[string]any {
	values := map[string]any{
		"Name": Name, "Namespace": p.Namespace, "Service": Service, "ServicePort": ServicePort,
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
		"DirectBinders": list(p.DirectBinders...), "HandOver": HandOver,
		"MetaXAllocations":  list(wire.AnnotationAllocated, wire.AnnotationPredicateTime),
		"SharedAllocations": list(wire.AnnotationKoordAllocated, wire.AnnotationHAMiNode),
		"HAMiPrefix":        quote(allocation.HAMiMetaXPrefix),
		"Allocated":         quote(wire.AnnotationAllocated),
		"Frozen":            list(wire.AskAnnotations()...),
		"FrozenCounted":     list(wire.CountedAnnotations()...),
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
	for key, expression := range p.Helm {
		values[key] = expression
	}
	return values
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
		list = append(list, entry{Name: "jobs.daybreak-gpu.io", Path: PathJobs, Group: "batch", Resource: "jobs", Spec: "object.spec.template.spec", If: p.Helm["Jobs"]})
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
