package scheduler

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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
	if a.MinCandidateNodesPercentage == nil {
		a.MinCandidateNodesPercentage = new(int32(10))
	}
	if a.MinCandidateNodesAbsolute == nil {
		a.MinCandidateNodesAbsolute = new(int32(100))
	}
	if err := a.validate().ToAggregate(); err != nil {
		return Args{}, fmt.Errorf("args of plugin %s: %w", Name, err)
	}
	return a, nil
}

func (a *Args) validate() field.ErrorList {
	var problems field.ErrorList
	if a.Policy != "" {
		if _, err := wire.ParsePolicy(a.Policy); err != nil {
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
	return problems
}

// policy returns the policy that stands in; the text was validated.
func (a *Args) policy() place.Policy {
	p, _ := wire.ParsePolicy(a.Policy)
	return p
}
