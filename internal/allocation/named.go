package allocation

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// NamedShare is a share of a card as an annotation has it.
type NamedShare struct {
	UUID    string
	Compute gpu.Percent
	Memory  gpu.MiB
}

// NamedShares returns what the pod's annotations say that each of its containers
// holds, at face value, for readers that do not know the node. It returns false
// where no annotation with a list for each container can be read.
func NamedShares(pod *corev1.Pod) (shares [][]NamedShare, ok bool) {
	lists, err := decodeVendor(pod.Annotations[wire.AnnotationAllocated])
	if err != nil {
		lists, err = decodeHAMi(pod.Spec.NodeName, pod.Annotations[wire.AnnotationHAMiSGPU], pod.Annotations[wire.AnnotationHAMiGPU])
	}
	if err != nil || len(lists) == 0 {
		return nil, false
	}
	shares = make([][]NamedShare, len(lists))
	for i, list := range lists {
		for _, s := range list {
			shares[i] = append(shares[i], NamedShare{UUID: s.id, Compute: gpu.Percent(s.compute), Memory: s.memory})
		}
	}
	return shares, true
}
