package cli

import "testing"

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
		if got := Suggest(word, there); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	if got := Suggest("a", nil); got != ": there are none" {
		t.Errorf("of nothing: %q", got)
	}
}
