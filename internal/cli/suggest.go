package cli

import (
	"slices"
	"strings"

	"github.com/daybreak-gpu/daybreak/internal/similar"
)

// resembling returns the end of an error about an unknown word: the known words
// that resemble it, or nothing.
func resembling(word string, there []string) string {
	if near := similar.Words(word, there); len(near) > 0 {
		return ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// Suggest returns the end of an error about an unknown word: the known words
// that resemble it, or all of them if they are few.
func Suggest(word string, there []string) string {
	near := resembling(word, there)
	switch {
	case near != "":
		return near
	case len(there) == 0:
		return ": there are none"
	case len(there) <= 10:
		return ": there are " + strings.Join(slices.Sorted(slices.Values(there)), ", ")
	}
	return ""
}
