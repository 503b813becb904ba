package allocation

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// NamedShare is a share of a card as an annotation has it, in the words of the
// vendor's, where zeros are left out.
type NamedShare struct {
	UUID    gpu.CardID  `json:"uuid"`
	Compute gpu.Percent `json:"compute,omitempty"`
	Memory  gpu.MiB     `json:"vRam,omitempty"`
}

// NamedShares returns what the pod's annotations say that each of its containers
// holds, at face value, for readers that do not know the node. It returns false
// where no annotation with a list for each container can be read.
func NamedShares(pod *corev1.Pod) (shares [][]NamedShare, ok bool) {
	shares, err := decodeVendor(pod.Annotations[wire.AnnotationAllocated])
	if err != nil {
		shares, err = decodeHAMi(pod.Spec.NodeName, pod.Annotations[wire.AnnotationHAMiSGPU], pod.Annotations[wire.AnnotationHAMiGPU])
	}
	return shares, err == nil && len(shares) > 0
}
