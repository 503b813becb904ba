package allocation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// maxShareMemory bounds the memory of a share, in MiB.
const maxShareMemory = 16 << 20

// check returns the share if it is within what any card could have.
func (s namedShare) check() (namedShare, error) {
	switch {
	case s.id == "" || len(s.id) > wire.MaxUUID:
		return s, fmt.Errorf("uuid %.40q: want 1 to %d characters", s.id, wire.MaxUUID)
	case s.compute < 0 || s.compute > 100:
		return s, fmt.Errorf("card %s: compute %d: want percent from 0 to 100", s.id, s.compute)
	case s.memory < 0 || s.memory > maxShareMemory:
		return s, fmt.Errorf("card %s: memory %d: want MiB from 0 to %d", s.id, s.memory, maxShareMemory)
	}
	return s, nil
}

// distinct checks that a container names no card twice, nor too many.
func distinct(shares []namedShare) error {
	ids := make([]gpu.CardID, len(shares))
	for i := range shares {
		ids[i] = gpu.CardID(shares[i].id)
	}
	return wire.CheckCards(ids)
}

// decodeVendor reads the vendor's format.
func decodeVendor(text string) ([][]namedShare, error) {
	var lists [][]vendorShare
	if err := wire.DecodeAnnotation(text, &lists); err != nil {
		return nil, err
	}
	if len(lists) > wire.MaxListedContainers {
		return nil, fmt.Errorf("%d containers, at most %d are read", len(lists), wire.MaxListedContainers)
	}
	out := make([][]namedShare, len(lists))
	for i, list := range lists {
		for _, v := range list {
			s, err := namedShare{v.UUID, int64(v.Compute), gpu.MiB(v.VRam)}.check()
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], s)
		}
		if err := distinct(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decodeHAMi reads HAMi's two annotations, slices and whole cards, into one
// list: a container has one or the other.
func decodeHAMi(node, sgpu, whole string) ([][]namedShare, error) {
	var out [][]namedShare
	for _, text := range []string{sgpu, whole} {
		if text == "" {
			continue
		}
		lists, err := decodeHAMiList(node, text)
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = lists
			continue
		}
		if len(out) != len(lists) {
			return nil, fmt.Errorf("entries for %d and for %d containers", len(out), len(lists))
		}
		for i := range lists {
			out[i] = append(out[i], lists[i]...)
			if err := distinct(out[i]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func decodeHAMiList(node, text string) ([][]namedShare, error) {
	if err := wire.CheckSize(text); err != nil {
		return nil, err
	}
	body, ok := strings.CutSuffix(text, ";")
	if !ok {
		return nil, errors.New("does not end in a semicolon")
	}
	entries := strings.Split(body, ";")
	if len(entries) > wire.MaxListedContainers {
		return nil, fmt.Errorf("%d containers, at most %d are read", len(entries), wire.MaxListedContainers)
	}
	out := make([][]namedShare, len(entries))
	for i, entry := range entries {
		if entry == "" {
			continue
		}
		for share := range strings.SplitSeq(strings.TrimSuffix(entry, ":"), ":") {
			s, err := decodeHAMiShare(share)
			if err != nil {
				return nil, err
			}
			if isCountedName(node, s.id) {
				return nil, fmt.Errorf("%s is a made-up name: the vendor's plugin picked the card", s.id)
			}
			out[i] = append(out[i], s)
		}
		if err := distinct(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// decodeHAMiShare reads "UUID,Type,MiB,percent"; newer fields may follow.
func decodeHAMiShare(text string) (namedShare, error) {
	fields := strings.Split(text, ",")
	if len(fields) < 4 {
		return namedShare{}, fmt.Errorf("share %.60q has %d fields, want uuid,type,memory,compute", text, len(fields))
	}
	if fields[1] != hamiSGPU && fields[1] != hamiGPU {
		return namedShare{}, fmt.Errorf("share %.60q is of type %.20q, want %s or %s", text, fields[1], hamiSGPU, hamiGPU)
	}
	memory, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return namedShare{}, fmt.Errorf("share %.60q: memory %.20q is no number", text, fields[2])
	}
	compute, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		return namedShare{}, fmt.Errorf("share %.60q: compute %.20q is no number", text, fields[3])
	}
	return namedShare{fields[0], compute, gpu.MiB(memory)}.check()
}

// decodeKoordinator reads Koordinator's format: what the pod as a whole holds
// of each card. A card is named by id, or by minor number where that is
// missing; memory is in bytes or a ratio of the card's.
func decodeKoordinator(text string, n *ledger.Node) ([]namedShare, error) {
	var doc koordAllocation
	if err := wire.DecodeAnnotation(text, &doc); err != nil {
		return nil, err
	}
	var out []namedShare
	for _, k := range doc[v1alpha1.DeviceTypeGPU] {
		s, err := k.share(n.Topology())
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, distinct(out)
}

func (k *koordCard) share(t *gpu.Topology) (namedShare, error) {
	index, found := t.Index(gpu.CardID(k.ID))
	if k.ID == "" {
		for i := range t.Len() {
			if t.Card(i).Minor == int(k.Minor) {
				index, found, k.ID = i, true, string(t.Card(i).ID)
			}
		}
	}
	if k.ID == "" {
		return namedShare{}, fmt.Errorf("minor %d: the node has no such card", k.Minor)
	}
	core, memory, ratio := k.Resources[wire.KoordCore], k.Resources[wire.KoordMemory], k.Resources[wire.KoordMemoryRatio]
	percent, ok := wire.WholeNumber(core, 100)
	if !ok {
		return namedShare{}, fmt.Errorf("card %.40s: %s %s: want percent from 0 to 100", k.ID, wire.KoordCore, core.String())
	}
	s := namedShare{id: k.ID, compute: percent}
	switch {
	case memory.Sign() < 0 || memory.CmpInt64(maxShareMemory*wire.Mebibyte) > 0:
		return namedShare{}, fmt.Errorf("card %.40s: %s %s: want bytes, at most 16Ti", k.ID, wire.KoordMemory, memory.String())
	case !memory.IsZero():
		s.memory = gpu.MiB((memory.Value() + wire.Mebibyte - 1) / wire.Mebibyte)
	case found:
		part, ok := wire.WholeNumber(ratio, 100)
		if !ok {
			return namedShare{}, fmt.Errorf("card %.40s: %s %s: want percent from 0 to 100", k.ID, wire.KoordMemoryRatio, ratio.String())
		}
		if part > 0 {
			s.memory = gpu.Memory{Ratio: gpu.Percent(part)}.Of(t.Card(index).Memory)
		}
	}
	return s.check()
}
