package wire

import corev1 "k8s.io/api/core/v1"

// Resources that containers ask for.
const (
	// ResourceGPU is a number of whole cards.
	ResourceGPU corev1.ResourceName = "metax-tech.com/gpu"
	// ResourceSGPU is a number of cards to take a share of.
	ResourceSGPU corev1.ResourceName = "metax-tech.com/sgpu"
	// ResourceVCore and ResourceVMemory are the amounts of each share.
	ResourceVCore   corev1.ResourceName = "metax-tech.com/vcore"
	ResourceVMemory corev1.ResourceName = "metax-tech.com/vmemory"

	// KoordGPU is compute and memory in percent, in one.
	KoordGPU corev1.ResourceName = "koordinator.sh/gpu"
	// KoordShared is a number of cards; the amounts below are divided by it.
	KoordShared      corev1.ResourceName = "koordinator.sh/gpu.shared"
	KoordCore        corev1.ResourceName = "koordinator.sh/gpu-core"
	KoordMemory      corev1.ResourceName = "koordinator.sh/gpu-memory"
	KoordMemoryRatio corev1.ResourceName = "koordinator.sh/gpu-memory-ratio"
)

// Annotations that users write on pods.
const (
	AnnotationQoS           = "metax-tech.com/sgpu-qos-policy"
	AnnotationClass         = "metax-tech.com/sgpu-app-class"
	AnnotationTopologyAware = "metax-tech.com/sgpu-topology-aware"
	AnnotationUseCards      = "metax-tech.com/use-gpuuuid"
	AnnotationNoUseCards    = "metax-tech.com/nouse-gpuuuid"
	AnnotationNodePolicy    = "hami.io/node-scheduler-policy"
	AnnotationCardPolicy    = "hami.io/gpu-scheduler-policy"
	AnnotationWeights       = "hami.io/device-scoring-weights"
)

// AskAnnotations lists the annotations that change what a pod asks for.
func AskAnnotations() []string {
	return []string{
		AnnotationQoS, AnnotationClass, AnnotationTopologyAware, AnnotationUseCards, AnnotationNoUseCards,
		AnnotationNodePolicy, AnnotationCardPolicy,
	}
}

// Annotations that a scheduler writes on pods.
const (
	// AnnotationAllocated is the vendor's: what its plugin hands out.
	AnnotationAllocated = "metax-tech.com/gpu-devices-allocated"
	// AnnotationPredicateTime is when that was decided, in Unix nanoseconds.
	AnnotationPredicateTime = "metax-tech.com/predicate-time"
	// AnnotationHAMiNode and the two below are read by HAMi's tools.
	AnnotationHAMiNode = "hami.io/vgpu-node"
	AnnotationHAMiSGPU = "hami.io/metax-sgpu-devices-allocated"
	AnnotationHAMiGPU  = "hami.io/metax-gpu-devices-allocated"
	// AnnotationKoordAllocated is read by Koordinator's tools.
	AnnotationKoordAllocated = "scheduling.koordinator.sh/device-allocated"
)

// Annotations and labels of nodes and Devices.
const (
	// AnnotationNodeCards is the vendor's inventory of a node.
	AnnotationNodeCards = "metax-tech.com/node-gpu-devices"
	// AnnotationScores and AnnotationLosses are the vendor's figures for n
	// whole cards of those free on the node.
	AnnotationScores = "metax-tech.com/gpu.topology.scores"
	AnnotationLosses = "metax-tech.com/gpu.topology.losses"
	// LabelProduct is the vendor's name of a node's card model.
	LabelProduct = "metax-tech.com/gpu.product"

	// AnnotationLock on a Node names the one pod that the vendor's plugin is to
	// serve next; see [Lock].
	AnnotationLock = "hami.io/mutex.lock"

	// AnnotationServedBy on a Node says whose device plugin serves it.
	AnnotationServedBy = "daybreak-gpu.io/served-by"
	ServedByDaybreak   = "daybreak"
	ServedByVendor     = "vendor"
	// AnnotationAdvertised marks a Node that the manager makes advertise its
	// cards; it lists the labels that the manager put there.
	AnnotationAdvertised = "daybreak-gpu.io/advertised"
	// AnnotationMode and AnnotationLinks are on a Device.
	AnnotationMode  = "daybreak-gpu.io/mode"
	AnnotationLinks = "daybreak-gpu.io/links"
	// AnnotationModePending, on a Device, is the mode that was asked for and
	// waits for pods to end.
	AnnotationModePending = "daybreak-gpu.io/mode-pending"
	// AnnotationStrangers, on a Device, is what slices that Daybreak did not make
	// take of the cards.
	AnnotationStrangers = "daybreak-gpu.io/foreign-slices"
	// AnnotationForget and AnnotationRepaired are an operator's words on a
	// Device, each a list of UUIDs: cards that were taken out of the machine for
	// good, and cards whose latched fault was seen to.
	AnnotationForget   = "daybreak-gpu.io/forget-card"
	AnnotationRepaired = "daybreak-gpu.io/card-repaired"
	// LabelLinkZone and LabelPCIeSwitch are on a Device's single cards.
	LabelLinkZone   = "daybreak-gpu.io/link-zone"
	LabelPCIeSwitch = "daybreak-gpu.io/pcie-switch"
	// LabelErrors, on a single card, counts the uncorrectable memory errors that
	// were acted upon, so that an agent that starts anew sees an increase.
	LabelErrors = "daybreak-gpu.io/uncorrectable-errors"

	// LabelVendor, LabelModel and LabelDriver are on a Device and its Node; the
	// model also on the single cards.
	LabelVendor = "node.koordinator.sh/gpu-vendor"
	LabelModel  = "node.koordinator.sh/gpu-model"
	LabelDriver = "node.koordinator.sh/gpu-driver-version"
	VendorMetaX = "metax"
)

// Conditions of a Device's single cards. Healthy is always there; the others
// only while there is something to tell.
const (
	ConditionHealthy     = "Healthy"
	ConditionLinked      = "Linked"
	ConditionSlices      = "SlicesSupported"
	ConditionModePending = "ModePending"
	// ConditionServing is alike on all cards: whether the agent hands them out
	// now. It is missing where someone else does.
	ConditionServing = "Serving"
)

// ModesConfigMap is the vendor's ConfigMap with the modes of the nodes.
const ModesConfigMap = "metax-device-config"

// HAMi's words for the two kinds of share.
const (
	hamiSGPU = "Metax-SGPU"
	hamiGPU  = "Metax-GPU"
)
