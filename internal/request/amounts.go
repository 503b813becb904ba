package request

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// WriteAmounts writes on the pod what quotas count, and removes what else was
// written under these names. Like [ApplyDefaults] it never changes a map in place.
func WriteAmounts(spec *corev1.PodSpec, a ledger.Amounts) {
	amounts := corev1.ResourceList{
		wire.ResourceCompute: *resource.NewQuantity(int64(a.Compute), resource.DecimalSI),
		wire.ResourceMemory:  *resource.NewQuantity(int64(a.Memory)*wire.Mebibyte, resource.BinarySI),
		wire.ResourceCards:   *resource.NewQuantity(int64(a.Cards), resource.DecimalSI),
	}
	for i := range spec.InitContainers {
		replace(&spec.InitContainers[i].Resources, wire.AmountResources(), nil)
	}
	for i := range spec.Containers {
		replace(&spec.Containers[i].Resources, wire.AmountResources(), amounts)
		amounts = nil
	}
}

// ReadAmounts returns what quotas count of the pod, and false if it carries no
// amounts: it was created before there were any, or while no manager answered.
func ReadAmounts(spec *corev1.PodSpec) (a ledger.Amounts, metered bool) {
	if len(spec.Containers) == 0 {
		return a, false
	}
	limits := spec.Containers[0].Resources.Limits
	for _, name := range wire.AmountResources() {
		if _, ok := limits[name]; !ok {
			return ledger.Amounts{}, false
		}
	}
	value := func(name corev1.ResourceName) int64 { q := limits[name]; return q.Value() }
	return ledger.Amounts{
		Compute: gpu.Percent(value(wire.ResourceCompute)),
		Memory:  gpu.MiB(value(wire.ResourceMemory) / wire.Mebibyte),
		Cards:   int(value(wire.ResourceCards)),
	}, true
}

// ReadPending is [Read] for a pod that is yet to be placed. It rejects one that is
// larger than [CheckBounds] allows, too, and one that carries less than what it
// requests: no manager wrote that. A pod without a UID is yet to be admitted, which
// writes the amounts.
func ReadPending(pod *corev1.Pod) (*PodRequest, field.ErrorList) {
	if wire.Asks(pod) {
		if problems := CheckBounds(pod); len(problems) > 0 {
			return nil, problems
		}
	}
	ask, problems := Read(pod)
	if ask != nil && pod.UID != "" {
		if problems = checkAmounts(&pod.Spec, &ask.Request); len(problems) > 0 {
			ask = nil
		}
	}
	return ask, problems
}

// checkAmounts compares the amounts with the least that the pod requests: of what
// depends on a card's memory, that of the smallest card.
func checkAmounts(spec *corev1.PodSpec, r *gpu.PodRequest) (problems field.ErrorList) {
	has, metered := ReadAmounts(spec)
	if !metered {
		return nil
	}
	path, least := field.NewPath("spec", "containers").Index(0).Child("resources", "limits"), ledger.PeakOf(r, 0)
	for _, a := range []struct {
		name       corev1.ResourceName
		has, least int64
	}{
		{wire.ResourceCompute, int64(has.Compute), int64(least.Compute)},
		{wire.ResourceMemory, int64(has.Memory) * wire.Mebibyte, int64(least.Memory) * wire.Mebibyte},
		{wire.ResourceCards, int64(has.Cards), int64(least.Cards)},
	} {
		if a.has < a.least {
			problems = append(problems, field.Invalid(path.Key(string(a.name)), a.has, fmt.Sprintf("the pod requests %d: create it again while a manager runs, which writes the amount", a.least)))
		}
	}
	return problems
}
