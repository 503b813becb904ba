package deviceplugin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// vendorPrefix is what the names of the vendor's resources begin with.
const vendorPrefix = "metax-tech.com/"

func isVendors(resource string) bool { return strings.HasPrefix(resource, vendorPrefix) }

// Tokens are numbered, resource by resource: "daybreak-sgpu-007".
var tokenFormat = regexp.MustCompile(`^daybreak-s?gpu-\d{3,}$`)

func isToken(id string) bool { return tokenFormat.MatchString(id) }

// CDI names begin with the token that they were given for; see newName.
var nameFormat = regexp.MustCompile(`^(daybreak-s?gpu-\d{3,})-[0-9a-f]{12}$`)

// tokenOf returns the token of a CDI name; none of what is no name.
func tokenOf(name string) string {
	if match := nameFormat.FindStringSubmatch(name); match != nil {
		return match[1]
	}
	return ""
}

func token(resource corev1.ResourceName, n int) string {
	return fmt.Sprintf("daybreak-%s-%03d", strings.TrimPrefix(string(resource), vendorPrefix), n)
}

// perCard is how many tokens of a resource stand for one card in a mode; none
// where the mode does not hand it out.
func perCard(resource corev1.ResourceName, mode gpu.Mode) int {
	switch {
	case resource == wire.ResourceSGPU && mode == gpu.ModeSGPU, resource == wire.ResourceGPU && mode == gpu.ModeShared:
		return gpu.MaxSlices
	case resource == wire.ResourceGPU && mode != "":
		return 1
	}
	return 0
}

// tokens lists the tokens of a resource. Those that are held, by whoever, stay
// in the list. A held one is as healthy as the card that it stands for; what is
// left of the unhealthy ones falls on those that are free, so that the number
// is right and no pod is told that a card is ill that it does not have. Fresh
// ones were given a moment ago and are left alone for as long as others will do.
func tokens(resource corev1.ResourceName, node *Node, held map[string]gpu.CardID, fresh map[string]bool) []*pluginapi.Device {
	each := perCard(resource, node.Mode)
	if each == 0 {
		return nil
	}
	ids := tokenIDs(resource, each*len(node.Cards), held, fresh)
	ill := 0
	for _, card := range node.Cards {
		if !card.Healthy {
			ill += each
		}
	}
	devices := make([]*pluginapi.Device, len(ids))
	for i, id := range ids {
		devices[i] = &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
		if card, ok := held[id]; ok && !node.Cards[card].Healthy {
			devices[i].Health = pluginapi.Unhealthy
			ill--
		}
	}
	order := slices.Clone(devices)
	slices.SortStableFunc(order, func(a, b *pluginapi.Device) int {
		rank := func(d *pluginapi.Device) int {
			if fresh[d.GetID()] {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.GetID(), a.GetID()))
	})
	for _, d := range order {
		if _, isHeld := held[d.GetID()]; ill > 0 && !isHeld {
			d.Health = pluginapi.Unhealthy
			ill--
		}
	}
	return devices
}

// tokenIDs returns n ids, or as many as are held: those first, then the lowest
// numbers that are free. They are sorted.
func tokenIDs(resource corev1.ResourceName, n int, held map[string]gpu.CardID, fresh map[string]bool) []string {
	prefix := strings.TrimSuffix(token(resource, 0), "000")
	var ids []string
	take := func(id string) {
		if strings.HasPrefix(id, prefix) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for id := range held {
		take(id)
	}
	for id := range fresh {
		take(id)
	}
	for i := 0; len(ids) < n; i++ {
		take(token(resource, i))
	}
	slices.Sort(ids)
	return ids
}
