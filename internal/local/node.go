package local

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// What a simulated node has besides cards.
const (
	nodeCPUs   = "128"
	nodeMemory = "1Ti"
	nodePods   = "256"
)

// labelSimulated marks the nodes that a [Simulator] runs.
const labelSimulated = "daybreak-gpu.io/simulated"

// node returns the Node object of a simulated node as its kubelet and agent make
// it: without what the manager adds, see [Profile.advertise].
func (p *Profile) node(name string, t *gpu.Topology) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(nodeCPUs),
		corev1.ResourceMemory: resource.MustParse(nodeMemory),
		corev1.ResourcePods:   resource.MustParse(nodePods),
	}
	healthy := int64(t.Healthy().Len())
	count := func(name corev1.ResourceName, n int64) {
		if n > 0 {
			resources[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	switch p.Mode {
	case gpu.ModeSGPU:
		count(wire.ResourceSGPU, healthy*gpu.MaxSlices)
		count(wire.ResourceGPU, healthy)
	case gpu.ModeShared:
		count(wire.ResourceGPU, healthy*gpu.MaxSlices)
	default:
		count(wire.ResourceGPU, healthy)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				labelSimulated: "true",
			},
			Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak},
		},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: maps.Clone(resources),
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "simulated", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// advertise adds what the manager would, for clusters that run none.
func (p *Profile) advertise(node *corev1.Node, t *gpu.Topology) {
	percent, memory := *resource.NewQuantity(100*int64(t.Healthy().Len()), resource.DecimalSI), gpu.MiB(0)
	for c := range t.Healthy().All() {
		memory += t.Card(c).Memory
	}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		for _, name := range []corev1.ResourceName{wire.KoordShared, wire.KoordCore, wire.KoordMemoryRatio, wire.KoordGPU} {
			list[name] = percent
		}
		list[wire.KoordMemory] = *resource.NewQuantity(int64(memory)<<20, resource.BinarySI)
	}
	node.Labels[wire.LabelVendor], node.Labels[wire.LabelModel], node.Labels[wire.LabelDriver] = wire.VendorMetaX, p.Model, p.Driver
}

// device returns the Device object of a simulated node.
func (p *Profile) device(name string, t *gpu.Topology, owner *corev1.Node) (*v1alpha1.Device, error) {
	links, err := wire.EncodeLinks(t)
	if err != nil {
		return nil, fmt.Errorf("device of %s: %w", name, err)
	}
	d := &v1alpha1.Device{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Device"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{wire.LabelVendor: wire.VendorMetaX, wire.LabelModel: p.Model, wire.LabelDriver: p.Driver},
			Annotations: map[string]string{wire.AnnotationMode: string(p.Mode), wire.AnnotationLinks: links},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID,
			}},
		},
	}
	for i := range t.Len() {
		d.Spec.Devices = append(d.Spec.Devices, deviceInfo(t, i))
	}
	return d, nil
}

func deviceInfo(t *gpu.Topology, i int) v1alpha1.DeviceInfo {
	c := t.Card(i)
	zone, _ := t.ZoneOf(i)
	numa := int32(-1)
	if c.NUMAKnown {
		numa = int32(c.NUMA)
	}
	labels := map[string]string{wire.LabelModel: c.Model, wire.LabelLinkZone: strconv.Itoa(zone)}
	if c.Switch != "" {
		labels[wire.LabelPCIeSwitch] = c.Switch
	}
	condition := metav1.Condition{Type: "Healthy", Status: metav1.ConditionTrue, Reason: "DeviceHealthy", Message: "device is healthy", LastTransitionTime: metav1.Now()}
	if !c.Healthy {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "DeviceUnhealthy", "the profile says so"
	}
	return v1alpha1.DeviceInfo{
		Type: v1alpha1.DeviceTypeGPU, UUID: string(c.ID), Minor: new(int32(c.Minor)), Health: c.Healthy, Labels: labels,
		Resources: corev1.ResourceList{
			wire.KoordCore:        *resource.NewQuantity(100, resource.DecimalSI),
			wire.KoordMemory:      *resource.NewQuantity(int64(c.Memory)<<20, resource.BinarySI),
			wire.KoordMemoryRatio: *resource.NewQuantity(100, resource.DecimalSI),
		},
		Topology: &v1alpha1.DeviceTopology{
			SocketID: -1, NodeID: numa, PCIEID: fmt.Sprintf("pci0000:%02x", 0x10+i), BusID: fmt.Sprintf("0000:%02x:00.0", 0x11+i),
		},
		Conditions: []metav1.Condition{condition},
	}
}
