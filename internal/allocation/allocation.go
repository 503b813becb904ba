package allocation

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Annotations returns what a scheduler writes on the pod when it binds it: the
// holding in the words of everyone who reads it, and the QoS class that was
// decided on.
//
// On a node whose cards have no identity the vendor's plugin picks them, so
// it gets no names; HAMi's tools still get their made-up names.
func Annotations(n *ledger.Node, ask *request.PodRequest, h *ledger.Holding, decided time.Time) (map[string]string, error) {
	out := map[string]string{
		wire.AnnotationPredicateTime: strconv.FormatInt(decided.UnixNano(), 10),
		wire.AnnotationHAMiNode:      n.Name,
	}
	requests := ask.Request.Requests
	if text := encodeHAMi(n, h, requests, false); text != "" {
		out[wire.AnnotationHAMiSGPU] = text
		if ask.Request.QoS != "" {
			out[wire.AnnotationQoS] = string(ask.Request.QoS)
		}
	}
	if text := encodeHAMi(n, h, requests, true); text != "" {
		out[wire.AnnotationHAMiGPU] = text
	}
	if n.Counted {
		return out, nil
	}
	vendor, err := encodeVendor(n, h)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", wire.AnnotationAllocated, err)
	}
	out[wire.AnnotationAllocated] = vendor
	if ask.Koordinator {
		koord, err := encodeKoordinator(n, h)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", wire.AnnotationKoordAllocated, err)
		}
		out[wire.AnnotationKoordAllocated] = koord
	}
	return out, nil
}

// WithoutVendor takes out of the annotations what only the vendor's plugin
// reads. What is left still has the allocation.
func WithoutVendor(annotations map[string]string) {
	delete(annotations, wire.AnnotationAllocated)
	delete(annotations, wire.AnnotationPredicateTime)
}

// HAMi's words for the two kinds of share.
const (
	hamiSGPU = "Metax-SGPU"
	hamiGPU  = "Metax-GPU"
)

// encodeVendor lists, container by container, the shares of cards.
func encodeVendor(n *ledger.Node, h *ledger.Holding) (string, error) {
	lists := make([][]NamedShare, len(h.Parts))
	for i := range h.Parts {
		lists[i] = []NamedShare{}
		for _, s := range h.Parts[i].Shares {
			lists[i] = append(lists[i], NamedShare{n.Topology().Card(s.Card).ID, s.Compute, s.Memory})
		}
	}
	text, err := json.Marshal(lists)
	return string(text), err
}

// encodeHAMi lists the shares of one kind in HAMi's format: fields end in a
// comma, shares in a colon, containers in a semicolon, also those without a
// share. It is empty when no container has a share of the kind.
func encodeHAMi(n *ledger.Node, h *ledger.Holding, requests []gpu.Request, whole bool) string {
	kind, found := hamiSGPU, false
	if whole {
		kind = hamiGPU
	}
	var b strings.Builder
	for i := range h.Parts {
		if requests[i].Whole == whole {
			for _, s := range h.Parts[i].Shares {
				id := n.Topology().Card(s.Card).ID
				if n.Counted {
					id = countedName(n.Name, s.Card)
				}
				fmt.Fprintf(&b, "%s,%s,%d,%d:", id, kind, s.Memory, s.Compute)
				found = true
			}
		}
		b.WriteByte(';')
	}
	if !found {
		return ""
	}
	return b.String()
}

// countedName is HAMi's name for a card that it can count but not name.
func countedName(node string, index int) gpu.CardID {
	return gpu.CardID(fmt.Sprintf("%s-metax-%d", node, index))
}

// koordAllocation is Koordinator's format: what the pod holds of each card, by
// type of device.
type koordAllocation map[v1alpha1.DeviceType][]koordCard

type koordCard struct {
	Minor     int32               `json:"minor"`
	Resources corev1.ResourceList `json:"resources"`
	ID        gpu.CardID          `json:"id,omitempty"`
}

func encodeKoordinator(n *ledger.Node, h *ledger.Holding) (string, error) {
	var cards []koordCard
	for c := range h.Cards().All() {
		card, booked := n.Topology().Card(c), h.On(c)
		ratio := int64(0)
		if card.Memory > 0 {
			// Rounded up: for a pod that asks by ratio Koordinator adds up ratios alone,
			// and what is lost in rounding would be free to it.
			ratio = int64((booked.Memory*100 + card.Memory - 1) / card.Memory)
		}
		cards = append(cards, koordCard{
			Minor: int32(card.Minor), ID: card.ID,
			Resources: corev1.ResourceList{
				wire.KoordCore:        *resource.NewQuantity(int64(booked.Compute), resource.DecimalSI),
				wire.KoordMemory:      *resource.NewQuantity(int64(booked.Memory)*wire.Mebibyte, resource.BinarySI),
				wire.KoordMemoryRatio: *resource.NewQuantity(ratio, resource.DecimalSI),
			},
		})
	}
	text, err := json.Marshal(koordAllocation{v1alpha1.DeviceTypeGPU: cards})
	return string(text), err
}
