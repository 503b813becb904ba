package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// A container gets the devices that the driver and sysfs name by number. What
// else is at their paths on the host starts no container.
func TestDevicesByNumber(t *testing.T) {
	t.Parallel()
	slice := share{Card: "GPU-a", Slice: &sliceNote{Minor: 20}}
	whole := share{Card: "GPU-b"}
	card := []string{"/dev/mxcd c 250:0", "/dev/dri/card1 c 226:1", "/dev/dri/renderD129 c 226:129"}
	cases := map[string]struct {
		share   share
		prepare func(h *fakeHost)
		want    []string
		wantErr string
	}{
		"a slice":      {share: slice, want: []string{"/dev/mxcd c 250:0", "/dev/sgpu20 c 240:20"}},
		"a whole card": {share: whole, want: card},
		"a slice without a path on the host": {
			share: slice, prepare: func(h *fakeHost) { h.remove("/dev/sgpu20") }, want: []string{"/dev/mxcd c 250:0", "/dev/sgpu20 c 240:20"},
		},
		"a card without a path on the host": {share: whole, prepare: func(h *fakeHost) { h.remove("/dev/dri/card1") }, want: card},
		"the path of a slice leads to another one": {
			share: slice, prepare: func(h *fakeHost) { h.set("/dev/sgpu20", charDevice, majorSlice, 21) }, wantErr: "is device 240:21, the driver has 240:20 there",
		},
		"the path of a slice is of an earlier major number": {
			share: slice, prepare: func(h *fakeHost) { h.set("/dev/sgpu20", charDevice, 239, 20) }, wantErr: "is device 239:20",
		},
		"the path of a slice is a link":         {share: slice, prepare: func(h *fakeHost) { h.set("/dev/sgpu20", fs.ModeSymlink, majorSlice, 20) }, wantErr: "not a character device"},
		"the path of a slice is a block device": {share: slice, prepare: func(h *fakeHost) { h.set("/dev/sgpu20", fs.ModeDevice, majorSlice, 20) }, wantErr: "not a character device"},
		"the path of a card leads to another one": {
			share: whole, prepare: func(h *fakeHost) { h.set("/dev/dri/renderD129", charDevice, majorDRM, 128) }, wantErr: "is device 226:128, the driver has 226:129 there",
		},
		"the control device is missing":  {share: slice, prepare: func(h *fakeHost) { h.remove("/dev/mxcd") }, wantErr: "device of the host"},
		"the host's files can't be read": {share: slice, prepare: func(h *fakeHost) { h.fail = errors.New("input/output error") }, wantErr: "input/output error"},
		"the driver of slices is not known": {
			share: slice, prepare: func(h *fakeHost) { h.write(t, filepath.Join(h.procfs, "devices"), "Character devices:\n  1 mem\n") }, wantErr: "0 major numbers of driver sgpu",
		},
		"the driver of slices has two numbers": {
			share: slice, prepare: func(h *fakeHost) {
				h.write(t, filepath.Join(h.procfs, "devices"), "Character devices:\n240 sgpu\n241 sgpu\n")
			}, wantErr: "2 major numbers of driver sgpu",
		},
		"sysfs has no such card": {share: share{Card: "GPU-z"}, wantErr: "is no PCI address"},
		"sysfs has no device of the card": {
			share: whole, prepare: func(h *fakeHost) {
				gputest.Check(t, os.RemoveAll(filepath.Join(h.sysfs, "devices", "pci0000:00", "0000:02:00.0", "drm", "renderD129")))
			}, wantErr: "is the driver loaded?",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, l := newFakeHost(t, t.TempDir()), DefaultLayout()
			h.install(&l)
			if tc.prepare != nil {
				tc.prepare(h)
			}
			edits, err := l.edits(&record{Shares: []share{tc.share}}, map[gpu.CardID]Card{"GPU-a": {BDF: "0000:01:00.0"}, "GPU-b": {BDF: "0000:02:00.0"}})
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want %q", err, tc.wantErr)
			}
			var got []string
			for _, e := range edits {
				for _, n := range e.DeviceNodes {
					got = append(got, fmt.Sprintf("%s %s %d:%d", n.Path, n.Type, n.Major, n.Minor))
				}
			}
			gputest.Equal(t, "devices", tc.want, got)
		})
	}
}

// Numbers of devices are taken apart as the kernel puts them together.
func TestNumberOf(t *testing.T) {
	t.Parallel()
	info, err := os.Lstat(os.DevNull)
	gputest.Must(t, err)
	l := DefaultLayout()
	l.Control = os.DevNull
	if node, err := l.node(os.DevNull, nil); err != nil || node.Major != 1 || node.Minor != 3 {
		t.Errorf("%s is %+v, %v (%v)", os.DevNull, node, err, info.Mode())
	}
	want := discover.DeviceNumber{Major: 511, Minor: 1<<20 - 1}
	gputest.Equal(t, "numberOf", want, numberOf(511<<8|0xff|0xfff00<<12))
}

// A device whose path the host does not have is not confirmed by it.
func TestCheckDevices(t *testing.T) {
	t.Parallel()
	h, l := newFakeHost(t, t.TempDir()), DefaultLayout()
	h.install(&l)
	l.Root = "/host"
	for path, file := range maps.Clone(h.files) {
		h.set("/host"+path, file.mode, file.number.Major, file.number.Minor)
	}
	h.remove("/host/dev/sgpu17")
	h.remove("/host/dev/dri/renderD129")
	h.set("/host/dev/sgpu18", charDevice, majorSlice, 19)
	const a, b = "0000:01:00.0", "0000:02:00.0"
	got := l.Check([]string{a, b}, map[string]int{"a": 16, "b": 17, "c": 18})
	for key, why := range got.Slices {
		if got.Slices[key] = ""; strings.Contains(why, "is device 240:19") {
			got.Slices[key] = "stale"
		}
	}
	want := Devices{
		Cards: map[string]string{a: "", b: ""}, Slices: map[string]string{"a": "", "b": "", "c": "stale"},
		Absent: map[string]string{b: "/host/dev/dri/renderD129", "b": "/host/dev/sgpu17"},
	}
	gputest.Equal(t, "devices", want, got)
}

// CDI specs are to be gone after a reboot.
func TestInMemory(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"/dev/shm": "", "/dev/shm/none/deeper": "", "/proc": "/proc is on a filesystem of type 0x9fa0 and not on tmpfs", "/proc/none": "/proc is on",
	} {
		if err := inMemory(dir); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}
