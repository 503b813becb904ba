package mxsml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// schedClasses are the library's numbers of the QoS classes, by position.
var schedClasses = []gpu.QoS{gpu.BestEffort, gpu.FixedShare, gpu.BurstShare}

// device returns the library's number of the card at a PCI address.
func (s *session) device(bdf string) (uint32, error) {
	some, err := s.begin()
	if err != nil {
		return 0, err
	}
	if some {
		for id := range min(s.lib.count(), maxDevices) {
			var info padded[deviceInfo]
			if s.lib.info(id, &info.value) != success {
				continue
			}
			if _, at, _ := identity(info.value); at == bdf {
				return id, nil
			}
		}
	}
	s.wanted = true
	return 0, fmt.Errorf("the library knows no card at %s", bdf)
}

// neededForSlices are the functions without which no slices are made.
var neededForSlices = []string{
	"mxSmlSetSgpuToggle", "mxSmlCreateSgpu", "mxSmlRemoveSgpu", "mxSmlSetSgpuAlias", "mxSmlGetSgpuAlias", "mxSmlGetSgpuInfo", "mxSmlGetSgpuToggle",
}

// noSlices returns why no slices can be made, of these cards at least: the library or the
// driver has no slices. A card that does not answer is no reason.
func (s *session) noSlices(cards []discover.Card) string {
	for _, name := range neededForSlices {
		if slices.Contains(s.lib.missing, name) {
			return fmt.Sprintf("%s has no function %s, so it makes no slices: install a later driver", s.lib.path, name)
		}
	}
	for i := range cards {
		c, on := &cards[i], uint32(0)
		if s.lib.sgpuToggle != nil && c.Sliced == nil && !c.Virtual && !c.Unavailable() && s.lib.sgpuToggle(uint32(c.Minor), &on) == operationNotSupport {
			return fmt.Sprintf("the driver makes no slices of GPU %d, model %s", c.Minor, c.Model)
		}
	}
	return ""
}

// call turns a code into an error with the name of its function.
func (s *session) call(function string, code uint32) error {
	switch code {
	case success:
		return nil
	case busyDevice:
		return fmt.Errorf("%s: %w", function, discover.ErrBusy)
	}
	return fmt.Errorf("%s: %w", function, s.lib.failure(code))
}

// readSlices reads whether the card is sliced, into what, and how much of its
// memory slices may use in all.
func (s *session) readSlices(id uint32, card *discover.Card) {
	if card.Virtual {
		return
	}
	on, ok := read(s.lib.sgpuToggle, id)
	if !ok {
		return
	}
	card.Sliced = new(on != 0)
	if on == 0 {
		return
	}
	if quota, ok := read(s.lib.sgpuQuota, id); ok {
		if total := gpu.MiB(quota.totalVRAM).RoundDown(); total > 0 && total <= card.Memory {
			card.Memory = total
		}
	}
	if s.lib.sgpuInfo != nil {
		card.Figures.Slices = s.slices(id)
	}
}

// slices lists the slices of a card. Their ids have gaps; an id without a slice
// is "not supported". If one can't be read, none is returned: half a list would
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
		if s.lib.sgpuAlias != nil {
			slice.Alias = readText(func(b *byte, size *uint32) uint32 { return s.lib.sgpuAlias(id, n, b, size) })
		}
		if usage, ok := readPart(s.lib.sgpuUsage, id, n); ok {
			slice.UsagePercent = new(float64(usage) / usageScale)
		}
		if memory, ok := readPart(s.lib.sgpuMemory, id, n); ok {
			slice.MemoryUsed = new(gpu.MiB(memory.used >> 20))
		}
		out = append(out, slice)
	}
	return out
}

// Slices reads how a card is sliced.
func (s *session) Slices(ref discover.SliceRef, out *discover.CardSlices) (err error) {
	_, *out, err = s.sliced(ref.BDF)
	return err
}

// sliced returns the library's number of a card and how the card is sliced.
func (s *session) sliced(bdf string) (id uint32, out discover.CardSlices, err error) {
	if err := s.load(); err != nil {
		return 0, out, err
	}
	if why := s.noSlices(nil); why != "" {
		return 0, out, errors.New(why)
	}
	if id, err = s.device(bdf); err != nil {
		return 0, out, err
	}
	var on uint32
	if err := s.call("mxSmlGetSgpuToggle", s.lib.sgpuToggle(id, &on)); err != nil {
		return 0, out, err
	}
	out = discover.CardSlices{On: on != 0, Slices: []discover.Slice{}}
	if on == 0 {
		return id, out, nil
	}
	if class, ok := read(s.lib.schedClass, id); ok && int(class) < len(schedClasses) {
		out.QoS = schedClasses[class]
	}
	if out.Slices = s.slices(id); out.Slices == nil {
		return 0, out, fmt.Errorf("the slices of the card at %s can't be read", bdf)
	}
	return id, out, nil
}

// Create makes a slice: slicing is switched on and the class set first. A slice that
// can't be named or is not listed is removed, since no record leads to it; what was
// there before is left alone.
func (s *session) Create(order discover.SliceOrder, out *discover.Slice) error {
	id, now, err := s.sliced(order.BDF)
	if err != nil {
		return err
	}
	if !now.On {
		if err := s.call("mxSmlSetSgpuToggle", s.lib.setToggle(id, 1)); err != nil {
			return err
		}
	}
	if err := s.setClass(id, order.QoS, &now); err != nil {
		return err
	}
	var made uint32
	if err := s.call("mxSmlCreateSgpu", s.lib.createSGPU(id, uint32(order.Memory), uint32(order.Compute), &made)); err != nil {
		return err
	}
	if slices.ContainsFunc(now.Slices, func(x discover.Slice) bool { return x.ID == int(made) }) {
		return fmt.Errorf("mxSmlCreateSgpu returned number %d, which a slice of the card at %s had before", made, order.BDF)
	}
	err = s.call("mxSmlSetSgpuAlias", s.lib.setAlias(id, made, order.Alias))
	if err == nil && order.Urgent && s.lib.setPriority != nil {
		err = s.call("mxSmlSetSgpuDeviceQueuePriority", s.lib.setPriority(id, made, 1))
	}
	_, x, lost := s.find(discover.SliceRef{BDF: order.BDF, ID: int(made)})
	*out = x
	if lost != nil {
		err = lost // that is why it has no name
	}
	if err != nil {
		return errors.Join(s.call("mxSmlRemoveSgpu", s.lib.removeSGPU(id, made)), err)
	}
	return nil
}

// setClass makes the card run a class, which it can change only while there
// are no slices on it.
func (s *session) setClass(id uint32, qos gpu.QoS, now *discover.CardSlices) error {
	class := slices.Index(schedClasses, qos)
	switch {
	case qos == "" || qos == now.QoS:
		return nil
	case class < 0:
		return fmt.Errorf("no class %q", qos)
	case s.lib.setSchedClass == nil:
		return fmt.Errorf("%s has no function mxSmlSetDeviceSchedClass, so a card's class can't be set", s.lib.path)
	case len(now.Slices) > 0:
		return fmt.Errorf("the card runs class %s with %d slices, %s is wanted: %w", now.QoS, len(now.Slices), qos, discover.ErrBusy)
	}
	return s.call("mxSmlSetDeviceSchedClass", s.lib.setSchedClass(id, uint32(class)))
}

// Remove removes a slice.
func (s *session) Remove(ref discover.SliceRef, _ *struct{}) error {
	id, now, err := s.find(ref)
	if err != nil {
		return err
	}
	return s.call("mxSmlRemoveSgpu", s.lib.removeSGPU(id, uint32(now.ID)))
}

// find returns the library's number of a card, and the slice if it is the one
// that is meant.
func (s *session) find(ref discover.SliceRef) (id uint32, slice discover.Slice, err error) {
	id, now, err := s.sliced(ref.BDF)
	if err != nil {
		return 0, slice, err
	}
	at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool { return x.ID == ref.ID })
	if at < 0 || ref.UUID != "" && now.Slices[at].UUID != ref.UUID {
		return 0, slice, fmt.Errorf("slice %d of the card at %s: %w", ref.ID, ref.BDF, discover.ErrNoSlice)
	}
	return id, now.Slices[at], nil
}
