package discover

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

//go:embed profiles/*.yaml
var profiles embed.FS

// Profile describes simulated nodes: one server, or several kinds in turn.
type Profile struct {
	// Description is for people.
	Description string `json:"description,omitempty"`
	// Nodes names other profiles, which nodes take in turn; then nothing else
	// is given.
	Nodes []string `json:"nodes,omitempty"`

	Model     string   `json:"model,omitempty"`
	MemoryMiB gpu.MiB  `json:"memoryMiB,omitempty"`
	Mode      gpu.Mode `json:"mode,omitempty"`
	Cards     int      `json:"cards,omitempty"`
	// Zones are sets of cards of which each is linked to each; in Rings each is
	// linked to its two neighbours.
	Zones [][]int `json:"zones,omitempty"`
	Rings [][]int `json:"rings,omitempty"`
	// Switches are sets of cards under one PCIe switch, NUMA those on one NUMA
	// node, both in order; a card in none has none.
	Switches [][]int `json:"switches,omitempty"`
	NUMA     [][]int `json:"numa,omitempty"`
	// Driver is the version of the driver.
	Driver string `json:"driver,omitempty"`

	// What follows are faults. A [Simulated] source reads its file at every
	// look, so that faults come and go while the agent runs.

	// Unhealthy are cards that the driver calls unavailable.
	Unhealthy []int `json:"unhealthy,omitempty"`
	// Lost are cards that are gone from the machine.
	Lost []int `json:"lost,omitempty"`
	// ECC counts the uncorrectable memory errors of cards.
	ECC map[int]int64 `json:"ecc,omitempty"`
}

// ProfileNames lists the built-in profiles.
func ProfileNames() []string {
	files, err := fs.Glob(profiles, "profiles/*.yaml")
	if err != nil {
		return nil
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}

// LoadProfiles reads a profile, built in or from a file, and returns the kinds
// of server that nodes take in turn.
func LoadProfiles(name string) ([]Profile, error) {
	p, err := readProfile(name)
	if err != nil {
		return nil, err
	}
	if len(p.Nodes) == 0 {
		return []Profile{p}, p.validate(name)
	}
	if p.Cards != 0 || p.Model != "" {
		return nil, fmt.Errorf("profile %s: names other profiles under nodes, so it may describe no cards of its own", name)
	}
	var out []Profile
	for _, other := range p.Nodes {
		kind, err := readProfile(other)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", name, err)
		}
		if len(kind.Nodes) > 0 {
			return nil, fmt.Errorf("profile %s: %s names other profiles itself; list those instead", name, other)
		}
		if err := kind.validate(other); err != nil {
			return nil, err
		}
		out = append(out, kind)
	}
	return out, nil
}

func readProfile(name string) (Profile, error) {
	var text []byte
	var err error
	if strings.ContainsAny(name, "./\\") {
		text, err = os.ReadFile(name)
	} else {
		text, err = profiles.ReadFile("profiles/" + name + ".yaml")
		if errors.Is(err, fs.ErrNotExist) {
			return Profile{}, fmt.Errorf("no profile %q: write one of %s, or the path of a YAML file", name, strings.Join(ProfileNames(), ", "))
		}
	}
	if err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	var p Profile
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	p.Mode = cmp.Or(p.Mode, gpu.ModeSGPU)
	p.Driver = cmp.Or(p.Driver, "3.8.30")
	return p, nil
}

func (p *Profile) validate(name string) error {
	if p.Cards < 1 || p.Cards > gpu.MaxCards {
		return fmt.Errorf("profile %s: cards is %d: write 1 to %d", name, p.Cards, gpu.MaxCards)
	}
	if !p.Mode.Valid() {
		return fmt.Errorf("profile %s: mode %q: write native, sgpu, shared or vgpu", name, p.Mode)
	}
	if p.Model == "" {
		return fmt.Errorf("profile %s: no model: write for example C500", name)
	}
	for _, named := range []struct {
		field string
		sets  [][]int
	}{
		{"zones", p.Zones}, {"rings", p.Rings}, {"switches", p.Switches}, {"numa", p.NUMA},
		{"unhealthy", [][]int{p.Unhealthy}}, {"lost", [][]int{p.Lost}}, {"ecc", [][]int{slices.Sorted(maps.Keys(p.ECC))}},
	} {
		for _, set := range named.sets {
			var seen gpu.Set
			for _, card := range set {
				if card < 0 || card >= p.Cards {
					return fmt.Errorf("profile %s: %s names card %d: write 0 to %d", name, named.field, card, p.Cards-1)
				}
				if seen.Has(card) {
					return fmt.Errorf("profile %s: %s names card %d twice in one set", name, named.field, card)
				}
				seen |= gpu.SetOf(card)
			}
		}
	}
	for _, card := range slices.Sorted(maps.Keys(p.ECC)) {
		if p.ECC[card] < 0 {
			return fmt.Errorf("profile %s: ecc of card %d is %d: write a count of errors", name, card, p.ECC[card])
		}
	}
	_, err := p.Topology(name)
	return err
}

// Topology returns the cards of the node with the given name. Their ids depend
// on the name and nothing else, so that a cluster looks the same every time.
func (p *Profile) Topology(node string) (*gpu.Topology, error) {
	s := p.snapshot(node)
	cards := make([]gpu.Card, len(s.Cards))
	for i := range cards {
		cards[i] = s.Cards[i].GPU()
	}
	t, err := gpu.NewTopology(cards, s.Links)
	if err != nil {
		return nil, fmt.Errorf("profile of node %s: %w", node, err)
	}
	return t, nil
}

func (p *Profile) links() []gpu.Link {
	var links []gpu.Link
	for _, zone := range p.Zones {
		for i, a := range zone {
			for _, b := range zone[:i] {
				links = append(links, gpu.Link{A: b, B: a})
			}
		}
	}
	for _, ring := range p.Rings {
		for i, a := range ring {
			links = append(links, gpu.Link{A: a, B: ring[(i+1)%len(ring)]})
		}
	}
	return links
}
