package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Device lists the cards of the node that carries the same name. The agent of
// that node writes it (Daybreak's, or koordlet where Koordinator runs) and is
// its only writer; schedulers and managers read it.
//
// Status is not a subresource, as in Koordinator's definition: one update
// writes the whole object.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Vendor",type=string,JSONPath=`.metadata.labels.node\.koordinator\.sh/gpu-vendor`,description="Maker of the node's cards."
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.metadata.labels.node\.koordinator\.sh/gpu-model`,description="The commonest model among the node's cards."
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.metadata.labels.node\.koordinator\.sh/gpu-driver-version`,description="Version of the node's card driver."
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.metadata.annotations.daybreak-gpu\.io/mode`,description="How the node serves its cards: native, sgpu, shared or vgpu."
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Device struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the inventory. In spite of its name it is observed, not desired.
	Spec DeviceSpec `json:"spec,omitempty"`
	// Status is Koordinator's; Daybreak neither writes nor reads it.
	Status DeviceStatus `json:"status,omitempty"`
}

// DeviceSpec is the inventory of one node.
type DeviceSpec struct {
	// Devices are the node's devices in any order. Other types than gpu may
	// stand between the cards; readers skip what they do not serve.
	Devices []DeviceInfo `json:"devices,omitempty"`
}

// DeviceType says what kind of hardware an entry is. The schema has no list of
// values, so a reader must expect types that are not named here.
type DeviceType string

// The types in use today; MetaX cards are DeviceTypeGPU.
const (
	DeviceTypeGPU  DeviceType = "gpu"
	DeviceTypeRDMA DeviceType = "rdma"
	DeviceTypeFPGA DeviceType = "fpga"
	DeviceTypeXPU  DeviceType = "xpu"
)

// DeviceInfo is one physical device: for MetaX, one card.
type DeviceInfo struct {
	// Type is the kind of hardware; gpu for a MetaX card.
	Type DeviceType `json:"type,omitempty"`

	// Labels are properties without a field of their own, such as the card's
	// model, link zone and PCIe switch. Written by the agent, read by the
	// scheduler; Koordinator's device selectors match on them.
	Labels map[string]string `json:"labels,omitempty"`

	// UUID is the card's identity, as the driver reports it. Allocations name
	// cards by it, so it must not change while the card is in the node.
	UUID string `json:"id,omitempty"`

	// Minor numbers the node's devices of one type from 0. Cards are indexed in
	// this order everywhere; Koordinator's allocations name cards by it.
	Minor *int32 `json:"minor,omitempty"`

	// ModuleID is the number of the module on its board. Koordinator's
	// partition tables use it; nothing in Daybreak depends on it.
	ModuleID *int32 `json:"moduleID,omitempty"`

	// Health is the agent's verdict: a card that is not healthy gets no new
	// pods and leaves the node's allocatable resources. Conditions have the reason.
	// +kubebuilder:default=false
	Health bool `json:"health"`

	// Resources are the card's totals, used or not: compute
	// (koordinator.sh/gpu-core) and memory ratio (gpu-memory-ratio) in percent,
	// 100 for a whole card, and memory (gpu-memory) in bytes. The manager sums
	// those of healthy cards into the node's resources.
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// Topology is where the card sits in the machine. Written by the agent, read
	// by the scheduler to keep cards that work together close.
	Topology *DeviceTopology `json:"topology,omitempty"`

	// VFGroups are the virtual functions a device was split into. Koordinator
	// fills them for RDMA; MetaX cards have none here.
	VFGroups []VirtualFunctionGroup `json:"vfGroups,omitempty"`

	// Conditions carry the reason for Health, in the condition of type Healthy,
	// and whatever else the agent has to say about the card; readers ignore
	// types they do not know. A reason must be one word: the API server rejects
	// the whole Device for a space in it. The list has no merge key, as in
	// Koordinator's definition: an update replaces it.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeviceTopology is where a device sits in the machine.
type DeviceTopology struct {
	// SocketID is the CPU socket; -1 when the agent does not know it.
	SocketID int32 `json:"socketID"`
	// NodeID is the NUMA node, numbered across all sockets; -1 when the machine
	// does not say.
	NodeID int32 `json:"nodeID"`
	// PCIEID is the PCIe root or switch above the device (pci0000:3a); devices
	// with the same value are neighbours on PCIe.
	PCIEID string `json:"pcieID"`
	// BusID is the PCI address, domain:bus:device.function (0000:38:00.0).
	BusID string `json:"busID,omitempty"`
}

// VirtualFunctionGroup is a set of virtual functions with common properties.
type VirtualFunctionGroup struct {
	// Labels are what Koordinator's selectors for virtual functions match on.
	Labels map[string]string `json:"labels,omitempty"`
	// VFs are the group's virtual functions.
	VFs []VirtualFunction `json:"vfs,omitempty"`
}

// VirtualFunction is one SR-IOV function of a device.
type VirtualFunction struct {
	// Minor numbers the functions of one device from 0.
	Minor int32 `json:"minor"`
	// BusID is the function's own PCI address.
	BusID string `json:"busID,omitempty"`
}

// DeviceStatus is kept so that an update by Daybreak never drops what another
// writer put there. Who holds which card is read from the pods, never from here.
type DeviceStatus struct {
	// Allocations are grouped by type of device.
	Allocations []DeviceAllocation `json:"allocations,omitempty"`
}

// DeviceAllocation lists the holders of one type of device.
type DeviceAllocation struct {
	// Type is the type of the devices held.
	Type DeviceType `json:"type,omitempty"`
	// Entries are the holders.
	Entries []DeviceAllocationItem `json:"entries,omitempty"`
}

// DeviceAllocationItem is one pod and the devices it holds.
type DeviceAllocationItem struct {
	// Name is the pod's name.
	Name string `json:"name,omitempty"`
	// Namespace is the pod's namespace.
	Namespace string `json:"namespace,omitempty"`
	// UUID belongs with Name and Namespace: it is the pod's UID, not a card's.
	UUID string `json:"uuid,omitempty"`
	// Minors are the devices, by their Minor.
	Minors []int32 `json:"minors,omitempty"`
}
