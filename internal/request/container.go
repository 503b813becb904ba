package request

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Container is a container of either list of a pod's spec.
type Container struct {
	Name      string
	Phase     gpu.Phase
	list      string
	index     int
	resources *corev1.ResourceRequirements
}

// path returns where in the pod its resources are written. Paths are for what
// is refused: every pod of a cluster is read, and nearly none is.
func (c *Container) path() *field.Path {
	return field.NewPath("spec").Child(c.list).Index(c.index).Child("resources")
}

// Containers lists the pod's containers in the order in which they are placed
// and written down: init containers first.
func Containers(pod *corev1.Pod) []Container {
	list := make([]Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		phase := gpu.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			phase = gpu.Sidecar
		}
		list = append(list, Container{c.Name, phase, "initContainers", i, &c.Resources})
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		list = append(list, Container{c.Name, gpu.App, "containers", i, &c.Resources})
	}
	return list
}

// reader reads the resources of one container.
type reader struct {
	Container
	// online pods are not metered: their compute is checked, then ignored.
	online bool

	koordinator bool
	problems    field.ErrorList
}

// amount is a resource of the container, with the place it was written at.
type amount struct {
	resource.Quantity
	name corev1.ResourceName
	in   *Container
	list string
}

// path returns where in the pod the amount is written.
func (a *amount) path() *field.Path { return a.in.path().Child(a.list).Key(string(a.name)) }

// written reports whether the amount is there at all.
func (a *amount) written() bool { return a.in != nil }

// firstWritten returns the first of the amounts that is there.
func firstWritten(amounts ...amount) amount {
	for _, a := range amounts {
		if a.written() {
			return a
		}
	}
	return amount{}
}

// find returns the resource from limits, else from requests.
func (r *reader) find(name corev1.ResourceName) amount {
	if q, ok := r.resources.Limits[name]; ok {
		return amount{q, name, &r.Container, "limits"}
	}
	if q, ok := r.resources.Requests[name]; ok {
		return amount{q, name, &r.Container, "requests"}
	}
	return amount{}
}

// sameInBoth checks that what stands in limits and requests is equal: cards
// can't be overcommitted.
func (r *reader) sameInBoth() {
	for _, name := range wire.Resources() {
		limit, limited := r.resources.Limits[name]
		request, requested := r.resources.Requests[name]
		if limited && requested && limit.Cmp(request) != 0 {
			r.invalid(amount{request, name, &r.Container, "requests"},
				fmt.Sprintf("differs from the limit: write %s in both, or in limits alone", limit.String()))
		}
	}
}

func (r *reader) invalid(a amount, detail string) {
	r.problems = append(r.problems, field.Invalid(a.path(), a.String(), detail))
}

// request reads the container. When it returns with problems, what it returns
// is of no use.
func (r *reader) request() gpu.Request {
	r.sameInBoth()
	whole := r.count(wire.ResourceGPU)
	shares := r.count(wire.ResourceSGPU)
	koord, hami := r.readKoordinator(), r.readHAMi()
	r.koordinator = koord.first.written()
	if !r.oneDialect(whole, shares, &koord, &hami) {
		return gpu.Request{}
	}
	switch {
	case r.koordinator:
		return r.koordRequest(&koord, shares)
	case whole > 0:
		return gpu.Request{Cards: whole, Whole: true, Exclusive: true, Compute: gpu.FullCompute, Memory: gpu.AllMemory()}
	case shares > 0:
		return r.metered(gpu.Request{Cards: shares, Compute: hami.compute, Memory: hami.memory})
	}
	return gpu.Request{}
}

// oneDialect reports resources that can't stand in one container.
func (r *reader) oneDialect(whole, shares int, koord *koordAmounts, hami *hamiAmounts) bool {
	before := len(r.problems)
	switch {
	case whole > 0 && shares > 0:
		r.invalid(r.find(wire.ResourceGPU), fmt.Sprintf("a container takes whole cards or shares of cards: remove %s or %s", wire.ResourceGPU, wire.ResourceSGPU))
	case whole > 0 && koord.first.written():
		r.invalid(r.find(wire.ResourceGPU), fmt.Sprintf("a container asks in one dialect: remove %s, or the koordinator.sh amounts", wire.ResourceGPU))
	case hami.first.written() && koord.first.written():
		r.invalid(koord.first, fmt.Sprintf("a container asks in one dialect: keep the koordinator.sh amounts, or %s and %s", wire.ResourceVCore, wire.ResourceVMemory))
	case hami.first.written() && whole > 0:
		r.invalid(hami.first, fmt.Sprintf("is an amount of a share, and a whole card comes with all of it: remove it, or write %s in place of %s", wire.ResourceSGPU, wire.ResourceGPU))
	case hami.first.written() && shares == 0:
		r.invalid(hami.first, fmt.Sprintf("is an amount of each card, but no card is asked for: add %s: 1", wire.ResourceSGPU))
	}
	return len(r.problems) == before
}

// hamiAmounts is what a container wrote of HAMi's amounts for each card. What
// it left out is all there is: that of compute, or of memory.
type hamiAmounts struct {
	compute gpu.Percent
	memory  gpu.Memory
	// first is one of those written, to report at.
	first amount
}

func (r *reader) readHAMi() hamiAmounts {
	compute, memory := r.find(wire.ResourceVCore), r.find(wire.ResourceVMemory)
	h := hamiAmounts{compute: gpu.FullCompute, memory: gpu.AllMemory(), first: firstWritten(compute, memory)}
	if memory.written() {
		h.memory = gpu.Memory{Amount: r.vmemory(memory)}
	}
	if compute.written() {
		h.compute = gpu.Percent(r.percent(compute, 100))
	}
	return h
}

// metered completes a share: all of a card's compute means alone on it, except
// for online pods, whose compute does not count.
func (r *reader) metered(req gpu.Request) gpu.Request {
	if r.online {
		req.Compute = 0
	}
	req.Exclusive = req.Compute == gpu.FullCompute
	return req
}

// count reads a number of cards. Zero is how templates say none.
func (r *reader) count(name corev1.ResourceName) int {
	a := r.find(name)
	if !a.written() {
		return 0
	}
	v, whole := wire.WholeNumber(a.Quantity, gpu.MaxCards)
	if !whole {
		r.invalid(a, fmt.Sprintf("cards are counted: write a whole number from 1 to %d", gpu.MaxCards))
		return 1 // so that no second problem follows from this one
	}
	return int(v)
}

// countedAt returns where the container says how many cards it wants, and what
// stands there for one.
func (r *reader) countedAt() (at amount, one string) {
	for _, name := range []corev1.ResourceName{wire.ResourceGPU, wire.KoordShared, wire.ResourceSGPU} {
		if a := r.find(name); a.Sign() > 0 {
			return a, "1"
		}
	}
	for _, name := range []corev1.ResourceName{wire.KoordGPU, wire.KoordMemoryRatio, wire.KoordCore} {
		if a := r.find(name); a.CmpInt64(100) > 0 {
			return a, "at most 100"
		}
	}
	return amount{}, ""
}

// percent reads a whole number of percent.
func (r *reader) percent(a amount, most int64) int64 {
	v, ok := wire.WholeNumber(a.Quantity, most)
	if !ok {
		r.invalid(a, fmt.Sprintf("is in percent: write a whole number from 0 to %d", most))
	}
	return v
}

const (
	maxGiB   = 1024
	tebibyte = 1 << 40
)

// vmemory reads HAMi's amount of memory: a bare number is GiB, a number with a
// unit is what it says. Only the canonical form counts, since that is what the
// API server keeps: 4000 is stored as 4k, and could no longer be distinguished from
// 4000 bytes.
func (r *reader) vmemory(a amount) gpu.MiB {
	text := a.String()
	unit := strings.TrimLeft(text, "+-0123456789.")
	switch {
	case unit == "":
		if v, ok := wire.WholeNumber(a.Quantity, maxGiB); ok && v > 0 {
			return gpu.MiB(v) * 1024
		}
		r.invalid(a, "a number without a unit is GiB: write 1 to 999, or an amount with a unit such as 512Mi")
		return 0
	case unit == "k" || unit == "m" || unit == "n" || unit == "u" || strings.ContainsAny(unit, "e0123456789"):
		r.invalid(a, fmt.Sprintf("Kubernetes keeps it as %s, which is no amount of card memory: write whole GiB from 1 to 999 or an amount with a unit, such as 4, 4Gi or 4096Mi", text))
		return 0
	}
	return r.bytes(a)
}

// bytes reads an amount in bytes and rounds it up to what a slice can have.
func (r *reader) bytes(a amount) gpu.MiB {
	if a.CmpInt64(wire.Mebibyte) < 0 || a.CmpInt64(tebibyte) > 0 {
		r.invalid(a, "card memory goes from 1Mi to 1Ti: write for example 4Gi or 4096Mi")
		return 0
	}
	return gpu.MiB((a.Value() + wire.Mebibyte - 1) / wire.Mebibyte).RoundUp()
}
