package wire

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Resources that containers ask for; the table below has what each is.
const (
	ResourceGPU     corev1.ResourceName = "metax-tech.com/gpu"
	ResourceSGPU    corev1.ResourceName = "metax-tech.com/sgpu"
	ResourceVCore   corev1.ResourceName = "metax-tech.com/vcore"
	ResourceVMemory corev1.ResourceName = "metax-tech.com/vmemory"

	KoordShared      corev1.ResourceName = "koordinator.sh/gpu.shared"
	KoordCore        corev1.ResourceName = "koordinator.sh/gpu-core"
	KoordMemory      corev1.ResourceName = "koordinator.sh/gpu-memory"
	KoordMemoryRatio corev1.ResourceName = "koordinator.sh/gpu-memory-ratio"
	KoordGPU         corev1.ResourceName = "koordinator.sh/gpu"
)

// QuotaEnforced is the value of [LabelQuota].
const QuotaEnforced = "enforced"

// Amounts that the manager writes on the first app container of a pod that Daybreak
// schedules: what quotas count, of all containers and cards together. No node
// advertises them, and kubelet ignores what its node does not advertise.
const (
	ResourceCompute corev1.ResourceName = "daybreak-gpu.io/compute"
	ResourceMemory  corev1.ResourceName = "daybreak-gpu.io/memory"
	ResourceCards   corev1.ResourceName = "daybreak-gpu.io/cards"
)

var amounts = []Resource{
	{Name: ResourceCompute, Means: "compute of all containers and cards together, at the pod's peak. Online pods count all compute of their cards", WrittenBy: "manager", ReadBy: amountReaders, Format: "percent of one card: 250 is two and a half cards"},
	{
		Name: ResourceMemory, Means: "memory of all containers and cards together. An exclusive card counts all of its memory; it, and shares of a card's memory, count as on the largest card that fits the pod",
		WrittenBy: "manager", ReadBy: amountReaders, Format: "bytes, such as 4Gi",
	},
	{Name: ResourceCards, Means: "the number of exclusive cards: whole cards, slices with all of the compute, and the cards of online pods", WrittenBy: "manager", ReadBy: amountReaders, Format: "0 or more"},
}

const amountReaders = "the API server, for ResourceQuotas; Kueue"

// AmountTable returns the amounts for the reference.
func AmountTable() []Resource { return slices.Clone(amounts) }

// AmountResources returns the amounts.
func AmountResources() []corev1.ResourceName {
	return []corev1.ResourceName{ResourceCompute, ResourceMemory, ResourceCards}
}

// Advertised is how much of a resource the manager makes a node advertise.
type Advertised uint8

// The amounts: none, 100 for each healthy card, the memory of the healthy cards, or more
// than pods can ask for, which some versions of kubelet need; see [UnlimitedAmounts].
const (
	NotAdvertised Advertised = iota
	AdvertisedPercent
	AdvertisedMemory
	AdvertisedUnlimited
)

// Resource is a row of the table of resources. Every list of resources, those of
// the policies in the chart among them, is made from it, and so is the reference.
type Resource struct {
	Name corev1.ResourceName
	// Koordinator: the name is of Koordinator's dialect, which asks for cards of other
	// vendors too. HAMi's names are MetaX's own.
	Koordinator bool
	// Devices: kubelet allocates it from a device plugin, so that only a pod with
	// it in its limits can hold cards.
	Devices bool
	// Uncounted: it is an amount of each device, so that its sum over pods means nothing.
	Uncounted  bool
	Advertised Advertised
	// For the reference.
	Means, WrittenBy, ReadBy, Format string
}

var table = []Resource{
	{
		Name: ResourceGPU, Devices: true,
		Means:     "the number of whole cards",
		WrittenBy: "users; the node's device plugin, as capacity", ReadBy: "scheduler, agent", Format: "1 to 64",
	},
	{
		Name: ResourceSGPU, Devices: true,
		Means:     "the number of cards to share, with HAMi's or Koordinator's resources",
		WrittenBy: "users; manager, in pods with Koordinator's resources; the node's device plugin, as capacity, 16 for each card",
		ReadBy:    "scheduler, agent", Format: "1 to 64",
	},
	{
		Name: ResourceVCore, Uncounted: true, Advertised: AdvertisedUnlimited,
		Means:     "the compute of each share. Without it, the card is exclusive",
		WrittenBy: "users; manager, as unlimited capacity, if kubelet is older than 1.31", ReadBy: "scheduler, agent", Format: "percent, 0 to 100",
	},
	{
		Name: ResourceVMemory, Uncounted: true, Advertised: AdvertisedUnlimited,
		Means:     "the memory of each share. Without it, all memory of the card",
		WrittenBy: "users; manager, as unlimited capacity, if kubelet is older than 1.31", ReadBy: "scheduler, agent", Format: "GiB, 1 to 1024, or 1Mi to 1Ti with a unit. Write 1000 as `1000Gi`: Kubernetes stores a bare 1000 as 1k, which is rejected",
	},
	{
		Name: KoordShared, Koordinator: true, Advertised: AdvertisedPercent,
		Means:     "the number of cards; the amounts below are divided by it",
		WrittenBy: "users; manager, if missing, and as capacity, 100 for each healthy card",
		ReadBy:    "scheduler, agent", Format: "1 to 64; over 1 only with whole cards",
	},
	{
		Name: KoordCore, Koordinator: true, Advertised: AdvertisedPercent,
		Means:     "compute of all cards together",
		WrittenBy: "users; manager, as capacity, 100 for each healthy card", ReadBy: "scheduler, agent", Format: "percent",
	},
	{
		Name: KoordMemory, Koordinator: true, Advertised: AdvertisedMemory,
		Means:     "memory of all cards together",
		WrittenBy: "users; manager, as capacity, summed over the healthy cards", ReadBy: "scheduler, agent", Format: "bytes, such as 4Gi",
	},
	{
		Name: KoordMemoryRatio, Koordinator: true, Advertised: AdvertisedPercent,
		Means:     "memory of all cards together, in place of the amount",
		WrittenBy: "users; manager, as capacity, 100 for each healthy card", ReadBy: "scheduler, agent", Format: "percent",
	},
	{
		Name: KoordGPU, Koordinator: true, Advertised: AdvertisedPercent,
		Means:     "compute and memory in percent, in one. Admission writes the two out",
		WrittenBy: "users; manager, as capacity, 100 for each healthy card", ReadBy: "manager", Format: "percent; 100 for each whole card",
	},
}

// ResourceTable returns the table.
func ResourceTable() []Resource { return slices.Clone(table) }

// Lists that every pod of a cluster is compared with.
var (
	resources       = namesWhere(func(Resource) bool { return true })
	deviceResources = namesWhere(func(r Resource) bool { return r.Devices })
)

func namesWhere(check func(Resource) bool) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, r := range table {
		if check(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// ResourcePrefixes lists the beginnings of the names of all resources that ask for
// cards. Koordinator has other resources under koordinator.sh.
func ResourcePrefixes() []string { return []string{"metax-tech.com/", "koordinator.sh/gpu"} }

// OtherResources returns names that begin so and are served by others: cards that
// are passed through to virtual machines.
func OtherResources() []corev1.ResourceName {
	return []corev1.ResourceName{"metax-tech.com/vfio-gpu"}
}

// IsUnknown reports whether the resource begins as those that ask for cards and is
// none that anyone serves.
func IsUnknown(name corev1.ResourceName) bool {
	return slices.ContainsFunc(ResourcePrefixes(), func(prefix string) bool { return strings.HasPrefix(string(name), prefix) }) &&
		!slices.Contains(resources, name) && !slices.Contains(OtherResources(), name)
}

// Resources returns the names of all resources that ask for cards.
func Resources() []corev1.ResourceName { return slices.Clone(resources) }

// MetaXResources returns those that name MetaX. Koordinator's do not.
func MetaXResources() []corev1.ResourceName {
	return namesWhere(func(r Resource) bool { return !r.Koordinator })
}

// KoordinatorResources returns those of Koordinator.
func KoordinatorResources() []corev1.ResourceName {
	return namesWhere(func(r Resource) bool { return r.Koordinator })
}

// DeviceResources returns those that a node's device plugin serves.
func DeviceResources() []corev1.ResourceName { return slices.Clone(deviceResources) }

// AdvertisedResources returns those that the manager makes a node advertise, in
// the order of messages.
func AdvertisedResources() []corev1.ResourceName {
	return namesWhere(func(r Resource) bool { return r.Advertised != NotAdvertised })
}

// AdvertisedAmounts returns how much of them a node advertises with so many
// healthy cards, which have this memory together.
func AdvertisedAmounts(healthy int, memory gpu.MiB) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for _, r := range table {
		switch r.Advertised {
		case AdvertisedPercent:
			amounts[r.Name] = *resource.NewQuantity(100*int64(healthy), resource.DecimalSI)
		case AdvertisedMemory:
			amounts[r.Name] = *resource.NewQuantity(int64(memory)*Mebibyte, resource.BinarySI)
		}
	}
	return amounts
}

// UnlimitedAmounts returns what a node advertises of resources that are amounts of each
// device. kubelet before 1.31 fails pods whose init containers ask for a resource that
// the node does not have.
func UnlimitedAmounts() corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for _, r := range table {
		if r.Advertised == AdvertisedUnlimited {
			amounts[r.Name] = *resource.NewQuantity(unlimited, resource.BinarySI)
		}
	}
	return amounts
}

// unlimited is 8 times what 16 slices of 1 TiB on each of 64 cards add up to. The API
// server rejects amounts whose thousandths exceed 64 bits.
const unlimited = 1 << 53

// Uncounted reports whether the resource is ours and an amount of each device.
func Uncounted(name corev1.ResourceName) bool {
	return slices.ContainsFunc(table, func(r Resource) bool { return r.Name == name && r.Uncounted })
}
