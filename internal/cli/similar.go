package cli

import (
	"cmp"
	"slices"
	"strings"
)

// Suggest returns the end of an error about an unknown word: the known words
// that resemble it, or all of them if they are few.
func Suggest(word string, there []string) string {
	if near := similar(word, there); len(near) > 0 {
		return ": did you mean " + strings.Join(near, " or ") + "?"
	}
	switch {
	case len(there) == 0:
		return ": there are none"
	case len(there) <= 10:
		return ": there are " + strings.Join(slices.Sorted(slices.Values(there)), ", ")
	}
	return ""
}

// similar returns up to three of the words that resemble the given one, the
// nearest first.
func similar(word string, there []string) []string {
	type near struct {
		word     string
		distance int
	}
	var found []near
	for _, w := range there {
		d := distance(word, w)
		if len(word) >= 3 && (strings.HasPrefix(w, word) || strings.HasPrefix(word, w)) {
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

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
