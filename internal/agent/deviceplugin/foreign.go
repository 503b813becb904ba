package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
)

// foreignRecords describes what another plugin gave to the pod's containers: its
// allocation, or else all cards of the ids. No shares: the cards are unknown.
func foreignRecords(n *Node, node *ledger.Node, pod *corev1.Pod, ids map[string][]string) []*record {
	if len(ids) == 0 {
		return nil
	}
	var records []*record
	h, known, _ := allocation.HoldingOf(n.Inventory, node, pod)
	for _, container := range slices.Sorted(maps.Keys(ids)) {
		r := &record{PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: container, Shares: wholeCards(node, ids[container])}
		at := slices.IndexFunc(h.Parts, func(p ledger.Part) bool { return p.Container == container })
		if known && at >= 0 {
			r.QoS, r.Class, r.Shares = h.QoS, h.Class, sharesOf(node, h.Parts[at].Shares, false)
		}
		records = append(records, r)
	}
	return records
}

// sharesOf returns shares of the ledger as the journal has them.
func sharesOf(node *ledger.Node, list []ledger.Share, seats bool) []share {
	var shares []share
	for _, sh := range list {
		shares = append(shares, share{Card: node.Topology().Card(sh.Card).ID, Compute: sh.Compute, Memory: sh.Memory, Exclusive: sh.Exclusive, Seat: seats})
	}
	return shares
}

// wholeCards is all of the cards that ids stand for; none if one is not known.
func wholeCards(node *ledger.Node, ids []string) []share {
	var shares []share
	for _, id := range ids {
		card, ok := inventory.CardOfID(node.Topology(), id)
		if !ok {
			return nil
		}
		shares = append(shares, share{Card: card, Exclusive: true})
	}
	return shares
}

// orphans describes what other plugins gave, by kubelet's file, to pods that were
// deleted by force and whose containers live.
func (s *Server) orphans(ctx context.Context, node *ledger.Node, g *grants) ([]*record, error) {
	held, _ := s.pods.Held()
	there := uids(held)
	for _, r := range s.journal.now().Foreign {
		there[r.PodUID] = &corev1.Pod{} // the journal knows it
	}
	var records []*record
	for _, uid := range slices.Sorted(maps.Keys(g.byUID)) {
		if there[uid] != nil {
			continue
		}
		alive, err := s.runtime.alive(ctx, uid)
		if err != nil {
			return nil, err
		}
		for _, container := range slices.Sorted(maps.Keys(g.byUID[uid])) {
			if alive {
				records = append(records, &record{PodUID: uid, Container: container, Shares: wholeCards(node, g.byUID[uid][container])})
			}
		}
	}
	return records, nil
}

// saveForeign writes what other plugins gave to the journal. Records of other pods
// stay until their containers are gone.
func (s *Server) saveForeign(records []*record) error {
	now := s.journal.now().Foreign
	for _, r := range now {
		if !slices.ContainsFunc(records, func(o *record) bool { return o.id() == r.id() }) {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	if reflect.DeepEqual(now, records) || len(now)+len(records) == 0 {
		return nil
	}
	return s.journal.change(func(d *document) error {
		d.Foreign = records
		return nil
	})
}

// tryForeign lets a container start to which the vendor's plugin gave devices before.
// kubelet hands out the same ones: they must still be the container's.
func (s *Server) tryForeign(ctx context.Context, resource string, ids []string) (*corev1.Pod, error) {
	n := s.node.Load()
	if n == nil {
		return nil, errors.New("the agent does not know the node's cards yet")
	}
	h, err := s.holders.find(ctx, resource, ids)
	if err != nil {
		return nil, fmt.Errorf("device ids %.200q are not this plugin's: %w", ids, err)
	}
	held, _ := s.pods.Held()
	pod := uids(held)[h.uid]
	if pod == nil {
		if pod, err = s.podOf(ctx, h); err != nil {
			return nil, err
		}
	}
	if err := s.acquire(ctx); err != nil {
		return pod, err
	}
	defer s.sem.Release(1)
	node, holderOf, err := s.bookOthers(n, pod.UID, nil)
	if err != nil {
		return pod, err
	}
	holding, known, _ := allocation.HoldingOf(n.Inventory, node, pod)
	if !known || !hasWhole(node, &holding, ids) {
		return pod, fmt.Errorf("the vendor's plugin gave the container devices %.200q, and their cards are not known yet", ids)
	}
	if err := checkUsage(node, &holding, holderOf); err != nil {
		return pod, err
	}
	return pod, s.checkForeign(ctx, n, node, &holding, resource, h, pod.UID)
}

// hasWhole reports whether the holding has all cards that are among the ids as a
// whole; the card of a slice is known from the allocation only.
func hasWhole(node *ledger.Node, h *ledger.Holding, ids []string) bool {
	var cards []gpu.CardID
	for _, id := range ids {
		if card, ok := inventory.CardOfID(node.Topology(), id); ok && string(card) == id {
			cards = append(cards, card)
		}
	}
	return hasCards(node, h, cards)
}

// checkForeign checks that the devices that kubelet hands out again are still the
// container's: after a reboot paths and numbers may be others'.
func (s *Server) checkForeign(ctx context.Context, n *Node, node *ledger.Node, h *ledger.Holding, resource string, to *holder, uid types.UID) error {
	allowed := map[string]bool{}
	for i := range h.Parts {
		if !slices.Contains(to.containers, h.Parts[i].Container) {
			continue
		}
		for _, sh := range h.Parts[i].Shares {
			if err := s.allowDevices(ctx, n, node.Topology().Card(sh.Card).ID, &sh, allowed); err != nil {
				return err
			}
		}
	}
	entries, err := readCheckpoint(s.holders.checkpoint)
	if err != nil {
		return fmt.Errorf("kubelet's file of devices, which has what the vendor's plugin gave: %w", err)
	}
	for i := range entries {
		e := &entries[i]
		if types.UID(e.PodUID) != uid || e.ResourceName != resource || !slices.Contains(to.containers, e.ContainerName) {
			continue
		}
		var response pluginapi.ContainerAllocateResponse
		if err := proto.Unmarshal(e.AllocResp, &response); err != nil {
			return fmt.Errorf("what the vendor's plugin gave, in kubelet's file of devices: %w", err)
		}
		for _, d := range response.GetDevices() {
			if path := d.GetHostPath(); s.cfg.Layout.isCards(path) && !allowed[path] {
				return fmt.Errorf("the vendor's plugin gave the container %s, which is not a device of its cards any more: delete the pod", path)
			}
		}
	}
	return nil
}

// allowDevices adds the paths of a share's devices: of a slice, those of all foreign
// slices on the card with the same amounts; there must be one.
func (s *Server) allowDevices(ctx context.Context, n *Node, id gpu.CardID, sh *ledger.Share, allowed map[string]bool) error {
	card, ok := n.Cards[id]
	if !ok || !card.Here {
		return fmt.Errorf("card %s is not found any more", id)
	}
	if sh.Exclusive || sh.Compute == 0 && sh.Memory == 0 { // a whole card or a seat
		nodes, err := s.cfg.Layout.shareNodes(&share{Card: id}, n.Cards)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			allowed[node.Path] = true
		}
		return nil
	}
	if s.slicer == nil {
		return errors.New("slices are looked up through the vendor's library, which this agent does not use")
	}
	now, err := s.slicer.Slices(ctx, card.BDF)
	if err != nil {
		return err
	}
	found := false
	for i := range now.Slices {
		if x := &now.Slices[i]; !IsOurs(x) && claims(&[]ledger.Share{*sh}, x) {
			node, err := s.cfg.Layout.sliceNode(x.Minor)
			if err != nil {
				return err
			}
			found, allowed[node.Path] = true, true
		}
	}
	if !found {
		return fmt.Errorf("card %s has no slice any more that the vendor's plugin made for the container: delete the pod", id)
	}
	return nil
}

func (l *Layout) isCards(path string) bool {
	return slices.ContainsFunc([]string{l.Card, l.Render, l.Slice}, func(pattern string) bool {
		var number int
		_, err := fmt.Sscanf(path, pattern, &number)
		return err == nil && filepath.Clean(path) == fmt.Sprintf(pattern, number)
	})
}
