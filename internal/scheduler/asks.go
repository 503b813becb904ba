package scheduler

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// asks has what pending pods ask for, so that a pod is read once and not each
// time that it is tried or might be woken. All profiles share it.
type asks struct {
	mu    sync.Mutex
	byPod map[types.UID]asked
}

// asked is what was read of one version of a pod.
type asked struct {
	pod *corev1.Pod
	ask *wire.Ask
	// problems are why the pod is rejected whatever the nodes have.
	problems field.ErrorList
	// tooLarge tells that they are about the size of the pod's annotations.
	tooLarge bool
}

func newAsks() *asks { return &asks{byPod: map[types.UID]asked{}} }

// admit is wire.Admit, with what a pod asks for beside cards. What it returns is
// shared and must not be changed.
func (a *asks) admit(pod *corev1.Pod) (*wire.Ask, field.ErrorList) {
	a.mu.Lock()
	known, ok := a.byPod[pod.UID]
	a.mu.Unlock()
	switch {
	case ok && known.pod == pod:
		return known.ask, known.problems
	case ok && known.tooLarge && maps.Equal(known.pod.Annotations, pod.Annotations):
		a.reject(pod, known.problems)
		return nil, known.problems
	}
	ask, problems := wire.Admit(pod)
	switch {
	case len(problems) > 0:
		ask = nil
	case ask == nil:
		return nil, nil
	default:
		wire.Describe(pod, &ask.Request)
	}
	a.mu.Lock()
	a.byPod[pod.UID] = asked{pod: pod, ask: ask, problems: problems}
	a.mu.Unlock()
	return ask, problems
}

// reject remembers that the pod's annotations are too large to be bound.
func (a *asks) reject(pod *corev1.Pod, problems field.ErrorList) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byPod[pod.UID] = asked{pod: pod, problems: problems, tooLarge: true}
}

// changed reports whether the update of a waiting pod may make it fit where it did
// not before.
func (a *asks) changed(before, after *corev1.Pod) bool {
	a.mu.Lock()
	tooLarge := a.byPod[after.UID].tooLarge
	a.mu.Unlock()
	return !sameAsk(before, after) || tooLarge && !maps.Equal(before.Annotations, after.Annotations)
}

// drop forgets a pod that is bound or gone.
func (a *asks) drop(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byPod, uid)
}

// standIn returns what the pod asks for with a policy where it names none.
func standIn(ask *wire.Ask, policy place.Policy) *wire.Ask {
	if policy == place.Default {
		return ask
	}
	own := *ask
	own.StandIn(policy)
	return &own
}
