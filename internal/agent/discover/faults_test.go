package discover_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func library(t testing.TB) discover.Config {
	return discover.Config{Sources: []string{"mxsml"}, Library: fake.Library(t, fake.V231)}
}

// A crash in any call costs the look and the library's process.
func TestLibraryCrashes(t *testing.T) {
	for function, kind := range map[string]string{
		"mxSmlInit": "crash", "mxSmlGetDeviceInfo": "crash", "mxSmlGetMemoryInfo": "abort", "mxSmlGetMetaXLinkPortState": "crash",
	} {
		t.Run(function, func(t *testing.T) {
			m := newMachine(t, fake.NewMachine(8, 4))
			f := m.finder(library(t))
			if function != "mxSmlInit" {
				look(t, f) // it has worked before
			}
			m.Faults = []fake.Fault{{Kind: kind, Function: function}}
			m.write()
			lookFails(t, f, "mxsml: the library ended its process", map[string]string{"crash": "SIGSEGV", "abort": "SIGABRT"}[kind])
			lookFails(t, f, "the library ended its process") // again, or still
			m.Faults = nil
			m.write()
			compare(t, want(m.Machine), lookSoon(t, f).Cards, "Ports", "Sliced", "Slices", "PCIeRoot", "PCIeSwitch", "NUMA")
		})
	}
}

// A call that never returns is given up when the look's time is over.
func TestLibraryHangs(t *testing.T) {
	m := newMachine(t, fake.NewMachine(8, 4))
	f := m.finder(library(t))
	look(t, f)
	m.Faults = []fake.Fault{{Kind: "hang", Function: "mxSmlGetTotalEccErrors", Card: new(3)}}
	m.write()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := f.Look(ctx)
		done <- err
	}()
	select {
	case err := <-done:
		gputest.ErrorHas(t, "Look", "does not answer, so its process is killed", err)
	case <-time.After(10 * time.Second):
		t.Fatal("the look has not ended")
	}
	eventually(t, "no child is left", func() bool { return len(descendants(t, os.Getpid())) == 0 })
	m.Faults = nil
	m.write()
	lookSoon(t, f)
}

// What the library prints must not be taken for an answer.
func TestLibraryPrints(t *testing.T) {
	m := newMachine(t, fake.NewMachine(2, 2))
	m.Faults = []fake.Fault{{Kind: "noise", Function: "mxSmlGetDeviceInfo"}}
	m.write()
	if got := look(t, m.finder(library(t))); len(got.Cards) != 2 {
		t.Errorf("%d cards, want 2", len(got.Cards))
	}
}

// The library's process ends with the agent, however the agent ends, and even
// while the library hangs.
func TestHelperEndsWithAgent(t *testing.T) {
	m := newMachine(t, fake.NewMachine(2, 2))
	t.Run("closed", func(t *testing.T) {
		f := m.finder(library(t))
		look(t, f)
		if n := len(descendants(t, os.Getpid())); n != 1 {
			t.Fatalf("%d children, want 1", n)
		}
		f.Close()
		eventually(t, "no child is left", func() bool { return len(descendants(t, os.Getpid())) == 0 })
	})
	for name, fault := range map[string][]fake.Fault{"killed": nil, "killed while the library hangs": {{Kind: "hang", Function: "mxSmlGetMemoryInfo"}}} {
		t.Run(name, func(t *testing.T) {
			m.Faults = fault
			m.write()
			agent := exec.CommandContext(t.Context(), os.Args[0])
			agent.Env = append(os.Environ(), envHold+"="+fake.Library(t, fake.V231))
			out, err := agent.StdoutPipe()
			gputest.Must(t, err)
			gputest.Must(t, agent.Start())
			if fault == nil { // else there is nothing to wait for
				if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "looked\n" {
					t.Fatalf("got %q, %v", line, err)
				}
			}
			var helpers []int
			eventually(t, "the agent has one child", func() bool {
				helpers = descendants(t, agent.Process.Pid)
				return len(helpers) == 1
			})
			gputest.Must(t, agent.Process.Kill())
			_ = agent.Wait() // the error is that it was killed
			eventually(t, "the library's process is gone", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", helpers[0]))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
		})
	}
}

// hold is the agent of TestHelperEndsWithAgent.
func hold(path string) int {
	f, err := discover.New(discover.Config{Sources: []string{"mxsml"}, Library: path})
	if err != nil {
		return 1
	}
	if _, err := f.Look(context.Background()); err != nil {
		return 1
	}
	fmt.Println("looked")
	time.Sleep(time.Minute)
	return 0
}

// descendants lists the processes whose parent is the given one.
func descendants(t testing.TB, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	gputest.Must(t, err)
	var out []int
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (command) state parent …
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) && fields[0] != "Z" {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			gputest.Must(t, err)
			out = append(out, pid)
		}
	}
	return out
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// A card that is not available is that one alone: neither are 10 to 15 taken for 1.
func TestUnavailableCard(t *testing.T) {
	m := newMachine(t, fake.NewMachine(16, 4))
	sys, smi := m.sysfs(), fake.MXSMI(t)
	cases := map[string]discover.Config{
		"library": {Sources: []string{"mxsml", "sysfs"}, Library: fake.Library(t, fake.V228), Sys: sys},
		"mx-smi":  {Sources: []string{"mx-smi", "sysfs"}, Command: smi, Sys: sys},
	}
	for name, cfg := range cases {
		t.Run(name, func(t *testing.T) {
			m.Cards[1].Reason = ""
			m.write()
			f := m.finder(cfg)
			look(t, f)
			m.Cards[1].Reason = "Double bit error"
			m.write()
			got := look(t, f).Cards
			if len(got) != 16 {
				t.Fatalf("%d cards, want 16", len(got))
			}
			for i, c := range got {
				// mx-smi does not list its uuid any more.
				named := i != 1 || name == "library"
				if *c.Vitals.Available != (i != 1) || c.Vitals.Reason != m.Cards[i].Reason || (c.UUID == m.Cards[i].UUID) != named || c.BDF != m.Cards[i].BDF || c.Model != "C500" {
					t.Errorf("card %d is %+v", i, c)
				}
			}
		})
	}
}

// A card that falls off the bus is not available at once, and leaves the
// picture when the library counts again.
func TestLostCard(t *testing.T) {
	fakes := fake.NewMachine(8, 4)
	m := newMachine(t, fakes)
	cfg := discover.Config{Sources: []string{"mxsml", "sysfs"}, Library: fake.Library(t, fake.V231), Sys: m.sysfs()}
	f := m.finder(cfg)
	look(t, f)
	m.Cards[2].Lost = true
	m.write()
	for _, name := range []string{"bus/pci/devices/" + fakes.Cards[2].BDF, "devices/" + fakes.Cards[2].Path} {
		gputest.Must(t, os.RemoveAll(filepath.Join(cfg.Sys, name)))
	}
	got := look(t, f)
	if c := got.Cards[2]; len(got.Cards) != 8 || c.UUID != fakes.Cards[2].UUID || *c.Vitals.Available || c.Vitals.Reason == "" {
		t.Errorf("%d cards, card 2 is %+v; want it unavailable", len(got.Cards), c)
	}
	if slices.ContainsFunc(got.Links, func(l gpu.Link) bool { return l.A == 2 || l.B == 2 }) {
		t.Errorf("links %v, want none of card 2", got.Links)
	}
	got = look(t, f) // the library has counted again
	expected := slices.Delete(want(fakes), 2, 3)
	for i := range expected {
		expected[i].Minor = i // the driver counts again
	}
	compare(t, expected, got.Cards, "Ports", "Sliced", "Slices")
	if slices.ContainsFunc(got.Cards[0].Vitals.Ports, func(p discover.Port) bool { return p.Peer == fakes.Cards[2].BDF }) {
		t.Errorf("ports of card 0: %v", got.Cards[0].Vitals.Ports)
	}
	gputest.Equal(t, "links of the first zone, by position", []gpu.Link{{A: 0, B: 1}, {A: 0, B: 2}, {A: 1, B: 2}}, got.Links[:3])
}

func TestDeadLink(t *testing.T) {
	fakes := fake.NewMachine(4, 4)
	m := newMachine(t, fakes)
	for name, cfg := range map[string]discover.Config{"library": library(t), "mx-smi": {Sources: []string{"mx-smi"}, Command: fake.MXSMI(t)}} {
		t.Run(name, func(t *testing.T) {
			fakes.Links[0].Down = false
			m.write()
			f := m.finder(cfg)
			if got := look(t, f); len(got.Links) != 6 {
				t.Fatalf("links %v, want six", got.Links)
			}
			fakes.Links[0].Down = true // 0-1
			m.write()
			got := look(t, f)
			gputest.Equal(t, "links", wantLinks(fakes), got.Links)
			if name == "mx-smi" {
				return // it does not list ports
			}
			want := []discover.Port{
				{Number: 1, Up: true, Peer: fakes.Cards[2].BDF, SpeedGT: 32, Width: 16},
				{Number: 2, Up: true, Peer: fakes.Cards[3].BDF, SpeedGT: 32, Width: 16},
			}
			gputest.Equal(t, "ports of card 0", want, got.Cards[0].Vitals.Ports)
		})
	}
	t.Run("training failed", func(t *testing.T) {
		m.Cards[2].LinkState, m.Cards[3].LinkState = 4, 1
		m.write()
		got := look(t, m.finder(library(t))).Cards
		if got[2].Vitals.LinkFault != "Training failed" || got[3].Vitals.LinkFault != "" {
			t.Errorf("faults %q and %q", got[2].Vitals.LinkFault, got[3].Vitals.LinkFault)
		}
	})
}

// One card that the library fails for must not hide the others.
func TestLibraryErrors(t *testing.T) {
	cases := map[string]struct {
		fault     fake.Fault
		wantError string
		// wantReason is that of card 5.
		wantReason string
	}{
		"start":                {fault: fake.Fault{Function: "mxSmlInit", Code: 1}, wantError: "start the library: Failure (code 1)"},
		"all cards":            {fault: fake.Fault{Function: "mxSmlGetDeviceInfo", Code: 4}, wantError: "no card answers: card 0: mxSmlGetDeviceInfo: Sysfs error (code 4)"},
		"identity of one card": {fault: fake.Fault{Function: "mxSmlGetDeviceInfo", Code: 2, Card: new(5)}, wantReason: "mxSmlGetDeviceInfo: No device (code 2)"},
		"memory of one card":   {fault: fake.Fault{Function: "mxSmlGetMemoryInfo", Code: 4, Card: new(5)}, wantReason: "mxSmlGetMemoryInfo: Sysfs error (code 4)"},
		"something optional":   {fault: fake.Fault{Function: "mxSmlGetTemperatureInfo", Code: 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, fake.NewMachine(8, 4))
			tc.fault.Kind = "error"
			m.Faults = []fake.Fault{tc.fault}
			m.write()
			f := m.finder(library(t))
			if tc.wantError != "" {
				lookFails(t, f, tc.wantError)
			} else {
				got := look(t, f).Cards
				if c := got[5]; len(got) != 8 || c.Vitals.Reason != tc.wantReason || *c.Vitals.Available != (tc.wantReason == "") {
					t.Errorf("%d cards, card 5 is %+v", len(got), c)
				}
			}
			m.Faults = nil
			m.write()
			if got := look(t, f); len(got.Cards) != 8 || !*got.Cards[5].Vitals.Available || got.Cards[5].UUID == "" {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

// What can't be believed is an error and never a picture.
func TestBadMachines(t *testing.T) {
	cases := map[string]struct {
		change func(*fake.Machine)
		// wants are what the library's error and that of mx-smi say; empty: the
		// source can't be made to say so.
		wantLibrary, wantSMI string
	}{
		"300 cards":               {func(m *fake.Machine) { *m = *fake.NewMachine(300, 0); fix(m) }, "300 cards: no machine has more than 64", "more than the 64 cards"},
		"a count that is garbage": {func(m *fake.Machine) { m.Count = new(1000000) }, "1000000 cards: no machine has more than 64", ""},
		"no memory":               {func(m *fake.Machine) { m.Cards[4].MemoryKiB = 0 }, "0 MiB of memory: a card has at least 128", "0 MiB of memory: a card has at least 128"},
		"negative memory":         {func(m *fake.Machine) { m.Cards[4].MemoryKiB = -5 << 20 }, "MiB of memory: a card has at least 128", "want a whole number"},
		"two cards with one uuid": {func(m *fake.Machine) { m.Cards[4].UUID = m.Cards[1].UUID }, "have the same uuid, GPU-", "have the same uuid, GPU-"},
		"two cards at one place":  {func(m *fake.Machine) { m.Cards[4].BDF = m.Cards[1].BDF }, "have the same PCI address", "the card was listed before"},
		"no uuid":                 {func(m *fake.Machine) { m.Cards[4].UUID = "" }, "no uuid", "no uuid"},
		"control characters":      {func(m *fake.Machine) { m.Cards[4].UUID = "GPU-\x1b[31m\n" }, `uuid "GPU-\x1b[31m\n"`, "GPU#4"},
		"a uuid without end":      {func(m *fake.Machine) { m.Cards[4].UUID = strings.Repeat("G", 200) }, "", "at most 96"},
		"no address":              {func(m *fake.Machine) { m.Cards[4].BDF = "" }, "no PCI address", "want a card like"},
		"no such address":         {func(m *fake.Machine) { m.Cards[4].BDF = "../../etc" }, `PCI address "../../etc"`, "want a card like"},
		"no model":                {func(m *fake.Machine) { m.Cards[4].Model = "" }, "no model", "want a card like"},
	}
	smi := fake.MXSMI(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fakes := fake.NewMachine(8, 4)
			tc.change(fakes)
			m := newMachine(t, fakes)
			if tc.wantSMI != "" {
				lookFails(t, m.finder(discover.Config{Sources: []string{"mx-smi"}, Command: smi}), tc.wantSMI)
			}
			if tc.wantLibrary != "" {
				lookFails(t, m.finder(library(t)), tc.wantLibrary)
			}
		})
	}
}

// fix gives the cards of an impossible machine addresses that are possible.
func fix(m *fake.Machine) {
	for i := range m.Cards {
		m.Cards[i].BDF = fmt.Sprintf("%04x:01:00.0", i)
	}
}

// mx-smi failing or hanging is an error or, where a command is not needed, knowledge
// that is missing: never a card less. Outputs that are cut off: TestMXSMITruncated.
func TestBrokenMXSMI(t *testing.T) {
	m := newMachine(t, fake.NewMachine(16, 4))
	smi := fake.MXSMI(t)
	for command, required := range map[string]bool{"-L": true, "--show-memory": true, "topo -m": false, "--count-ecc": false, "--show-usage": false} {
		t.Run(command, func(t *testing.T) {
			m.Faults = []fake.Fault{{Kind: "error", Function: command}}
			m.write()
			got, err := tryLook(t, m.finder(discover.Config{Sources: []string{"mx-smi"}, Command: smi}))
			if (err != nil) != required || err != nil && !strings.Contains(err.Error(), command) || err == nil && len(got.Cards) != 16 {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	t.Run("links that were known once", func(t *testing.T) {
		m.Faults = nil
		m.write()
		f := m.finder(discover.Config{Sources: []string{"mx-smi"}, Command: smi})
		look(t, f)
		m.Faults = []fake.Fault{{Kind: "error", Function: "topo -m"}}
		m.write()
		lookFails(t, f, "topo -m: exit status 1: MetaX Sysfs Error")
	})
	t.Run("hang", func(t *testing.T) {
		m.Faults = []fake.Fault{{Kind: "hang", Function: "--show-memory"}}
		m.write()
		f := m.finder(discover.Config{Sources: []string{"mx-smi"}, Command: smi})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := f.Look(ctx)
		gputest.ErrorHas(t, "Look", "no answer in time", err)
		eventually(t, "no child is left", func() bool { return len(descendants(t, os.Getpid())) == 0 })
	})
}
