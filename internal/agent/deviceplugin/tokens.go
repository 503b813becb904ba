package deviceplugin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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

// perCard is how many tokens of a resource stand for one card in a mode.
func perCard(resource corev1.ResourceName, mode gpu.Mode) int {
	switch {
	case resource == wire.ResourceSGPU && mode == gpu.ModeSGPU, resource == wire.ResourceGPU && mode == gpu.ModeShared:
		return gpu.MaxSlices
	case resource == wire.ResourceGPU && mode != "":
		return 1
	}
	return 0
}

// tokens lists the tokens of a resource. Held ones stay in the list and are as
// healthy as the card that they stand for. Free ones make up the number of
// unhealthy tokens, so that no pod is marked for a card that it does not have;
// fresh ones, given a moment ago, come last.
func tokens(resource corev1.ResourceName, node *Node, held map[string]gpu.CardID, fresh map[string]time.Time) []*pluginapi.Device {
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
		return cmp.Or(fresh[a.GetID()].Compare(fresh[b.GetID()]), cmp.Compare(b.GetID(), a.GetID()))
	})
	for _, d := range order {
		if _, isHeld := held[d.GetID()]; ill > 0 && !isHeld {
			d.Health = pluginapi.Unhealthy
			ill--
		}
	}
	return devices
}

// tokenIDs returns n ids, sorted: those that are held, then the lowest free numbers.
func tokenIDs(resource corev1.ResourceName, n int, held map[string]gpu.CardID, fresh map[string]time.Time) []string {
	prefix := strings.TrimSuffix(token(resource, 0), "000")
	ids := sets.KeySet(held).Union(sets.KeySet(fresh))
	for id := range ids {
		if !strings.HasPrefix(id, prefix) {
			ids.Delete(id)
		}
	}
	for i := 0; len(ids) < n; i++ {
		ids.Insert(token(resource, i))
	}
	return sets.List(ids)
}
