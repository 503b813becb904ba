package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// prefers reports whether the first pod has an opinion about where the other goes.
func prefers(pi fwk.PodInfo, pod *corev1.Pod, namespace labels.Set) bool {
	for _, terms := range [][]fwk.WeightedAffinityTerm{pi.GetPreferredAffinityTerms(), pi.GetPreferredAntiAffinityTerms()} {
		for i := range terms {
			if terms[i].Matches(pod, namespace) {
				return true
			}
		}
	}
	return slices.ContainsFunc(pi.GetRequiredAffinityTerms(), func(t fwk.AffinityTerm) bool { return t.Matches(pod, namespace) })
}

// randomAffinity returns a pod option with random terms of few kinds.
func randomAffinity(random *rand.Rand) podOption {
	term := func() corev1.PodAffinityTerm {
		t := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
		switch app := map[string]string{"app": strconv.Itoa(random.IntN(3))}; random.IntN(4) {
		case 0:
			t.LabelSelector = &metav1.LabelSelector{MatchLabels: app}
		case 1:
			t.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "app", Operator: []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn}[random.IntN(2)],
				Values: []string{app["app"], strconv.Itoa(random.IntN(3))}[:1+random.IntN(2)],
			}}}
		case 2: // everything
			t.LabelSelector = &metav1.LabelSelector{}
		}
		switch team := map[string]string{"team": strconv.Itoa(random.IntN(3))}; random.IntN(4) {
		case 0:
			t.Namespaces = []string{fmt.Sprint("ns", random.IntN(3)), fmt.Sprint("ns", random.IntN(3))}
		case 1:
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: team}
		case 2:
			t.Namespaces, t.NamespaceSelector = []string{"ns0"}, &metav1.LabelSelector{MatchLabels: team}
		}
		if random.IntN(9) == 0 {
			t.NamespaceSelector = &metav1.LabelSelector{}
		}
		return t
	}
	weighted := []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term()}}
	affinity := []*corev1.Affinity{
		{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
		{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
		{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}},
		{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}},
		nil,
	}[random.IntN(5)]
	return func(pod *corev1.Pod) { pod.Spec.Affinity = affinity }
}

// TestAffinityTermsAgree: whichever pods and nodes come and go, the terms match a pod
// if one of a pod that runs does, and none is left when the pods are gone.
func TestAffinityTermsAgree(t *testing.T) {
	matched := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to repeat it
		s := newStream(t, 6, seed)
		running := map[string][]*corev1.Pod{}
		for i := range 60 {
			info := s.infos[random.IntN(len(s.infos))]
			name := info.Node().Name
			if pods := running[name]; len(pods) > 0 && random.IntN(2) == 0 {
				k := random.IntN(len(pods))
				gputest.Must(t, info.RemovePod(testLogger(t), pods[k]))
				running[name] = slices.Delete(pods, k, k+1)
			} else {
				pod := makePod(fmt.Sprint("r", i), randomAffinity(random), inNamespace(fmt.Sprint("ns", random.IntN(3))), boundTo(name))
				info.AddPodInfo(podInfo(t, pod))
				running[name] = append(pods, pod)
			}
			listed := s.infos[:3+random.IntN(4)] // nodes leave and join
			s.shared.index.refresh(listed)
			for k := range 9 {
				pod, team := makePod("p", inNamespace(fmt.Sprint("ns", k%3)), ofApp(strconv.Itoa(k/3))), labels.Set{"team": strconv.Itoa(k % 3)}
				want := slices.ContainsFunc(listed, func(ni fwk.NodeInfo) bool {
					return slices.ContainsFunc(ni.GetPodsWithAffinity(), func(pi fwk.PodInfo) bool { return prefers(pi, pod, team) })
				})
				if got := s.shared.index.terms.match(pod, team); got != want {
					t.Fatalf("seed %d, step %d: pod of app %d in ns%d is preferred somewhere: %v, want %v", seed, i, k/3, k%3, got, want)
				}
				if want {
					matched++
				}
			}
		}
		s.shared.index.refresh(nil)
		if terms := s.shared.index.terms; len(terms.terms) > 0 || len(terms.pods) > 0 {
			t.Fatalf("seed %d: without nodes there are terms in %d places and pods on %d nodes", seed, len(terms.terms), len(terms.pods))
		}
	}
	if matched < 1000 {
		t.Errorf("%d matches are too few to compare", matched)
	}
}

// TestAffinityTermsAreFew: a decision looks at each term once, however many pods that
// run have it, and at none of other namespaces or that require a label that the pod
// does not have.
func TestAffinityTermsAreFew(t *testing.T) {
	s := newStream(t, 4, 1)
	for i := range 400 {
		pod := makePod(fmt.Sprint("r", i), withoutApp("web"))
		switch i % 4 {
		case 0:
			pod = makePod(fmt.Sprint("r", i), withoutApp(strconv.Itoa(i)))
		case 1:
			pod = makePod(fmt.Sprint("r", i), withoutApp("web"), inNamespace("other"))
		}
		s.infos[i%3].AddPodInfo(podInfo(t, pod))
	}
	s.shared.index.refresh(s.infos)
	for app, want := range map[string]int{"web": 1, "4": 1, "db": 0} {
		looked := 0
		for range s.shared.index.terms.near(makePod("p", ofApp(app))) {
			looked++
		}
		if looked != want {
			t.Errorf("a pod of app %s is compared with %d terms, want %d", app, looked, want)
		}
	}
}
