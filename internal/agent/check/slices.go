package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// sliced reports whether a card is sliced, or is set up to be.
func (f *Facts) sliced() bool {
	for _, s := range f.Slices {
		if s.On || len(s.Slices) > 0 {
			return true
		}
	}
	return false
}

func sliceDriver(f *Facts) Outcome {
	switch {
	case f.Devices.SliceDriver == "":
		return ok("the driver of slices has a major number")
	case !f.sliced():
		return unknown("no card is sliced, and %s", f.Devices.SliceDriver)
	}
	return failed("%s", f.Devices.SliceDriver)
}

func sliceDevices(f *Facts) Outcome {
	return f.devices(f.Devices.Slices, "slice", "there is no slice: start a pod with one and check again", "; if it has another one, set --slice-device")
}

func sliceMinors(f *Facts) Outcome {
	taken, n := map[int]string{}, 0
	for _, bdf := range slices.Sorted(maps.Keys(f.Slices)) {
		for _, s := range f.Slices[bdf].Slices {
			key := sliceKey(bdf, s.ID)
			if other, twice := taken[s.Minor]; twice {
				return failed("slices %s and %s both have minor number %d", other, key, s.Minor)
			}
			taken[s.Minor], n = key, n+1
		}
	}
	if n < 2 {
		return unknown("slices: %d; at least two are needed", n)
	}
	return ok("slices: %d, each with a number of its own", n)
}

func sliceSizes(f *Facts) Outcome {
	n := 0
	for _, bdf := range slices.Sorted(maps.Keys(f.Slices)) {
		for _, s := range f.Slices[bdf].Slices {
			n++
			if s.ID < 0 || s.ID >= gpu.MaxSlices || s.Memory%gpu.MemoryStep != 0 {
				return failed("slice %s has %v", sliceKey(bdf, s.ID), s.Memory)
			}
		}
	}
	if n == 0 {
		return unknown("%s", cmp.Or(f.Errors[sourceSlices], "there is no slice: start a pod with one and check again"))
	}
	return ok("slices: %d", n)
}

func linksRead(f *Facts) Outcome {
	s := f.best()
	switch {
	case len(f.cards()) < 2:
		return unknown("there are no two cards to be linked")
	case s.LinksUnread != "":
		return failed("%s", s.LinksUnread)
	case !s.LinksKnown:
		return unknown("no source reports links")
	case f.Library != nil && f.Command != nil && f.Command.LinksKnown && !slices.Equal(linkNames(f.Library), linkNames(f.Command)):
		return failed("library %v, mx-smi %v", linkNames(f.Library), linkNames(f.Command))
	}
	return ok("links: %d", len(s.Links))
}

// linkNames names links by the PCI addresses of their ends, in order.
func linkNames(s *discover.Snapshot) []string {
	var names []string
	for _, l := range s.Links {
		a, b := s.Cards[l.A].BDF, s.Cards[l.B].BDF
		names = append(names, min(a, b)+"-"+max(a, b))
	}
	slices.Sort(names)
	return names
}

func containerView(*Facts) Outcome {
	return unknown("whether MACA_VISIBLE_DEVICES and the device nodes are enough inside a container can be seen only there")
}
