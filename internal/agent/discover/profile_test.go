package discover

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestBuiltInProfiles(t *testing.T) {
	want := []string{"c500-1x8", "c500-2x4", "c500-pcie", "c500-ring", "c600-16", "mixed"}
	gputest.Equal(t, "profiles", want, ProfileNames())
	zones := map[string][]int{"c500-1x8": {8}, "c500-2x4": {4, 4}, "c500-pcie": nil, "c500-ring": {4, 4}, "c600-16": {8, 8}}
	for _, name := range ProfileNames() {
		kinds, err := LoadProfiles(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantSizes, ok := zones[name]
		if !ok {
			continue // several kinds, each of them in the table
		}
		topology, err := kinds[0].Topology("n1")
		gputest.Must(t, err)
		var sizes []int
		for _, z := range topology.Zones() {
			sizes = append(sizes, z.Len())
		}
		gputest.Equal(t, name+": sizes of zones", wantSizes, sizes)
		for i, c := range kinds[0].snapshot("n1").Cards {
			if ports := len(c.Vitals.Ports); ports != topology.Linked(i).Len() || !*c.Sliced {
				t.Errorf("%s: card %d has %d ports, want one for each of %d links", name, i, ports, topology.Linked(i).Len())
			}
		}
	}
}

func TestLoadProfilesRefuses(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"an unknown field":            {"cards: 8\nmodel: C500\nmemoryMiB: 65536\ncolour: red", `unknown field "colour"`},
		"no cards":                    {"model: C500", "cards is 0: write 1 to 64"},
		"too many cards":              {"model: C500\ncards: 65", "cards is 65: write 1 to 64"},
		"no model":                    {"cards: 1\nmemoryMiB: 65536", "no model: write for example C500"},
		"no memory":                   {"cards: 1\nmodel: C500", "0 MiB of memory"},
		"an unknown mode":             {"cards: 1\nmodel: C500\nmode: half", `mode "half": write native, sgpu, shared or vgpu`},
		"a card that is not there":    {"cards: 2\nmodel: C500\nzones: [[0, 2]]", "zones names card 2: write 0 to 1"},
		"a link of a card to itself":  {"cards: 2\nmodel: C500\nmemoryMiB: 65536\nrings: [[1]]", "link 1-1"},
		"profiles and cards":          {"nodes: [c500-2x4]\ncards: 8", "may describe no cards of its own"},
		"profiles of profiles":        {"nodes: [mixed]", "mixed names other profiles itself"},
		"an unknown profile":          {"nodes: [c999]", `no profile "c999": write one of c500-1x8`},
		"no YAML":                     {"{", "profile"},
		"a card twice in a zone":      {"cards: 2\nmodel: C500\nzones: [[0, 1, 0]]", "zones names card 0 twice in one set"},
		"a lost card of another node": {"cards: 2\nmodel: C500\nlost: [2]", "lost names card 2: write 0 to 1"},
		"a negative count of errors":  {"cards: 4\nmodel: C500\necc: {1: -2}", "ecc of card 1 is -2: write a count of errors"},
		"errors of no card":           {"cards: 4\nmodel: C500\necc: {four: 2}", "ecc"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "profile.yaml")
			gputest.Must(t, os.WriteFile(path, []byte(tc.text), 0o600))
			_, err := LoadProfiles(path)
			gputest.ErrorHas(t, "LoadProfiles", tc.want, err)
		})
	}
	_, err := LoadProfiles("c500-9x9")
	gputest.ErrorHas(t, "an unknown name", "write one of", err)
	if _, err := LoadProfiles("./missing.yaml"); err == nil {
		t.Error("a missing file: want an error")
	}
}

// FuzzProfile: a profile is rejected or gives a valid node.
func FuzzProfile(f *testing.F) {
	for _, name := range ProfileNames() {
		text, err := profiles.ReadFile("profiles/" + name + ".yaml")
		gputest.Must(f, err)
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "profile.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		gputest.Must(t, os.WriteFile(path, text, 0o600))
		kinds, err := LoadProfiles(path)
		if err != nil {
			return
		}
		for i := range kinds {
			topology, err := kinds[i].Topology("n1")
			if err != nil {
				t.Fatalf("accepted, but %v", err)
			}
			if topology.Len() < 1 || topology.Len() > gpu.MaxCards {
				t.Fatalf("accepted with %d cards", topology.Len())
			}
		}
	})
}
