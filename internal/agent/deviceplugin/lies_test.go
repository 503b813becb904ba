package deviceplugin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover/mxsml"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestMain lets this program stand for the agent's binary: the vendor's library runs in
// it as it does in the real one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == discover.HelperCommand {
		cmd := mxsml.NewCommand()
		cmd.SetArgs(os.Args[2:])
		if cmd.ExecuteContext(context.Background()) != nil {
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lies is what a driver may do other than what it was ordered to, and how the fake
// library does the same. The first slice of the node has minor number 16 and UUID S-1.
var lies = map[string]struct {
	make  func(x *discover.Slice) bool
	fault fake.Fault
	want  string
}{
	"all of the memory":          {change(func(x *discover.Slice) { x.Memory = 64 << 10 }), fake.Fault{Kind: "vram", Code: 64 << 10}, "a slice with 64 GiB and 30% instead of 4 GiB and 30%"},
	"memory in another unit":     {change(func(x *discover.Slice) { x.Memory >>= 10 }), fake.Fault{Kind: "vram", Code: 4}, "a slice with 4 MiB and 30% instead of 4 GiB and 30%"},
	"memory in larger steps":     {change(func(x *discover.Slice) { x.Memory += 128 }), fake.Fault{Kind: "step", Code: 4224}, "a slice with 4224 MiB and 30% instead of 4 GiB and 30%"},
	"all of the compute":         {change(func(x *discover.Slice) { x.ComputePercent = 100 }), fake.Fault{Kind: "compute", Code: 100}, "a slice with 4 GiB and 100% instead of 4 GiB and 30%"},
	"a shortened name":           {change(func(x *discover.Slice) { x.Alias = x.Alias[:15] }), fake.Fault{Kind: "alias", Code: 15}, `has the name "daybreak-`},
	"no name":                    {change(func(x *discover.Slice) { x.Alias = "" }), fake.Fault{Kind: "alias", Code: 0}, `has the name "" instead of "daybreak-`},
	"a minor number on each GPU": {change(func(x *discover.Slice) { x.Minor = 16 }), fake.Fault{Kind: "minor", Code: 16}, "made a slice with minor number 16, which slice"},
	"the UUID of another slice":  {change(func(x *discover.Slice) { x.UUID = "S-1" }), fake.Fault{}, "made a slice with UUID S-1, which slice 1 of GPU GPU-a has too"},
	"a slice that is not listed": {func(*discover.Slice) bool { return false }, fake.Fault{Kind: "unlisted"}, "reports a slice as made and does not list it"},
}

func change(f func(x *discover.Slice)) func(x *discover.Slice) bool {
	return func(x *discover.Slice) bool { f(x); return true }
}

// TestLies: a slice that is not what was ordered starts no container and does not stay;
// the pod's event says what to do. Once the driver does as ordered the pod starts.
func TestLies(t *testing.T) {
	t.Parallel()
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			s.toLie(lie.want, func(lies bool) {
				s.driver.setLie(nil)
				if lies {
					s.driver.setLie(lie.make)
				}
			}, s.driver.aliases)
		})
	}
}

// TestLiesOfLibrary is the same with the library in a process of its own.
func TestLiesOfLibrary(t *testing.T) {
	for name, lie := range lies {
		if lie.fault.Kind == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			m, config := fake.NewMachine(2, 0), filepath.Join(t.TempDir(), "machine")
			m.Cards[0].BDF, m.Cards[1].BDF = "0000:01:00.0", "0000:02:00.0"
			lie.fault.Function = "mxSmlCreateSgpu"
			if lie.fault.Kind == "alias" {
				lie.fault.Function = "mxSmlSetSgpuAlias"
			}
			setLie := func(lies bool) {
				m.Faults = nil
				if lies {
					m.Faults = []fake.Fault{lie.fault}
				}
				gputest.Must(t, m.Write(config))
			}
			setLie(false)
			s := newLibraryScene(t, config, fake.Library(t, fake.V231))
			s.patience = time.Minute // a start ends in the middle of a call otherwise
			s.toLie(lie.want, setLie, func() (list []string) {
				_, made, err := fake.Read(config)
				gputest.Must(t, err)
				for _, x := range made {
					list = append(list, x.Alias)
				}
				return list
			})
		})
	}
}

// newLibraryScene is a scene with the vendor's library in place of the driver.
func newLibraryScene(t *testing.T, machine, path string) *scene {
	t.Helper()
	t.Setenv(fake.EnvConfig, machine)
	library, err := discover.NewLibrary(discover.Config{Library: path})
	gputest.Must(t, err)
	t.Cleanup(library.Close)
	s := newScene(t, gpu.ModeSGPU)
	s.slicer = library
	s.restart()
	return s
}

// toLie starts a pod on each GPU while the driver lies about the slice of the second.
func (s *scene) toLie(want string, setLie func(lies bool), aliases func() []string) {
	s.slicePod("b", "GPU-b", 30, 4)
	s.startSlice("a", "GPU-a", 20, 4, "daybreak-sgpu-000")
	before := aliases()
	setLie(true)
	names := s.admit(slice, "b", "daybreak-sgpu-001")
	for range 2 {
		s.wantNoStart(slice, want, "daybreak-sgpu-001")
	}
	gputest.Equal(s, "slices, before and after", before, aliases())
	gputest.Equal(s, "b would see", []string{"nothing"}, s.sees(names...))
	s.mu.Lock()
	reported := slices.ContainsFunc(s.events, func(e string) bool {
		return strings.HasPrefix(e, "b CardsNotReady ") && strings.Contains(e, want) && strings.Contains(e, "daybreak agent check")
	})
	s.mu.Unlock()
	if !reported {
		s.Errorf("events %q", s.events)
	}
	setLie(false)
	s.starts(slice, "daybreak-sgpu-001") // the driver does as ordered
}

// A driver that keeps a wrong slice has it removed with the pod: the journal leads to
// it by its UUID.
func TestLieThatStays(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"all of the memory", "no name"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, gpu.ModeSGPU)
			s.slicePod("a", "GPU-a", 30, 4)
			s.driver.setLie(lies[name].make)
			s.driver.setBusy(true)
			s.admit(slice, "a", "daybreak-sgpu-000")
			s.wantNoStart(slice, lies[name].want, "daybreak-sgpu-000")
			s.restart()
			s.wantNoStart(slice, lies[name].want, "daybreak-sgpu-000")
			if n := len(s.driver.aliases()); n != 1 {
				t.Errorf("%d slices, want the one that the driver keeps", n)
			}
			s.driver.setBusy(false)
			s.delete("a")
			s.eventually("it is removed", func() bool { return len(s.driver.aliases()) == 0 })
		})
	}
}

// A driver that has other steps than whole ones of 128 MiB, or no limit of compute
// where none is ordered, does what was ordered.
func TestFits(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		share share
		made  discover.Slice
		want  bool
	}{
		"as ordered":                            {share{Memory: 4096, Compute: 30}, discover.Slice{Memory: 4096, ComputePercent: 30}, true},
		"an order that is not in steps":         {share{Memory: 4000, Compute: 30}, discover.Slice{Memory: 4096, ComputePercent: 30}, true},
		"a whole step more":                     {share{Memory: 4096, Compute: 30}, discover.Slice{Memory: 4224, ComputePercent: 30}, false},
		"less":                                  {share{Memory: 4096, Compute: 30}, discover.Slice{Memory: 4095, ComputePercent: 30}, false},
		"other compute":                         {share{Memory: 4096, Compute: 30}, discover.Slice{Memory: 4096, ComputePercent: 31}, false},
		"an online pod, which orders no limit":  {share{Memory: 4096}, discover.Slice{Memory: 4096, ComputePercent: 100}, true},
		"an online pod, and none is what it is": {share{Memory: 4096}, discover.Slice{Memory: 4096}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			gputest.Equal(t, "fits", tc.want, tc.share.fits(&tc.made))
		})
	}
}

// A library without the functions for slices starts no container with one, and those with
// a whole GPU as before.
func TestLibraryWithoutSlices(t *testing.T) {
	m, config := fake.NewMachine(1, 0), filepath.Join(t.TempDir(), "machine")
	gputest.Must(t, m.Write(config))
	s := newLibraryScene(t, config, fake.Library(t, fake.Core))
	s.slicePod("a", "GPU-a", 20, 4)
	s.admit(slice, "a", "daybreak-sgpu-000")
	s.wantNoStart(slice, "has no function mxSmlSetSgpuToggle, so it makes no slices: install a later driver", "daybreak-sgpu-000")
	s.pod("b", oneCard, allOf("GPU-b"))
	s.admit(whole, "b", "daybreak-gpu-000")
	s.starts(whole, "daybreak-gpu-000") // a whole GPU
}
