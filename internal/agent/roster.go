package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// roster is every card that the agent answers for: those of the last good look
// and those it has seen before.
type roster struct {
	driver string
	// noSlices is why no slices can be made, by the last good look. sliced: an earlier
	// agent served slices with this driver, so a library that fails may recover.
	noSlices string
	sliced   bool
	members  []*member // by id
	links    links
	// nameless are the addresses of cards without a known UUID: they were
	// unavailable whenever they were seen.
	nameless []string
	looks    int // so far
}

// member is what is known of one card.
type member struct {
	id gpu.CardID
	// card is the card as last seen, or as the Device remembers it.
	card discover.Card
	// here reports whether the last good look found it.
	here bool
	// minor is the number under which it is published; it means nothing unless
	// published is true.
	minor     int
	published bool
	// remembered reports whether an earlier agent published it. seen and last
	// are the first and the last look of this agent that found it, or 0.
	remembered bool
	seen, last int
	// ports are the peers of ports that were up once, by number.
	ports  map[int]string
	health health
}

// remember fills the roster from what an earlier agent published.
func (r *roster) remember(p *inventory.Publication, now time.Time) {
	r.driver = p.Driver
	serving := nodeCondition(p, wire.ConditionServing)
	r.sliced = p.Mode == gpu.ModeSGPU && (serving.Status == metav1.ConditionTrue || serving.Reason == reasonStopping)
	for i := range p.Cards {
		c, s := p.Topology.Card(i), &p.Cards[i]
		why := fault{reason: reasonUnknown}
		if healthy := meta.FindStatusCondition(s.Conditions, wire.ConditionHealthy); healthy != nil {
			why = fault{healthy.Reason, healthy.Message}
		}
		rec := &member{
			id: c.ID, minor: c.Minor, published: true, remembered: true, health: remembered(c.Healthy, why, s.Errors, now),
			card: discover.Card{
				UUID: string(c.ID), Minor: c.Minor, BDF: s.BusID, Model: c.Model, Memory: c.Memory, PCIeRoot: s.PCIeRoot, PCIeSwitch: c.Switch,
			},
		}
		if c.NUMAKnown {
			rec.card.NUMA = &c.NUMA
		}
		r.members = append(r.members, rec)
	}
	r.sort()
	r.links.remember(p.Topology)
}

// look takes in a good look and returns it completed with what is known of its
// cards.
func (r *roster) look(s *discover.Snapshot, now time.Time) *discover.Snapshot {
	out := *s
	out.Cards = slices.Clone(s.Cards)
	if s.Driver != "" {
		r.sliced = r.sliced && cmp.Or(r.driver, s.Driver) == s.Driver
		r.driver = s.Driver
	}
	if r.noSlices = s.NoSlices; !r.sliced {
		r.noSlices = cmp.Or(r.noSlices, s.LibraryFailed)
	}
	r.looks++
	r.nameless = nil
	found := make(map[gpu.CardID]*discover.Card, len(out.Cards))
	ids := make([]gpu.CardID, len(out.Cards))
	for i := range out.Cards {
		ids[i] = r.identify(s, i)
		if ids[i] == "" {
			r.nameless = append(r.nameless, s.Cards[i].BDF)
			continue
		}
		found[ids[i]] = &out.Cards[i]
	}
	for _, id := range ids {
		if id != "" && r.member(id) == nil {
			r.members = append(r.members, &member{id: id})
			r.sort()
		}
	}
	for _, rec := range r.members {
		c := found[rec.id]
		if rec.here = c != nil; rec.here {
			rec.see(c, r.looks)
		}
		rec.health.look(c, now)
	}
	r.links.look(&out, ids, now)
	return &out
}

// identify returns the id of a card of the snapshot. An unavailable card may not
// report its own; then it is the one that was at its address last.
func (r *roster) identify(s *discover.Snapshot, i int) gpu.CardID {
	c := &s.Cards[i]
	if c.UUID != "" || c.BDF == "" {
		return gpu.CardID(c.UUID)
	}
	known := &member{last: -1}
	for _, rec := range r.members {
		elsewhere := slices.ContainsFunc(s.Cards, func(o discover.Card) bool { return o.UUID == string(rec.id) })
		if rec.card.BDF == c.BDF && !elsewhere && rec.last > known.last {
			known = rec
		}
	}
	return known.id
}

// see keeps the card of a look, completed with what an unavailable card does not
// report. Its number is the one it was first seen with: the driver counts again
// when a card is lost.
func (rec *member) see(c *discover.Card, look int) {
	before := &rec.card
	if rec.seen == 0 {
		rec.seen = look
	} else {
		c.Minor = before.Minor
	}
	rec.last = look
	c.UUID = string(rec.id)
	c.Memory, c.Model = cmp.Or(c.Memory, before.Memory), cmp.Or(c.Model, before.Model)
	c.BDF, c.PCIeRoot, c.PCIeSwitch = cmp.Or(c.BDF, before.BDF), cmp.Or(c.PCIeRoot, before.PCIeRoot), cmp.Or(c.PCIeSwitch, before.PCIeSwitch)
	c.NUMA = cmp.Or(c.NUMA, before.NUMA)
	c.Virtual = c.Virtual || before.Virtual
	rec.completePorts(c)
	rec.card = *c
}

// completePorts adds to the ports of a card those that were up once and are not
// listed any more. Where the source reports no ports there are none.
func (rec *member) completePorts(c *discover.Card) {
	if c.Vitals.Ports == nil {
		return
	}
	if rec.ports == nil {
		rec.ports = map[int]string{}
	}
	ports := slices.Clone(c.Vitals.Ports)
	listed := map[int]bool{}
	for i := range ports {
		p := &ports[i]
		listed[p.Number] = true
		if p.Up {
			rec.ports[p.Number] = p.Peer
		}
		p.Peer = cmp.Or(p.Peer, rec.ports[p.Number])
	}
	for number, peer := range rec.ports {
		if !listed[number] {
			ports = append(ports, discover.Port{Number: number, Peer: peer})
		}
	}
	slices.SortFunc(ports, func(a, b discover.Port) int { return cmp.Compare(a.Number, b.Number) })
	c.Vitals.Ports = ports
}

func (r *roster) sort() {
	slices.SortFunc(r.members, func(a, b *member) int { return cmp.Compare(a.id, b.id) })
}

func (r *roster) member(id gpu.CardID) *member {
	at := slices.IndexFunc(r.members, func(rec *member) bool { return rec.id == id })
	if at < 0 {
		return nil
	}
	return r.members[at]
}

// drop takes a card off the roster.
func (r *roster) drop(id gpu.CardID) {
	r.members = slices.DeleteFunc(r.members, func(rec *member) bool { return rec.id == id })
	r.links.drop(id)
}

// number gives every card the minor number it is published under: the driver's
// at the first look, unless an older card has it, or a lost one that a pod still
// names. A lost card that no pod names makes room, and is dropped when a card
// that came after it sits at its address: it was replaced. Those are returned.
func (r *roster) number(named func(gpu.CardID) bool) (replaced []gpu.CardID) {
	taken := map[int]bool{}
	var crowded []*member // whose number was taken
	want := func(rec *member, minor int) {
		if taken[minor] {
			crowded = append(crowded, rec)
			return
		}
		rec.minor, taken[minor] = minor, true
	}
	for _, rec := range r.members {
		if !rec.here && rec.published && named(rec.id) {
			taken[rec.minor] = true
		}
	}
	present := slices.DeleteFunc(slices.Clone(r.members), func(rec *member) bool { return !rec.here })
	slices.SortFunc(present, func(a, b *member) int {
		return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.card.Minor, b.card.Minor), cmp.Compare(a.id, b.id))
	})
	for _, rec := range present {
		want(rec, rec.card.Minor)
	}
	for _, rec := range r.members {
		switch {
		case rec.here || rec.published && named(rec.id):
		case slices.ContainsFunc(present, rec.replacedBy):
			replaced = append(replaced, rec.id)
		default:
			want(rec, rec.minor)
		}
		rec.published = true
	}
	free := 0
	for _, rec := range crowded {
		for taken[free] {
			free++
		}
		rec.minor, taken[free] = free, true
	}
	for _, id := range replaced {
		r.drop(id)
	}
	return replaced
}

// replacedBy reports whether the other card came when this one was gone, and
// sits at its address.
func (rec *member) replacedBy(other *member) bool {
	return !other.remembered && other.seen > rec.last && other.card.BDF == rec.card.BDF && other.card.BDF != ""
}

// publication puts together what is to be published. The cards must have been
// numbered.
func (r *roster) publication(node string, uid types.UID, m *modeDecision, sv *service, now time.Time) (*inventory.Publication, error) {
	p := &inventory.Publication{Node: node, NodeUID: uid, Driver: r.driver, Mode: m.mode, Pending: m.pending}
	order := slices.Clone(r.members)
	slices.SortFunc(order, func(a, b *member) int { return cmp.Compare(a.minor, b.minor) })
	cards := make([]gpu.Card, len(order))
	for i, rec := range order {
		cards[i] = rec.gpuCard()
		p.Cards = append(p.Cards, inventory.CardStatus{
			BusID: rec.card.BDF, PCIeRoot: rec.card.PCIeRoot, Errors: rec.health.errors, Conditions: r.conditions(rec, m, sv, now),
		})
	}
	var pairs []gpu.Link
	if m.mode != gpu.ModeVGPU {
		pairs = r.links.between(order)
	}
	var err error
	if p.Topology, err = gpu.NewTopology(cards, pairs); err != nil {
		return nil, fmt.Errorf("cards of %s: %w", node, err)
	}
	return p, nil
}

func (rec *member) gpuCard() gpu.Card {
	healthy, _ := rec.health.verdict()
	c := rec.card.GPU()
	c.ID, c.Minor, c.Memory = rec.id, rec.minor, c.Memory.RoundDown()
	c.Healthy = healthy && c.Memory >= gpu.MemoryStep
	return c
}

// gone returns the cards that are not there, by id and by address.
func (r *roster) gone() map[string]bool {
	gone := map[string]bool{}
	for _, rec := range r.members {
		if !rec.here {
			gone[string(rec.id)] = true
			gone[rec.card.BDF] = rec.card.BDF != ""
		}
	}
	return gone
}

// conditions returns the state of the card. Apart from Healthy there is a
// condition only where something is to be reported.
func (r *roster) conditions(rec *member, m *modeDecision, sv *service, now time.Time) []metav1.Condition {
	condition := func(kind string, status bool, f fault) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy()}
		if status {
			c.Status = metav1.ConditionTrue
		}
		return c
	}
	healthy, why := rec.health.verdict()
	list := []metav1.Condition{condition(wire.ConditionHealthy, healthy, why)}
	if f, bad := r.links.fault(rec, r.gone()); bad {
		list = append(list, condition(wire.ConditionLinked, false, f))
	}
	if r.links.unread != "" && rec.here && !rec.card.Virtual && len(list) == 1 {
		unknown := condition(wire.ConditionLinked, false, fault{reasonLinksUnread, "the links could not be read and stay as they were: " + r.links.unread})
		unknown.Status = metav1.ConditionUnknown
		list = append(list, unknown)
	}
	if m.noSlices.reason != "" {
		list = append(list, condition(wire.ConditionSlices, false, m.noSlices))
	}
	if m.waits.reason != "" {
		list = append(list, condition(wire.ConditionModePending, true, m.waits))
	}
	if sv != nil {
		list = append(list, condition(wire.ConditionServing, sv.serving, sv.why))
		if sv.waived.reason != "" {
			list = append(list, condition(wire.ConditionWaived, true, sv.waived))
		}
	}
	return list
}

// Describe returns the Device that an agent would publish after one look at
// cards it has never seen before, on a node without pods. The mode is that of
// [Config].
func Describe(node string, uid types.UID, mode gpu.Mode, s *discover.Snapshot, now time.Time) (*v1alpha1.Device, error) {
	var r roster
	r.look(s, now)
	r.number(func(gpu.CardID) bool { return false })
	q := modeQuestion{preset: mode, driver: r.driver, noSlices: r.noSlices, podsKnown: true, servesBoth: true}
	q.cards, q.virtual = r.count()
	decision := q.decide()
	p, err := r.publication(node, uid, &decision, nil, now)
	if err != nil {
		return nil, err
	}
	return inventory.EncodeDevice(p)
}

// count returns how many cards are there, and how many of them are virtual.
func (r *roster) count() (cards, virtual int) {
	for _, rec := range r.members {
		if rec.here {
			cards++
			if rec.card.Virtual {
				virtual++
			}
		}
	}
	return cards, virtual
}
