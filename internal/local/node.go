package local

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// What a simulated node has in addition to cards.
const (
	nodeCPUs   = "128"
	nodeMemory = "1Ti"
	nodePods   = "256"
)

// NodeOf returns the Node object of a simulated node with the cards of the profile.
func NodeOf(p *discover.Profile, name string, t *gpu.Topology) *corev1.Node {
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
				// A kubelet sets the old names too; else a controller adds them later.
				"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
				wire.LabelSimulated: "true",
			},
			Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak},
		},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: maps.Clone(resources),
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "simulated", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// AdvertisedNode returns the Node object of a simulated node with what the
// manager would add, for clusters without one.
func AdvertisedNode(p *discover.Profile, name string, t *gpu.Topology) *corev1.Node {
	node := NodeOf(p, name, t)
	memory := gpu.MiB(0)
	for c := range t.Healthy().All() {
		memory += t.Card(c).Memory
	}
	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		maps.Copy(list, wire.AdvertisedAmounts(t.Healthy().Len(), memory))
	}
	node.Labels[wire.LabelVendor], node.Labels[wire.LabelModel], node.Labels[wire.LabelDriver] = wire.VendorMetaX, p.Model, p.Driver
	return node
}
