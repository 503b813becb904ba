package cluster

import (
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// Dumps of large clusters are hundreds of megabytes, most of it fields that
// nobody here reads. The lean readers walk over a document once, keep the fields
// below, and leave everything that is not plain to the general decoder: whenever
// in doubt they answer errUnsure, and whoever called decodes the document again
// in the ordinary way, which also has the better words for what is wrong.
var errUnsure = errors.New("not plain enough for the lean reader")

// shape is a tree of the fields that are kept of a document.
type shape struct {
	// keys are the fields of a mapping; nil keeps all.
	keys map[string]*shape
	// each is the shape of a list's items, or of all values of a mapping whose
	// keys is nil.
	each *shape
}

func mapping(keys map[string]*shape) *shape { return &shape{keys: keys} }

var (
	anything  = &shape{}
	texts     = &shape{each: anything}
	condition = &shape{each: mapping(map[string]*shape{
		"type": anything, "status": anything, "reason": anything, "message": anything, "lastTransitionTime": anything,
	})}
	objectMeta = mapping(map[string]*shape{
		"name": anything, "namespace": anything, "generateName": anything, "uid": anything, "labels": texts, "annotations": texts,
		"creationTimestamp": anything, "deletionTimestamp": anything,
	})
	resources  = mapping(map[string]*shape{"limits": texts, "requests": texts})
	containers = &shape{each: mapping(map[string]*shape{"name": anything, "restartPolicy": anything, "resources": resources})}
	statuses   = &shape{each: mapping(map[string]*shape{"name": anything, "resources": resources, "allocatedResources": texts})}
	keyed      = &shape{each: mapping(map[string]*shape{
		"key": anything, "operator": anything, "value": anything, "values": {each: anything}, "effect": anything,
	})}
	affinity = mapping(map[string]*shape{"nodeAffinity": mapping(map[string]*shape{
		"requiredDuringSchedulingIgnoredDuringExecution": mapping(map[string]*shape{
			"nodeSelectorTerms": {each: mapping(map[string]*shape{"matchExpressions": keyed, "matchFields": keyed})},
		}),
	})})
	// kept is for all kinds at once: which one it is may stand at the end.
	kept = mapping(map[string]*shape{
		"apiVersion": anything, "kind": anything, "metadata": objectMeta,
		"spec": mapping(map[string]*shape{
			// of Pods
			"nodeName": anything, "schedulerName": anything, "priority": anything, "containers": containers, "initContainers": containers,
			"schedulingGates": {each: mapping(map[string]*shape{"name": anything})},
			"overhead":        texts, "resources": resources, "nodeSelector": texts, "affinity": affinity, "tolerations": keyed,
			// of Nodes
			"unschedulable": anything, "taints": keyed,
			// of Devices
			"devices": {each: mapping(map[string]*shape{
				"type": anything, "id": anything, "minor": anything, "health": anything, "labels": texts, "resources": texts, "conditions": condition,
				"topology": mapping(map[string]*shape{"socketID": anything, "nodeID": anything, "pcieID": anything, "busID": anything}),
			})},
		}),
		"status": mapping(map[string]*shape{
			"phase": anything, "nominatedNodeName": anything, "conditions": condition, "capacity": texts, "allocatable": texts,
			"containerStatuses": statuses, "initContainerStatuses": statuses,
		}),
	})
)

// kind of a value.
type kind uint8

const (
	absent kind = iota // also null
	text
	number
	truth
	mappingKind
	listKind
)

// value is a part of a document: a word, or the head of its fields or items.
type value struct {
	kind kind
	// key is the name of a field of a mapping.
	key, text string

	first, last, next *value
	length            int
}

// nothing is what an absent field is. Nobody changes it.
var nothing = &value{}

// get returns a field of a mapping.
func (v *value) get(key string) *value {
	for x := v.first; x != nil; x = x.next {
		if x.key == key {
			return x
		}
	}
	return nothing
}

// add appends an item to a list.
func (v *value) add(x *value) {
	if v.first == nil {
		v.first = x
	} else {
		v.last.next = x
	}
	v.last = x
	v.length++
}

// set adds a field to a mapping. A field that comes twice is a mistake of the
// document.
func (v *value) set(key string, x *value) error {
	const most = 200
	if v.length == most || v.get(key) != nothing {
		return errUnsure
	}
	x.key = key
	v.add(x)
	return nil
}

// arena is the memory that one document is read into. It is used again for the
// next one, since nothing of it is kept but texts.
type arena struct {
	chunks [][]value
	used   int
	// names are short texts that come again and again.
	names map[string]string
	// words remembers how the general decoder reads values that are neither
	// plainly text nor plainly a number.
	words map[string]value
}

const arenaChunk = 256

func newArena() *arena { return &arena{names: map[string]string{}, words: map[string]value{}} }

// make returns a value of its own.
func (a *arena) make(k kind, text string) *value {
	chunk, i := a.used/arenaChunk, a.used%arenaChunk
	if chunk == len(a.chunks) {
		a.chunks = append(a.chunks, make([]value, arenaChunk))
	}
	a.used++
	v := &a.chunks[chunk][i]
	*v = value{kind: k, text: text}
	return v
}

// text keeps a text, once for all documents if it is short.
func (a *arena) text(b []byte) string {
	const short, most = 40, 1 << 14
	if len(b) > short {
		return string(b)
	}
	if s, ok := a.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(a.names) < most {
		a.names[s] = s
	}
	return s
}

// lean makes typed objects of a value; the first doubt is kept.
type lean struct{ err error }

func (l *lean) doubt() { l.err = errUnsure }

// is reports whether there is a value, which must be of the kind.
func (l *lean) is(v *value, k kind) bool {
	if v.kind != k && v.kind != absent {
		l.doubt()
	}
	return v.kind == k
}

func (l *lean) text(v *value) string {
	if l.is(v, text) {
		return v.text
	}
	return ""
}

func (l *lean) truth(v *value) bool { return l.is(v, truth) && v.text == "true" }

func (l *lean) int32(v *value) *int32 {
	if !l.is(v, number) {
		return nil
	}
	n, err := strconv.ParseInt(v.text, 10, 32)
	if err != nil {
		l.doubt()
	}
	return new(int32(n))
}

func (l *lean) time(v *value) metav1.Time {
	if !l.is(v, text) {
		return metav1.Time{}
	}
	t, err := time.Parse(time.RFC3339, v.text)
	if err != nil {
		l.doubt()
	}
	return metav1.NewTime(t.Local())
}

func (l *lean) texts(v *value) map[string]string {
	if !l.is(v, mappingKind) {
		return nil
	}
	m := make(map[string]string, v.length)
	for x := v.first; x != nil; x = x.next {
		if x.kind != text {
			l.doubt()
		}
		m[x.key] = x.text
	}
	return m
}

// quantities reads amounts, which may be written as numbers. One with an
// exponent could keep us busy for hours, and is left to who looks out for that.
func (l *lean) quantities(v *value) corev1.ResourceList {
	if !l.is(v, mappingKind) {
		return nil
	}
	list := make(corev1.ResourceList, v.length)
	for x := v.first; x != nil; x = x.next {
		if x.kind != text && x.kind != number || len(x.text) > 30 || hasExponent(x.text) {
			l.doubt()
			return nil
		}
		q, err := resource.ParseQuantity(x.text)
		if err != nil {
			l.doubt()
		}
		list[corev1.ResourceName(x.key)] = q
	}
	return list
}

// hasExponent looks for an e that more follows: "1e3", but not "1Ei" or "2E".
func hasExponent(s string) bool {
	for i := range len(s) {
		if (s[i] == 'e' || s[i] == 'E') && i+1 < len(s) && s[i+1] != 'i' {
			return true
		}
	}
	return false
}

// items returns the first item of a list, and how many there are.
func (l *lean) items(v *value) (first *value, length int) {
	if !l.is(v, listKind) {
		return nil, 0
	}
	return v.first, v.length
}

func (l *lean) meta(v *value) metav1.ObjectMeta {
	if !l.is(v, mappingKind) {
		return metav1.ObjectMeta{}
	}
	m := metav1.ObjectMeta{
		Name: l.text(v.get("name")), Namespace: l.text(v.get("namespace")), GenerateName: l.text(v.get("generateName")),
		UID: types.UID(l.text(v.get("uid"))), Labels: l.texts(v.get("labels")), Annotations: l.texts(v.get("annotations")),
		CreationTimestamp: l.time(v.get("creationTimestamp")),
	}
	if t := v.get("deletionTimestamp"); t.kind != absent {
		m.DeletionTimestamp = new(l.time(t))
	}
	return m
}

func (l *lean) pod(v *value) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: l.meta(v.get("metadata"))}
	spec, status := v.get("spec"), v.get("status")
	l.is(spec, mappingKind)
	l.is(status, mappingKind)
	pod.Spec = corev1.PodSpec{
		NodeName: l.text(spec.get("nodeName")), SchedulerName: l.text(spec.get("schedulerName")), Priority: l.int32(spec.get("priority")),
		Containers: l.containers(spec.get("containers")), InitContainers: l.containers(spec.get("initContainers")),
	}
	for gate, _ := l.items(spec.get("schedulingGates")); gate != nil; gate = gate.next {
		l.is(gate, mappingKind)
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: l.text(gate.get("name"))})
	}
	l.demands(&pod.Spec, spec)
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = l.statuses(status.get("containerStatuses")), l.statuses(status.get("initContainerStatuses"))
	pod.Status.Phase = corev1.PodPhase(l.text(status.get("phase")))
	pod.Status.NominatedNodeName = l.text(status.get("nominatedNodeName"))
	for _, c := range l.conditions(status.get("conditions")) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return pod
}

// demands reads what a pod demands of its node beside the containers' resources.
func (l *lean) demands(pod *corev1.PodSpec, spec *value) {
	pod.Overhead, pod.NodeSelector = l.quantities(spec.get("overhead")), l.texts(spec.get("nodeSelector"))
	pod.Affinity, pod.Resources = l.affinity(spec.get("affinity")), l.resources(spec.get("resources"))
	for t, _ := l.items(spec.get("tolerations")); t != nil; t = t.next {
		l.is(t, mappingKind)
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
			Key: l.text(t.get("key")), Operator: corev1.TolerationOperator(l.text(t.get("operator"))),
			Value: l.text(t.get("value")), Effect: corev1.TaintEffect(l.text(t.get("effect"))),
		})
	}
}

// affinity reads the required node affinity; of others nothing is kept.
func (l *lean) affinity(v *value) *corev1.Affinity {
	if !l.is(v, mappingKind) || !l.is(v.get("nodeAffinity"), mappingKind) {
		return nil
	}
	required := v.get("nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
	if !l.is(required, mappingKind) {
		return nil
	}
	selector := &corev1.NodeSelector{}
	for term, _ := l.items(required.get("nodeSelectorTerms")); term != nil; term = term.next {
		l.is(term, mappingKind)
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: l.requirements(term.get("matchExpressions")), MatchFields: l.requirements(term.get("matchFields")),
		})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

func (l *lean) requirements(v *value) []corev1.NodeSelectorRequirement {
	var out []corev1.NodeSelectorRequirement
	for r, _ := l.items(v); r != nil; r = r.next {
		l.is(r, mappingKind)
		requirement := corev1.NodeSelectorRequirement{Key: l.text(r.get("key")), Operator: corev1.NodeSelectorOperator(l.text(r.get("operator")))}
		for x, _ := l.items(r.get("values")); x != nil; x = x.next {
			requirement.Values = append(requirement.Values, l.text(x))
		}
		out = append(out, requirement)
	}
	return out
}

// resources reads what a pod as a whole asks for, which few do.
func (l *lean) resources(v *value) *corev1.ResourceRequirements {
	if !l.is(v, mappingKind) {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: l.quantities(v.get("limits")), Requests: l.quantities(v.get("requests"))}
}

// statuses reads what containers have, which differs from what they ask for
// while they are resized.
func (l *lean) statuses(v *value) []corev1.ContainerStatus {
	c, n := l.items(v)
	if n == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, 0, n)
	for ; c != nil; c = c.next {
		l.is(c, mappingKind)
		out = append(out, corev1.ContainerStatus{
			Name: l.text(c.get("name")), Resources: l.resources(c.get("resources")), AllocatedResources: l.quantities(c.get("allocatedResources")),
		})
	}
	return out
}

func (l *lean) containers(v *value) []corev1.Container {
	c, n := l.items(v)
	if n == 0 {
		return nil
	}
	out := make([]corev1.Container, 0, n)
	for ; c != nil; c = c.next {
		l.is(c, mappingKind)
		r := c.get("resources")
		l.is(r, mappingKind)
		container := corev1.Container{Name: l.text(c.get("name"))}
		container.Resources.Limits, container.Resources.Requests = l.quantities(r.get("limits")), l.quantities(r.get("requests"))
		if policy := c.get("restartPolicy"); policy.kind != absent {
			container.RestartPolicy = new(corev1.ContainerRestartPolicy(l.text(policy)))
		}
		out = append(out, container)
	}
	return out
}

func (l *lean) conditions(v *value) []metav1.Condition {
	c, n := l.items(v)
	if n == 0 {
		return nil
	}
	out := make([]metav1.Condition, 0, n)
	for ; c != nil; c = c.next {
		l.is(c, mappingKind)
		out = append(out, metav1.Condition{
			Type: l.text(c.get("type")), Status: metav1.ConditionStatus(l.text(c.get("status"))),
			Reason: l.text(c.get("reason")), Message: l.text(c.get("message")), LastTransitionTime: l.time(c.get("lastTransitionTime")),
		})
	}
	return out
}

func (l *lean) node(v *value) *corev1.Node {
	node := &corev1.Node{ObjectMeta: l.meta(v.get("metadata"))}
	spec, status := v.get("spec"), v.get("status")
	l.is(spec, mappingKind)
	l.is(status, mappingKind)
	node.Spec.Unschedulable = l.truth(spec.get("unschedulable"))
	for t, _ := l.items(spec.get("taints")); t != nil; t = t.next {
		l.is(t, mappingKind)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: l.text(t.get("key")), Value: l.text(t.get("value")), Effect: corev1.TaintEffect(l.text(t.get("effect")))})
	}
	node.Status.Capacity, node.Status.Allocatable = l.quantities(status.get("capacity")), l.quantities(status.get("allocatable"))
	for _, c := range l.conditions(status.get("conditions")) {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return node
}

func (l *lean) device(v *value) *v1alpha1.Device {
	d := &v1alpha1.Device{ObjectMeta: l.meta(v.get("metadata"))}
	spec := v.get("spec")
	l.is(spec, mappingKind)
	c, n := l.items(spec.get("devices"))
	d.Spec.Devices = make([]v1alpha1.DeviceInfo, 0, n)
	for ; c != nil; c = c.next {
		l.is(c, mappingKind)
		info := v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceType(l.text(c.get("type"))), UUID: l.text(c.get("id")), Minor: l.int32(c.get("minor")), Health: l.truth(c.get("health")),
			Labels: l.texts(c.get("labels")), Resources: l.quantities(c.get("resources")), Conditions: l.conditions(c.get("conditions")),
		}
		if t := c.get("topology"); l.is(t, mappingKind) {
			info.Topology = &v1alpha1.DeviceTopology{PCIEID: l.text(t.get("pcieID")), BusID: l.text(t.get("busID"))}
			if n := l.int32(t.get("socketID")); n != nil {
				info.Topology.SocketID = *n
			}
			if n := l.int32(t.get("nodeID")); n != nil {
				info.Topology.NodeID = *n
			}
		}
		d.Spec.Devices = append(d.Spec.Devices, info)
	}
	return d
}
