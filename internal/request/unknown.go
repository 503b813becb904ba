package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/similar"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// CheckKeys checks the names of a new pod's resources and annotations for typing
// errors: what is not known has no effect, and the pod would get other cards than
// meant. A resource that resembles a known one is a problem; every other unknown
// name gives a warning. [Read] ignores unknown names, so that a pod that exists
// is placed and accounted for whatever else is written on it.
func CheckKeys(pod *corev1.Pod) (problems field.ErrorList, warnings []string) {
	compared, more := 0, 0
	for _, c := range Containers(pod) {
		for _, a := range c.unknown() {
			near := ""
			compared++
			if compared <= maxCompared {
				near = suggestions(string(a.name), resourceNames(""))
			}
			switch {
			case near != "" && len(problems) < maxUnknown:
				problems = append(problems, field.Invalid(a.path(), a.String(), "there is no such resource: did you mean "+near+"?"))
			case near == "" && len(warnings) < maxUnknown:
				domain, _, _ := strings.Cut(string(a.name), "/")
				warnings = append(warnings, fmt.Sprintf("%s: Daybreak does not know this resource: it knows %s", a.path(), strings.Join(resourceNames(domain), ", ")))
			default:
				more++
			}
		}
	}
	if more > 0 {
		warnings = append(warnings, fmt.Sprintf("%d more resources have no effect: Daybreak does not know them", more))
	}
	if wire.Asks(pod) || len(problems)+len(warnings) > 0 { // others' pods have such annotations too
		warnings = append(warnings, checkAnnotations(pod)...)
	}
	return problems, warnings
}

// unknown returns the container's resources that begin as those that ask for cards
// and are not known, by name.
func (c *Container) unknown() []amount {
	found := map[corev1.ResourceName]amount{}
	for name, q := range c.resources.Requests {
		if wire.IsUnknown(name) {
			found[name] = amount{q, name, c, "requests"}
		}
	}
	for name, q := range c.resources.Limits {
		if wire.IsUnknown(name) {
			found[name] = amount{q, name, c, "limits"}
		}
	}
	var list []amount
	for _, name := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[name])
	}
	return list
}

// resourceNames returns the known resources of the domain, or of all.
func resourceNames(domain string) []string {
	var names []string
	for _, name := range wire.Resources() {
		if strings.HasPrefix(string(name), domain) {
			names = append(names, string(name))
		}
	}
	return names
}

const (
	// maxUnknown bounds the resources and the annotations that are named one by one.
	maxUnknown = 10
	// maxCompared bounds the resources that are compared with known names.
	maxCompared = 1024
)

// checkAnnotations returns a warning for each annotation that seems to be meant
// for Daybreak and has no effect, apart from those of which [Read] warns.
func checkAnnotations(pod *corev1.Pod) []string {
	var warnings, gang []string
	more := 0
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		switch {
		case strings.HasPrefix(key, wire.PrefixKoordGang):
			gang = append(gang, key)
		case knownAnnotation(key):
		case len(warnings) == maxUnknown:
			more++
		default:
			warning := shown(key) + " has no effect: Daybreak does not know this annotation"
			if near := suggestions(key, wire.AskAnnotations()); near != "" {
				warning += ": did you mean " + near + "?"
			}
			warnings = append(warnings, warning)
		}
	}
	if more > 0 {
		warnings = append(warnings, fmt.Sprintf("%d more annotations have no effect: Daybreak does not know them", more))
	}
	if len(gang) > 0 {
		warnings = append(warnings, shown(gang[0])+" has no effect: gangs are not supported yet, each pod is placed by itself")
	}
	return warnings
}

// scheduled are the annotations that a scheduler writes. A new pod that has them was
// copied from another.
var scheduled = []string{
	wire.AnnotationAllocated, wire.AnnotationPredicateTime, wire.AnnotationHAMiNode, wire.AnnotationHAMiSGPU, wire.AnnotationHAMiGPU,
	wire.AnnotationKoordAllocated,
}

// knownAnnotation reports whether the annotation is one that is read or written
// here, that [Read] warns of, or that is none of Daybreak's business.
func knownAnnotation(key string) bool {
	if !slices.ContainsFunc(wire.AnnotationPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		return true
	}
	return hasMeaning(key)
}

// hasMeaning reports whether the annotation is one of the first two.
func hasMeaning(key string) bool {
	return slices.Contains(wire.AskAnnotations(), key) || slices.Contains(scheduled, key) ||
		slices.ContainsFunc(ineffective, func(x wire.Ineffective) bool { return x.Key == key })
}

// suggestions returns the known keys that a mistyped one resembles, with "or" in
// between: those of its own domain, or else those of others.
func suggestions(key string, known []string) string {
	domain, name, _ := strings.Cut(strings.ToLower(key), "/")
	if len(name) > validation.LabelValueMaxLength {
		return ""
	}
	for _, prefix := range []string{domain + "/", ""} {
		keys := map[string]string{}
		for _, k := range known {
			if strings.HasPrefix(k, prefix) {
				_, n, _ := strings.Cut(k, "/")
				keys[n] = k
			}
		}
		if k, ok := keys[name]; ok {
			return k
		}
		if near := similar.Words(name, slices.Collect(maps.Keys(keys))); len(near) > 0 {
			for i := range near {
				near[i] = keys[near[i]]
			}
			return strings.Join(near, " or ")
		}
	}
	return ""
}
