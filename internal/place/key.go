package place

import (
	"encoding/binary"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Key is all that decides whether a node can take a pod and what it is worth to it,
// but for the Demand: requests with equal keys get equal answers of every node.
type Key string

// KeyOf returns the key of the request.
func KeyOf(r *gpu.PodRequest, p *Preference) Key { return Key(appendKey(nil, r, p)) }

func appendKey(key []byte, r *gpu.PodRequest, p *Preference) []byte {
	flag := func(b bool) int64 {
		if b {
			return 1
		}
		return 0
	}
	key = binary.AppendVarint(key, int64(r.CPU))
	for i := range r.Requests {
		req := &r.Requests[i]
		for _, v := range [...]int64{
			int64(req.Phase), int64(req.Cards), flag(req.Whole), flag(req.Exclusive),
			int64(req.Compute), int64(req.Memory.Amount), int64(req.Memory.Ratio),
		} {
			key = binary.AppendVarint(key, v)
		}
	}
	key = append(append(append(key, r.QoS...), '/'), r.Class...)
	key = binary.AppendVarint(append(key, '/'), int64(p.Node))
	key = binary.AppendVarint(key, int64(len(p.Cards)))
	for _, k := range p.Cards {
		key = binary.AppendVarint(key, int64(k))
	}
	key = binary.AppendVarint(key, flag(p.IgnoreLinks))
	for _, list := range [...][]gpu.CardID{r.Allow, r.Deny} {
		key = binary.AppendVarint(key, int64(len(list)))
		for _, id := range list {
			key = append(append(key, id...), ',')
		}
	}
	return key
}
