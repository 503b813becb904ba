package discover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// scripted is a source with the answers of a test.
type scripted struct {
	name      string
	cards     []Card
	links     []gpu.Link
	unlinked  bool
	err       error
	looks     int
	refreshes int
}

func (s *scripted) Name() string { return s.name }
func (s *scripted) Refresh()     { s.refreshes++ }

func (s *scripted) Look(context.Context) (*Snapshot, error) {
	s.looks++
	if s.err != nil {
		return nil, s.err
	}
	return &Snapshot{Source: s.name, Cards: append([]Card(nil), s.cards...), Links: s.links, LinksKnown: !s.unlinked}, nil
}

func someCards(n int) []Card {
	cards := make([]Card, n)
	for i := range cards {
		cards[i] = Card{UUID: fmt.Sprintf("GPU-%d", i), Minor: i, BDF: fmt.Sprintf("0000:%02x:00.0", i), Model: "C500", Memory: 65536}
	}
	return cards
}

// onBus are cards as sysfs shows them.
func onBus(n int) []Card {
	cards := someCards(n)
	for i := range cards {
		cards[i] = Card{Minor: i, BDF: cards[i].BDF, PCIeRoot: "pci0000:00", NUMA: new(i / 4)}
	}
	return cards
}

func TestFinderStaysWithItsSource(t *testing.T) {
	first, second := &scripted{name: "mxsml", cards: someCards(2)}, &scripted{name: "mx-smi", cards: someCards(2)}
	f := NewFinder(first, second)
	if s, err := f.Look(t.Context()); err != nil || s.Source != "mxsml" {
		t.Fatalf("got %+v, %v; want the first source's answer", s, err)
	}
	first.err = errors.New("driver busy")
	if _, err := f.Look(t.Context()); err == nil || err.Error() != "mxsml: driver busy" || second.looks != 0 {
		t.Errorf("got %v after asking the second source %d times; want the first one's error", err, second.looks)
	}
	first.err = nil
	if s, err := f.Look(t.Context()); err != nil || s.Source != "mxsml" {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestFinderFallsThroughAtStart(t *testing.T) {
	first, second := &scripted{name: "mxsml", err: errors.New("broken")}, &scripted{name: "mx-smi", cards: someCards(2)}
	f := NewFinder(first, second)
	if s, err := f.Look(t.Context()); err != nil || s.Source != "mx-smi" {
		t.Fatalf("got %+v, %v; want the second source's answer", s, err)
	}
	first.cards, first.err = someCards(2), nil
	if s, err := f.Look(t.Context()); err != nil || s.Source != "mx-smi" {
		t.Errorf("got %+v, %v; want the same source again", s, err)
	}
}

// A library that fails is asked again until it works, for slices only: the cards stay
// those of the source that was chosen.
func TestFinderRetriesLibrary(t *testing.T) {
	library := &scripted{name: "mxsml", err: errors.New("broken")}
	f := NewFinder(library, &scripted{name: "mx-smi", cards: someCards(2)})
	look := func(want string, looks int) {
		t.Helper()
		s, err := f.Look(t.Context())
		if err != nil || s.Source != "mx-smi" || s.LibraryFailed != want || s.NoSlices != "" || library.looks != looks {
			t.Errorf("got %+v, %v after %d looks at the library; want failure %q after %d", s, err, library.looks, want, looks)
		}
	}
	const why = "slices are made through the vendor's library libmxsml.so: mxsml: broken"
	look(why, 1)
	library.err = errors.New("broken in another way")
	look(why, 2) // what is published does not change with it
	library.cards, library.err = someCards(2), nil
	look("", 3)
	library.err = errors.New("busy")
	look("", 3)
}

// hanging is a source that never answers.
type hanging struct{ scripted }

func (h *hanging) Look(ctx context.Context) (*Snapshot, error) {
	h.looks++
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A source that hangs at the start leaves time to ask the next.
func TestFinderSharesTime(t *testing.T) {
	t.Parallel()
	first, second := &hanging{scripted{name: "mxsml"}}, &scripted{name: "mx-smi", cards: someCards(2)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if s, err := NewFinder(first, second).Look(ctx); err != nil || s.Source != "mx-smi" || first.looks != 1 {
		t.Errorf("got %+v, %v; want the second source's answer", s, err)
	}
}

func TestFinderAnswers(t *testing.T) {
	missing := fmt.Errorf("no library: %w", ErrNotInstalled)
	cases := map[string]struct {
		sources []Source
		// wantCards counts when wantError is empty.
		wantCards int
		wantError string
	}{
		"no cards at all":                       {sources: []Source{&scripted{name: "mxsml"}, &scripted{name: "sysfs"}}},
		"no cards and no software":              {sources: []Source{&scripted{name: "mxsml", err: missing}, &scripted{name: "mx-smi", err: missing}, &scripted{name: "sysfs"}}},
		"no cards, but the software is broken":  {sources: []Source{&scripted{name: "mxsml", err: errors.New("broken")}, &scripted{name: "mx-smi", err: missing}, &scripted{name: "sysfs"}}, wantError: "mxsml: broken"},
		"no cards listed that are there":        {sources: []Source{&scripted{name: "mxsml"}, &scripted{name: "sysfs", cards: onBus(8)}}, wantError: "it lists no card, but 8 are on the PCI bus"},
		"the next source lists them":            {sources: []Source{&scripted{name: "mxsml"}, &scripted{name: "mx-smi", cards: someCards(8)}, &scripted{name: "sysfs", cards: onBus(8)}}, wantCards: 8},
		"cards on the bus and no software ":     {sources: []Source{&scripted{name: "mxsml", err: missing}, &scripted{name: "sysfs", cards: onBus(8)}}, wantError: "8 MetaX cards are on the PCI bus, but no source reports their uuids"},
		"sysfs alone, with cards":               {sources: []Source{&scripted{name: "sysfs", cards: onBus(2)}}, wantError: "2 MetaX cards are on the PCI bus"},
		"nothing to ask":                        {sources: nil, wantError: "no source is configured"},
		"sysfs can't be read":                   {sources: []Source{&scripted{name: "mxsml", cards: someCards(2)}, &scripted{name: "sysfs", err: errors.New("not mounted")}}, wantError: "sysfs: not mounted"},
		"all sources fail":                      {sources: []Source{&scripted{name: "mxsml", err: errors.New("a")}, &scripted{name: "mx-smi", err: errors.New("b")}}, wantError: "mxsml: a\nmx-smi: b"},
		"a source that lies does not work":      {sources: []Source{&scripted{name: "mxsml", cards: append(someCards(2), someCards(2)...)}, &scripted{name: "mx-smi", cards: someCards(2)}}, wantCards: 2},
		"65 cards":                              {sources: []Source{&scripted{name: "mxsml", cards: someCards(65)}}, wantError: "65 cards: a node may hold 64"},
		"a card that only the bus knows":        {sources: []Source{&scripted{name: "mxsml", cards: someCards(7)}, &scripted{name: "sysfs", cards: onBus(8)}}, wantCards: 8},
		"more cards on the bus than a node may": {sources: []Source{&scripted{name: "mxsml", cards: someCards(64)}, &scripted{name: "sysfs", cards: append(onBus(64), Card{BDF: "0001:00:00.0", Minor: 64})}}, wantError: "65 cards: a node may hold 64"},
		"a link to a card that is not there":    {sources: []Source{&scripted{name: "mxsml", cards: someCards(2), links: []gpu.Link{{A: 0, B: 2}}}}, wantError: "link 0-2 among 2 cards"},
		"a model with an escape sequence":       {sources: []Source{&scripted{name: "mxsml", cards: []Card{{UUID: "a", BDF: "0000:00:00.0", Model: "C\x1b[0m", Memory: 128}}}}, wantError: `model "C\x1b[0m"`},
		"memory of no card that was ever made":  {sources: []Source{&scripted{name: "mxsml", cards: []Card{{UUID: "a", BDF: "0000:00:00.0", Model: "C", Memory: 1 << 40}}}}, wantError: "MiB of memory"},
		"a card's number of a million and more": {sources: []Source{&scripted{name: "mxsml", cards: []Card{{UUID: "a", BDF: "0000:00:00.0", Minor: 1<<20 + 1, Model: "C", Memory: 128}}}}, wantError: "want 0 to 1048576"},
		"two cards of one number":               {sources: []Source{&scripted{name: "mxsml", cards: []Card{{UUID: "a", BDF: "0000:00:00.0", Model: "C", Memory: 128}, {UUID: "b", BDF: "0000:01:00.0", Model: "C", Memory: 128}}}}, wantError: "have the same number, 0"},
		"an unavailable card may lack the rest": {sources: []Source{&scripted{name: "mxsml", cards: append(someCards(2), Card{Minor: 2, Vitals: Vitals{Available: new(false)}})}}, wantCards: 3},
		"an available one may not":              {sources: []Source{&scripted{name: "mxsml", cards: append(someCards(2), Card{Minor: 2, Vitals: Vitals{Available: new(true)}})}}, wantError: "no uuid"},
		"nor may one of unknown state      ":    {sources: []Source{&scripted{name: "mxsml", cards: append(someCards(2), Card{Minor: 2})}}, wantError: "no uuid"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := NewFinder(tc.sources...).Look(t.Context())
			switch {
			case tc.wantError == "" && err != nil:
				t.Errorf("got %v, want %d cards", err, tc.wantCards)
			case tc.wantError == "" && len(s.Cards) != tc.wantCards:
				t.Errorf("%d cards, want %d", len(s.Cards), tc.wantCards)
			case tc.wantError != "" && (err == nil || !strings.Contains(err.Error(), tc.wantError)):
				t.Errorf("got %v, want an error with %q", err, tc.wantError)
			}
		})
	}
}

func TestFinderCompletes(t *testing.T) {
	vendor, bus := &scripted{name: "mxsml", cards: someCards(3)}, &scripted{name: "sysfs", cards: onBus(3)}
	vendor.cards[1].NUMA = new(7)
	bus.cards[2].Virtual = true
	f := NewFinder(bus, vendor) // the order of sysfs does not matter
	s, err := f.Look(t.Context())
	gputest.Must(t, err)
	want := someCards(3)
	for i := range want {
		want[i].PCIeRoot, want[i].NUMA = "pci0000:00", new(0)
	}
	want[2].Virtual = true
	gputest.Equal(t, "cards", want, s.Cards)

	bus.cards = onBus(4)[1:] // card 0 is gone, card 3 is new
	s, err = f.Look(t.Context())
	gputest.Must(t, err)
	gone, appeared := s.Cards[0], s.Cards[3]
	if !gone.Unavailable() || gone.UUID != "GPU-0" || gone.Vitals.Reason != "it is gone from the PCI bus" {
		t.Errorf("the card that is gone: %+v", gone)
	}
	if !appeared.Unavailable() || appeared.UUID != "" || appeared.Minor != 3 || appeared.Vitals.Reason == "" {
		t.Errorf("the card that is new: %+v", appeared)
	}
	if vendor.refreshes != 1 {
		t.Errorf("the source was asked to count again %d times, want once", vendor.refreshes)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"an unknown source":            {Config{Sources: []string{"nvml"}}, `source "nvml": write mxsml, mx-smi, sysfs or simulated`},
		"a profile that is not there":  {Config{Sources: []string{"simulated"}, Profile: "c999"}, `no profile "c999"`},
		"a profile of several kinds":   {Config{Sources: []string{"simulated"}, Profile: "mixed"}, "it is of 5 kinds of nodes: write the profile of one"},
		"a simulation without profile": {Config{Sources: []string{"simulated"}}, "no profile"},
	} {
		_, err := New(tc.cfg)
		gputest.ErrorHas(t, name, tc.want, err)
	}
}

// Processes that can't be killed are waited for, and are not joined by more.
func TestStuckChildren(t *testing.T) {
	t.Parallel()
	c := &children{}
	var ends []chan error
	for range maxStuck {
		ended := make(chan error)
		c.abandon(ended)
		ends = append(ends, ended)
	}
	_, err := c.command(t.Context(), []string{"mx-smi"})
	gputest.ErrorHas(t, "command", "4 processes of mx-smi were killed and have not ended", err)
	ends[0] <- nil
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := c.command(t.Context(), []string{"mx-smi"}); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	c := &children{}
	_, err := c.output(t.Context(), 100, []string{"head", "-c", "1000000", "/dev/zero"}, nil)
	gputest.ErrorHas(t, "too long an output", "more than 100 bytes", err)
	if _, err := c.output(t.Context(), 100, []string{"/nonexistent/mx-smi"}, nil); err == nil {
		t.Error("no such command: want an error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.output(ctx, 100, []string{"sleep", "1000"}, nil)
	gputest.ErrorHas(t, "a command that does not end", "no answer in time", err)
}

// The wait between starts grows and ends with the first success.
func TestBackoff(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMXSML([]string{"/nonexistent/daybreak"})
	m.now = func() time.Time { return now }
	var waits []time.Duration
	for range 9 {
		if _, err := m.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "start the library's process") {
			t.Fatalf("got %v", err)
		}
		waits = append(waits, m.notBefore.Sub(now))
		if _, err := m.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "is started again in") {
			t.Fatalf("before its time: got %v", err)
		}
		now = m.notBefore
	}
	s := time.Second
	gputest.Equal(t, "waits", []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s}, waits)
}

// A process that talks nonsense is not called again; the next look starts a new
// one.
func TestHelperTalksNonsense(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, want string }{
		"another call's answer":   {`read line; echo '{"id":7,"result":{}}'; sleep 100`, "does not answer, so its process is killed"},
		"no JSON":                 {`read line; echo hello; sleep 100`, "the library's process: invalid character 'h'"},
		"another type":            {`read line; echo '{"id":0,"result":[]}'; sleep 100`, "the library's process: reading body json"},
		"a line without end":      {`read line; printf '{"id":0,"result":"'; head -c 5000000 /dev/zero | tr '\0' x; sleep 100`, "an answer of more than 4194304 bytes"},
		"nothing, and it ends":    {`read line; echo no driver >&2`, "the library ended its process (exit status 0): no driver"},
		"no output any more":      {`read line; exec >&-; sleep 100`, "closed its output"},
		"it does not even listen": {`exit 3`, "the library ended its process (exit status 3)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMXSML([]string{"sh", "-c", tc.script})
			defer m.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := m.Look(ctx)
			gputest.ErrorHas(t, "Look", tc.want, err)
			if m.process != nil {
				t.Error("the process is kept")
			}
		})
	}
}

// Many answers may be longer than one: the limit is that of each.
func TestHelperAnswersOften(t *testing.T) {
	t.Parallel()
	m := newMXSML([]string{"sh", "-c", `n=0; while read line; do printf '{"id":%d,"result":{"Source":"' $n; head -c 3000000 /dev/zero | tr '\0' x; echo '"}}'; n=$((n+1)); done`})
	defer m.Close()
	for range 3 {
		if s, err := m.Look(t.Context()); err != nil || len(s.Source) != 3_000_000 {
			t.Fatalf("got %v", err)
		}
	}
}

// A process that ends between two calls is noticed by the second, and a third
// starts another.
func TestHelperEndsBetweenCalls(t *testing.T) {
	t.Parallel()
	m := newMXSML([]string{"sh", "-c", `read line; echo '{"id":0,"result":{"Source":"x"}}'; exec >&-; echo bye >&2; sleep 0.3; exit 4`})
	defer m.Close()
	now := time.Unix(0, 0)
	m.now = func() time.Time { return now }
	for range 2 {
		if s, err := m.Look(t.Context()); err != nil || s.Source != "x" {
			t.Fatalf("got %+v, %v", s, err)
		}
		if _, err := m.Look(t.Context()); err == nil || err.Error() != "the library ended its process (exit status 4): bye" {
			t.Errorf("got %v", err)
		}
		now = now.Add(time.Second)
	}
}

// An error of the library keeps its meaning and its process.
func TestHelperErrors(t *testing.T) {
	for text, want := range map[string]error{
		"no library at /x: not installed":                             ErrNotInstalled,
		"mxSmlRemoveSgpu: the driver reports it as in use":            ErrBusy,
		"slice 3 of the card at 0000:01:00.0: there is no such slice": ErrNoSlice,
		"start the library: Failure (code 1)":                         nil,
	} {
		m := newMXSML([]string{"sh", "-c", `read line; echo '{"id":0,"result":null,"error":"` + text + `"}'; sleep 100`})
		err := m.Remove(t.Context(), SliceRef{})
		if err == nil || err.Error() != text || want != nil && !errors.Is(err, want) || m.process == nil {
			t.Errorf("%s: got %v, process kept: %v", text, err, m.process != nil)
		}
		m.Close()
	}
}

func TestPrintable(t *testing.T) {
	for given, want := range map[string]string{
		"3.8.30\n": "3.8.30", "a\tb\r\n c": "a b c", "\x1b[31mred\x00": "?[31mred?", "\xff\xfe": "?", "沐曦": "沐曦",
		strings.Repeat("x", 255) + " y": strings.Repeat("x", 255), strings.Repeat("x", 255) + "曦": strings.Repeat("x", 255),
	} {
		got := printable(given)
		if got != want || printable(got) != got {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
