package wire

import corev1 "k8s.io/api/core/v1"

// Every name that stands in an API object is here or in the table of resources.
// docs/reference is made from these comments: a line that begins with "On:",
// "Written by:", "Read by:" or "Format:" fills a column of its table, the rest
// says what it means.

// Annotations that users write on pods.
const (
	// AnnotationQoS is the QoS class of the pod's slices. A card runs one class
	// at a time. It can't be changed once the pod is bound.
	// On: Pod.
	// Written by: users; manager, where it is missing.
	// Read by: scheduler, agent, the vendor's plugin.
	// Format: `best-effort` (the default), `fixed-share` or `burst-share`.
	AnnotationQoS = "metax-tech.com/sgpu-qos-policy"
	// AnnotationClass is the class of the pod: online pods come before offline
	// ones on the card that they share.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler, agent, the vendor's plugin.
	// Format: `online` or `offline`.
	AnnotationClass = "metax-tech.com/sgpu-app-class"
	// AnnotationTopologyAware turns the choice by links off for a pod that takes
	// several cards alone.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler.
	// Format: `true` (the default) or `false`.
	AnnotationTopologyAware = "metax-tech.com/sgpu-topology-aware"
	// AnnotationUseCards are the only cards that the pod may get.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler.
	// Format: UUIDs with commas between; empty is no limit.
	AnnotationUseCards = "metax-tech.com/use-gpuuuid"
	// AnnotationNoUseCards are cards that the pod must not get.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler.
	// Format: UUIDs with commas between.
	AnnotationNoUseCards = "metax-tech.com/nouse-gpuuuid"
	// AnnotationNodePolicy is how a node is chosen, and the cards of a request
	// for whole cards.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler.
	// Format: `binpack` or `spread`.
	AnnotationNodePolicy = "hami.io/node-scheduler-policy"
	// AnnotationCardPolicy is how the card of a slice is chosen on its node.
	// On: Pod.
	// Written by: users.
	// Read by: scheduler.
	// Format: `binpack`, `spread`, `numa`, `mutex`, or several with commas between; `topology-aware` is accepted and has no effect.
	AnnotationCardPolicy = "hami.io/gpu-scheduler-policy"
	// AnnotationWeights has no effect here: slots, compute and memory weigh the
	// same. The pod is admitted with a warning.
	// On: Pod.
	// Written by: users of HAMi.
	// Read by: none.
	// Format: `slot=1,core=1,memory=1`.
	AnnotationWeights = "hami.io/device-scoring-weights"
	// AnnotationKoordHint has no effect here: links and harm to later pods decide.
	// The pod is admitted with a warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	AnnotationKoordHint = "scheduling.koordinator.sh/device-allocate-hint"
	// AnnotationKoordJoint has no effect here: only cards are placed. The pod is
	// admitted with a warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	AnnotationKoordJoint = "scheduling.koordinator.sh/device-joint-allocate"
	// AnnotationKoordPartition has no effect here: the best set of cards is found,
	// not looked up in a table. The pod is admitted with a warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	AnnotationKoordPartition = "scheduling.koordinator.sh/gpu-partition-spec"
	// AnnotationKoordReservation is not supported yet. The pod is admitted with a
	// warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	AnnotationKoordReservation = "scheduling.koordinator.sh/reservation-affinity"
	// AnnotationKoordResources is not supported yet. The pod is admitted with a
	// warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	AnnotationKoordResources = "scheduling.koordinator.sh/resource-spec"
	// PrefixKoordGang begins the annotations of gangs, which are not supported yet:
	// each pod is placed by itself. The pod is admitted with a warning.
	// On: Pod.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	PrefixKoordGang = "gang.scheduling.koordinator.sh/"
	// AnnotationRunTime is how long the pod's containers run on a simulated node
	// before they end with exit code 0; without it a container whose command is
	// `sleep` ends after that time, and any other runs on. Real nodes ignore it.
	// On: Pod.
	// Written by: users of a playground.
	// Read by: playground.
	// Format: a duration such as `90s`, `5m` or `1h30m`.
	AnnotationRunTime = "daybreak-gpu.io/simulated-run-time"
)

// AskAnnotations lists the annotations that change what a pod asks for. Policies
// freeze them once the pod is bound.
func AskAnnotations() []string {
	return []string{
		AnnotationQoS, AnnotationClass, AnnotationTopologyAware, AnnotationUseCards, AnnotationNoUseCards,
		AnnotationNodePolicy, AnnotationCardPolicy,
	}
}

// AnnotationPrefixes lists the beginnings of annotations that pods with cards have
// for Daybreak, HAMi's or Koordinator's scheduler.
func AnnotationPrefixes() []string {
	return []string{"metax-tech.com/", "hami.io/", "koordinator.sh/gpu", "scheduling.koordinator.sh/", PrefixKoordGang}
}

// What a scheduler writes on pods.
const (
	// AnnotationAllocated is which cards, and how much of each, every container
	// of the pod was given. It is the vendor's, and the one that everybody reads.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: scheduler, manager, agent, the vendor's plugin.
	// Format: JSON, a list of cards for each container, init containers first: `[[{"uuid":"GPU-…","compute":60,"vRam":4096}]]`, in percent and MiB.
	AnnotationAllocated = "metax-tech.com/gpu-devices-allocated"
	// AnnotationPredicateTime is when that was decided. Of two pods on one card
	// the earlier keeps it.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: agent, manager, the vendor's plugin.
	// Format: nanoseconds since 1970.
	AnnotationPredicateTime = "metax-tech.com/predicate-time"
	// AnnotationHAMiNode is the node that the allocation was made for.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: scheduler, manager, agent; HAMi's web page and exporter.
	// Format: name of the node.
	AnnotationHAMiNode = "hami.io/vgpu-node"
	// AnnotationHAMiSGPU is the allocation of slices for HAMi's readers.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: HAMi's web page and exporter; scheduler and manager, in addition to the vendor's.
	// Format: `UUID,Metax-SGPU,MiB,percent:` for each card, `;` after each container, init containers first.
	AnnotationHAMiSGPU = "hami.io/metax-sgpu-devices-allocated"
	// AnnotationHAMiGPU is the allocation of whole cards for HAMi's readers.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: HAMi's web page and exporter; scheduler and manager, in addition to the vendor's.
	// Format: as above with `Metax-GPU`.
	AnnotationHAMiGPU = "hami.io/metax-gpu-devices-allocated"
	// AnnotationKoordAllocated is the allocation for Koordinator's readers, on
	// pods that ask in its words.
	// On: Pod.
	// Written by: scheduler, in the Binding.
	// Read by: Koordinator's tools; scheduler and manager, in addition to the vendor's.
	// Format: JSON, `{"gpu":[{"minor":0,"resources":{…},"id":"GPU-…"}]}`.
	AnnotationKoordAllocated = "scheduling.koordinator.sh/device-allocated"
	// ConditionTerm is how a new leader makes sure that no decision of an old one
	// is still under way: it touches each pending pod. A scheduler process never
	// binds a pod that another one touched after it.
	// On: pending Pod, as a condition.
	// Written by: scheduler.
	// Read by: scheduler.
	// Format: a condition whose message begins with the identity of the scheduler process.
	ConditionTerm corev1.PodConditionType = "daybreak-gpu.io/Term"
)

// Annotations and labels of nodes and namespaces.
const (
	// AnnotationNodeCards is the vendor's inventory of a node. Where there is a
	// Device, link zone and QoS are taken from here and the rest from there.
	// On: Node.
	// Written by: the vendor's plugin; agent, where that does not run.
	// Read by: scheduler, manager; HAMi.
	// Format: JSON, a list of cards: `[{"uuid":"GPU-…","model":"MXC500","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"numa":0,"healthy":true,"qosPolicy":"best-effort","linkZone":1}]`.
	AnnotationNodeCards = "metax-tech.com/node-gpu-devices"
	// AnnotationScores is what the best set of n cards is worth, of those that
	// are free.
	// On: Node.
	// Written by: the vendor's plugin; agent with `--topology-annotations`.
	// Read by: scheduler, on nodes whose cards are only counted; HAMi.
	// Format: JSON, `{"1":0,"2":110,…}`.
	AnnotationScores = "metax-tech.com/gpu.topology.scores"
	// AnnotationLosses is what those that stay free lose by it.
	// On: Node.
	// Written by: the vendor's plugin; agent with `--topology-annotations`.
	// Read by: scheduler, on nodes whose cards are only counted; HAMi.
	// Format: JSON, `{"1":0,"2":110,…}`.
	AnnotationLosses = "metax-tech.com/gpu.topology.losses"
	// LabelProduct is the vendor's name of the node's card model.
	// On: Node.
	// Written by: the vendor's operator.
	// Read by: scheduler, where no Device has the model.
	// Format: such as `MXC500`.
	LabelProduct = "metax-tech.com/gpu.product"

	// AnnotationLock names the one pod that the vendor's plugin is to serve next.
	// Nodes that Daybreak's agent serves have none.
	// On: Node.
	// Written by: scheduler, HAMi, Koordinator; the vendor's plugin takes it off.
	// Read by: scheduler, manager, the vendor's plugin.
	// Format: `RFC 3339 time,namespace,pod`.
	AnnotationLock = "hami.io/mutex.lock"

	// AnnotationServedBy says whose device plugin serves the node. Without it the
	// vendor's does if the node has a Device, or if what else is known of the node
	// shows it. An administrator who removes vendor gives the node to the agent.
	// On: Node.
	// Written by: agent; administrators.
	// Read by: scheduler, manager, agent.
	// Format: `daybreak` or `vendor`.
	AnnotationServedBy = "daybreak-gpu.io/served-by"
	// AnnotationAdvertised marks a node that the manager makes advertise its
	// cards; it lists the labels that the manager put there.
	// On: Node.
	// Written by: manager.
	// Read by: manager.
	// Format: labels with commas between.
	AnnotationAdvertised = "daybreak-gpu.io/advertised"
	// LabelSimulated marks the nodes of a playground.
	// On: Node.
	// Written by: playground.
	// Read by: users, as a selector.
	// Format: `true`.
	LabelSimulated = "daybreak-gpu.io/simulated"
	// LabelPrivileged lets privileged containers of the namespace's pods have
	// cards.
	// On: Namespace.
	// Written by: administrators.
	// Read by: the API server, which asks the manager accordingly.
	// Format: `true`.
	LabelPrivileged = "daybreak-gpu.io/allow-privileged"
	// LabelAdmitted marks pods with cards that the manager's webhook has admitted.
	// Webhooks of API servers below 1.28 select pods by it, so it stays as long as
	// the pod.
	// On: Pod.
	// Written by: manager.
	// Read by: the API server, which asks the manager about these pods.
	// Format: `true`.
	LabelAdmitted = "daybreak-gpu.io/admitted"
)

// AgentAnnotations lists the annotations that an agent may keep on its Node.
func AgentAnnotations() []string {
	return []string{AnnotationNodeCards, AnnotationScores, AnnotationLosses, AnnotationServedBy}
}

// AdvertisedLabels lists the labels that the manager puts on a node alongside.
func AdvertisedLabels() []string { return []string{LabelVendor, LabelModel, LabelDriver} }

// Names under which Daybreak's parts write Events and objects.
const (
	AgentComponent   = "daybreak-agent"
	ManagerComponent = "daybreak-manager"
)

// Values of [AnnotationServedBy].
const (
	ServedByDaybreak = "daybreak"
	ServedByVendor   = "vendor"
)

// Annotations and labels of Devices.
const (
	// AnnotationMode is how the node hands out its cards: whole, in slices, by
	// seats, or as virtual functions.
	// On: Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: `native`, `sgpu`, `shared` or `vgpu`.
	AnnotationMode = "daybreak-gpu.io/mode"
	// AnnotationModePending is the mode that was asked for and waits for pods to
	// end.
	// On: Device.
	// Written by: agent.
	// Read by: agent.
	// Format: as the mode.
	AnnotationModePending = "daybreak-gpu.io/mode-pending"
	// AnnotationLinks is which pairs of cards have a MetaXLink that works.
	// On: Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: JSON, the cards and a row of the matrix for each, `M` for a link and `.` for none: `{"cards":["GPU-a","GPU-b"],"links":["-M","M-"]}`.
	AnnotationLinks = "daybreak-gpu.io/links"
	// AnnotationForeignSlices is what slices that Daybreak did not make take of the
	// cards. They count as used.
	// On: Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: JSON, `[{"card":"GPU-…","slices":1,"compute":50,"memoryMiB":8192,"qosPolicy":"best-effort"}]`.
	AnnotationForeignSlices = "daybreak-gpu.io/foreign-slices"
	// AnnotationPluginAllocations is which cards kubelet gave to pods without an allocation.
	// Where Daybreak serves the node, a pod without an allocation that is not in
	// the list holds no cards.
	// On: Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: JSON, `[{"uid":"…","pod":"ns/name","containers":{"c":["GPU-…"]}}]`; pods are known by UID, and a container without cards has some whose names are not known.
	AnnotationPluginAllocations = "daybreak-gpu.io/given-cards"
	// AnnotationForget are cards that were taken out of the machine for good. The
	// agent drops them from the Device once no pod names them, and takes the
	// annotation off.
	// On: Device.
	// Written by: administrators.
	// Read by: agent.
	// Format: UUIDs with commas between.
	AnnotationForget = "daybreak-gpu.io/forget-card"
	// AnnotationRepaired are cards whose latched fault was seen to. The agent
	// judges them again, and takes the annotation off.
	// On: Device.
	// Written by: administrators.
	// Read by: agent.
	// Format: UUIDs with commas between.
	AnnotationRepaired = "daybreak-gpu.io/card-repaired"
	// LabelLinkZone is the card's zone: cards of one zone are joined by MetaXLink.
	// On: card of a Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: a number from 1; 0 is no link.
	LabelLinkZone = "daybreak-gpu.io/link-zone"
	// LabelPCIeSwitch is the PCIe switch that the card hangs on.
	// On: card of a Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	// Format: the switch's PCI address.
	LabelPCIeSwitch = "daybreak-gpu.io/pcie-switch"
	// LabelErrors counts the uncorrectable memory errors that were acted upon, so
	// that an agent that restarts sees an increase.
	// On: card of a Device.
	// Written by: agent.
	// Read by: agent.
	// Format: a number.
	LabelErrors = "daybreak-gpu.io/uncorrectable-errors"

	// LabelVendor is the vendor of the cards.
	// On: Device and Node.
	// Written by: agent on the Device; manager on the Node.
	// Read by: scheduler, manager; Koordinator.
	// Format: `metax`.
	LabelVendor = "node.koordinator.sh/gpu-vendor"
	// LabelModel is the chip's name without MX; on Device and Node the commonest.
	// On: Device and each of its cards, and Node.
	// Written by: agent on the Device; manager on the Node.
	// Read by: scheduler, manager; Koordinator.
	// Format: such as `C500`.
	LabelModel = "node.koordinator.sh/gpu-model"
	// LabelDriver is the version of the driver.
	// On: Device and Node.
	// Written by: agent on the Device; manager on the Node.
	// Read by: manager; Koordinator.
	// Format: such as `2.33.5`.
	LabelDriver = "node.koordinator.sh/gpu-driver-version"
)

// VendorMetaX is MetaX's value of [LabelVendor].
const VendorMetaX = "metax"

// Conditions of a Device's single cards. Healthy is always there; the others
// only while they apply.
const (
	// ConditionHealthy is whether the card takes pods, with the reason where it
	// does not.
	// On: card of a Device.
	// Written by: agent.
	// Read by: scheduler, manager.
	ConditionHealthy = "Healthy"
	// ConditionLinked is False when a MetaXLink port that was up is down, and
	// Unknown while the links can't be read: then they stay as they were.
	// On: card of a Device.
	// Written by: agent.
	// Read by: people.
	ConditionLinked = "Linked"
	// ConditionSlices is False where slices were asked for and the card can't have
	// any.
	// On: card of a Device.
	// Written by: agent.
	// Read by: people.
	ConditionSlices = "SlicesSupported"
	// ConditionModePending is True while a change of mode waits for pods to end.
	// On: card of a Device.
	// Written by: agent.
	// Read by: people.
	ConditionModePending = "ModePending"
	// ConditionServing is whether the agent hands the cards out now; it is alike
	// on all of them. It is missing where someone else does.
	// On: card of a Device.
	// Written by: agent.
	// Read by: scheduler, which places nothing where it is not True.
	ConditionServing = "Serving"
	// ConditionWaived is True where an administrator has checks of the node waived,
	// with their names and what they found; it is alike on all cards.
	// On: card of a Device.
	// Written by: agent.
	// Read by: people.
	ConditionWaived = "ChecksWaived"
)

// ModesConfigMap is the vendor's ConfigMap with the modes of the nodes.
const ModesConfigMap = "metax-device-config"

// VendorNamespace is where the vendor's operator is usually installed.
const VendorNamespace = "metax-operator"

// KoordinatorManagerLabels returns the labels of the pods of Koordinator's
// manager, as Koordinator's chart has them.
func KoordinatorManagerLabels() map[string]string {
	return map[string]string{"koord-app": "koord-manager"}
}
