package gpu

import "strings"

// ModelName returns the short name of a card model, "C500", from any of the
// forms the vendor's tools print: "MXC500", "MetaX C500", "C500".
func ModelName(s string) string {
	s = strings.TrimSpace(s)
	if rest, ok := strings.CutPrefix(s, "MetaX "); ok {
		s = strings.TrimSpace(rest)
	}
	if rest, ok := strings.CutPrefix(s, "MX"); ok && rest != "" {
		s = rest
	}
	return s
}

// Mode is how a node hands its cards out.
type Mode string

// The modes of a node.
const (
	// ModeNative hands out whole cards only.
	ModeNative Mode = "native"
	// ModeSGPU hands out slices, and whole cards too where Daybreak serves.
	ModeSGPU Mode = "sgpu"
	// ModeShared hands out seats: places on a card without bounds.
	ModeShared Mode = "shared"
	// ModeVGPU hands out virtual functions: cards without links or slices.
	ModeVGPU Mode = "vgpu"
)

// Valid reports whether m is one of the known modes.
func (m Mode) Valid() bool {
	switch m {
	case ModeNative, ModeSGPU, ModeShared, ModeVGPU:
		return true
	}
	return false
}
