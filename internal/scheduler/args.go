package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/scheduler/nodelock"
)

// Args is the plugin's configuration, pluginConfig.args of the scheduler's
// configuration file.
type Args struct {
	// APIVersion and Kind may be given, as for other plugins; they are not read.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`

	// Policy stands in for pods whose annotations name none: "binpack" or
	// "spread". Empty is the default: best-linked cards for whole-card pods,
	// packing for slices, and the fuller of equally good nodes.
	Policy string `json:"policy,omitempty"`
	// MinCandidateNodesPercentage and MinCandidateNodesAbsolute bound the nodes
	// that preemption tries, as for DefaultPreemption.
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`
	MinCandidateNodesAbsolute   *int32 `json:"minCandidateNodesAbsolute,omitempty"`
	// LockWaitSeconds is how long a pod waits for the lock of a node that the
	// vendor's plugin serves while the lock does not change hands; then the pod
	// is tried again, elsewhere if it can be. 60 if not given.
	LockWaitSeconds *int32 `json:"lockWaitSeconds,omitempty"`
	// LockExpirySeconds is how old such a lock gets before it is taken over,
	// whatever became of its pod. 300 if not given, as HAMi has it. All profiles
	// must say the same.
	LockExpirySeconds *int32 `json:"lockExpirySeconds,omitempty"`
	// VendorPluginSelector selects the pods of the vendor's device plugin by
	// their labels: a node without a Device where one runs is the vendor's. Empty
	// means the pods of a DaemonSet called gpu-device or …-gpu-device. All
	// profiles must say the same. Pods count in the namespace of --vendor-namespace
	// only.
	VendorPluginSelector string `json:"vendorPluginSelector,omitempty"`
	// QuotaKeys is what is done with HAMi's keys limits.metax-tech.com/* in
	// ResourceQuotas: "enforce" holds pods back that would exceed one, "warn" places
	// them and records an event, "off" ignores the keys. "enforce" if not given.
	QuotaKeys string `json:"quotaKeys,omitempty"`
}

// parseArgs decodes strictly, sets defaults and validates.
func parseArgs(obj runtime.Object) (Args, error) {
	var a Args
	if unknown, ok := obj.(*runtime.Unknown); ok && unknown != nil {
		if err := yaml.UnmarshalStrict(unknown.Raw, &a); err != nil {
			return Args{}, fmt.Errorf("args of plugin %s: %w", Name, err)
		}
	} else if obj != nil {
		return Args{}, fmt.Errorf("args of plugin %s: got a %T", Name, obj)
	}
	a.QuotaKeys = cmp.Or(a.QuotaKeys, quota.Enforce)
	a.MinCandidateNodesPercentage = cmp.Or(a.MinCandidateNodesPercentage, new(int32(10)))
	a.MinCandidateNodesAbsolute = cmp.Or(a.MinCandidateNodesAbsolute, new(int32(100)))
	a.LockWaitSeconds = cmp.Or(a.LockWaitSeconds, new(int32(60)))
	a.LockExpirySeconds = cmp.Or(a.LockExpirySeconds, new(int32(nodelock.DefaultExpiry/time.Second)))
	if err := a.validate().ToAggregate(); err != nil {
		return Args{}, fmt.Errorf("args of plugin %s: %w", Name, err)
	}
	return a, nil
}

func (a *Args) validate() field.ErrorList {
	var problems field.ErrorList
	if a.Policy != "" {
		if _, err := request.ParsePolicy(a.Policy); err != nil {
			problems = append(problems, field.Invalid(field.NewPath("policy"), a.Policy, `write "binpack" or "spread", or leave it out`))
		}
	}
	if p := *a.MinCandidateNodesPercentage; p < 0 || p > 100 {
		problems = append(problems, field.Invalid(field.NewPath("minCandidateNodesPercentage"), p, "write 0 to 100"))
	}
	if n := *a.MinCandidateNodesAbsolute; n < 0 {
		problems = append(problems, field.Invalid(field.NewPath("minCandidateNodesAbsolute"), n, "write 0 or more"))
	}
	if len(problems) == 0 && *a.MinCandidateNodesPercentage == 0 && *a.MinCandidateNodesAbsolute == 0 {
		problems = append(problems, field.Invalid(field.NewPath("minCandidateNodesAbsolute"), 0, "may not be 0 together with minCandidateNodesPercentage: preemption would try no node"))
	}
	if err := new(inventory.VendorPlugin).Set(a.VendorPluginSelector); err != nil {
		problems = append(problems, field.Invalid(field.NewPath("vendorPluginSelector"), a.VendorPluginSelector, err.Error()))
	}
	if !slices.Contains(quotaWords, a.QuotaKeys) {
		problems = append(problems, field.NotSupported(field.NewPath("quotaKeys"), a.QuotaKeys, quotaWords))
	}
	for _, s := range []struct {
		name    string
		seconds *int32
	}{{"lockWaitSeconds", a.LockWaitSeconds}, {"lockExpirySeconds", a.LockExpirySeconds}} {
		if *s.seconds < 1 || *s.seconds > maxLockSeconds {
			problems = append(problems, field.Invalid(field.NewPath(s.name), *s.seconds, fmt.Sprintf("write 1 to %d", maxLockSeconds)))
		}
	}
	return problems
}

// maxLockSeconds is an hour: a node that is stuck for longer is lost.
const maxLockSeconds = 3600

func (a *Args) lockWait() time.Duration { return time.Duration(*a.LockWaitSeconds) * time.Second }

func (a *Args) lockExpiry() time.Duration { return time.Duration(*a.LockExpirySeconds) * time.Second }

// policy returns the policy that stands in; the text was validated.
func (a *Args) policy() place.Policy {
	p, _ := request.ParsePolicy(a.Policy)
	return p
}

// wrappedArgs returns the arguments of a plugin of ours as those of the plugin of
// kube-scheduler that it wraps, decoded strictly and with kube-scheduler's
// defaults. The wrapped plugin's constructor validates them.
func wrappedArgs(name, wrapped string, obj runtime.Object) (runtime.Object, error) {
	raw := []byte("{}")
	if unknown, ok := obj.(*runtime.Unknown); ok && unknown != nil {
		raw = unknown.Raw
	} else if obj != nil {
		return nil, fmt.Errorf("args of plugin %s: got a %T", name, obj)
	}
	want := configv1.SchemeGroupVersion.WithKind(wrapped + "Args")
	args, got, err := scheme.Codecs.UniversalDecoder().Decode(raw, &want, nil)
	if err != nil {
		return nil, fmt.Errorf("args of plugin %s: write those of %s: %w", name, wrapped, err)
	}
	if got.GroupKind() != want.GroupKind() {
		return nil, fmt.Errorf("args of plugin %s: got %s, want %s", name, got.Kind, want.Kind)
	}
	return args, nil
}
