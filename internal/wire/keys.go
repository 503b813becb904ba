package wire

import corev1 "k8s.io/api/core/v1"

// Every name that stands in an API object is here or in the table of resources.
// docs/reference is made from these comments: a line that begins with "On:",
// "Written by:", "Read by:" or "Format:" fills a column of its table, in the comment of
// a block for all its names that have no such line. The rest says what a name means.

// Pod annotations set by users.
// On: Pod.
// Written by: users.
const (
	// AnnotationQoS is the QoS class of the pod's slices. A card runs one class
	// at a time. It cannot be changed once the pod is bound.
	// Written by: users; manager, if missing.
	// Read by: scheduler, agent, the vendor's plugin.
	// Format: `best-effort` (the default), `fixed-share` or `burst-share`.
	AnnotationQoS = "metax-tech.com/sgpu-qos-policy"
	// AnnotationClass is the class of the pod: online pods have precedence over
	// offline pods on the same card, and count in quotas with all compute of their
	// card. It cannot be changed once the pod has amounts for quotas.
	// Read by: scheduler, agent, the vendor's plugin.
	// Format: `online` or `offline`.
	AnnotationClass = "metax-tech.com/sgpu-app-class"
	// AnnotationTopologyAware turns topology-aware allocation off for a pod with
	// several exclusive cards.
	// Read by: scheduler.
	// Format: `true` (the default) or `false`.
	AnnotationTopologyAware = "metax-tech.com/sgpu-topology-aware"
	// AnnotationUseCards are the only cards that the pod may get. It cannot be changed
	// once the pod has amounts for quotas.
	// Read by: scheduler.
	// Format: comma-separated UUIDs; empty is no limit.
	AnnotationUseCards = "metax-tech.com/use-gpuuuid"
	// AnnotationNoUseCards are cards that the pod must not get. It cannot be changed
	// once the pod has amounts for quotas.
	// Read by: scheduler.
	// Format: comma-separated UUIDs.
	AnnotationNoUseCards = "metax-tech.com/nouse-gpuuuid"
	// AnnotationNodePolicy is how a node is chosen, and the cards of a request
	// for whole cards.
	// Read by: scheduler.
	// Format: `binpack` or `spread`.
	AnnotationNodePolicy = "hami.io/node-scheduler-policy"
	// AnnotationCardPolicy is how the card of a slice is chosen on its node.
	// Read by: scheduler.
	// Format: `binpack`, `spread`, `numa`, `mutex`, or several separated by commas; `topology-aware` is accepted and has no effect.
	AnnotationCardPolicy = "hami.io/gpu-scheduler-policy"
	// PrefixKoordGang is the prefix of gang annotations. Gangs are not supported: each
	// pod is placed individually. The pod is admitted with a warning.
	// Written by: users of Koordinator.
	// Read by: none.
	// Format: Koordinator's.
	PrefixKoordGang = "gang.scheduling.koordinator.sh/"
	// AnnotationRunTime is how long the pod's containers run on a simulated node
	// before they end with exit code 0. Without it, a container with the command
	// `sleep` ends after that time, and others keep running. Real nodes ignore it.
	// Written by: users of a playground.
	// Read by: playground.
	// Format: a duration such as `90s`, `5m` or `1h30m`.
	AnnotationRunTime = "daybreak-gpu.io/simulated-run-time"
)

// Ineffective is a pod annotation that means something to HAMi or Koordinator and
// nothing here. The user gets a warning, since the pod would be placed otherwise there.
type Ineffective struct {
	Key, Of string
	// Instead is what Daybreak does whatever the annotation says.
	Instead string
}

// IneffectiveAnnotations lists them.
func IneffectiveAnnotations() []Ineffective {
	return []Ineffective{
		{"hami.io/device-scoring-weights", "HAMi", "slots, compute and memory weigh the same"},
		{"scheduling.koordinator.sh/device-allocate-hint", "Koordinator", "cards are chosen by their links; to name cards write " + AnnotationUseCards},
		{"scheduling.koordinator.sh/device-joint-allocate", "Koordinator", "cards are placed without looking at other devices"},
		{"scheduling.koordinator.sh/gpu-partition-spec", "Koordinator", "the best-linked set of free cards is always looked for"},
		{"scheduling.koordinator.sh/reservation-affinity", "Koordinator", "reservations are not supported yet"},
		{"scheduling.koordinator.sh/resource-spec", "Koordinator", "the binding of CPUs is not supported yet"},
	}
}

// AskAnnotations lists the annotations that change what a pod asks for. Policies
// freeze them once the pod is bound.
func AskAnnotations() []string {
	return append(CountedAnnotations(), AnnotationQoS, AnnotationTopologyAware, AnnotationNodePolicy, AnnotationCardPolicy)
}

// CountedAnnotations lists those that change what quotas count of the pod. Policies
// freeze them once the pod has the amounts.
func CountedAnnotations() []string {
	return []string{AnnotationClass, AnnotationUseCards, AnnotationNoUseCards}
}

// AnnotationPrefixes lists the beginnings of annotations that pods with cards have
// for Daybreak, HAMi's or Koordinator's scheduler.
func AnnotationPrefixes() []string {
	return []string{"metax-tech.com/", "hami.io/", "koordinator.sh/gpu", "scheduling.koordinator.sh/", PrefixKoordGang}
}

// PodPrefixes lists the beginnings of all annotations that Daybreak reads on pods.
func PodPrefixes() []string {
	return append(AnnotationPrefixes(), "daybreak-gpu.io/", corev1.MirrorPodAnnotationKey)
}

// Pod annotations and conditions set by the scheduler.
// On: Pod.
// Written by: scheduler, in the Binding.
const (
	// AnnotationAllocated is the allocation of the pod: the cards of each container,
	// with the compute and memory of each. It is the vendor's format, which all readers
	// support.
	// Read by: scheduler, manager, agent, the vendor's plugin.
	// Format: JSON, a list of cards for each container, init containers first: `[[{"uuid":"GPU-…","compute":60,"vRam":4096}]]`, in percent and MiB.
	AnnotationAllocated = "metax-tech.com/gpu-devices-allocated"
	// AnnotationPredicateTime is the time of the allocation. If two pods hold one
	// card, the earlier keeps it.
	// Read by: agent, manager, the vendor's plugin.
	// Format: nanoseconds since 1970.
	AnnotationPredicateTime = "metax-tech.com/predicate-time"
	// AnnotationHAMiNode is the node that the allocation was made for.
	// Read by: scheduler, manager, agent; HAMi's web page and exporter.
	// Format: name of the node.
	AnnotationHAMiNode = "hami.io/vgpu-node"
	// AnnotationHAMiSGPU is the allocation of slices in HAMi's format.
	// Read by: HAMi's web page and exporter; scheduler and manager, in addition to the vendor's.
	// Format: `UUID,Metax-SGPU,MiB,percent:` for each card, `;` after each container, init containers first.
	AnnotationHAMiSGPU = "hami.io/metax-sgpu-devices-allocated"
	// AnnotationHAMiGPU is the allocation of whole cards in HAMi's format.
	// Read by: HAMi's web page and exporter; scheduler and manager, in addition to the vendor's.
	// Format: as above with `Metax-GPU`.
	AnnotationHAMiGPU = "hami.io/metax-gpu-devices-allocated"
	// AnnotationKoordAllocated is the allocation in Koordinator's format, on
	// pods with Koordinator's resources.
	// Read by: Koordinator's tools; scheduler and manager, in addition to the vendor's.
	// Format: JSON, `{"gpu":[{"minor":0,"resources":{…},"id":"GPU-…"}]}`.
	AnnotationKoordAllocated = "scheduling.koordinator.sh/device-allocated"
	// ConditionTerm fences an old leader: a new leader writes the condition to
	// each pending pod, and a scheduler process never binds a pod that another process
	// has written after it.
	// On: pending Pod, as a condition.
	// Written by: scheduler.
	// Read by: scheduler.
	// Format: a condition; its message begins with the identity of the scheduler process.
	ConditionTerm corev1.PodConditionType = "daybreak-gpu.io/Term"
)

// Annotations and labels of nodes and namespaces.
// On: Node.
const (
	// AnnotationNodeCards is the vendor's inventory of a node. If the node has a
	// Device, only the link zone and the QoS class are read from the annotation.
	// Written by: the vendor's plugin; agent, if the plugin does not run.
	// Read by: scheduler, manager; HAMi.
	// Format: JSON, a list of cards: `[{"uuid":"GPU-…","model":"MXC500","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"numa":0,"healthy":true,"qosPolicy":"best-effort","linkZone":1}]`.
	AnnotationNodeCards = "metax-tech.com/node-gpu-devices"
	// AnnotationScores is the score of the best set of n free cards.
	// Written by: the vendor's plugin; agent with `--topology-annotations`.
	// Read by: scheduler, on nodes whose cards are only counted; HAMi.
	// Format: JSON, `{"1":0,"2":110,…}`.
	AnnotationScores = "metax-tech.com/gpu.topology.scores"
	// AnnotationLosses is the score that the remaining free cards lose.
	// Written by: the vendor's plugin; agent with `--topology-annotations`.
	// Read by: scheduler, on nodes whose cards are only counted; HAMi.
	// Format: JSON, `{"1":0,"2":110,…}`.
	AnnotationLosses = "metax-tech.com/gpu.topology.losses"
	// LabelProduct is the vendor's name of the node's card model.
	// Written by: the vendor's operator.
	// Read by: scheduler, where no Device has the model.
	// Format: such as `MXC500`.
	LabelProduct = "metax-tech.com/gpu.product"

	// AnnotationLock names the pod that the vendor's plugin serves next.
	// Nodes that Daybreak's agent serves have none.
	// Written by: scheduler, HAMi, Koordinator; removed by the vendor's plugin.
	// Read by: scheduler, manager, the vendor's plugin.
	// Format: `RFC 3339 time,namespace,pod`.
	AnnotationLock = "hami.io/mutex.lock"

	// AnnotationServedBy is the device plugin that serves the node. Without it,
	// the vendor's plugin serves a node that has a Device or other signs of the plugin.
	// Removing the value vendor gives the node to the agent.
	// Written by: agent; administrators.
	// Read by: scheduler, manager, agent.
	// Format: `daybreak` or `vendor`.
	AnnotationServedBy = "daybreak-gpu.io/served-by"
	// AnnotationAdvertised marks a node with resources written by the manager, and
	// lists the labels that the manager has written.
	// Written by: manager.
	// Read by: manager.
	// Format: comma-separated labels.
	AnnotationAdvertised = "daybreak-gpu.io/advertised"
	// LabelSimulated marks the nodes of a playground.
	// Written by: playground.
	// Read by: users, as a selector.
	// Format: `true`.
	LabelSimulated = "daybreak-gpu.io/simulated"
	// LabelPrivileged allows cards in privileged containers of the namespace.
	// On: Namespace.
	// Written by: administrators.
	// Read by: the API server, for the manager's webhook.
	// Format: `true`.
	LabelPrivileged = "daybreak-gpu.io/allow-privileged"
	// LabelQuota rejects pods with cards but without amounts of the manager, so that
	// no pod bypasses a ResourceQuota of the namespace.
	// On: Namespace; on the manager's pods if it applies to all namespaces.
	// Written by: administrators; the chart.
	// Read by: the API server, manager, commands.
	// Format: `enforced`.
	LabelQuota = "daybreak-gpu.io/quota"
	// LabelAdmitted marks pods with cards that the manager's webhook has admitted.
	// Webhooks of API servers older than 1.28 select pods by it.
	// On: Pod.
	// Written by: manager.
	// Read by: the API server, for the manager's webhook.
	// Format: `true`.
	LabelAdmitted = "daybreak-gpu.io/admitted"
)

// Annotations of Leases.
const (
	// AnnotationSettings is what the leading scheduler or manager is configured with, as
	// far as the answers of commands and of the dashboard depend on it. It counts while
	// its holder is the holder of the Lease; without it, the chart's defaults are assumed.
	// On: Lease of the election.
	// Written by: scheduler and manager, when they begin to lead.
	// Read by: manager, commands.
	// Format: JSON, of the scheduler `{"holder":"…","profiles":{"daybreak":{"policy":"binpack","quotaKeys":"enforce"}}}`, of the manager `{"holder":"…","toleratedTaint":"metax-tech.com/gpu:NoSchedule"}`.
	AnnotationSettings = "daybreak-gpu.io/settings"
)

// AgentAnnotations lists the annotations that an agent may keep on its Node.
func AgentAnnotations() []string {
	return []string{AnnotationNodeCards, AnnotationScores, AnnotationLosses, AnnotationServedBy}
}

// AdvertisedLabels lists the labels that the manager puts on a node alongside.
func AdvertisedLabels() []string { return []string{LabelVendor, LabelModel, LabelDriver} }

// Names under which Daybreak's parts write Events and objects.
const (
	AgentComponent     = "daybreak-agent"
	ManagerComponent   = "daybreak-manager"
	SchedulerComponent = "daybreak-scheduler"
)

// Values of [AnnotationServedBy].
const (
	ServedByDaybreak = "daybreak"
	ServedByVendor   = "vendor"
)

// Annotations and labels of Devices.
// On: Device.
// Written by: agent.
const (
	// AnnotationMode is how the node allocates its cards: whole, in slices,
	// shared without isolation, or as virtual functions.
	// Read by: scheduler, manager.
	// Format: `native`, `sgpu`, `shared` or `vgpu`.
	AnnotationMode = "daybreak-gpu.io/mode"
	// AnnotationModePending is the requested mode, which takes effect when the
	// pods of the node have ended.
	// Read by: agent.
	// Format: as the mode.
	AnnotationModePending = "daybreak-gpu.io/mode-pending"
	// AnnotationLinks lists the pairs of cards with a working MetaXLink.
	// Read by: scheduler, manager.
	// Format: JSON, the cards and a row of the matrix for each, `M` for a link and `.` for none: `{"cards":["GPU-a","GPU-b"],"links":["-M","M-"]}`.
	AnnotationLinks = "daybreak-gpu.io/links"
	// AnnotationForeignSlices lists slices that Daybreak has not created. They count
	// as used.
	// Read by: scheduler, manager.
	// Format: JSON, `[{"card":"GPU-…","slices":1,"compute":50,"memoryMiB":8192,"qosPolicy":"best-effort"}]`.
	AnnotationForeignSlices = "daybreak-gpu.io/foreign-slices"
	// AnnotationPluginAllocations lists the cards that kubelet has given to pods without
	// an allocation. On a node that Daybreak serves, other pods without an allocation
	// hold no cards.
	// Read by: scheduler, manager.
	// Format: JSON, `[{"uid":"…","containers":{"c":["GPU-…"]}}]`; pods are identified by UID; the cards of a container with an empty list are unknown.
	AnnotationPluginAllocations = "daybreak-gpu.io/given-cards"
	// AnnotationForget are cards that were permanently removed from the machine. The
	// agent removes them from the Device once no pod holds them, and removes the
	// annotation.
	// Written by: administrators.
	// Read by: agent.
	// Format: comma-separated UUIDs.
	AnnotationForget = "daybreak-gpu.io/forget-card"
	// AnnotationRepaired are repaired cards with a latched fault. The agent clears
	// the fault, evaluates the cards again, and removes the annotation.
	// Written by: administrators.
	// Read by: agent.
	// Format: comma-separated UUIDs.
	AnnotationRepaired = "daybreak-gpu.io/card-repaired"
	// LabelLinkZone is the card's zone: cards of one zone are joined by MetaXLink.
	// On: card of a Device.
	// Read by: scheduler, manager.
	// Format: a number from 1; 0 is no link.
	LabelLinkZone = "daybreak-gpu.io/link-zone"
	// LabelPCIeSwitch is the PCIe switch of the card.
	// On: card of a Device.
	// Read by: scheduler, manager.
	// Format: the switch's PCI address.
	LabelPCIeSwitch = "daybreak-gpu.io/pcie-switch"
	// LabelErrors is the number of uncorrectable memory errors already handled, so that
	// a restarted agent detects an increase.
	// On: card of a Device.
	// Read by: agent.
	// Format: a number.
	LabelErrors = "daybreak-gpu.io/uncorrectable-errors"

	// LabelVendor is the vendor of the cards.
	// On: Device and Node.
	// Written by: agent on the Device; manager on the Node.
	// Read by: scheduler, manager; Koordinator.
	// Format: `metax`.
	LabelVendor = "node.koordinator.sh/gpu-vendor"
	// LabelModel is the model without the prefix MX; on Device and Node, the most common model.
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

// Conditions of cards. Healthy is always present; the others only while they apply.
// On: card of a Device.
// Written by: agent.
const (
	// ConditionHealthy is whether pods are placed on the card, with the reason if
	// not.
	// Read by: scheduler, manager.
	ConditionHealthy = "Healthy"
	// ConditionLinked is False if a MetaXLink port that was up is down, and
	// Unknown while the links cannot be read; the last known links are then kept.
	// Read by: administrators.
	ConditionLinked = "Linked"
	// ConditionSlices is False if slices are requested and the card does not support
	// them.
	// Read by: administrators.
	ConditionSlices = "SlicesSupported"
	// ConditionModePending is True while a change of mode waits for pods to end.
	// Read by: administrators.
	ConditionModePending = "ModePending"
	// ConditionServing is whether the agent serves the cards. It is the same on all
	// cards of a node, and absent if the agent is not the device plugin of the node.
	// Read by: scheduler, which places no pods unless it is True.
	ConditionServing = "Serving"
	// ConditionWaived is True if checks of the node are waived. The message has their
	// names and results. It is the same on all cards of a node.
	// Read by: administrators.
	ConditionWaived = "ChecksWaived"
)

// ModesConfigMap is the vendor's ConfigMap with the modes of the nodes.
const ModesConfigMap = "metax-device-config"

// Namespace is where Daybreak is usually installed.
const Namespace = "daybreak-system"

// VendorNamespace is where the vendor's operator is usually installed.
const VendorNamespace = "metax-operator"

// KoordinatorManagerLabels returns the labels of the pods of Koordinator's
// manager, as Koordinator's chart has them.
func KoordinatorManagerLabels() map[string]string {
	return map[string]string{"koord-app": "koord-manager"}
}
