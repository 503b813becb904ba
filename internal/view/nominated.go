package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// nomination is a pending pod for which the scheduler evicts others from a node.
type nomination struct {
	pod  *corev1.Pod
	ask  *request.PodRequest
	node place.NodeID
	// evicted are the pods of lower priority that are still terminating there.
	evicted []ledger.Holder
}

// nominations returns the nominated pods that ask for cards, the most important first.
func (j *judge) nominations() (out []nomination) {
	for _, pod := range slices.Concat(j.snapshot.Pending, j.snapshot.Waiting) {
		node, known := j.board.Find(pod.Status.NominatedNodeName)
		if !known || !wire.Asks(pod) {
			continue
		}
		ask, problems := j.read(pod)
		if ask == nil || len(problems) > 0 {
			continue
		}
		n := nomination{pod: pod, ask: ask, node: node}
		for _, other := range j.snapshot.Facts[node].Pods {
			if other.DeletionTimestamp != nil && corev1helpers.PodPriority(other) < corev1helpers.PodPriority(pod) {
				n.evicted = append(n.evicted, allocation.HolderOf(other))
			}
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b nomination) int {
		return cmp.Or(cmp.Compare(corev1helpers.PodPriority(b.pod), corev1helpers.PodPriority(a.pod)),
			a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	return out
}

// precedes reports whether the nominated pod gets its cards before the other one.
func (n *nomination) precedes(pod *corev1.Pod) bool {
	return allocation.HolderOf(n.pod) != allocation.HolderOf(pod) && corev1helpers.PodPriority(n.pod) >= corev1helpers.PodPriority(pod)
}

// precedence returns a key that is equal for pods which the same nominated pods precede.
func (j *judge) precedence(pod *corev1.Pod) string {
	first, count := -1, 0
	for i := range j.nominated {
		if j.nominated[i].precedes(pod) {
			count++
		} else if first < 0 {
			first = i // the pod itself, or the first of lower priority
		}
	}
	return fmt.Sprint(first, count)
}

// promised returns the nodes with the nominated pods that precede the pod, on the cards
// that are free for them once the evicted pods are gone.
func (j *judge) promised(pod *corev1.Pod) *place.Trial {
	trial := j.board.Try()
	for i := range j.nominated {
		n := &j.nominated[i]
		if !n.precedes(pod) {
			continue
		}
		now := trial.Checkpoint()
		later := trial.Edit(n.node)
		later.Release(n.evicted...)
		offer, refusal := place.Fit(later, &n.ask.Request, &n.ask.Prefer)
		trial.Undo(now)
		if refusal.Code == place.Fits {
			node := trial.Edit(n.node)
			node.Book(node.Holding(&offer, allocation.HolderOf(n.pod), &n.ask.Request))
		}
	}
	return trial
}

// nominatedTo lists the pods that are nominated to the node.
func (j *judge) nominatedTo(id place.NodeID) string {
	var names []string
	for i := range j.nominated {
		if n := &j.nominated[i]; n.node == id {
			names = append(names, string(allocation.HolderOf(n.pod)))
		}
	}
	return strings.Join(names, ", ")
}

// fulfil ends the nomination of a pod that has its cards.
func (j *judge) fulfil(pod *corev1.Pod) {
	j.nominated = slices.DeleteFunc(j.nominated, func(n nomination) bool { return allocation.HolderOf(n.pod) == allocation.HolderOf(pod) })
}
