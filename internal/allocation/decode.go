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

// checkShares checks what every list of shares must be: within what any card could
// have, with no card twice in a container, nor too many.
func checkShares(lists ...[]NamedShare) error {
	if len(lists) > wire.MaxListedContainers {
		return fmt.Errorf("%d containers, at most %d are read", len(lists), wire.MaxListedContainers)
	}
	for _, list := range lists {
		ids := make([]gpu.CardID, len(list))
		for i, s := range list {
			switch ids[i] = s.UUID; {
			case s.UUID == "" || len(s.UUID) > wire.MaxUUID:
				return fmt.Errorf("uuid %.40q: want 1 to %d characters", s.UUID, wire.MaxUUID)
			case s.Compute < 0 || s.Compute > gpu.FullCompute:
				return fmt.Errorf("card %s: compute %d: want percent from 0 to 100", s.UUID, s.Compute)
			case s.Memory < 0 || s.Memory > maxShareMemory:
				return fmt.Errorf("card %s: memory %d: want MiB from 0 to %d", s.UUID, s.Memory, maxShareMemory)
			}
		}
		if err := wire.CheckCards(ids); err != nil {
			return err
		}
	}
	return nil
}

// decodeVendor reads the vendor's format.
func decodeVendor(text string) ([][]NamedShare, error) {
	var lists [][]NamedShare
	if err := wire.DecodeAnnotation(text, &lists); err != nil {
		return nil, err
	}
	return lists, checkShares(lists...)
}

// decodeHAMi reads HAMi's two annotations, slices and whole cards, into one
// list: a container has one or the other.
func decodeHAMi(node, sgpu, whole string) ([][]NamedShare, error) {
	var out [][]NamedShare
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
		}
	}
	return out, checkShares(out...)
}

func decodeHAMiList(node, text string) ([][]NamedShare, error) {
	if err := wire.CheckSize(text); err != nil {
		return nil, err
	}
	body, ok := strings.CutSuffix(text, ";")
	if !ok {
		return nil, errors.New("does not end in a semicolon")
	}
	entries := strings.Split(body, ";")
	out := make([][]NamedShare, len(entries))
	for i, entry := range entries {
		if entry == "" {
			continue
		}
		for share := range strings.SplitSeq(strings.TrimSuffix(entry, ":"), ":") {
			s, err := decodeHAMiShare(share)
			if err != nil {
				return nil, err
			}
			if isCountedName(node, s.UUID) {
				return nil, fmt.Errorf("%s is a made-up name: the vendor's plugin picked the card", s.UUID)
			}
			out[i] = append(out[i], s)
		}
	}
	return out, nil
}

// decodeHAMiShare reads "UUID,Type,MiB,percent"; newer fields may follow.
func decodeHAMiShare(text string) (NamedShare, error) {
	fields := strings.Split(text, ",")
	if len(fields) < 4 {
		return NamedShare{}, fmt.Errorf("share %.60q has %d fields, want uuid,type,memory,compute", text, len(fields))
	}
	if fields[1] != hamiSGPU && fields[1] != hamiGPU {
		return NamedShare{}, fmt.Errorf("share %.60q is of type %.20q, want %s or %s", text, fields[1], hamiSGPU, hamiGPU)
	}
	memory, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return NamedShare{}, fmt.Errorf("share %.60q: memory %.20q is no number", text, fields[2])
	}
	compute, err := strconv.ParseInt(fields[3], 10, 32)
	if err != nil {
		return NamedShare{}, fmt.Errorf("share %.60q: compute %.20q is no number", text, fields[3])
	}
	return NamedShare{gpu.CardID(fields[0]), gpu.Percent(compute), gpu.MiB(memory)}, nil
}

// decodeKoordinator reads Koordinator's format: what the pod as a whole holds
// of each card. A card is named by id, or by minor number where that is
// missing; memory is in bytes or a ratio of the card's.
func decodeKoordinator(text string, n *ledger.Node) ([]NamedShare, error) {
	var doc koordAllocation
	if err := wire.DecodeAnnotation(text, &doc); err != nil {
		return nil, err
	}
	var out []NamedShare
	for _, k := range doc[v1alpha1.DeviceTypeGPU] {
		s, err := k.share(n.Topology())
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, checkShares(out)
}

func (k *koordCard) share(t *gpu.Topology) (NamedShare, error) {
	index, found := t.Index(k.ID)
	if k.ID == "" {
		for i := range t.Len() {
			if t.Card(i).Minor == int(k.Minor) {
				index, found, k.ID = i, true, t.Card(i).ID
			}
		}
	}
	if k.ID == "" {
		return NamedShare{}, fmt.Errorf("minor %d: the node has no such card", k.Minor)
	}
	core, memory, ratio := k.Resources[wire.KoordCore], k.Resources[wire.KoordMemory], k.Resources[wire.KoordMemoryRatio]
	percent, ok := wire.WholeNumber(core, 100)
	if !ok {
		return NamedShare{}, fmt.Errorf("card %.40s: %s %s: want percent from 0 to 100", k.ID, wire.KoordCore, core.String())
	}
	s := NamedShare{UUID: k.ID, Compute: gpu.Percent(percent)}
	switch {
	case memory.Sign() < 0 || memory.CmpInt64(maxShareMemory*wire.Mebibyte) > 0:
		return NamedShare{}, fmt.Errorf("card %.40s: %s %s: want bytes, at most 16Ti", k.ID, wire.KoordMemory, memory.String())
	case !memory.IsZero():
		s.Memory = gpu.MiB((memory.Value() + wire.Mebibyte - 1) / wire.Mebibyte)
	case found:
		part, ok := wire.WholeNumber(ratio, 100)
		if !ok {
			return NamedShare{}, fmt.Errorf("card %.40s: %s %s: want percent from 0 to 100", k.ID, wire.KoordMemoryRatio, ratio.String())
		}
		if part > 0 {
			s.Memory = gpu.Memory{Ratio: gpu.Percent(part)}.Of(t.Card(index).Memory)
		}
	}
	return s, nil
}
