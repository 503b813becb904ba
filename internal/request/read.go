package request

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// PodRequest is what a pod asks for, read and found sound.
type PodRequest struct {
	Request gpu.PodRequest
	Prefer  place.Preference
	// NodePolicyGiven and CardPolicyGiven report whether the pod itself chose.
	NodePolicyGiven, CardPolicyGiven bool
	// Koordinator reports whether a container used Koordinator's resources, so that
	// Koordinator's tools will look for its kind of answer.
	Koordinator bool
	// Warnings are for the user: things written that have no effect.
	Warnings []string
}

// WithDefaultPolicy applies a policy where the pod itself names none.
func (a *PodRequest) WithDefaultPolicy(policy place.Policy) {
	if policy == place.Default {
		return
	}
	if !a.NodePolicyGiven {
		a.Prefer.Node = policy
	}
	if !a.CardPolicyGiven {
		a.Prefer.Cards = []place.CardKey{place.Fullest}
		if policy == place.Spread {
			a.Prefer.Cards = []place.CardKey{place.Emptiest}
		}
	}
}

// Read reads what the pod asks for. A pod that asks for no MetaX card gives
// neither a request nor problems. An invalid one gives all that is wrong
// with it at once, each with what to write instead.
func Read(pod *corev1.Pod) (*PodRequest, field.ErrorList) {
	if !wire.Asks(pod) {
		return nil, nil
	}
	a := podReader{pod: pod, ask: &PodRequest{}}
	a.read()
	if len(a.problems) > 0 {
		return nil, a.problems
	}
	if a.ask.Request.Cards() == 0 {
		return nil, nil
	}
	return a.ask, nil
}

// ComesBound returns why a new pod with cards may not come with a node.
func ComesBound(pod *corev1.Pod) *field.Error {
	node := pod.Spec.NodeName
	return field.Invalid(field.NewPath("spec", "nodeName"), node, fmt.Sprintf(
		"the scheduler chooses the cards together with the node: leave it out, and to choose the node write nodeSelector: {%s: %s}", corev1.LabelHostname, node))
}

// ReadBound reads what a bound pod asked for, if it asks for cards; the request
// is nil where its resources make no sense. Unlike [Read] it ignores annotations
// that can't be read: the pod runs, and what is wrong with one of them affects
// neither the others nor the pod's limits.
func ReadBound(pod *corev1.Pod) (ask *PodRequest, asks bool) {
	if !wire.Asks(pod) {
		return nil, false
	}
	a := podReader{pod: pod, ask: &PodRequest{}}
	a.read()
	if a.senseless {
		return nil, true
	}
	return a.ask, a.ask.Request.Cards() > 0
}

// Kinds reports which kinds of share a bound pod asks for. One whose request
// makes no sense may have either.
func Kinds(pod *corev1.Pod) (whole, slices bool) {
	ask, asks := ReadBound(pod)
	if !asks || ask == nil {
		return asks, asks
	}
	for i := range ask.Request.Requests {
		if r := &ask.Request.Requests[i]; r.Cards > 0 {
			whole, slices = whole || r.Whole, slices || !r.Whole
		}
	}
	return whole, slices
}

// podReader reads one pod.
type podReader struct {
	pod      *corev1.Pod
	ask      *PodRequest
	problems field.ErrorList
	// senseless: the resources of a container are invalid.
	senseless bool
}

// maxProblems is more than anyone corrects at once: a pod may have thousands.
const maxProblems = 1024

func (a *podReader) read() {
	a.class()
	list := Containers(a.pod)
	readers := make([]reader, 0, len(list))
	a.ask.Request.Requests = make([]gpu.Request, 0, len(list))
	for i := range list {
		if len(a.problems) >= maxProblems {
			break
		}
		readers = append(readers, reader{Container: list[i], online: a.ask.Request.Class == gpu.Online})
		r := &readers[i]
		req := r.request()
		req.Container, req.Phase = r.Name, r.Phase
		a.problems = append(a.problems, r.problems...)
		a.senseless = a.senseless || len(r.problems) > 0
		a.ask.Koordinator = a.ask.Koordinator || r.koordinator
		a.ask.Request.Requests = append(a.ask.Request.Requests, req)
	}
	a.oneCardPerClassed(readers)
	a.qos()
	a.ask.Request.Allow = a.cardList(wire.AnnotationUseCards)
	a.ask.Request.Deny = a.cardList(wire.AnnotationNoUseCards)
	a.policies()
}

func (a *podReader) invalid(key, value, detail string) {
	path := field.NewPath("metadata", "annotations").Key(key)
	a.problems = append(a.problems, field.Invalid(path, shown(value), detail))
}

// shown returns as much of what a user wrote as a sentence about it needs:
// annotations may be long, and refusals go into events and conditions.
func shown(value string) string {
	const most = 64
	if len(value) <= most {
		return value
	}
	return fmt.Sprintf("%.*s…", most, value)
}

func (a *podReader) class() {
	value, ok := a.pod.Annotations[wire.AnnotationClass]
	if !ok {
		return
	}
	switch class := gpu.Class(value); class {
	case gpu.Online, gpu.Offline:
		a.ask.Request.Class = class
	default:
		a.invalid(wire.AnnotationClass, value, `write "online" or "offline", or leave the annotation out`)
	}
}

// oneCardPerClassed: a container of a pod with a class takes a share of one
// card, and an online one can't have the card to itself.
func (a *podReader) oneCardPerClassed(readers []reader) {
	class := a.ask.Request.Class
	if class == gpu.Normal {
		return
	}
	for i := range a.ask.Request.Requests {
		req := &a.ask.Request.Requests[i]
		if len(readers[i].problems) > 0 {
			continue
		}
		at, one := readers[i].countedAt()
		switch {
		case req.Whole && class == gpu.Online:
			a.problems = append(a.problems, field.Invalid(at.path(), at.String(),
				fmt.Sprintf("an online pod shares its card: write %s: 1 with %s, or remove the annotation %s", wire.ResourceSGPU, wire.ResourceVMemory, wire.AnnotationClass)))
		case req.Cards > 1:
			a.problems = append(a.problems, field.Invalid(at.path(), at.String(),
				fmt.Sprintf("a container of an %s pod takes one card: write %s, or remove the annotation %s", class, one, wire.AnnotationClass)))
		}
	}
}

// qos reads the QoS class. Online pods have none; pods that take shares and
// name none get best-effort.
func (a *podReader) qos() {
	if a.ask.Request.Class == gpu.Online {
		return
	}
	if slices.ContainsFunc(a.ask.Request.Requests, func(r gpu.Request) bool { return r.Cards > 0 && !r.Whole }) {
		a.ask.Request.QoS = gpu.BestEffort
	}
	value, ok := a.pod.Annotations[wire.AnnotationQoS]
	switch {
	case !ok:
	case slices.Contains(gpu.QoSClasses(), gpu.QoS(value)):
		a.ask.Request.QoS = gpu.QoS(value)
	default:
		a.invalid(wire.AnnotationQoS, value, `write "best-effort", "fixed-share" or "burst-share", or leave the annotation out for best-effort`)
	}
}

// maxListedCards bounds the lists of cards a pod may name.
const maxListedCards = 1024

func (a *podReader) cardList(key string) []gpu.CardID {
	var ids []gpu.CardID
	n := 0
	for word := range strings.SplitSeq(a.pod.Annotations[key], ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		n++
		if n <= maxListedCards {
			ids = append(ids, gpu.CardID(word))
		}
	}
	if n > maxListedCards {
		a.invalid(key, fmt.Sprintf("%d cards", n), fmt.Sprintf("name at most %d cards; to choose among nodes use a node selector", maxListedCards))
		return nil
	}
	return ids
}

func (a *podReader) policies() {
	if value := a.pod.Annotations[wire.AnnotationNodePolicy]; value != "" {
		a.ask.NodePolicyGiven = true
		policy, err := ParsePolicy(value)
		if err != nil {
			a.invalid(wire.AnnotationNodePolicy, value, err.Error()+", or leave the annotation out")
		}
		a.ask.Prefer.Node = policy
	}
	if value := a.pod.Annotations[wire.AnnotationCardPolicy]; value != "" {
		a.ask.CardPolicyGiven = true
		a.cardPolicy(value)
	}
	if value, ok := a.pod.Annotations[wire.AnnotationTopologyAware]; ok {
		aware, err := strconv.ParseBool(value)
		if err != nil {
			a.invalid(wire.AnnotationTopologyAware, value, `write "true" or "false"`)
		}
		a.ask.Prefer.IgnoreLinks = !aware
	}
	for _, x := range ineffective {
		if _, ok := a.pod.Annotations[x.Key]; ok {
			a.ask.Warnings = append(a.ask.Warnings, x.Key+" has no effect: "+x.Instead)
		}
	}
}

var ineffective = wire.IneffectiveAnnotations()

func (a *podReader) cardPolicy(value string) {
	add := func(key place.CardKey) {
		if !slices.Contains(a.ask.Prefer.Cards, key) { // a key that repeats decides nothing
			a.ask.Prefer.Cards = append(a.ask.Prefer.Cards, key)
		}
	}
	warned := false
	for word := range strings.SplitSeq(value, ",") {
		switch strings.TrimSpace(word) {
		case "binpack":
			add(place.Fullest)
		case "spread":
			add(place.Emptiest)
		case "numa":
			add(place.SameNUMA)
		case "mutex":
			add(place.Unused)
		case "topology-aware":
			if warned {
				continue
			}
			warned = true
			a.ask.Warnings = append(a.ask.Warnings, wire.AnnotationCardPolicy+`: "topology-aware" has no effect: links always count for whole cards, and slices have none`)
		default:
			a.invalid(wire.AnnotationCardPolicy, value, fmt.Sprintf(`%q is no policy: write "binpack", "spread", "numa" or "mutex", or several with commas`, shown(strings.TrimSpace(word))))
			return
		}
	}
}

// ParsePolicy returns the policy of the given name.
func ParsePolicy(name string) (place.Policy, error) {
	switch name {
	case "binpack":
		return place.Binpack, nil
	case "spread":
		return place.Spread, nil
	}
	return place.Default, fmt.Errorf(`%q is no policy: write "binpack" or "spread"`, shown(name))
}
