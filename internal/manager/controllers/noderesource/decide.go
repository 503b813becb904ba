package noderesource

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// resources are what a node advertises for its cards, in the order of messages;
// labels describe the cards.
var (
	resources = wire.AdvertisedResources()
	labels    = wire.AdvertisedLabels()
)

// verdict is what is to be done about a node.
type verdict string

const (
	// ignore: the node has nothing to do with us.
	ignore verdict = "Ignore"
	// advertise what the Device lists.
	advertise verdict = "Advertise"
	// keep what is there: the Device can't be read.
	keep verdict = "Keep"
	// withdraw what we put there: there is no Device of ours any more.
	withdraw verdict = "Withdraw"
)

// facts is everything that a decision rests on.
type facts struct {
	node *corev1.Node
	// inventory is what the node's Device lists, nil when it has none or that of
	// another vendor.
	inventory *inventory.Inventory
	// deviceLabels are the Device's own.
	deviceLabels map[string]string
	// pods are those bound to the node.
	pods []corev1.Pod
	// koordinator: Koordinator's manager runs. It is looked for where
	// there is something to withdraw.
	koordinator bool
}

// decision is what a node should advertise.
type decision struct {
	verdict verdict
	// amounts are capacity and allocatable alike; what is not listed should not
	// be there.
	amounts corev1.ResourceList
	labels  map[string]string
	// othersAmounts: the amounts are left to Koordinator's manager.
	othersAmounts bool
	// mark is the annotation that lists the labels of ours; nil means none.
	mark *string

	healthy, unhealthy int
	// held are the resources of which the pods on the node ask for more than the
	// healthy cards have.
	held []string
	// problem is why the Device can't be read.
	problem error
}

// decide returns what a node should advertise. It depends on the facts alone, and
// changes none of them.
func decide(f facts) decision {
	_, marked := f.node.Annotations[wire.AnnotationAdvertised]
	switch {
	case f.inventory == nil && !marked:
		return decision{verdict: ignore}
	case f.inventory == nil:
		return decision{verdict: withdraw, othersAmounts: f.koordinator}
	case f.inventory.Problem != nil:
		return decideKeep(f, marked)
	}
	d := decision{verdict: advertise, labels: wantedLabels(f)}
	t := f.inventory.Topology
	memory := gpu.MiB(0)
	for c := range t.Healthy().All() {
		memory += t.Card(c).Memory
	}
	d.healthy = t.Healthy().Len()
	d.unhealthy = t.Len() - d.healthy
	d.amounts = wire.AdvertisedAmounts(d.healthy, memory)
	if failsInitContainers(f.node.Status.NodeInfo.KubeletVersion) {
		maps.Copy(d.amounts, wire.UnlimitedAmounts())
	}
	d.hold(f)
	d.mark = new(ourLabels(f.node, d.labels))
	return d
}

// failsInitContainers reports whether a kubelet of this version disregards resources
// that the node does not have in app containers only. One without a readable version is new.
func failsInitContainers(kubelet string) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.LessThan(filtersInitContainers)
}

var filtersInitContainers = version.MajorMinor(1, 31)

// decideKeep is the decision about a node whose Device can't be read: all stays
// as it is, but for what the pods on it need. A node that never was ours is not
// made ours by this.
func decideKeep(f facts, marked bool) decision {
	if !marked {
		return decision{verdict: ignore, problem: f.inventory.Problem}
	}
	d := decision{verdict: keep, problem: f.inventory.Problem, amounts: pick(f.node.Status.Capacity, resources)}
	d.hold(f)
	return d
}

// hold raises the amounts to what the pods ask for.
func (d *decision) hold(f facts) {
	asked := requested(f)
	for _, name := range resources {
		have, ok := d.amounts[name]
		if want := asked[name]; ok && want.Cmp(have) > 0 {
			want.Format = have.Format
			d.amounts[name] = want
			d.held = append(d.held, string(name))
		}
	}
}

// requested sums up what the pods ask for of our resources, as kubelet does.
// Pods that have ended hold nothing; those that are ending hold all they have. A
// pod that holds no cards counts once kubelet has admitted it: kubelet sums it
// up too when it admits its pods again, and rejects what is more than the node
// has before that.
func requested(f facts) corev1.ResourceList {
	sum, node := corev1.ResourceList{}, f.inventory.NewNode()
	for i := range f.pods {
		pod := &f.pods[i]
		if !wire.Holds(pod) || !admitted(pod) && !holds(f.inventory, node, pod) {
			continue
		}
		asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		for _, name := range resources {
			if q, ok := asked[name]; ok {
				total := sum[name]
				total.Add(q)
				sum[name] = total
			}
		}
	}
	return sum
}

// admitted reports whether kubelet has admitted the pod.
func admitted(pod *corev1.Pod) bool {
	return pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning
}

// holds reports whether the pod holds cards, known or not.
func holds(inv *inventory.Inventory, node *ledger.Node, pod *corev1.Pod) bool {
	h, known, _ := allocation.BookingOf(inv, node, pod)
	return !known || len(h.Parts) > 0
}

// wantedLabels returns the labels that the node should have.
func wantedLabels(f facts) map[string]string {
	want := map[string]string{wire.LabelVendor: wire.VendorMetaX}
	if model := cmp.Or(f.deviceLabels[wire.LabelModel], inventory.CommonestModel(f.inventory.Topology)); model != "" {
		want[wire.LabelModel] = model
	}
	if driver := f.deviceLabels[wire.LabelDriver]; driver != "" {
		want[wire.LabelDriver] = driver
	}
	return want
}

// ourLabels lists which of the wanted labels are ours: those that were already,
// and those that the node does not have yet. One that was there before us, with
// the same value, stays its owner's.
func ourLabels(node *corev1.Node, want map[string]string) string {
	before := markedLabels(node)
	ours := slices.DeleteFunc(slices.Clone(labels), func(key string) bool {
		value, ok := want[key]
		return !ok || node.Labels[key] == value && !slices.Contains(before, key)
	})
	return strings.Join(ours, ",")
}

// markedLabels returns the labels that the node's mark lists. Anyone may have
// written it, so only those that can be ours count.
func markedLabels(node *corev1.Node) []string {
	listed := strings.Split(node.Annotations[wire.AnnotationAdvertised], ",")
	return slices.DeleteFunc(slices.Clone(labels), func(key string) bool { return !slices.Contains(listed, key) })
}

// setMetadata makes labels and annotations of the node as decided, and reports
// whether that is a change.
func (d *decision) setMetadata(node *corev1.Node) bool {
	if d.verdict == ignore || d.verdict == keep {
		return false
	}
	labels, annotations := maps.Clone(node.Labels), maps.Clone(node.Annotations)
	for _, key := range markedLabels(node) {
		delete(node.Labels, key)
	}
	for key, value := range d.labels {
		metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
	}
	if d.mark == nil {
		delete(node.Annotations, wire.AnnotationAdvertised)
	} else {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, wire.AnnotationAdvertised, *d.mark)
	}
	return !maps.Equal(labels, node.Labels) || !maps.Equal(annotations, node.Annotations)
}

// setStatus does the same for capacity and allocatable.
func (d *decision) setStatus(node *corev1.Node) (changed bool) {
	if d.verdict == ignore || d.othersAmounts {
		return false
	}
	for _, list := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
		for _, name := range resources {
			have, has := (*list)[name]
			want, wanted := d.amounts[name]
			switch {
			case has && !wanted:
				delete(*list, name)
				changed = true
			case wanted && (!has || have.Cmp(want) != 0):
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)[name] = want
				changed = true
			}
		}
	}
	return changed
}
