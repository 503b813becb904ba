// Package similar finds the known words that a mistyped one resembles.
package similar

import (
	"cmp"
	"slices"
	"strings"
)

// Words returns up to three of the words that resemble the given one, the nearest
// first. A word resembles another that it is the beginning of, or from which few
// of its letters differ.
func Words(word string, there []string) []string {
	type near struct {
		word     string
		distance int
	}
	var found []near
	for _, w := range there {
		d := distance(word, w)
		if len(word) >= 3 && strings.HasPrefix(w, word) {
			d = min(d, 1)
		}
		if d <= max(1, len(word)/4) {
			found = append(found, near{w, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int { return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.word, b.word)) })
	var words []string
	for _, f := range found[:min(3, len(found))] {
		words = append(words, f.word)
	}
	return words
}

// distance is the Levenshtein distance, in which two neighbouring letters that
// changed places count once.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
