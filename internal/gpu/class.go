package gpu

// QoS is how a card divides its compute between the slices on it. A card runs
// one class at a time and can change it only while nothing is on it.
type QoS string

// The QoS classes. The empty class is none: nothing was asked, or it does not
// matter because the share is alone on its card or online.
const (
	BestEffort QoS = "best-effort" // no bound on compute
	FixedShare QoS = "fixed-share" // never more than its share
	BurstShare QoS = "burst-share" // its share, and what the others leave idle
)

// QoSClasses lists the classes a request may name.
func QoSClasses() []QoS { return []QoS{BestEffort, FixedShare, BurstShare} }

// QoSSet is a set of QoS classes.
type QoSSet uint8

// Set returns the set that holds q alone; none is the empty set.
func (q QoS) Set() QoSSet {
	switch q {
	case BestEffort:
		return 1
	case FixedShare:
		return 2
	case BurstShare:
		return 4
	}
	return 0
}

// Only returns the single class of s. It is empty when s holds none, or holds
// several, which only a wrong booking brings about.
func (s QoSSet) Only() QoS {
	for _, q := range QoSClasses() {
		if s == q.Set() {
			return q
		}
	}
	return ""
}

// Class is a pod's place in time-critical sharing. Pods with a class and pods
// without never share a card.
type Class string

// The classes. An offline pod is suspended by the driver while an online pod
// works on its card.
const (
	Normal  Class = ""
	Online  Class = "online"
	Offline Class = "offline"
)
