package allocation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Annotations are read up to bounds that no real one comes near, and the
// reader says so.
func TestDecodersAreBounded(t *testing.T) {
	n := gputest.Node(gputest.Zones(2))
	vendor := func(text string) error { _, err := decodeVendor(text); return err }
	hami := func(text string) error { _, err := decodeHAMi("n1", text, ""); return err }
	koord := func(text string) error { _, err := decodeKoordinator(text, n); return err }

	long := strings.Repeat(" ", 256<<10+1)
	const (
		sayLong       = "262145 bytes, at most 262144 are read"
		sayContainers = "1025 containers, at most 1024 are read"
		sayCards      = "a container with 65 cards, a node may hold 64"
	)
	cases := map[string]struct {
		decode func(string) error
		text   string
		want   string
	}{
		"vendor: too long":            {vendor, long, sayLong},
		"vendor: as many containers":  {vendor, "[" + repeat(1024, ",", "[]") + "]", ""},
		"vendor: too many containers": {vendor, "[" + repeat(1025, ",", "[]") + "]", sayContainers},
		"vendor: as many cards":       {vendor, "[[" + repeat(64, ",", `{"uuid":"GPU-%d"}`) + "]]", ""},
		"vendor: too many cards":      {vendor, "[[" + repeat(65, ",", `{"uuid":"GPU-%d"}`) + "]]", sayCards},
		"hami: too long":              {hami, long, sayLong},
		"hami: as many containers":    {hami, repeat(1024, "", ";"), ""},
		"hami: too many containers":   {hami, repeat(1025, "", ";"), sayContainers},
		"hami: as many cards":         {hami, repeat(64, "", "GPU-%d,Metax-SGPU,1,1:") + ";", ""},
		"hami: too many cards":        {hami, repeat(65, "", "GPU-%d,Metax-SGPU,1,1:") + ";", sayCards},
		"koordinator: too long":       {koord, long, sayLong},
		"koordinator: as many cards":  {koord, `{"gpu":[` + repeat(64, ",", `{"id":"GPU-%d"}`) + "]}", ""},
		"koordinator: too many cards": {koord, `{"gpu":[` + repeat(65, ",", `{"id":"GPU-%d"}`) + "]}", sayCards},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.decode(tc.text); err == nil != (tc.want == "") || err != nil && err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A container gets slices or whole cards; both at once name too many, or the
// same card twice.
func TestDecodeHAMiBothKinds(t *testing.T) {
	_, err := decodeHAMi("n1", "GPU-0,Metax-SGPU,1,1:;", "GPU-0,Metax-GPU,65536,100:;")
	if want := "a container names card GPU-0 twice"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// repeat joins n texts; a text with %d gets its number.
func repeat(n int, separator, text string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = text
		if strings.Contains(text, "%d") {
			list[i] = fmt.Sprintf(text, i)
		}
	}
	return strings.Join(list, separator)
}
