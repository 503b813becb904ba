package wire

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Mebibyte is a MiB in bytes, as quantities have it.
const Mebibyte = 1 << 20

// Bounds of what is read from annotations; no real one comes near.
const (
	MaxAnnotation       = 256 << 10 // bytes
	MaxListedContainers = 1024
	// MaxUUID is the room the driver's own structures have for one.
	MaxUUID = 96
)

// CheckSize bounds an annotation before it is parsed.
func CheckSize(text string) error {
	if len(text) > MaxAnnotation {
		return fmt.Errorf("%d bytes, at most %d are read", len(text), MaxAnnotation)
	}
	return nil
}

// maxNote is a bit less than the API server accepts as an Event's text, in bytes.
const maxNote = 1000

// EventNote cuts a text to what an Event takes.
func EventNote(text string) string {
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + "…"
	}
	return text
}

// CheckCards checks that a container names no card twice, nor too many.
func CheckCards(ids []gpu.CardID) error {
	if len(ids) > gpu.MaxCards {
		return fmt.Errorf("a container with %d cards, a node may hold %d", len(ids), gpu.MaxCards)
	}
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return fmt.Errorf("a container names card %s twice", id)
		}
	}
	return nil
}

// WholeNumber returns q if it is a whole number from 0 to most.
func WholeNumber(q resource.Quantity, most int64) (int64, bool) {
	if q.Sign() < 0 || q.CmpInt64(most) > 0 {
		return 0, false
	}
	v := q.Value()
	return v, q.CmpInt64(v) == 0
}
