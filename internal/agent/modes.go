package agent

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// modeBook keeps the last good document of modes.
type modeBook struct {
	doc    modesDocument
	read   bool
	good   *inventory.Modes
	broken bool // the present document is not the good one
}

func (b *modeBook) decide(a *Agent, v *view, held *holdings) modeDecision {
	b.update(a, v)
	q := modeQuestion{
		preset: a.cfg.Mode, driver: a.roster.driver, holders: held.kinds, podsKnown: v.podsKnown,
		servesBoth: v.node.Annotations[wire.AnnotationServedBy] == wire.ServedByDaybreak || a.intends(v),
	}
	if a.previous != nil {
		q.current = a.previous.Mode
	}
	if b.good != nil {
		q.configured = b.good.Of(a.cfg.Node)
	} else if !b.read || b.broken {
		q.configured = q.current // what is asked for is not known
	}
	if a.knowsServer(v) && !a.vendorServes(v) { // the vendor's plugin makes slices in its own way
		q.noSlices = a.roster.noSlices
	}
	q.cards, q.virtual = a.roster.count()
	return q.decide()
}

// update reads the document if it changed. A bad one is reported and not used.
func (b *modeBook) update(a *Agent, v *view) {
	if !v.modesKnown || !a.knowsServer(v) {
		return
	}
	doc := a.modesDocument(v)
	if b.read && reflect.DeepEqual(b.doc, doc) {
		return
	}
	b.doc, b.read, b.broken = doc, true, false
	if doc.name == "" {
		b.good = nil
		a.reportNoModes(v, doc)
		return
	}
	modes, err := doc.decode()
	if err != nil {
		b.broken = true
		a.events.onNode(corev1.EventTypeWarning, eventBadModes, "ConfigMap %s is not used, the last good one stays: %v", doc.name, err)
		return
	}
	b.good = modes
	a.reportIgnored(doc, modes)
}

// modesDocument is where the mode of a node comes from.
type modesDocument struct {
	// vendor: the vendor's plugin serves the node.
	vendor bool
	// name is the ConfigMap with its namespace, or several; empty if there is none.
	name string
	data map[string]string
	// several: more than one ConfigMap has the labels of the vendor's.
	several bool
	// ignored is Daybreak's own ConfigMap while the vendor's counts.
	ignored map[string]string
}

func (d *modesDocument) decode() (*inventory.Modes, error) {
	if d.several {
		return nil, errors.New("more than one has the labels of the vendor's: leave them on one, or select it by other labels with vendorOperator.selector")
	}
	return inventory.DecodeModes(d.data)
}

// modesDocument returns the document of whoever serves the node: the vendor's plugin
// reads the ConfigMap of its own operator, and Daybreak's agent reads Daybreak's.
func (a *Agent) modesDocument(v *view) modesDocument {
	d := modesDocument{vendor: a.vendorServes(v)}
	if v.modes != nil {
		d.name, d.data = nameOf(v.modes), v.modes.Data
	}
	if !d.vendor || len(v.vendorModes) == 0 {
		return d
	}
	var names []string
	for _, m := range v.vendorModes {
		names = append(names, nameOf(m))
	}
	return modesDocument{vendor: true, name: strings.Join(names, ", "), data: v.vendorModes[0].Data, several: len(names) > 1, ignored: d.data}
}

func nameOf(m *corev1.ConfigMap) string { return m.Namespace + "/" + m.Name }

// knowsServer reports whether it is known who serves the node. Until kubelet was
// asked only the Node's annotation shows it.
func (a *Agent) knowsServer(v *view) bool {
	return a.server == nil || a.servedBy(v) != "" || a.yieldsNode(v) != "" || a.server.Status().GivenKnown
}

// vendorServes reports whether the vendor's plugin serves the node.
func (a *Agent) vendorServes(v *view) bool {
	if a.server != nil {
		return a.yieldsNode(v) != ""
	}
	by := a.servedBy(v)
	return by == wire.ServedByVendor || by == "" && v.vendorPod != ""
}

// reportNoModes reports that the mode of a node of the vendor's plugin is a guess.
func (a *Agent) reportNoModes(v *view, d modesDocument) {
	if !d.vendor || a.cfg.Mode != "" || a.cfg.VendorNamespace == "" {
		return
	}
	where := "namespace " + a.cfg.VendorNamespace + " has no ConfigMap " + wire.ModesConfigMap
	if a.cfg.VendorSelector != "" {
		where = "namespace " + a.cfg.VendorNamespace + " has no ConfigMap with the labels " + a.cfg.VendorSelector
	}
	if v.strayPods > 0 {
		where += fmt.Sprintf("; pods on this node that resemble the plugin's in other namespaces: %d", v.strayPods)
	}
	a.events.onNode(corev1.EventTypeWarning, eventNoModes, "the vendor's plugin serves this node, but its mode is not known and taken from the hardware: %s; name the operator's namespace with vendorOperator.namespace", where)
}

// reportIgnored reports that the two ConfigMaps disagree about the node.
func (a *Agent) reportIgnored(d modesDocument, used *inventory.Modes) {
	if d.ignored == nil {
		return
	}
	own, err := inventory.DecodeModes(d.ignored)
	if err != nil {
		return
	}
	if mode := own.Of(a.cfg.Node); mode != "" && mode != used.Of(a.cfg.Node) {
		a.events.onNode(corev1.EventTypeWarning, eventModesIgnored, "ConfigMap %s/%s asks for mode %s and is not used: the vendor's plugin serves this node and reads ConfigMap %s, mode %s",
			a.cfg.Namespace, wire.ModesConfigMap, mode, d.name, cmp.Or(used.Of(a.cfg.Node), "not named"))
	}
}
