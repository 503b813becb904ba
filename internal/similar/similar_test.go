package similar

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestWords(t *testing.T) {
	cases := map[string]struct {
		word  string
		there []string
		want  []string
	}{
		"a letter too many":             {"vcores", []string{"vcore", "vmemory"}, []string{"vcore"}},
		"a letter is missing":           {"vmemry", []string{"vcore", "vmemory"}, []string{"vmemory"}},
		"two letters changed places":    {"sgup", []string{"sgpu", "vcore"}, []string{"sgpu"}},
		"the beginning":                 {"vmem", []string{"vcore", "vmemory"}, []string{"vmemory"}},
		"a beginning too short":         {"vm", []string{"vcore", "vmemory"}, nil},
		"a longer word is another word": {"gpu-core", []string{"gpu"}, nil},
		"the nearest first":             {"trainer-2", []string{"trainer-0", "strainer-2", "trainee-1"}, []string{"strainer-2", "trainer-0", "trainee-1"}},
		"more than three":               {"ab", []string{"a4", "a3", "a2", "a1"}, []string{"a1", "a2", "a3"}},
		"none":                          {"unlike", []string{"vcore"}, nil},
		"no words":                      {"vcore", nil, nil},
		"the empty word":                {"", []string{"vcore", "v"}, []string{"v"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "words", tc.want, Words(tc.word, tc.there))
		})
	}
}
