package place

// Code is a reason why cards are not given. The words that codes print as are
// stable: they are metric labels, event reasons and JSON.
type Code uint8

// The codes, in the order in which a card is checked: the first that applies
// is the card's. What each means and how it is reported is in the table below.
const (
	Fits Code = iota // no refusal
	NodeExcluded
	NoCards
	BadInventory
	QuotaExceeded
	Unaccounted
	ModeConflict
	Unhealthy
	CardExcluded
	ClassConflict
	QoSConflict
	ExclusiveConflict
	SlicesFull
	MemoryShort
	ComputeShort
	TooFewCards // the last: the card itself would do

	codes
)

// Unit is what the two numbers of a refusal count.
type Unit string

// The units.
const (
	UnitNone    Unit = ""
	UnitCards   Unit = "cards"
	UnitSlots   Unit = "slots"
	UnitMiB     Unit = "MiB"
	UnitPercent Unit = "%"
)

// Description is all that is written about a code. Events, messages, the
// reference and the English texts of the dashboard are made from it.
//
// Nodes, its variants and Cards begin with a verb in the plural. Of the placeholders,
// {want}, {have} and {missing} are the refusal's numbers in their unit, {cards}
// and {fit} the cards wanted and those that fit, {tally} and {others} the reasons
// that cards gave, {uuids} the cards that the pod lists, {problem}, {pod} and
// {serves} are the node's, and {quota}, {limit} and {hard} the budget's.
type Description struct {
	Name string
	// Means and Advice are for the reference.
	Means, Advice string
	Unit          Unit
	// Aside orders reasons: those that say less about cards come later.
	Aside int
	// Reason is the same for all refusals with the code: nodes are grouped by it.
	Reason string
	// Node is the sentence of one node.
	Node string
	// Nodes completes a sentence that begins with a number of nodes. Idle, if there is
	// one, stands in its place where the cards must be idle.
	Nodes, Idle string
	// Total has both texts for what all containers of a pod want together.
	Total struct{ Node, Nodes string }
	// Cards completes a sentence that begins with a number of cards, and IdleCards
	// stands in its place where the cards must be idle.
	Cards, IdleCards string
}

type total = struct{ Node, Nodes string }

const fitting = "wants {cards}, {fit}{tally}"

var descriptions = [codes]Description{
	NodeExcluded: {
		Name: "NodeExcluded", Aside: 1,
		Means:  "the pod may not use the node: nodeSelector, required node affinity, a taint, a cordon, or not ready",
		Advice: "read the message, which names it; uncordon or repair the node, or change the pod",
		Reason: "the pod may not use the node",
	},
	NoCards: {
		Name: "NoCards", Aside: 2,
		Means:  "the node has none",
		Advice: "nothing, unless the node has cards: then check that its agent runs",
		Reason: "no MetaX cards",
		Node:   "the node has no MetaX cards",
		Nodes:  "have no MetaX cards",
	},
	BadInventory: {
		Name:   "BadInventory",
		Means:  "the node's cards can't be read",
		Advice: "read the message, which names the fault in the Device or the node's annotation; `daybreak audit` reports it too",
		Reason: "card inventory can't be read",
		Node:   "the node's cards can't be read: {problem}",
		Nodes:  "have an unreadable card inventory",
	},
	QuotaExceeded: {
		Name:   "QuotaExceeded",
		Means:  "a ResourceQuota of the pod's namespace leaves too little, whatever the nodes have",
		Advice: "wait until pods of the namespace end, request less, or raise the ResourceQuota that the message names",
		Reason: "the namespace's quota is used up",
		Node:   "wants {want}, ResourceQuota {quota} has {have} of {hard} left ({limit})",
	},
	Unaccounted: {
		Name:   "Unaccounted",
		Means:  "a pod on the node holds cards that are not known",
		Advice: "run Daybreak's agent on the node, which reads them from kubelet, or delete the pod that `daybreak audit` names",
		Reason: "a pod holds cards that are not known",
		Node:   "pod {pod} holds cards that are not known: run Daybreak's agent on the node, which reads them from kubelet, or delete the pod",
		Nodes:  "have a pod whose cards are not known",
	},
	ModeConflict: {
		Name:   "ModeConflict",
		Means:  "the node serves the other kind, whole cards or slices",
		Advice: "request the other kind, or change the node's mode in metax-device-config",
		Reason: "cards are served in another mode",
		Node:   "the node {serves}",
		Nodes:  "serve cards in another mode",
	},
	Unhealthy: {
		Name: "Unhealthy", Unit: UnitCards,
		Means:  "the card is unhealthy, or the node's agent allocates nothing now",
		Advice: "`daybreak status` shows the fault; new pods go there again when the card is healthy",
		Reason: "cards are unhealthy",
		Node:   fitting,
		Nodes:  "have unhealthy cards",
		Cards:  "are unhealthy",
	},
	CardExcluded: {
		Name: "CardExcluded", Unit: UnitCards,
		Means:  "the pod's lists of cards leave it out",
		Advice: "change use-gpuuuid or nouse-gpuuuid",
		Reason: "cards are excluded by the pod",
		Node:   fitting,
		Nodes:  "have no healthy card that the pod admits",
		Cards:  "are excluded by the pod",
	},
	ClassConflict: {
		Name: "ClassConflict", Unit: UnitCards,
		Means:  "online, offline and ordinary pods keep apart",
		Advice: "wait, or leave the class out",
		Reason: "cards run pods of another class",
		Node:   fitting,
		Nodes:  "run pods of another class",
		Cards:  "run pods of another class",
	},
	QoSConflict: {
		Name: "QoSConflict", Unit: UnitCards,
		Means:  "the card runs another QoS class",
		Advice: "request the class that the cards run, or wait until one is idle",
		Reason: "cards run another QoS class",
		Node:   fitting,
		Nodes:  "run another QoS class",
		Cards:  "run another QoS class",
	},
	ExclusiveConflict: {
		Name: "ExclusiveConflict", Unit: UnitCards,
		Means:     "requested exclusively but in use, or held exclusively",
		Advice:    "wait, or request a share with vcore instead of an exclusive card",
		Reason:    "cards are in use",
		Node:      fitting,
		Nodes:     "have cards that are held exclusively",
		Idle:      "have no idle card",
		Cards:     "are held exclusively",
		IdleCards: "are in use",
	},
	SlicesFull: {
		Name: "SlicesFull", Unit: UnitSlots,
		Means:  "the card carries as many shares as it can",
		Advice: "wait, or request a card with fewer, larger shares on it",
		Reason: "cards have no free slice",
		Node:   "wants a free slice{tally}",
		Nodes:  "have no free slice",
		Total:  total{"wants {want} slices for its containers, the node has {have} free", "have too few slices for the whole pod (wants {want}, best has {have} free)"},
		Cards:  "have no free slice",
	},
	MemoryShort: {
		Name: "MemoryShort", Unit: UnitMiB,
		Means:  "too little memory left",
		Advice: "request less; `daybreak explain` shows the most that fits now",
		Reason: "too little free card memory",
		Node:   "wants {want} of a card's memory, the best card has {have} free{others}",
		Nodes:  "need {missing} more card memory (best has {have} free)",
		Total:  total{"wants {want} of card memory for its containers, the node has {have} free", "have too little card memory for the whole pod (wants {want}, best has {have} free)"},
		Cards:  "have too little memory",
	},
	ComputeShort: {
		Name: "ComputeShort", Unit: UnitPercent,
		Means:  "too little compute left",
		Advice: "request less; `daybreak explain` shows the most that fits now",
		Reason: "too little free card compute",
		Node:   "wants {want} of a card's compute, the best card has {have} free{others}",
		Nodes:  "need {missing} more card compute (best has {have} free)",
		Total:  total{"wants {want} of card compute for its containers, the node has {have} free", "have too little card compute for the whole pod (wants {want}, best has {have} free)"},
		Cards:  "have too little compute",
	},
	TooFewCards: {
		Name: "TooFewCards", Unit: UnitCards,
		Means:  "the card would do, but not enough others would",
		Advice: "request fewer, or make room: `daybreak explain` names the pods in the way",
		Reason: "too few cards",
		Node:   "wants {cards}, only {fit}{others}",
		Nodes:  "need {cards} that fit (best has {have})",
		Idle:   "need {want} idle cards (best has {have})",
		Total:  total{"each container fits by itself, but no way was found to fit all of them", "take each container of the pod, but no way was found to fit all of them"},
	},
}

// Codes lists all codes in order.
func Codes() []Code {
	var all []Code
	for c := NodeExcluded; c < codes; c++ {
		all = append(all, c)
	}
	return all
}

// Description returns the code's row of the table.
func (c Code) Description() Description { return descriptions[c] }

// String returns the stable name of the code.
func (c Code) String() string { return descriptions[c].Name }

// MarshalText returns the stable name of the code.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Reason returns a text that is the same for every refusal with this code.
func (c Code) Reason() string { return descriptions[c].Reason }

// Exclusion is why a pod may not use a node, whatever its cards.
type Exclusion uint8

// The exclusions, in the order in which they are checked.
const (
	NotSelected Exclusion = iota + 1 // by the pod's nodeSelector
	NotAffine                        // to the pod's required node affinity
	Cordoned                         // marked unschedulable
	NotReady                         // or not reporting
	Tainted                          // and not tolerated by the pod

	exclusions
)

// exclusionTexts has the name of each, the message about one node, and what
// completes a sentence that begins with a number of nodes.
var exclusionTexts = [exclusions]struct{ name, message, nodes string }{
	0:           {"", descriptions[NodeExcluded].Reason, "may not be used by the pod"},
	NotSelected: {"NotSelected", "the pod's nodeSelector does not match the node", "do not match the pod's nodeSelector"},
	NotAffine:   {"NotAffine", "the pod's required node affinity does not match the node", "do not match the pod's required node affinity"},
	Cordoned:    {"Cordoned", "the node is cordoned", "are cordoned"},
	NotReady:    {"NotReady", "the node is not ready", "are not ready"},
	Tainted:     {"Tainted", "the pod does not tolerate a taint of the node", "have a taint that the pod does not tolerate"},
}

// Exclusions lists all exclusions in order.
func Exclusions() []Exclusion {
	var all []Exclusion
	for x := NotSelected; x < exclusions; x++ {
		all = append(all, x)
	}
	return all
}

// String returns the stable name of the exclusion.
func (x Exclusion) String() string { return exclusionTexts[x].name }

// Message returns why the pod may not use the node. A caller that knows the pod
// and the Node can name the label or the taint.
func (x Exclusion) Message() string { return exclusionTexts[x].message }

func (c Code) aside() int { return descriptions[c].Aside }
