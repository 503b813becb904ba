package allocation

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// CheckSize returns why the pod can never be bound: with the allocation that its
// request may lead to, its annotations would exceed the API server's limit. The pod
// is within [request.CheckBounds].
func CheckSize(pod *corev1.Pod, ask *request.PodRequest) field.ErrorList {
	// The UUIDs alone are too long: the allocation need not be made up.
	if shares := ask.Request.Cards(); shares*wire.MaxUUID > validation.TotalAnnotationSizeLimitB {
		return tooLong(fmt.Sprintf("the allocation needs more than %d bytes of annotations, the most that an object has: request GPUs in fewer containers", validation.TotalAnnotationSizeLimitB))
	}
	for _, n := range largestNodes() {
		largest, err := largestAnnotations(n, ask)
		if err != nil {
			return field.ErrorList{field.InternalError(field.NewPath("metadata", "annotations"), err)}
		}
		if problems := CheckWritten(pod, largest); len(problems) > 0 {
			return problems
		}
	}
	return nil
}

// CheckWritten is [CheckSize] for an allocation that has been decided on, as
// [Annotations] returns it. The API server does not check the annotations of a
// Binding, but would reject every later update of the pod.
func CheckWritten(pod *corev1.Pod, written map[string]string) field.ErrorList {
	const limit = validation.TotalAnnotationSizeLimitB
	own, needed := request.AnnotationBytes(pod, written), bytesOf(written)
	var detail string
	switch {
	case own+needed <= limit:
		return nil
	case needed > limit:
		detail = fmt.Sprintf("the allocation needs %d bytes of annotations, and an object has at most %d: ask for cards in fewer containers", needed, limit)
	default:
		detail = fmt.Sprintf("the pod's own annotations have %d bytes and the allocation needs %d, and an object has at most %d: shorten the pod's own by %d",
			own, needed, limit, own+needed-limit)
	}
	return tooLong(detail)
}

func tooLong(detail string) field.ErrorList {
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations"), detail)}
}

// bytesOf returns the size of annotations as the API server counts it.
func bytesOf(annotations map[string]string) int {
	size := 0
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	return size
}

// largestAnnotations returns what [Annotations] returns at most for the request on
// a node with names of that length.
func largestAnnotations(n *ledger.Node, ask *request.PodRequest) (map[string]string, error) {
	h := ledger.Holding{Parts: make([]ledger.Part, len(ask.Request.Requests))}
	next := 0
	for i := range ask.Request.Requests {
		for range ask.Request.Requests[i].Cards {
			// Odd, so that no unit above MiB makes it shorter.
			h.Parts[i].Shares = append(h.Parts[i].Shares, ledger.Share{Card: next % gpu.MaxCards, Compute: gpu.FullCompute, Memory: maxShareMemory - 1})
			next++
		}
	}
	return Annotations(n, ask, &h, time.Unix(0, math.MaxInt64))
}

// largestNodes returns a node whose name and cards are written with as many bytes
// as those of any node, once with cards that have names and once with cards that
// are counted.
var largestNodes = sync.OnceValue(func() []*ledger.Node {
	cards := make([]gpu.Card, gpu.MaxCards)
	for i := range cards {
		id := gpu.CardID(fmt.Sprintf("%0*d", wire.MaxUUID, i))
		cards[i] = gpu.Card{ID: id, Minor: math.MaxInt32 - i, Memory: maxShareMemory - gpu.MemoryStep, Slots: gpu.MaxSlices}
	}
	topology, err := gpu.NewTopology(cards, nil)
	if err != nil {
		panic(fmt.Sprintf("the largest node: %v", err)) // made of constants
	}
	name := strings.Repeat("n", utilvalidation.DNS1123SubdomainMaxLength)
	named, counted := ledger.NewNode(name, topology, ledger.Serves{}), ledger.NewNode(name, topology, ledger.Serves{})
	counted.Counted = true
	return []*ledger.Node{named, counted}
})
