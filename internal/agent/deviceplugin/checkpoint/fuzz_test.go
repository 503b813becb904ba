package checkpoint

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzDecode: what does not carry its checksum is not believed, and what is
// written with one is read as it was.
func FuzzDecode(f *testing.F) {
	good, err := os.ReadFile("testdata/checkpoint.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, text := range []string{"", "{}", "null", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","DeviceIDs":{"-1":["a"]}}]},"Checksum":1}`, `{"Data":{"PodDeviceEntries":null},"Checksum":-1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var said file
		if json.Unmarshal(text, &said) != nil {
			if entries, err := decode(text); err == nil {
				t.Fatalf("no JSON, but %+v", entries)
			}
			return
		}
		entries, err := decode(text)
		if (err == nil) != (sum(said.Data) == said.Checksum) {
			t.Fatalf("checksum %d, of what it says %d: %v", said.Checksum, sum(said.Data), err)
		}
		if err == nil && cmp.Diff(said.Data.PodDeviceEntries, entries, cmpopts.EquateEmpty()) != "" {
			t.Fatalf("%+v is read as %+v", said.Data.PodDeviceEntries, entries)
		}
		written, err := Encode(said.Data.PodDeviceEntries)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(written)
		if diff := cmp.Diff(said.Data.PodDeviceEntries, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("written and read: %v (-first +second):\n%s", err, diff)
		}
	})
}
