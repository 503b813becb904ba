package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompareNames: numbers count as such, and every order of the names leads to
// the same one.
func TestCompareNames(t *testing.T) {
	want := []string{
		"", "0", "01", "1", "9-a", "10-a", "a", "a-1.rack-9", "a-1.rack-10", "a-2.rack-1", "metax-", "metax-1", "metax-02",
		"metax-2", "metax-2-b", "metax-10", "metax-18446744073709551616", "metax-a", "n",
	}
	for range 50 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, CompareNames)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	}
}
