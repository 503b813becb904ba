package cluster

import (
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
)

// dumpSize is the size from which a file counts as a dump that a program wrote.
// Fields of it that nobody reads are not checked for their types.
const dumpSize = 256 << 10

// piece is an object in a dump.
type piece struct {
	document int // from 0
	item     int // from 1; 0 for an object that is in no list
	text     []byte
	format   format
	object   leanObject
	err      error
}

type format uint8

const (
	formatJSON format = iota
	formatYAML
	// formatYAMLItem is an entry of a list, with its dash.
	formatYAMLItem
)

// leanObject is one of the three, or another kind by name.
type leanObject struct {
	head   metav1.TypeMeta
	name   string
	pod    *corev1.Pod
	node   *corev1.Node
	device *v1alpha1.Device
}

// dumpDocument is a document of a dump.
type dumpDocument struct {
	text []byte
	// list is the kind of the list that the document is; empty for an object.
	list metav1.TypeMeta
	// strict: the document is for the general decoder.
	strict bool
}

// dump takes in a large file. Documents and pieces of documents that are not
// plain go to the general decoder, so that the outcome is the same.
func (r *decoder) dump(documents []dumpDocument, pieces []piece, name string) error {
	readPieces(pieces)
	for i := range documents {
		own := 0
		for own < len(pieces) && pieces[own].document == i {
			own++
		}
		at := fmt.Sprintf("%s, document %d", name, i+1)
		if err := r.dumped(&documents[i], pieces[:own], at); err != nil {
			return err
		}
		pieces = pieces[own:]
	}
	return nil
}

// dumped takes in the pieces of a document, or the document as a whole.
func (r *decoder) dumped(d *dumpDocument, pieces []piece, at string) error {
	for i := range pieces {
		p := &pieces[i]
		if p.err != nil {
			if p.text, p.err = p.general(); p.err != nil {
				d.strict = true // the error is told with the document's line
			}
		}
	}
	if d.strict {
		_, err := r.document(d.text, at)
		return err
	}
	item := itemsOf(d.list)
	for i := range pieces {
		p := &pieces[i]
		where := at
		if p.item > 0 {
			where = fmt.Sprintf("%s, item %d", at, p.item)
		}
		if err := r.lean(p, where, item); err != nil {
			return err
		}
	}
	return nil
}

// general returns the JSON of a piece by way of the general decoder.
func (p *piece) general() ([]byte, error) {
	asJSON, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return nil, err
	}
	if p.format != formatYAMLItem {
		return asJSON, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(asJSON, &items); err != nil || len(items) != 1 {
		return nil, errUnsure
	}
	return items[0], nil
}

// lean takes in one object.
func (r *decoder) lean(p *piece, at string, implied metav1.TypeMeta) error {
	switch o := &p.object; {
	case o.pod != nil:
		return r.addPod(o.pod, at)
	case o.node != nil:
		return r.addNode(o.node, at)
	case o.device != nil:
		return r.addDevice(Device{Device: o.device}, o.name, at)
	}
	return r.object(p.text, at, implied)
}

// readPieces reads the pieces, as many at a time as there are processors.
func readPieces(pieces []piece) {
	arenas := sync.Pool{New: func() any { return newArena() }}
	InParallel(len(pieces), func(i int) {
		a, ok := arenas.Get().(*arena)
		if !ok {
			a = newArena()
		}
		pieces[i].object, pieces[i].err = pieces[i].read(a)
		arenas.Put(a)
	})
}

// read reads a piece as far as it is plain.
func (p *piece) read(a *arena) (leanObject, error) {
	a.used = 0
	v, err := p.value(a)
	if err != nil {
		return leanObject{}, err
	}
	var l lean
	o := leanObject{head: metav1.TypeMeta{APIVersion: l.text(v.get("apiVersion")), Kind: l.text(v.get("kind"))}}
	switch o.head.APIVersion + " " + o.head.Kind {
	case "v1 Pod":
		o.pod = l.pod(v)
	case "v1 Node":
		o.node = l.node(v)
	case deviceKind:
		o.device = l.device(v)
		o.name = o.device.Name
	default:
		l.doubt() // a kind to pass over, or none
	}
	if l.err != nil {
		return leanObject{}, l.err
	}
	return o, nil
}

func (p *piece) value(a *arena) (*value, error) {
	if p.format == formatJSON {
		r := jsonReader{b: p.text, arena: a}
		v, err := r.value(kept, 0)
		if err != nil || r.space() != 0 || v.kind != mappingKind {
			return nil, errUnsure
		}
		return v, nil
	}
	r, err := newYAMLReader(p.text, a)
	if err != nil {
		return nil, err
	}
	s := kept
	if p.format == formatYAMLItem {
		s = &shape{each: kept}
	}
	v, err := r.block(s, 0)
	if err != nil || !r.end {
		return nil, errUnsure
	}
	if p.format == formatYAMLItem {
		if v.length != 1 {
			return nil, errUnsure
		}
		v = v.first
	}
	if v.kind != mappingKind {
		return nil, errUnsure
	}
	return v, nil
}
