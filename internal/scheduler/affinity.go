package scheduler

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
)

// affinityTerms are the terms by which pods that run prefer others near or far.
// Thousands of pods mostly share a few terms, so that a pod is compared once with each
// that may be about it. Like the rows of the index they are brought up to date with what changed.
type affinityTerms struct {
	// pods has the pods with affinity that are counted, by node.
	pods map[place.NodeID][]fwk.PodInfo
	// terms has them by place, see placeOf, and by what they select.
	terms map[string]map[string]*countedTerm
}

// countedTerm is what terms of running pods select, and how many of them there are.
type countedTerm struct {
	// namespaces is nil where the term names them.
	namespaces, pods labels.Selector
	count            int
}

func newAffinityTerms() affinityTerms {
	return affinityTerms{pods: map[place.NodeID][]fwk.PodInfo{}, terms: map[string]map[string]*countedTerm{}}
}

// refresh counts the pods of the nodes that the refresh of the index found changed.
func (a *affinityTerms) refresh(x *index) {
	for _, id := range x.changed {
		if info := x.rows[id].info; info != nil {
			a.put(id, info.GetPodsWithAffinity())
		} else {
			a.put(id, nil) // it is not listed any more
		}
	}
}

// put sets the pods with affinity of the node. Each version of a pod has a PodInfo of
// its own, which never changes.
func (a *affinityTerms) put(node place.NodeID, now []fwk.PodInfo) {
	before := a.pods[node]
	if slices.Equal(before, now) {
		return
	}
	for _, pi := range now {
		if !slices.Contains(before, pi) {
			a.count(pi, 1)
		}
	}
	for _, pi := range before {
		if !slices.Contains(now, pi) {
			a.count(pi, -1)
		}
	}
	if a.pods[node] = slices.Clone(now); len(now) == 0 {
		delete(a.pods, node)
	}
}

// count counts the pod's terms in, or out: those that InterPodAffinity scores nodes
// by.
func (a *affinityTerms) count(pi fwk.PodInfo, by int) {
	for _, terms := range [][]fwk.WeightedAffinityTerm{pi.GetPreferredAffinityTerms(), pi.GetPreferredAntiAffinityTerms()} {
		for i := range terms {
			a.countTerm(&terms[i].AffinityTerm, by)
		}
	}
	required := pi.GetRequiredAffinityTerms()
	for i := range required {
		a.countTerm(&required[i], by)
	}
}

func (a *affinityTerms) countTerm(t *fwk.AffinityTerm, by int) {
	for namespace := range t.Namespaces {
		a.countIn(namespace, &countedTerm{pods: t.Selector}, by)
	}
	if !selectsNothing(t.NamespaceSelector) {
		a.countIn("", &countedTerm{namespaces: t.NamespaceSelector, pods: t.Selector}, by)
	}
}

func (a *affinityTerms) countIn(namespace string, t *countedTerm, by int) {
	if selectsNothing(t.pods) {
		return
	}
	at, key := placeOf(namespace, ""), t.pods.String()
	if t.namespaces != nil {
		key = t.namespaces.String() + "/" + key
	}
	requirements, _ := t.pods.Requirements()
	for i := range requirements {
		r := &requirements[i]
		if values := r.ValuesUnsorted(); len(values) == 1 && (r.Operator() == selection.Equals || r.Operator() == selection.In) {
			at = placeOf(namespace, r.Key()+"="+values[0])
		}
	}
	in := a.terms[at]
	if known := in[key]; known != nil {
		t = known
	} else if in == nil {
		in = map[string]*countedTerm{}
		a.terms[at] = in
	}
	in[key] = t
	if t.count += by; t.count == 0 {
		delete(in, key)
	}
	if len(in) == 0 {
		delete(a.terms, at)
	}
}

// placeOf is where the terms are that name the namespace, or select some if it is empty,
// and require the label, if there is one.
func placeOf(namespace, label string) string { return namespace + "/" + label }

// selectsNothing reports whether it is the selector of nothing, which prints like the
// one of everything.
func selectsNothing(s labels.Selector) bool { return s.String() == "" && !s.Empty() }

// match reports whether a pod that runs has a term that matches the pod, which is in a
// namespace with the labels.
func (a *affinityTerms) match(pod *corev1.Pod, namespace labels.Set) bool {
	for t := range a.near(pod) {
		if (t.namespaces == nil || t.namespaces.Matches(namespace)) && t.pods.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// near returns the terms that name the pod's namespace or select some, and require one
// of its labels or none.
func (a *affinityTerms) near(pod *corev1.Pod) iter.Seq[*countedTerm] {
	return func(yield func(*countedTerm) bool) {
		for _, namespace := range [...]string{pod.Namespace, ""} {
			places := []string{placeOf(namespace, "")}
			for key, value := range pod.Labels {
				places = append(places, placeOf(namespace, key+"="+value))
			}
			for _, at := range places {
				for _, t := range a.terms[at] {
					if !yield(t) {
						return
					}
				}
			}
		}
	}
}
