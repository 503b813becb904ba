package inventory

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// VendorPlugin matches the pods of the vendor's device plugin and of Daybreak itself. The
// zero value knows the plugin's by their DaemonSet's name, gpu-device or one that ends in
// -gpu-device, as the vendor's operator has it; otherwise it is a label selector.
// It is the value of a flag.
//
// Pods count in their own namespace only: names and labels prove nothing, since
// any user may create a pod that has them.
type VendorPlugin struct {
	selector labels.Selector
	// Namespace is that of the vendor's operator; empty means [wire.VendorNamespace].
	Namespace string
	// Daybreak is Daybreak's own namespace; empty means [wire.Namespace].
	Daybreak string
}

// Set reads a label selector; empty is the zero value.
func (v *VendorPlugin) Set(text string) error {
	v.selector = nil
	if strings.TrimSpace(text) == "" {
		return nil
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return fmt.Errorf("%.80q is no label selector such as app=gpu-device: %w", text, err)
	}
	v.selector = selector
	return nil
}

// String returns the label selector.
func (v *VendorPlugin) String() string {
	if v.selector == nil {
		return ""
	}
	return v.selector.String()
}

// Type returns what a value is called in the help of a command.
func (*VendorPlugin) Type() string { return "SELECTOR" }

// runs reports whether the pod is the plugin's, and runs.
func (v *VendorPlugin) runs(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && v.Owns(pod)
}

// Owns reports whether the pod is the plugin's, whether it runs or not.
func (v *VendorPlugin) Owns(pod *corev1.Pod) bool {
	return pod.Namespace == cmp.Or(v.Namespace, wire.VendorNamespace) && v.Resembles(pod)
}

// Resembles reports whether the pod is like one of the plugin, whatever its
// namespace: that may be a wrong setting.
func (v *VendorPlugin) Resembles(pod *corev1.Pod) bool {
	if v.selector != nil {
		return v.selector.Matches(labels.Set(pod.Labels))
	}
	// The controller of a DaemonSet names pods after it.
	return pod.GenerateName == "gpu-device-" || strings.HasSuffix(pod.GenerateName, "-gpu-device-")
}

// IsComponent reports whether the pod is one of that component of Daybreak, such as
// agent or scheduler.
func (v *VendorPlugin) IsComponent(pod *corev1.Pod, name string) bool {
	return pod.Namespace == cmp.Or(v.Daybreak, wire.Namespace) && wire.IsComponent(pod, name)
}

// isAgent reports whether the pod is Daybreak's agent and bound.
func (v *VendorPlugin) isAgent(pod *corev1.Pod) bool {
	return wire.Holds(pod) && v.IsComponent(pod, "agent")
}

// ServesNode reports whether the pod is a device plugin that serves its node, see
// [VendorPlugin.Serves].
func (v *VendorPlugin) ServesNode(pod *corev1.Pod) bool { return v.runs(pod) || v.isAgent(pod) }

// Serves reports whether the vendor's plugin serves a node that has no Device,
// where the pods are those on the node. The node's annotation decides. Without
// it kubelet must have cards to hand out, and either the plugin runs there, or it
// has described the cards and no agent of Daybreak, which may describe them too,
// is on the node. Labels prove nothing: kubelet brings them back with the
// node.
func (v *VendorPlugin) Serves(node *corev1.Node, pods iter.Seq[*corev1.Pod]) bool {
	switch node.Annotations[wire.AnnotationServedBy] {
	case wire.ServedByVendor:
		return true
	case wire.ServedByDaybreak:
		return false
	}
	if !handsOut(node) {
		return false
	}
	described := false
	for _, key := range []string{wire.AnnotationNodeCards, wire.AnnotationScores, wire.AnnotationLosses} {
		_, ok := node.Annotations[key]
		described = described || ok
	}
	for pod := range pods {
		if v.runs(pod) {
			return true
		}
		described = described && !v.isAgent(pod)
	}
	return described
}

// handsOut reports whether kubelet has cards or slices to hand out. A node
// without allocatable resources, which the API server would fill in, is one that
// was written by hand.
func handsOut(node *corev1.Node) bool {
	list := node.Status.Allocatable
	if list == nil {
		list = node.Status.Capacity
	}
	for _, name := range wire.DeviceResources() {
		if q := list[name]; q.Sign() > 0 {
			return true
		}
	}
	return false
}

// NodeObjects is what the API server has of a node that its inventory is read
// from.
type NodeObjects struct {
	Name string
	// Node may be nil where there is a Device.
	Node *corev1.Node
	// Device is nil where there is none, or where Err says why it can't be
	// decoded.
	Device *v1alpha1.Device
	Err    error
	// Vendor reports whether the vendor's plugin serves the node if it has no Device,
	// see [VendorPlugin.Serves].
	Vendor bool
}

// Inventory reads the node's cards. A node that Daybreak's agent serves has a
// Device: while that is missing, what else the node says of its cards may be out
// of date, so it has none. Where it is not known who serves a node without a
// Device, it keeps its cards and takes no pods: that is also what a node of
// Daybreak's agent looks like when it was deleted and comes back, before the
// agent has noticed, and a pod that is bound without cards of its own never
// starts there.
func (o *NodeObjects) Inventory() *Inventory {
	none := &Inventory{Name: o.Name, ServedBy: wire.ServedByVendor, Problem: o.Err}
	switch {
	case o.Err != nil:
		return none
	case o.Node == nil || o.Device != nil && DescribesCards(o.Device) || o.Vendor:
		return ReadInventory(o.Node, o.Device)
	case o.Node.Annotations[wire.AnnotationServedBy] == wire.ServedByDaybreak:
		return none
	}
	inv := ReadInventory(o.Node, nil)
	if inv.Topology == nil { // there are none, or they can't be read
		return none
	}
	inv.Paused = "nothing shows that the vendor's plugin serves it; if it does, set vendorOperator.namespace to the namespace of its pods, or annotate the node with " + wire.AnnotationServedBy + "=" + wire.ServedByVendor
	if !handsOut(o.Node) {
		inv.Paused = fmt.Sprintf("kubelet has no %s or %s to allocate", wire.ResourceGPU, wire.ResourceSGPU)
	}
	return inv
}

// UsesLock reports whether slices on the node are given out under its lock:
// everywhere but where Daybreak's own agent serves.
func UsesLock(node *corev1.Node) bool {
	return node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak
}

// ServesSlices reports whether the node has MetaX slices to give out. The lock's
// key is HAMi's for cards of all vendors: elsewhere it does not concern us.
func ServesSlices(node *corev1.Node) bool {
	_, listed := node.Annotations[wire.AnnotationNodeCards]
	return listed || quantity(node, wire.ResourceSGPU) > 0
}
