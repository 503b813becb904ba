package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// samples are the files of testdata/mx-smi by the command that prints them.
var samples = map[string]string{
	"-L": "L", "--show-memory": "memory", "--count-ecc": "ecc", "topo -m": "topo",
	"--show-temperature": "temperature", "--show-board-power": "power", "--show-usage": "usage",
}

func sample(t testing.TB, version, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mx-smi", version, name+".txt"))
	gputest.Must(t, err)
	return text
}

// sampled is an mx-smi that prints the samples of a version, some of them
// changed.
func sampled(t testing.TB, version string, changed map[string]func(string) string) *MXSMI {
	m := NewMXSMI("")
	m.run = func(_ context.Context, args ...string) ([]byte, error) {
		command := strings.Join(args, " ")
		text, err := os.ReadFile(filepath.Join("testdata", "mx-smi", version, samples[command]+".txt"))
		if err != nil {
			return nil, errors.New("this version does not have it")
		}
		if change := changed[command]; change != nil {
			after := change(string(text))
			if after == string(text) {
				t.Fatalf("the change of %s changes nothing", command)
			}
			return []byte(after), nil
		}
		return text, nil
	}
	return m
}

// before and from are the parts of a text around a word that is in it.
func before(word string) func(string) string {
	return func(s string) string { return s[:max(strings.Index(s, word), 0)] }
}

func from(word string) func(string) string {
	return func(s string) string { return s[max(strings.Index(s, word), 0):] }
}

func replace(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

func TestMXSMISamples(t *testing.T) {
	type facts struct {
		source string
		cards  int
		model  string
		memory gpu.MiB
		links  int
	}
	cases := map[string]facts{
		"2.2.8-8xC500":      {"mx-smi 2.2.8", 8, "C500", 65536, 12},
		"2.2.9-2xN260":      {"mx-smi 2.2.9", 2, "N260", 65536, 0},
		"2.2.12-in-a-slice": {"mx-smi 2.2.12", 8, "C500", 65536, 0},
		"2.2.12-16xC600":    {"mx-smi 2.2.12", 16, "C600-A", 73728, 56},
	}
	for version, want := range cases {
		t.Run(version, func(t *testing.T) {
			s, err := sampled(t, version, nil).Look(t.Context())
			gputest.Must(t, err)
			gputest.Must(t, s.check())
			got := facts{s.Source, len(s.Cards), s.Cards[0].Model, s.Cards[0].Memory, len(s.Links)}
			gputest.Equal(t, "facts", want, got, cmp.AllowUnexported(facts{}))
			for i, c := range s.Cards {
				if c.Unavailable() {
					continue
				}
				if wantID := fmt.Sprintf("GPU-df110e%02x-56d2-e35b-d97b-e23bca667d%02x", i, i); c.UUID != wantID || c.Minor != i {
					t.Errorf("card %d is %s with number %d", i, c.UUID, c.Minor)
				}
				if *c.Figures.UsagePercent != float64(i) || *c.Figures.HotspotCelsius != 38.5+float64(i) {
					t.Errorf("card %d: usage %v, %v degrees", i, *c.Figures.UsagePercent, *c.Figures.HotspotCelsius)
				}
			}
		})
	}
}

func TestMXSMIDetails(t *testing.T) {
	s, err := sampled(t, "2.2.12-in-a-slice", nil).Look(t.Context())
	gputest.Must(t, err)
	if c := s.Cards[0]; *c.Figures.PowerMilliwatt != 60500 {
		t.Errorf("card 0 is %+v", c)
	}
	if c := s.Cards[7]; c.BDF != "0000:14:00.0" || c.Vitals.Reason != "MetaX Sysfs File Unaccessible" || c.Model != "C500" {
		t.Errorf("card 7 is %+v", c)
	}

	s, err = sampled(t, "2.2.8-8xC500", nil).Look(t.Context())
	gputest.Must(t, err)
	wantECC := &ECC{SRAMCorrectable: 3, DRAMCorrectable: 2, DRAMUncorrectable: 1, RetiredPages: 4}
	gputest.Equal(t, "ecc of card 5", wantECC, s.Cards[5].Vitals.ECC)
	if c := s.Cards[7]; *c.Figures.PowerMilliwatt != 67500 || *c.Figures.MemoryUsedKiB != 845824 {
		t.Errorf("card 7 is %+v", c)
	}
	want := []gpu.Link{{A: 0, B: 1}, {A: 0, B: 2}, {A: 0, B: 3}, {A: 1, B: 2}, {A: 1, B: 3}, {A: 2, B: 3}}
	gputest.Equal(t, "links", want, s.Links[:6])
}

// Every fault in an output is an error with its place.
func TestMXSMIRefuses(t *testing.T) {
	const eight, sixteen = "2.2.8-8xC500", "2.2.12-16xC600"
	cases := map[string]struct {
		version, command string
		change           func(string) string
		want             string
	}{
		"-L prints nothing":               {eight, "-L", func(string) string { return "" }, "it printed nothing"},
		"-L ends in a line":               {eight, "-L", func(s string) string { return s[:len(s)-20] }, `line 8, "GPU#7    MXC500      0000:15:00.0   Available (UUID: GPU-df110e07-56d2-e35b": the output ends in the middle of a line`},
		"-L ends after a line":            {eight, "-L", before("GPU#6"), "--show-memory: it lists GPU#6 at 0000:14:00.0, which -L does not"},
		"-L has a line that is not known": {eight, "-L", replace("GPU#3 ", "NPU#3 "), `line 4, "NPU#3`},
		"-L lists a card twice":           {sixteen, "-L", replace("GPU#11 ", "GPU#1  "), "the card was listed before"},
		"-L has a card without a uuid":    {eight, "-L", replace("Available (UUID: ", "Available (ID: "), "an available card without a uuid"},
		"-L has a slice before any card":  {"2.2.12-in-a-slice", "-L", from("  SGPU#3"), "want a card like"},

		"a log without an end":            {eight, "--show-memory", replace("End of Log\n", ""), "the output is cut off after 8 of 8 cards"},
		"a log that is cut off":           {eight, "--show-memory", before("GPU#5"), "the output is cut off after 5 of 8 cards"},
		"a log with a card less":          {eight, "--show-memory", func(s string) string { return before("GPU#7")(s) + "End of Log\n" }, "Attached GPUs is 8, but 7 are listed"},
		"a log without a number of cards": {eight, "--show-memory", replace("Attached GPUs ", "Attached NPUs "), "a card before the number of cards"},
		"a log of 65 cards":               {eight, "--show-memory", replace(": 8\n", ": 65\n"), "a node may hold 64 cards"},
		"a log of -1 cards":               {eight, "--show-memory", replace(": 8\n", ": -1\n"), "want the number of cards"},
		"a log that counts twice":         {eight, "--show-memory", replace("GPU#0", "Attached GPUs : 8\nGPU#0"), "given before"},
		"a log with a card twice":         {sixteen, "--show-memory", replace("GPU#10 ", "GPU#1 "), "the card was listed before"},
		"a log with a card elsewhere":     {eight, "--show-memory", replace("GPU#3  MXC500  0000:11:00.0", "GPU#3  MXC500  0000:99:00.0"), "it lists GPU#3 at 0000:99:00.0, -L at 0000:11:00.0"},
		"a log of another command":        {eight, "--show-memory", replace("        vram total ", "        dram total "), `GPU#0: no line "vram total"`},
		"a log without a version":         {eight, "--show-memory", replace("mx-smi  version", "nv-smi  version"), `line 1, "nv-smi  version: 2.2.8"`},
		"a card that is not known":        {eight, "--show-memory", replace("GPU#3  MXC500  0000:11:00.0", "GPU#3  ?"), `"GPU#3  ?"`},
		"memory in another unit":          {eight, "--show-memory", func(s string) string { return strings.ReplaceAll(s, "67108864 KB", "64 GB") }, `"vram total : 64 GB": want a number and KB`},
		"memory of a fraction":            {eight, "--show-memory", func(s string) string { return strings.ReplaceAll(s, "67108864 KB", "1.5 KB") }, "want a whole number"},
		"memory that is no number":        {eight, "--show-memory", func(s string) string { return strings.ReplaceAll(s, "67108864 KB", "NaN KB") }, "want a number and KB"},
		"an ecc counter less":             {eight, "--count-ecc", replace("SRAM Uncorrectable", "SRAM Unknown"), `GPU#0: no line "SRAM Uncorrectable"`},
		"an ecc counter of letters":       {eight, "--count-ecc", replace("SRAM Uncorrectable                        : 0", "SRAM Uncorrectable                        : many"), `"SRAM Uncorrectable : many": want a number`},

		"a matrix cut off after a row":     {sixteen, "topo -m", func(s string) string { return before("\nGPU9 ")(s) + "\n" }, "Attached GPUs is 16, but the matrix has 9 rows and 16 columns"},
		"a matrix with a column less":      {eight, "topo -m", replace("GPU7    \n", "\n"), "8 cells for 7 columns"},
		"a row with a cell less":           {eight, "topo -m", replace("GPU1    MX      X ", "GPU1    MX "), "7 cells for 8 columns"},
		"a row with a cell more":           {eight, "topo -m", replace("GPU1    MX      X ", "GPU1    MX      SYS     X "), "9 cells for 8 columns"},
		"a kind of link that is not known": {eight, "topo -m", replace("GPU1    MX", "GPU1    YY"), `unknown kind of link "YY"`},
		"a link in one direction":          {eight, "topo -m", replace("GPU1    MX", "GPU1    SYS"), `GPU1 to GPU0 is "SYS", but the other way round it is "MX"`},
		"a card linked to itself":          {eight, "topo -m", replace("GPU0    X ", "GPU0    MX"), "GPU0 to GPU0"},
		"rows in another order":            {eight, "topo -m", replace("\nGPU1 ", "\nGPU2 "), "not in the order of the columns"},
		"a row that is not known":          {eight, "topo -m", replace("\nGPU1 ", "\nCPU1 "), "want a row of the matrix, GPU1"},
		"two columns of one card":          {eight, "topo -m", replace("GPU1 ", "GPU0 "), "two columns GPU0"},
		"a column that is not known":       {sixteen, "topo -m", replace("Node Affinity", "Moon Affinity"), `unknown column "Moon Affinity CPU Affinity"`},
		"a matrix of no columns":           {eight, "topo -m", replace("        GPU0 ", "        CPU0 "), "want the names of the columns"},
		"a matrix without its title":       {eight, "topo -m", replace("Device link", "Device lunk"), "0 rows and 0 columns"},
		"a matrix of cards not in -L":      {eight, "-L", before("GPU#7"), "which -L does not"},
		"a temperature in another unit":    {eight, "--show-temperature", replace("38.50 C", "x38.50 C"), "want a number and C"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := sampled(t, tc.version, map[string]func(string) string{tc.command: tc.change})
			s, err := m.Look(t.Context())
			if err == nil {
				t.Fatalf("got %d cards, want an error with %q", len(s.Cards), tc.want)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, want an error with %q", err, tc.want)
			}
		})
	}
}

// Every prefix of every output about cards is an error or
// the whole truth.
func TestMXSMITruncated(t *testing.T) {
	for _, version := range []string{"2.2.8-8xC500", "2.2.12-16xC600", "2.2.9-2xN260"} {
		whole, err := sampled(t, version, nil).Look(t.Context())
		gputest.Must(t, err)
		for command, name := range samples {
			if _, err := os.Stat(filepath.Join("testdata", "mx-smi", version, name+".txt")); err != nil {
				continue
			}
			length := len(sample(t, version, name))
			for cut := 1; cut < length; cut += 1 + length/40 {
				got, err := sampled(t, version, map[string]func(string) string{command: func(s string) string { return s[:len(s)-cut] }}).Look(t.Context())
				if err != nil {
					continue
				}
				if diff := cmp.Diff(whole, got); diff != "" {
					t.Fatalf("%s: %s without its last %d of %d bytes is no error, but (-whole +got):\n%s", version, command, cut, length, diff)
				}
			}
		}
	}
}

func TestMXSMINotInstalled(t *testing.T) {
	_, err := NewMXSMI(filepath.Join(t.TempDir(), "mx-smi")).Look(t.Context())
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v, want %v", err, ErrNotInstalled)
	}
}
