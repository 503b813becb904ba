package cli

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestSuggest(t *testing.T) {
	there := []string{"trainer-0", "trainer-1", "web", "metax-a"}
	cases := map[string]string{
		"trainer-2": ": did you mean trainer-0 or trainer-1?",
		"trianer-0": ": did you mean trainer-0 or trainer-1?",
		"trainer":   ": did you mean trainer-0 or trainer-1?",
		"wbe":       ": did you mean web?",
		"wab":       ": did you mean web?",
		"unlike":    ": there are metax-a, trainer-0, trainer-1, web",
	}
	for word, want := range cases {
		gputest.Equal(t, word, want, Suggest(word, there))
	}
	gputest.Equal(t, "of nothing", ": there are none", Suggest("a", nil))
}
