package discover

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// addSamples seeds a fuzzer with a command's output in all versions.
func addSamples(f *testing.F, name string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "mx-smi", "*", name+".txt"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no sample %s: %v", name, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		gputest.Must(f, err)
		f.Add(text)
	}
}

// FuzzList: -L is rejected, or gives cards that have an address and a number of
// their own, and that are as many as there are lines of cards.
func FuzzList(f *testing.F) {
	addSamples(f, "L")
	f.Fuzz(func(t *testing.T, text []byte) {
		cards, err := parseList(text)
		if err != nil {
			return
		}
		lines := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "GPU#") {
				lines++
			}
		}
		if lines != len(cards) || lines > gpu.MaxCards {
			t.Fatalf("%d cards of %d lines", len(cards), lines)
		}
		s := &Snapshot{}
		for i := range cards {
			s.Cards = append(s.Cards, cards[i])
			s.Cards[i].Memory = gpu.MemoryStep
			if !cards[i].Unavailable() && cards[i].Vitals.Reason != "" {
				t.Fatalf("card %+v", cards[i])
			}
		}
		if err := s.check(); err == nil {
			for i := range s.Cards {
				if c := &s.Cards[i]; c.UUID != "" && !plain(c.UUID) {
					t.Fatalf("accepted the uuid %q", c.UUID)
				}
			}
		}
	})
}

// fuzzLog: what a --show command prints is rejected, or has as many cards as it
// announces.
func fuzzLog(f *testing.F, name string, apply func(*Snapshot, []byte) error) {
	addSamples(f, name)
	list, err := parseList(sample(f, "2.2.12-16xC600", "L"))
	gputest.Must(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		_, cards, err := parseLog(text)
		if err != nil {
			return
		}
		if len(cards) > gpu.MaxCards {
			t.Fatalf("%d cards", len(cards))
		}
		for i := range cards {
			if !bdfPattern.MatchString(cards[i].bdf) || cards[i].number < 0 {
				t.Fatalf("card %+v", cards[i])
			}
		}
		s := &Snapshot{Cards: slices.Clone(list)}
		err = apply(s, text)
		if err == nil && len(cards) != len(list) {
			t.Fatalf("accepted %d cards for %d", len(cards), len(list))
		}
		for i := range s.Cards {
			if err == nil && s.Cards[i].Memory < 0 {
				t.Fatalf("card %+v", s.Cards[i])
			}
		}
	})
}

func FuzzMemory(f *testing.F) { fuzzLog(f, "memory", applyMemory) }

func FuzzECC(f *testing.F) { fuzzLog(f, "ecc", applyECC) }

// FuzzFigures is for the three commands of one figure each.
func FuzzFigures(f *testing.F) {
	addSamples(f, "power")
	addSamples(f, "usage")
	fuzzLog(f, "temperature", func(s *Snapshot, text []byte) error {
		for _, extra := range extras[2:] {
			if err := extra.apply(s, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// FuzzTopo: topo -m is rejected, or is a square matrix of cards.
func FuzzTopo(f *testing.F) {
	addSamples(f, "topo")
	f.Fuzz(func(t *testing.T, text []byte) {
		matrix, err := parseTopo(text)
		if err != nil {
			return
		}
		n := len(matrix.numbers)
		if n > gpu.MaxCards || len(matrix.links) > n*(n-1)/2 {
			t.Fatalf("%d links of %d cards", len(matrix.links), n)
		}
		list := make([]Card, n)
		for i, number := range matrix.numbers {
			list[i] = Card{Minor: number, Model: "C500", BDF: simulatedBDF(i), UUID: cardUUID("n", i), Memory: gpu.MemoryStep}
		}
		s := &Snapshot{Cards: list}
		if err := applyTopology(s, text); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		if err := s.check(); err != nil || len(s.Links) != len(matrix.links) {
			t.Fatalf("%d links of %d, %v", len(s.Links), len(matrix.links), err)
		}
	})
}

// FuzzSysfs: a tree is rejected, or gives cards with an address and a root.
func FuzzSysfs(f *testing.F) {
	f.Add("0000:3d:00.0", cardLink, "0x9999\n", "0x038000\n", "1\n", "card1", "renderD128", "3.8.30\n")
	f.Add("10000:e1:1f.7", "../../../devices/pci10000:e0/10000:e1:1f.7", "0x9999", "0x120000", "-1", "card", "renderD", "")
	f.Add("x", "../../..", "39321", "", "0x10", "card0", "card1", "\x00\xff")
	f.Fuzz(func(t *testing.T, bdf, link, vendor, class, numa, drm1, drm2, version string) {
		tree := fstest.MapFS{
			"module/metax/version": {Data: []byte(version)},
			"bus/pci/devices":      {Mode: os.ModeDir},
		}
		add := func(name, text string, mode os.FileMode) {
			if name != "" && path.Clean(name) == name && !strings.HasPrefix(name, "../") && name[0] != '/' && len(name) < 500 {
				tree[name] = &fstest.MapFile{Data: []byte(text), Mode: mode}
			}
		}
		where := path.Join(pciDevices, link)
		for name, text := range map[string]string{"vendor": vendor, "class": class, "numa_node": numa} {
			add(where+"/"+name, text, 0)
		}
		add(where+"/drm/"+drm1, "", os.ModeDir)
		add(where+"/drm/"+drm2, "", os.ModeDir)
		if !strings.Contains(bdf, "/") {
			add(pciDevices+"/"+bdf, link, os.ModeSymlink)
		}
		s, err := readSysfs(tree)
		if err != nil {
			return
		}
		for _, c := range s.Cards {
			if !bdfPattern.MatchString(c.BDF) || !rootPattern.MatchString(c.PCIeRoot) || c.NUMA != nil && *c.NUMA < 0 {
				t.Fatalf("card %+v", c)
			}
			if c.PCIeSwitch != "" && !bdfPattern.MatchString(c.PCIeSwitch) {
				t.Fatalf("switch %q", c.PCIeSwitch)
			}
		}
		if printable(s.Driver) != s.Driver {
			t.Fatalf("driver %q", s.Driver)
		}
	})
}

// FuzzReply: no answer of the library's process gets past the check once and not
// twice.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"Source":"x","Cards":[{"UUID":"GPU-1","Minor":0,"BDF":"0000:01:00.0","Model":"C500","Memory":65536}],"Links":[{"A":0,"B":1}],"LinksKnown":true}`))
	f.Add([]byte(`{"Cards":[{"Minor":-1},{"Vitals":{"Available":false,"Ports":[{"Number":9}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Snapshot
		if err := json.Unmarshal(text, &s); err != nil {
			return
		}
		if s.check() == nil && s.check() != nil {
			t.Fatal("valid once, but not twice")
		}
	})
}
