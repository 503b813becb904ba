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

// canSlice says which function slices need and the library lacks.
func (s *session) canSlice() error {
	for name, missing := range map[string]bool{
		"mxSmlSetSgpuToggle": s.lib.setToggle == nil, "mxSmlCreateSgpu": s.lib.createSGPU == nil, "mxSmlRemoveSgpu": s.lib.removeSGPU == nil,
		"mxSmlSetSgpuAlias": s.lib.setAlias == nil, "mxSmlGetSgpuAlias": s.lib.sgpuAlias == nil,
		"mxSmlGetSgpuInfo": s.lib.sgpuInfo == nil, "mxSmlGetSgpuToggle": s.lib.sgpuToggle == nil,
	} {
		if missing {
			return fmt.Errorf("%s has no function %s, so it makes no slices", s.lib.path, name)
		}
	}
	return nil
}

// call turns a code into an error that says which function gave it.
func (s *session) call(function string, code uint32) error {
	switch code {
	case success:
		return nil
	case busyDevice:
		return fmt.Errorf("%s: %w", function, discover.ErrBusy)
	}
	return fmt.Errorf("%s: %w", function, s.lib.failure(code))
}

// cardSlices reads how a card is sliced.
func (s *session) cardSlices(ref discover.SliceRef) (*discover.CardSlices, error) {
	if err := s.canSlice(); err != nil {
		return nil, err
	}
	id, err := s.device(ref.BDF)
	if err != nil {
		return nil, err
	}
	var on uint32
	if err := s.call("mxSmlGetSgpuToggle", s.lib.sgpuToggle(id, &on)); err != nil {
		return nil, err
	}
	out := &discover.CardSlices{On: on != 0, Slices: []discover.Slice{}}
	if on == 0 {
		return out, nil
	}
	if s.lib.schedClass != nil {
		var class uint32
		if s.lib.schedClass(id, &class) == success && int(class) < len(schedClasses) {
			out.QoS = schedClasses[class]
		}
	}
	if out.Slices = s.slices(id); out.Slices == nil {
		return nil, fmt.Errorf("the slices of the card at %s can't be read", ref.BDF)
	}
	return out, nil
}

// createSlice makes a slice: slicing is switched on and the class set first,
// and a slice that can't be named is taken back, since nobody would know it.
func (s *session) createSlice(order discover.SliceOrder) (*discover.Slice, error) {
	now, err := s.cardSlices(discover.SliceRef{BDF: order.BDF})
	if err != nil {
		return nil, err
	}
	id, err := s.device(order.BDF)
	if err != nil {
		return nil, err
	}
	if !now.On {
		if err := s.call("mxSmlSetSgpuToggle", s.lib.setToggle(id, 1)); err != nil {
			return nil, err
		}
	}
	if err := s.setClass(id, order.QoS, now); err != nil {
		return nil, err
	}
	var made uint32
	if err := s.call("mxSmlCreateSgpu", s.lib.createSGPU(id, uint32(order.Memory), uint32(order.Compute), &made)); err != nil {
		return nil, err
	}
	err = s.call("mxSmlSetSgpuAlias", s.lib.setAlias(id, made, order.Alias))
	if err == nil && order.Urgent && s.lib.setPriority != nil {
		err = s.call("mxSmlSetSgpuDeviceQueuePriority", s.lib.setPriority(id, made, 1))
	}
	if err != nil {
		return nil, errors.Join(err, s.call("mxSmlRemoveSgpu", s.lib.removeSGPU(id, made)))
	}
	return s.slice(id, discover.SliceRef{BDF: order.BDF, ID: int(made)})
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

// slice reads one slice, if it is the one that is meant.
func (s *session) slice(id uint32, ref discover.SliceRef) (*discover.Slice, error) {
	all := s.slices(id)
	if all == nil {
		return nil, fmt.Errorf("the slices of the card at %s can't be read", ref.BDF)
	}
	at := slices.IndexFunc(all, func(x discover.Slice) bool { return x.ID == ref.ID })
	if at < 0 || ref.UUID != "" && all[at].UUID != ref.UUID {
		return nil, fmt.Errorf("slice %d of the card at %s: %w", ref.ID, ref.BDF, discover.ErrNoSlice)
	}
	return &all[at], nil
}

// changeSlice names or resizes a slice.
func (s *session) changeSlice(change discover.SliceChange) (*discover.Slice, error) {
	id, now, err := s.find(change.SliceRef)
	if err != nil {
		return nil, err
	}
	n := uint32(now.ID)
	if change.Alias != nil && *change.Alias != now.Alias {
		if err := s.call("mxSmlSetSgpuAlias", s.lib.setAlias(id, n, *change.Alias)); err != nil {
			return nil, err
		}
	}
	if change.Memory != nil && *change.Memory != now.Memory {
		if s.lib.setVRAM == nil {
			return nil, errors.New("the library has no function mxSmlSetSgpuVramQuota, so a slice's memory can't be changed")
		}
		if err := s.call("mxSmlSetSgpuVramQuota", s.lib.setVRAM(id, n, uint32(*change.Memory))); err != nil {
			return nil, err
		}
	}
	if change.Compute != nil && *change.Compute != now.ComputePercent {
		if s.lib.setCompute == nil {
			return nil, errors.New("the library has no function mxSmlSetSgpuComputeQuota, so a slice's compute can't be changed")
		}
		if err := s.call("mxSmlSetSgpuComputeQuota", s.lib.setCompute(id, n, uint32(*change.Compute))); err != nil {
			return nil, err
		}
	}
	return s.slice(id, change.SliceRef)
}

// removeSlice removes a slice.
func (s *session) removeSlice(ref discover.SliceRef) error {
	id, now, err := s.find(ref)
	if err != nil {
		return err
	}
	return s.call("mxSmlRemoveSgpu", s.lib.removeSGPU(id, uint32(now.ID)))
}

// find returns the card and the slice that are meant.
func (s *session) find(ref discover.SliceRef) (uint32, *discover.Slice, error) {
	now, err := s.cardSlices(ref)
	if err != nil {
		return 0, nil, err
	}
	if !now.On {
		return 0, nil, fmt.Errorf("slice %d of the card at %s: %w", ref.ID, ref.BDF, discover.ErrNoSlice)
	}
	id, err := s.device(ref.BDF)
	if err != nil {
		return 0, nil, err
	}
	slice, err := s.slice(id, ref)
	return id, slice, err
}
