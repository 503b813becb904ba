package scheduler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// shapes are what pods ask for.
var shapes = map[string]podOption{
	"small": slice(30, 16), "half": slice(50, 32), "large": slice(60, 40), "one": whole(1), "two": whole(2),
	bare: func(*corev1.Pod) {},
}

// bare is the shape of a pod without cards.
const bare = "bare"

// shapeNames has the shapes in order, but the one without cards.
var shapeNames = []string{"small", "half", "large", "one", "two"}

// modelApp is the app that pods are of, or want to be near, away from or spread.
const modelApp = "web"

// traits are what pods may have besides their shape. A pod with the name of a node
// among them wants that node.
var traits = map[string]podOption{
	"of": ofApp(modelApp), "near": nearApp(), "away": awayFromApp(modelApp), "even": evenly(),
	"batch": deadline, "kept": func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/kept"} },
	"n0": onHost("n0"), "n1": onHost("n1"),
}

// neighborly are the traits about other pods, as often as they are drawn.
var neighborly = []string{"of", "near", "near", "away", "even"}

// awayFromApp does not want to be where a pod of the app is.
func awayFromApp(app string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: corev1.LabelHostname,
		}}}}
	}
}

// onHost wants the node.
func onHost(node string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// namespaces are where pods and quotas are.
var namespaces = []string{"ns", "other"}

// namespaceOf returns the namespace of the pod. Names differ in all namespaces, so
// that a name says which pod is meant.
func namespaceOf(pod string) string {
	if strings.HasSuffix(pod, "4") || strings.HasSuffix(pod, "5") {
		return "other"
	}
	return "ns"
}

// create returns a pod of a shape and of traits, which are separated by commas.
func (w *world) create(name, what string) (*corev1.Pod, bool) {
	parts := strings.Split(what, ",")
	if w.api.pod(name) != nil || shapes[parts[0]] == nil || slices.ContainsFunc(parts[1:], func(trait string) bool { return traits[trait] == nil }) {
		return nil, false
	}
	w.births++
	pod := makePod(name, shapes[parts[0]])
	pod.Namespace = namespaceOf(name)
	pod.UID = types.UID(fmt.Sprintf("uid-%s-%d", name, w.births))
	pod.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(w.births) * time.Second))
	// The API server takes limits without requests for both.
	pod.Spec.Containers[0].Resources.Requests = maps.Clone(pod.Spec.Containers[0].Resources.Limits)
	for _, trait := range parts[1:] {
		traits[trait](pod)
	}
	return pod, true
}

// opPod creates a pod of a shape, of traits and of a priority.
func opPod(w *world, s step) bool {
	pod, ok := w.create(s.who, s.what)
	if !ok {
		return false
	}
	priority(int32(s.n))(pod)
	w.api.put(kindPod, pod)
	return true
}

// opIntrude is another scheduler, which binds a pod to node n. It does not know which
// cards are free: those that its pod gets may be another one's.
func opIntrude(w *world, s step) bool {
	node := fmt.Sprintf("n%d", s.n)
	if w.api.node(node) == nil {
		return false
	}
	pod, ok := w.create(s.who, s.what)
	if !ok {
		return false
	}
	pod.Spec.NodeName, pod.Spec.SchedulerName = node, "someone-else"
	if wire.Asks(pod) {
		if w.api.everHad[node] != nil {
			pod.Annotations[wire.AnnotationAllocated] = unreadable
		}
		w.intruders[pod.UID] = true
	}
	w.api.put(kindPod, pod)
	return true
}

func opDelete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	return pod != nil && pod.DeletionTimestamp == nil && w.api.deletePod(s.who, "") == nil
}

// opRemove is kubelet, which has ended a pod that was deleted, or whoever removes its
// finalizer.
func opRemove(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.DeletionTimestamp == nil {
		return false
	}
	w.api.remove(kindPod, s.who)
	return true
}

// opComplete is a pod that has done its work.
func opComplete(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || !wire.Holds(pod) {
		return false
	}
	now := pod.DeepCopy()
	now.Status.Phase = corev1.PodSucceeded
	w.api.put(kindPod, now)
	return true
}

// opAnnotate changes what a waiting pod prefers.
func opAnnotate(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Spec.NodeName != "" {
		return false
	}
	now := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&now.ObjectMeta, wire.AnnotationCardPolicy, s.what)
	w.api.put(kindPod, now)
	return true
}

// opDeadline gives a pod a deadline, which takes it out of the scope of one quota and
// may bring it into that of another.
func opDeadline(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Spec.ActiveDeadlineSeconds != nil || !isShown(pod) {
		return false
	}
	now := pod.DeepCopy()
	deadline(now)
	w.rescoped[now.UID] = true
	w.api.put(kindPod, now)
	return true
}

// opRelabel makes a pod one of the app, or takes its label away.
func opRelabel(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || !isShown(pod) {
		return false
	}
	now := pod.DeepCopy()
	if now.Labels == nil {
		ofApp(modelApp)(now)
	} else {
		now.Labels = nil
	}
	w.api.put(kindPod, now)
	return true
}

// unreadable is an allocation that can't be read.
const unreadable = `[[{"uuid":`

// opForeign adds a pod that someone else bound to the node, with the node's last
// card to itself, which only becomes known later.
func opForeign(w *world, s step) bool {
	if w.api.node(s.what) == nil || w.starts > 0 {
		return false
	}
	pod, ok := w.create(s.who, "one")
	if !ok {
		return false
	}
	pod.Annotations[wire.AnnotationAllocated] = unreadable
	pod.Spec.NodeName, pod.Spec.SchedulerName = s.what, "someone-else"
	w.api.put(kindPod, pod)
	return true
}

// opCure makes known which card a foreign pod holds: the last one of its node.
func opCure(w *world, s step) bool {
	pod := w.api.pod(s.who)
	if pod == nil || pod.Annotations[wire.AnnotationAllocated] != unreadable {
		return false
	}
	dev := w.api.device(pod.Spec.NodeName)
	if dev == nil || len(dev.spec.Spec.Devices) == 0 {
		return false
	}
	last := fmt.Sprintf("GPU-%s-%d", pod.Spec.NodeName, len(w.api.everHad[pod.Spec.NodeName])-1)
	text, err := json.Marshal([][]map[string]any{{{"uuid": last, "compute": 100, "vRam": int64(w.api.memory[pod.Spec.NodeName])}}})
	if err != nil {
		return false
	}
	now := pod.DeepCopy()
	now.Annotations[wire.AnnotationAllocated] = string(text)
	w.api.put(kindPod, now)
	return true
}
