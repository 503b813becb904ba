package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// workloadKinds are the controllers of pods that files may hold.
var workloadKinds = []string{
	"apps/v1 Deployment", "apps/v1 ReplicaSet", "apps/v1 StatefulSet", "apps/v1 DaemonSet",
	"batch/v1 Job", "batch/v1 CronJob", "v1 ReplicationController",
}

// maxReplicas bounds the pods that one workload is expanded to.
const maxReplicas = 10_000

// Workload is a controller of pods that was read from a file.
type Workload struct {
	Kind string
	metav1.ObjectMeta
	spec workloadSpec
	// before is how many pods were read before it, at where it was read.
	before int
	at     string
}

// workloadSpec has what the kinds' specs say about pods.
type workloadSpec struct {
	Template    json.RawMessage `json:"template"`
	Replicas    *int            `json:"replicas"`
	Parallelism *int            `json:"parallelism"`
	Completions *int            `json:"completions"`
	Suspend     bool            `json:"suspend"`
	Ordinals    struct {
		Start int `json:"start"`
	} `json:"ordinals"`
	JobTemplate *struct {
		Spec workloadSpec `json:"spec"`
	} `json:"jobTemplate"`
}

func (r *decoder) workload(text []byte, kind, at string) error {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     workloadSpec      `json:"spec"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("%s: %s: %w", at, kind, plain(err))
	}
	w := &Workload{Kind: kind, ObjectMeta: object.Metadata, spec: object.Spec, before: len(r.objects.Pods), at: at}
	if w.Namespace == "" {
		w.Namespace = metav1.NamespaceDefault
	}
	if w.spec.JobTemplate != nil {
		suspended := w.spec.Suspend
		w.spec = w.spec.JobTemplate.Spec
		w.spec.Suspend = suspended
	}
	r.objects.Workloads = append(r.objects.Workloads, w)
	return r.once(kind, w.Namespace+"/"+w.Name, at)
}

// Complete does to what files hold what a cluster would do: it resolves priority
// classes and adds the pods that controllers would create of the workloads, in
// the order of the files. The error is of a workload that can't be expanded.
func (o *Objects) Complete() error {
	names := map[string]bool{}
	dump := slices.ContainsFunc(o.Nodes, func(n *corev1.Node) bool { return n.UID != "" }) && !o.Live
	for _, pod := range o.Pods {
		names[pod.Namespace+"/"+pod.Name] = true
	}
	var pods []*corev1.Pod
	taken := 0
	for _, w := range o.Workloads {
		pods = append(pods, o.Pods[taken:w.before]...)
		taken = w.before
		if dump && w.UID != "" || metav1.GetControllerOfNoCopy(w) != nil {
			continue // the pods are in the dump, or the owner stands for them
		}
		created, err := o.expand(w, names)
		if err != nil {
			return fmt.Errorf("%s: %s %s: %w", w.at, w.Kind, w.Name, err)
		}
		pods = append(pods, created...)
	}
	o.Pods, o.Workloads = append(pods, o.Pods[taken:]...), nil
	for _, pod := range o.Pods {
		o.prioritize(pod)
	}
	return nil
}

// expand returns the pods that the controller would create. Its random suffixes are
// numbers here, the same in every run.
func (o *Objects) expand(w *Workload, names map[string]bool) ([]*corev1.Pod, error) {
	template, err := w.template()
	if err != nil {
		return nil, err
	}
	if w.spec.Suspend {
		o.Notes = append(o.Notes, fmt.Sprintf("%s: %s %s is suspended: no pods are created", w.at, w.Kind, w.Name))
		return nil, nil
	}
	if w.Kind == "DaemonSet" {
		return o.daemons(w, template, names), nil
	}
	count, err := w.count()
	if err != nil {
		return nil, err
	}
	first := 1
	if w.Kind == "StatefulSet" {
		first = w.spec.Ordinals.Start
	}
	var pods []*corev1.Pod
	for i := first; len(pods) < count && i < first+count+len(names); i++ {
		pod := template.DeepCopy()
		pod.Name = fmt.Sprintf("%s-%d", w.Name, i)
		switch free := claim(names, pod); {
		case free:
			pods = append(pods, pod)
		case w.Kind == "StatefulSet":
			count-- // it is there already
		}
	}
	return pods, nil
}

// claim takes the pod's name, and reports whether it was free.
func claim(names map[string]bool, pod *corev1.Pod) bool {
	key := pod.Namespace + "/" + pod.Name
	taken := names[key]
	names[key] = true
	return !taken
}

// template returns the pod of the template, without a name.
func (w *Workload) template() (*corev1.Pod, error) {
	if len(w.spec.Template) == 0 {
		return nil, errors.New("spec.template is missing")
	}
	pod, err := wire.Decode[corev1.Pod](w.spec.Template)
	if err != nil {
		return nil, fmt.Errorf("spec.template: %w", plain(err))
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, errors.New("spec.template has no containers")
	}
	pod.Namespace, pod.GenerateName = w.Namespace, ""
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: w.Kind, Name: w.Name, UID: w.UID, Controller: &yes}}
	return pod, settle(pod)
}

// count returns how many pods run at the same time.
func (w *Workload) count() (int, error) {
	field, value := "replicas", w.spec.Replicas
	if w.Kind == "Job" || w.Kind == "CronJob" {
		field, value = "parallelism", w.spec.Parallelism
	}
	count := 1
	if value != nil {
		count = *value
	}
	if c := w.spec.Completions; c != nil {
		count = min(count, *c)
	}
	switch start := w.spec.Ordinals.Start; {
	case count < 0 || count > maxReplicas:
		return 0, fmt.Errorf("spec.%s is %d: want 0 to %d", field, count, maxReplicas)
	case start < 0 || start > math.MaxInt32:
		return 0, fmt.Errorf("spec.ordinals.start is %d: want 0 to %d", start, math.MaxInt32)
	}
	return count, nil
}

// daemons returns a pod for each node that the DaemonSet's pods may use, pinned to
// it and with tolerations as its controller does.
func (o *Objects) daemons(w *Workload, template *corev1.Pod, names map[string]bool) []*corev1.Pod {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerate(template, key, corev1.TaintEffectNoExecute)
	}
	for _, key := range []string{
		corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable,
	} {
		tolerate(template, key, corev1.TaintEffectNoSchedule)
	}
	facts := map[string]Facts{}
	for name, device := range o.Devices {
		facts[name] = Facts{Name: name, Device: device.Device}
	}
	for _, node := range o.Nodes {
		facts[node.Name] = Facts{Name: node.Name, Node: node}
	}
	filter := NewNodeFilter(template)
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		at := facts[name]
		if filter.Exclusion(&at).Kind != 0 {
			continue
		}
		pod := template.DeepCopy()
		pod.Name = w.Name + "-" + name
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
			}}},
		}}}
		if claim(names, pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func tolerate(pod *corev1.Pod, key string, effect corev1.TaintEffect) {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
}
