package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// decoder sorts the JSON of objects by their kinds.
type decoder struct {
	objects *Objects
	// from has where a file or an object was read, to reject a second one.
	from map[string]string
}

// object takes in one object, or the items of a list. What the API server
// itself lists does not repeat the kind in every item: then it is implied.
func (r *decoder) object(text []byte, at string, implied metav1.TypeMeta) error {
	var head struct {
		metav1.TypeMeta
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("%s: not a Kubernetes object: %w", at, plain(err))
	}
	if head.TypeMeta == (metav1.TypeMeta{}) {
		head.TypeMeta = implied
	}
	if head.APIVersion == "" || head.Kind == "" {
		return fmt.Errorf("%s: %w", at, errNoKind)
	}
	if isList(head.TypeMeta) {
		item := itemsOf(head.TypeMeta)
		for i, text := range head.Items {
			if err := r.object(text, fmt.Sprintf("%s, item %d", at, i+1), item); err != nil {
				return err
			}
		}
		return nil
	}
	return r.single(text, at, head.TypeMeta, head.Metadata.Name)
}

// single takes in one object.
func (r *decoder) single(text []byte, at string, kind metav1.TypeMeta, name string) error {
	switch gvk := kind.APIVersion + " " + kind.Kind; gvk {
	case "v1 Node":
		return take(r, text, kind.Kind, at, wire.Decode[corev1.Node], &r.objects.Nodes)
	case "v1 Pod":
		return r.pod(text, at)
	case deviceKind:
		return r.device(text, name, at)
	case "v1 ResourceQuota":
		return take(r, text, kind.Kind, at, decodeQuota, &r.objects.Quotas)
	case "v1 Namespace":
		return take(r, text, kind.Kind, at, wire.Decode[corev1.Namespace], &r.objects.Namespaces)
	case "scheduling.k8s.io/v1 PriorityClass":
		return take(r, text, kind.Kind, at, wire.Decode[schedulingv1.PriorityClass], &r.objects.PriorityClasses)
	case "coordination.k8s.io/v1 Lease":
		var leases []*coordinationv1.Lease
		err := take(r, text, kind.Kind, at, wire.Decode[coordinationv1.Lease], &leases)
		for _, lease := range leases {
			r.objects.Settings[lease.Namespace+"/"+lease.Name] = settingsOf(lease)
		}
		return err
	case "v1 Event", "events.k8s.io/v1 Event":
		return r.event(text, at)
	default:
		if slices.Contains(workloadKinds, gvk) {
			return r.workload(text, kind.Kind, at)
		}
		r.objects.Notes = append(r.objects.Notes, fmt.Sprintf("%s: passed over %s %s: only Nodes, Devices, Pods, workloads, ResourceQuotas, Namespaces, PriorityClasses, Leases, Events and Lists are read", at, gvk, name))
		return nil
	}
}

var (
	deviceKind = v1alpha1.GroupVersion.String() + " Device"
	errNoKind  = fmt.Errorf("no apiVersion or no kind: want a v1 Node, Pod or List, or a %s", deviceKind)
)

// listed are the kinds whose lists are read, besides workloads: API servers answer
// with such lists.
var listed = []string{"v1 ", "v1 Node", "v1 Pod", deviceKind, "v1 ResourceQuota", "v1 Namespace", "scheduling.k8s.io/v1 PriorityClass", "coordination.k8s.io/v1 Lease", "v1 Event", "events.k8s.io/v1 Event"}

func isList(t metav1.TypeMeta) bool {
	item, ok := strings.CutSuffix(t.APIVersion+" "+t.Kind, "List")
	return ok && (slices.Contains(listed, item) || slices.Contains(workloadKinds, item))
}

// itemsOf returns the kind of a list's items: none for a v1 List, whose items
// have it themselves.
func itemsOf(list metav1.TypeMeta) metav1.TypeMeta {
	kind := strings.TrimSuffix(list.Kind, "List")
	if kind == "" {
		return metav1.TypeMeta{}
	}
	return metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}
}

// once rejects an object that was read before.
func (r *decoder) once(kind, name, at string) error {
	if name == "" {
		return fmt.Errorf("%s: a %s without a name", at, kind)
	}
	key := kind + " " + name
	if before, ok := r.from[key]; ok {
		return fmt.Errorf("%s: %s was already read from %s", at, key, before)
	}
	r.from[key] = at
	return nil
}

// take takes in an object of which there is one of a name.
func take[T Object](r *decoder, text []byte, kind, at string, decode func([]byte) (T, error), list *[]T) error {
	object, err := decode(text)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", at, kind, plain(err))
	}
	if _, err := request.Trim(object); err != nil {
		return err
	}
	*list = append(*list, object)
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return r.once(kind, name, at)
}

func decodeQuota(text []byte) (*corev1.ResourceQuota, error) {
	quota, err := wire.Decode[corev1.ResourceQuota](text)
	if err == nil {
		quota.Namespace = cmp.Or(quota.Namespace, metav1.NamespaceDefault)
	}
	return quota, err
}

func (r *decoder) pod(text []byte, at string) error {
	pod, err := wire.Decode[corev1.Pod](text)
	if err != nil {
		return fmt.Errorf("%s: Pod: %w", at, plain(err))
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if pod.Name == "" {
		if pod.GenerateName == "" {
			return fmt.Errorf("%s: a Pod without a name", at)
		}
		// What the API server would do, but the same at every run.
		pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, len(r.objects.Pods)+1)
	}
	if err := settle(pod); err != nil {
		return err
	}
	r.objects.Pods = append(r.objects.Pods, pod)
	return r.once("Pod", pod.Namespace+"/"+pod.Name, at)
}

// settle sets what the API server would, and drops what is not read.
func settle(pod *corev1.Pod) error {
	defaultCPU(pod.Spec.Containers)
	defaultCPU(pod.Spec.InitContainers)
	_, err := request.Trim(pod)
	return err
}

// defaultCPU sets the CPU request that the API server derives from a limit.
func defaultCPU(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		limit, limited := r.Limits[corev1.ResourceCPU]
		if _, ok := r.Requests[corev1.ResourceCPU]; ok || !limited {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[corev1.ResourceCPU] = limit
	}
}

func (r *decoder) device(text []byte, name, at string) error {
	r.objects.Devices[name] = deviceOf(wire.DecodeDevice(text))
	return r.once("Device", name, at)
}

// deviceOf returns what was decoded. A Device that can't be is an error of its
// node, not of the reader.
func deviceOf(device *v1alpha1.Device, err error) Device {
	if err != nil {
		return Device{Err: fmt.Errorf("the Device can't be decoded: %w", plain(err))}
	}
	return Device{Device: device}
}

// DecodeDevice decodes a Device as the dynamic client returns it, or returns why
// it can't be decoded.
func DecodeDevice(u *unstructured.Unstructured) Device { return deviceOf(wire.DeviceOf(u)) }
