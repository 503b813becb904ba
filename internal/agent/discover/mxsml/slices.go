package mxsml

import (
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// readSlices reads whether the card is sliced, into what, and how much of its
// memory slices may use in all.
func (s *session) readSlices(id uint32, card *discover.Card) {
	if s.lib.sgpuToggle == nil || card.Virtual {
		return
	}
	var on uint32
	if s.lib.sgpuToggle(id, &on) != success {
		return
	}
	card.Sliced = new(on != 0)
	if on == 0 {
		return
	}
	if s.lib.sgpuQuota != nil {
		var quota padded[sgpuQuota]
		if s.lib.sgpuQuota(id, &quota.value) == success {
			if total := gpu.MiB(quota.value.totalVRAM).RoundDown(); total > 0 && total <= card.Memory {
				card.Memory = total
			}
		}
	}
	if s.lib.sgpuInfo != nil {
		card.Figures.Slices = s.slices(id)
	}
}

// slices lists the slices of a card. Their ids have gaps; an id without a slice
// is "not supported". If one can't be read, none is told: half a list would
// look like a whole one.
func (s *session) slices(id uint32) []discover.Slice {
	out := []discover.Slice{}
	for n := range uint32(maxSGPU) {
		var info padded[sgpuInfo]
		switch s.lib.sgpuInfo(id, n, &info.value) {
		case success:
		case operationNotSupport:
			continue
		default:
			return nil
		}
		slice := discover.Slice{
			ID: int(n), UUID: text(info.value.uuid[:]), Minor: int(info.value.minor),
			Memory: gpu.MiB(info.value.vramQuota), ComputePercent: gpu.Percent(min(info.value.computeQuota, uint32(gpu.FullCompute))),
		}
		s.readSlice(id, n, &slice)
		out = append(out, slice)
	}
	return out
}

func (s *session) readSlice(id, n uint32, slice *discover.Slice) {
	if s.lib.sgpuAlias != nil {
		slice.Alias = s.textOf(func(b *byte, size *uint32) uint32 { return s.lib.sgpuAlias(id, n, b, size) })
	}
	if s.lib.sgpuUsage != nil {
		var usage int32
		if s.lib.sgpuUsage(id, n, &usage) == success {
			slice.UsagePercent = new(float64(usage) / usageScale)
		}
	}
	if s.lib.sgpuMemory != nil {
		var memory padded[sgpuMemory]
		if s.lib.sgpuMemory(id, n, &memory.value) == success {
			slice.MemoryUsed = new(gpu.MiB(memory.value.used >> 20))
		}
	}
}
