package check

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Addresses of the two cards.
const bdfA, bdfB = "0000:0e:00.0", "0000:0f:00.0"

func cards() []discover.Card {
	card := func(minor int, uuid, bdf string) discover.Card {
		return discover.Card{
			Minor: minor, UUID: uuid, BDF: bdf, Model: "C500", Memory: 64 << 10, Vitals: discover.Vitals{Available: new(true)},
			Figures: discover.Figures{MemoryTotalKiB: new(int64(64 << 20))},
		}
	}
	return []discover.Card{card(0, "GPU-a", bdfA), card(1, "GPU-b", bdfB)}
}

func snapshot(source string) *discover.Snapshot {
	return &discover.Snapshot{Source: source, Driver: "3.8.30", Cards: cards(), LinksKnown: true, Links: []gpu.Link{{A: 0, B: 1}}}
}

// sound is what a node answers on which every known assumption holds.
func sound() *Facts {
	return &Facts{
		PCI: snapshot("sysfs"), Library: snapshot("mxsml /lib"), LibraryAgain: snapshot("mxsml /lib"), Command: snapshot("mx-smi 2.2.12"),
		Errors: map[string]string{}, Kernel: Kernel{Module: true},
		Slices: map[string]*discover.CardSlices{bdfA: {On: true, Slices: []discover.Slice{{ID: 0, Minor: 16, Memory: 4096}, {ID: 3, Minor: 17, Memory: 4096}}}},
		Devices: deviceplugin.Devices{
			Cards: map[string]string{bdfA: "", bdfB: ""}, Slices: map[string]string{sliceKey(bdfA, 0): "", sliceKey(bdfA, 3): ""},
		},
		Node: &deviceplugin.Facts{Runtime: &deviceplugin.RuntimeAnswer{Name: "containerd", Version: "v2.2.1"}, Pods: 2, Sandboxes: 2, Folders: map[string]string{"/var/lib/daybreak": ""}},
	}
}

// Every check, on a node where its assumption does not hold or is not known.
// None has a result of its own for another check's assumption.
func TestChecks(t *testing.T) {
	t.Parallel()
	type want struct {
		check  string
		result Result
		detail string
	}
	fault := func(reason string) deviceplugin.RuntimeFault {
		return deviceplugin.RuntimeFault{Reason: reason, Message: "what to do"}
	}
	cases := map[string]struct {
		spoil func(*Facts)
		want  []want
	}{
		"all is well":            {func(*Facts) {}, []want{{"container-view", Unknown, "only there"}}},
		"another PCI vendor":     {func(f *Facts) { f.PCI.Cards = nil }, []want{{"pci-cards", Failed, "the driver lists 2 cards"}}},
		"no sysfs":               {func(f *Facts) { f.PCI, f.Errors[sourcePCI] = nil, "no such file" }, []want{{"pci-cards", Unknown, "no such file"}}},
		"a module of other name": {func(f *Facts) { f.Kernel.Module = false }, []want{{"driver-module", Unknown, "it has another name"}}},
		"no driver": {
			func(f *Facts) {
				f.Kernel.Module, f.Library, f.LibraryAgain, f.Command, f.Slices = false, nil, nil, nil, nil
				f.Errors = map[string]string{sourceLibrary: "no library", sourceCommand: "no command"}
				f.Devices = deviceplugin.Devices{Control: "no such file", SliceDriver: "0 major numbers"}
			},
			[]want{
				{"driver-module", Failed, "not loaded"}, {"driver-version", Unknown, ""}, {"library", Failed, "no library"}, {"library-functions", Unknown, ""}, {"slice-support", Unknown, ""},
				{"library-steady", Unknown, ""}, {"mx-smi", Failed, "no command"}, {"card-identity", Unknown, ""}, {"card-memory", Unknown, ""}, {"control-device", Unknown, ""},
				{"card-devices", Unknown, ""}, {"slice-driver", Unknown, "0 major numbers"}, {"slice-devices", Unknown, ""}, {"slice-minors", Unknown, ""}, {"slice-sizes", Unknown, ""}, {"links", Unknown, ""},
			},
		},
		"an old driver":           {func(f *Facts) { f.Library.Driver = "2.12.13" }, []want{{"driver-version", Failed, "driver 2.12.13"}}},
		"the command alone":       {func(f *Facts) { f.Library, f.LibraryAgain, f.Errors[sourceLibrary] = nil, nil, "crashed" }, []want{{"library", Unknown, "crashed"}, {"library-functions", Unknown, ""}, {"slice-support", Unknown, "library alone"}, {"library-steady", Unknown, ""}}},
		"GPUs without slices":     {func(f *Facts) { f.Library.NoSlices = "the driver makes no slices of GPU 0" }, []want{{"slice-support", Unknown, "no slices of GPU 0"}}},
		"a function is missing":   {func(f *Facts) { f.Library.Missing = []string{"mxSmlGetMetaXLinkInfo_v2"} }, []want{{"library-functions", Unknown, "mxSmlGetMetaXLinkInfo_v2"}}},
		"cards come and go":       {func(f *Facts) { f.LibraryAgain.Cards = f.LibraryAgain.Cards[:1] }, []want{{"library-steady", Failed, "then map[0000:0e:00.0:GPU-a]"}}},
		"no command":              {func(f *Facts) { f.Command, f.Errors[sourceCommand] = nil, "not installed" }, []want{{"mx-smi", Unknown, "not installed"}}},
		"cards swapped":           {func(f *Facts) { c := f.Command.Cards; c[0].UUID, c[1].UUID = c[1].UUID, c[0].UUID }, []want{{"card-identity", Failed, "at 0000:0e:00.0 the library has card GPU-a, mx-smi has GPU-b"}}},
		"a card off the bus":      {func(f *Facts) { f.PCI.Cards = f.PCI.Cards[:1] }, []want{{"card-identity", Failed, "where the PCI bus has none"}}},
		"a card without a name":   {func(f *Facts) { f.Library.Cards[1].UUID = "" }, []want{{"card-identity", Failed, "none may be empty"}, {"library-steady", Failed, ""}}},
		"memory in bytes":         {func(f *Facts) { f.Library.Cards[0].Memory <<= 10 }, []want{{"card-memory", Failed, "a unit other than KiB"}}},
		"memory in two units":     {func(f *Facts) { *f.Command.Cards[0].Figures.MemoryTotalKiB >>= 10 }, []want{{"card-memory", Failed, "65536 KiB by mx-smi"}}},
		"no control device":       {func(f *Facts) { f.Devices.Control = "lstat /dev/mxcd: no such file" }, []want{{"control-device", Failed, "/dev/mxcd"}}},
		"a stale node of a card":  {func(f *Facts) { f.Devices.Cards[bdfB] = "is another device" }, []want{{"card-devices", Failed, "GPU at 0000:0f:00.0: is another device"}}},
		"a major of other name":   {func(f *Facts) { f.Devices.SliceDriver = "0 major numbers" }, []want{{"slice-driver", Failed, "0 major numbers"}}},
		"a stale node of a slice": {func(f *Facts) { f.Devices.Slices[sliceKey(bdfA, 3)] = "is another device" }, []want{{"slice-devices", Failed, "slice 0000:0e:00.0#3: is another device"}}},
		"a minor of two slices": {func(f *Facts) {
			f.Slices[bdfB] = &discover.CardSlices{Slices: []discover.Slice{{Minor: 16, Memory: 128}}}
		}, []want{{"slice-minors", Failed, "both have minor number 16"}}},
		"a slice of odd size":          {func(f *Facts) { f.Slices[bdfA].Slices[0].Memory = 4000 }, []want{{"slice-sizes", Failed, "0000:0e:00.0#0"}}},
		"no slices":                    {func(f *Facts) { f.Slices, f.Devices.Slices = nil, nil }, []want{{"slice-devices", Unknown, "start a pod"}, {"slice-minors", Unknown, ""}, {"slice-sizes", Unknown, ""}}},
		"links unread":                 {func(f *Facts) { f.Library.LinksKnown, f.Library.LinksUnread = false, "topology: busy" }, []want{{"links", Failed, "topology: busy"}}},
		"links differ":                 {func(f *Facts) { f.Command.Links = nil }, []want{{"links", Failed, "library [0000:0e:00.0-0000:0f:00.0], mx-smi []"}}},
		"a runtime that is away":       {func(f *Facts) { f.Node.Runtime, f.Node.Fault = nil, fault(deviceplugin.ReasonRuntimeUnreachable) }, []want{{"runtime", Failed, "what to do"}, {"runtime-cdi", Unknown, ""}, {"runtime-of-kubelet", Unknown, ""}}},
		"CDI off":                      {func(f *Facts) { f.Node.Fault = fault(deviceplugin.ReasonNoCDI) }, []want{{"runtime-cdi", Failed, "what to do"}}},
		"CDI not known":                {func(f *Facts) { f.Node.Fault = fault(deviceplugin.ReasonCDIUnknown) }, []want{{"runtime-cdi", Unknown, "what to do"}}},
		"another runtime":              {func(f *Facts) { f.Node.Sandboxes = 0 }, []want{{"runtime-of-kubelet", Failed, "kubelet has 2 pods, the runtime has none of them"}}},
		"a node without pods":          {func(f *Facts) { f.Node.Pods, f.Node.Sandboxes = 0, 0 }, []want{{"runtime-of-kubelet", Unknown, "no pod"}}},
		"kubelet elsewhere":            {func(f *Facts) { f.Node.Plugins, f.Node.PodResources = "no kubelet.sock", "no socket" }, []want{{"kubelet-plugins", Failed, "no kubelet.sock"}, {"kubelet-pod-resources", Failed, "no socket"}, {"runtime-of-kubelet", Unknown, ""}, {"other-plugin", Unknown, "does not list"}}},
		"another kubelet's file":       {func(f *Facts) { f.Node.Checkpoint = "its checksum is 1" }, []want{{"kubelet-checkpoint", Failed, "checksum"}}},
		"the vendor's plugin":          {func(f *Facts) { f.Node.Foreign = "metax-tech.com/gpu" }, []want{{"other-plugin", Unknown, "metax-tech.com/gpu"}}},
		"a file of a GPU is missing":   {func(f *Facts) { f.Devices.Absent = map[string]string{bdfB: "/dev/dri/card1"} }, []want{{"card-devices", Unknown, "the host has no file /dev/dri/card1"}}},
		"a file of a slice is missing": {func(f *Facts) { f.Devices.Absent = map[string]string{sliceKey(bdfA, 3): "/dev/sgpu17"} }, []want{{"slice-devices", Unknown, "slice 0000:0e:00.0#3: the host has no file /dev/sgpu17"}}},
		"specs on a disk":              {func(f *Facts) { f.Node.Persists = "/cdi is on ext4" }, []want{{"cdi-folder", Failed, "/cdi is on ext4"}}},
		"a disk that is read-only":     {func(f *Facts) { f.Node.Folders["/var/lib/daybreak"] = "read-only file system" }, []want{{"folders", Failed, "read-only"}}},
	}
	covered := map[string]bool{}
	for name, tc := range cases {
		for _, w := range tc.want {
			covered[w.check] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sound()
			tc.spoil(f)
			for _, o := range Run(f).Checks {
				wanted := want{o.Name, OK, ""}
				if at := slices.IndexFunc(tc.want, func(w want) bool { return w.check == o.Name }); at >= 0 {
					wanted = tc.want[at]
				} else if o.Name == "container-view" {
					wanted.result = Unknown
				}
				if o.Result != wanted.result || !strings.Contains(o.Detail, wanted.detail) {
					t.Errorf("%s is %s: %s; want %s: %s", o.Name, o.Result, o.Detail, wanted.result, wanted.detail)
				}
				if o.Advice == "" && o.Result == Failed || o.Advice != "" && o.Result == OK {
					t.Errorf("%s is %s, with advice %q", o.Name, o.Result, o.Advice)
				}
			}
		})
	}
	for i := range table {
		if !covered[table[i].name] {
			t.Errorf("no case makes %s come out other than ok", table[i].name)
		}
	}
}

// What failed and matters keeps a node from being served, unless it is waived;
// what is unknown does not.
func TestBlocking(t *testing.T) {
	t.Parallel()
	f := sound()
	f.Devices.Control, f.Devices.SliceDriver, f.Node.Checkpoint = "no such file", "0 major numbers", "its checksum is 1"
	names := func(list []Outcome) (out []string) {
		for _, o := range list {
			out = append(out, o.Name)
		}
		return out
	}
	r := Run(f)
	gputest.Equal(t, "blocking", []string{"control-device", "slice-driver"}, names(r.Blocking(nil)))
	gputest.Equal(t, "with one waived", []string{"slice-driver"}, names(r.Blocking([]string{"control-device"})))
	for name, want := range map[string]string{
		"card-devices":    "",
		"card-device":     `there is no check "card-device": did you mean card-devices?`,
		"runtime-cdi":     `check "runtime-cdi" does not keep a node from being served by itself`,
		"kubelet-plugins": `check "kubelet-plugins" does not keep`,
	} {
		if err := ValidateWaived([]string{name}); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("waive %s: %v, want %q", name, err, want)
		}
	}
}

// unpack returns the files of a bundle.
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(r)
	gputest.Must(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		gputest.Must(t, err)
		content, err := io.ReadAll(archive)
		gputest.Must(t, err)
		files[header.Name] = string(content)
	}
}

// A bundle has the report and the answers, and can be read back.
func TestBundle(t *testing.T) {
	t.Parallel()
	f := sound()
	f.Printed = map[string]string{"-L": "GPU#0 MXC500\n", "topo -m": "matrix\n"}
	var out bytes.Buffer
	gputest.Must(t, WriteBundle(&out, "v1", Run(f), f, time.Unix(0, 0)))
	files := unpack(t, &out)
	var report Report
	if err := json.Unmarshal([]byte(files["daybreak-check/checks.json"]), &report); err != nil || len(report.Checks) != len(table) {
		t.Errorf("report with %d checks: %v", len(report.Checks), err)
	}
	var facts Facts
	if err := json.Unmarshal([]byte(files["daybreak-check/facts.json"]), &facts); err != nil || facts.Library.Cards[1].UUID != "GPU-b" {
		t.Errorf("facts %+v: %v", facts, err)
	}
	for name, want := range map[string]string{"mx-smi-L.txt": "GPU#0 MXC500\n", "mx-smi-topo-m.txt": "matrix\n", "version.txt": "v1\n"} {
		gputest.Equal(t, name, want, files["daybreak-check/"+name])
	}
}

// mx-smi is asked for what it prints; names that were given to slices by others
// are not kept.
func TestAskHidesNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n" +
		"-L) printf 'GPU#0    MXC500      0000:0e:00.0   Available (UUID: GPU-a)\\n  SGPU#3   25%% 15.625gb   Available (UUID: GPU-s) team-secret\\n';;\n" +
		"*) echo PARSE ERROR; exit 1;;\nesac\n"
	command := filepath.Join(dir, "mx-smi")
	gputest.Must(t, os.WriteFile(command, []byte(script), 0o755))
	node := deviceplugin.DefaultConfig()
	node.RuntimeRoot, node.PodResources, node.Plugins, node.State, node.CDI = dir, filepath.Join(dir, "r.sock"), dir, dir, dir
	a := &Asker{Discover: discover.Config{Sources: []string{discover.SourceMXSMI}, Command: command, Sys: dir}, Node: node, Timeout: 5 * time.Second, Clock: clock.RealClock{}}
	f, err := a.Ask(t.Context())
	gputest.Must(t, err)
	if !strings.Contains(f.Printed["-L"], "SGPU#3   25% 15.625gb   Available (UUID: GPU-s)\n") {
		t.Errorf("printed %q", f.Printed)
	}
	var out bytes.Buffer
	gputest.Must(t, WriteBundle(&out, "v1", Run(f), f, time.Unix(0, 0)))
	for name, content := range unpack(t, &out) {
		if strings.Contains(content, "team-secret") {
			t.Errorf("%s names the slice of a tenant: %s", name, content)
		}
	}
	if o, _ := Run(f).Of("runtime"); o.Result != Failed {
		t.Errorf("runtime: %+v", o)
	}
	got := []discover.Slice{{Alias: "team-secret"}, {Alias: "daybreak-0011"}}
	hideAliases(got)
	if got[0].Alias != hidden || got[1].Alias != "daybreak-0011" {
		t.Errorf("aliases %+v", got)
	}
}
