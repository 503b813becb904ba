package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Objects is what was read of a cluster.
type Objects struct {
	Nodes []*corev1.Node
	// Devices has the Device of each node that has one, by the node's name.
	Devices map[string]Device
	// Pods are in the order they were read.
	Pods []*corev1.Pod
	// Waiting are further pods without a node: not to be placed, but known to the
	// scheduler.
	Waiting []*corev1.Pod
	// Workloads are the controllers of pods that files hold; [Objects.Complete]
	// makes pods of them.
	Workloads []*Workload
	// Quotas are those of all namespaces, whatever they count, and Namespaces what was
	// read of the namespaces themselves.
	Quotas     []*corev1.ResourceQuota
	Namespaces []*corev1.Namespace
	// PriorityClasses are for pods whose priority is not resolved.
	PriorityClasses []*schedulingv1.PriorityClass
	// Settings are those on Leases, by namespace/name.
	Settings map[string]Settings
	// Events are those that were asked for, or that files hold.
	Events []Event
	// Live means that an API server was read.
	Live bool
	// Undefined: the API server has no resource for Devices, since their definition
	// is missing.
	Undefined bool
	// Notes list what was passed over.
	Notes []string
	// VendorPlugin identifies who serves a node without a Device, and Daybreak's own
	// pods.
	VendorPlugin inventory.VendorPlugin
}

// Device is a Device object, or why it can't be decoded.
type Device struct {
	*v1alpha1.Device
	Err error
}

// Snapshot is a cluster at one moment, with everything booked that is held.
type Snapshot struct {
	// Nodes, Inventories and Facts go together and are ordered by name.
	Nodes       []*ledger.Node
	Inventories []*inventory.Inventory
	Facts       []Facts
	// Strays are pods that hold cards of a node that was not read.
	Strays []*corev1.Pod
	// Pending are the pods without a node, in the order they were read, and
	// Waiting those that are not to be placed.
	Pending, Waiting []*corev1.Pod
	// Quotas and Namespaces are those that were read, ordered by name.
	Quotas     []*corev1.ResourceQuota
	Namespaces []*corev1.Namespace
	// Events are those that were read.
	Events []Event
	// Live means that an API server was read.
	Live bool
	// Undefined: the API server has no resource for Devices, since their definition
	// is missing.
	Undefined bool
	// Notes are what an operator should know.
	Notes []string

	plugin inventory.VendorPlugin
	// profiles and taint are the settings of the scheduler and the manager.
	profiles map[string]Profile
	taint    string
}

// Facts are the objects that a node of the snapshot was made of.
type Facts struct {
	Name string
	// Node and Device may each be missing, not both.
	Node   *corev1.Node
	Device *v1alpha1.Device
	// Pods are bound to the node and hold what they were given, whether or not
	// they ask for cards. They are ordered by namespace and name.
	Pods []*corev1.Pod
}

// MissingDevice returns why none of the node's cards is known although Daybreak
// serves the node, or nothing.
func (s *Snapshot) MissingDevice(i int) string {
	f := &s.Facts[i]
	if f.Node == nil || f.Device != nil || f.Node.Annotations[wire.AnnotationServedBy] != wire.ServedByDaybreak || s.Nodes[i].Problem != nil {
		return ""
	}
	if s.Undefined {
		return "the definition of Devices (" + devices.GroupResource().String() + ") is missing from the cluster"
	}
	return "it has no Device: its agent has not published its cards"
}

// Snapshot opens the ledger: every node, with the pods that hold its cards. A
// Device without a Node counts as a node too, since files need not have both.
func (o *Objects) Snapshot() *Snapshot {
	s := &Snapshot{Notes: slices.Clone(o.Notes), Waiting: o.Waiting, Live: o.Live, Undefined: o.Undefined, plugin: o.VendorPlugin}
	s.setSettings(o.Settings)
	bound := make(map[string][]*corev1.Pod)
	for _, pod := range o.Pods {
		switch {
		case wire.Holds(pod):
			bound[pod.Spec.NodeName] = append(bound[pod.Spec.NodeName], pod)
		case pod.Spec.NodeName == "" && !wire.HasEnded(pod):
			s.Pending = append(s.Pending, pod)
		}
	}
	known := make(map[string]bool, len(o.Nodes))
	for _, node := range o.Nodes {
		known[node.Name] = true
		s.Facts = append(s.Facts, Facts{Name: node.Name, Node: node, Device: o.Devices[node.Name].Device, Pods: bound[node.Name]})
	}
	for name, device := range o.Devices {
		if !known[name] {
			known[name] = true
			s.Facts = append(s.Facts, Facts{Name: name, Device: device.Device, Pods: bound[name]})
		}
	}
	slices.SortFunc(s.Facts, func(a, b Facts) int { return cmp.Compare(a.Name, b.Name) })
	s.Nodes, s.Inventories = make([]*ledger.Node, len(s.Facts)), make([]*inventory.Inventory, len(s.Facts))
	notes := make([][]string, len(s.Facts))
	var memos gpu.Memos
	InParallel(len(s.Facts), func(i int) {
		s.Inventories[i] = o.inventory(&s.Facts[i])
		memos.Share(s.Inventories[i].Topology)
		s.Nodes[i], notes[i] = allocation.NewNode(s.Inventories[i], s.Facts[i].Pods)
		countCPU(s.Nodes[i], &s.Facts[i])
	})
	for i, inv := range s.Inventories {
		s.note(s.Facts[i].Name, inv, notes[i])
	}
	for name, pods := range bound {
		if !known[name] {
			s.strays(name, pods)
		}
	}
	slices.SortFunc(s.Strays, byName)
	s.passOver(o.Workloads)
	slices.Sort(s.Notes)
	s.Events = o.Events
	s.Quotas, s.Namespaces = slices.SortedFunc(slices.Values(o.Quotas), byName), slices.SortedFunc(slices.Values(o.Namespaces), byName)
	return s
}

// passOver notes workloads that no pods were made of. The pods of one that a
// cluster has are there by themselves.
func (s *Snapshot) passOver(workloads []*Workload) {
	for _, w := range workloads {
		if w.UID == "" {
			s.Notes = append(s.Notes, fmt.Sprintf("%s: passed over %s %s: only daybreak place makes pods of it", w.at, w.Kind, w.Name))
		}
	}
}

// Latest returns the latest time that the pods show: when the last of them was
// created or got its cards. Without any it is the beginning of 1970's second
// second, since 0 stands for no time.
func (s *Snapshot) Latest() time.Time {
	latest := time.Unix(1, 0).UTC()
	for _, pod := range s.seen() {
		at, _ := allocation.PredicateTime(pod)
		for _, t := range []time.Time{pod.CreationTimestamp.Time, at} {
			if t.After(latest) {
				latest = t.UTC()
			}
		}
	}
	return latest
}

// strays notes the pods that hold cards of a node that was not read. Where the
// node's name is a mistake, the cards they are meant to hold look free.
func (s *Snapshot) strays(node string, pods []*corev1.Pod) {
	for _, pod := range pods {
		if wire.CanHold(pod) {
			s.Strays = append(s.Strays, pod)
			s.Notes = append(s.Notes, fmt.Sprintf("pod %s is on node %s, which is not there: what it holds is left out", allocation.HolderOf(pod), node))
		}
	}
}

// inventory reads the node's cards. The order in which its pods were read must
// not show in what is booked.
func (o *Objects) inventory(f *Facts) *inventory.Inventory {
	slices.SortFunc(f.Pods, byName)
	objects := inventory.NodeObjects{Name: f.Name, Node: f.Node, Device: f.Device, Err: o.Devices[f.Name].Err}
	// Files need not have the plugin's pods: there a node without a Device counts as
	// the vendor's unless its annotation says otherwise.
	objects.Vendor = f.Node != nil && (o.VendorPlugin.Serves(f.Node, slices.Values(f.Pods)) || !o.Live && f.Node.Annotations[wire.AnnotationServedBy] == "")
	return objects.Inventory()
}

// countCPU notes how much CPU is left, as the scheduler's own cache does.
func countCPU(n *ledger.Node, f *Facts) {
	if f.Node == nil {
		return
	}
	free := gpu.MilliCPU(f.Node.Status.Allocatable.Cpu().MilliValue())
	if free <= 0 {
		return // it is not known
	}
	for _, pod := range f.Pods {
		free -= request.CPUOnNode(pod)
	}
	n.FreeCPU, n.CPUKnown = max(0, free), true
}

// note notes what an operator should know of a node.
func (s *Snapshot) note(node string, inv *inventory.Inventory, booking []string) {
	if inv.Problem != nil {
		// Without cards to look them up in, nothing true is said of the pods.
		s.Notes = append(s.Notes, fmt.Sprintf("node %s takes no pods: its cards can't be read: %v", node, inv.Problem))
		return
	}
	for _, note := range inv.Notes {
		s.Notes = append(s.Notes, fmt.Sprintf("node %s: %s", node, note))
	}
	s.Notes = append(s.Notes, booking...)
}

func byName[T metav1.Object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
