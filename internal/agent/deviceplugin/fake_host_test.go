package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// Numbers of drivers of the fake host.
const (
	majorDRM   = 226
	majorSlice = 240
)

// fakeHost is a host whose /dev, sysfs and procfs are the test's.
type fakeHost struct {
	sysfs, procfs string

	mu    sync.Mutex
	files map[string]fakeFile // by path
	fail  error               // of every look at a file
}

// fakeFile is a file of the host's /dev.
type fakeFile struct {
	mode   fs.FileMode
	number discover.DeviceNumber
}

const charDevice = fs.ModeDevice | fs.ModeCharDevice

// newFakeHost has a control device, the devices of two cards and those of the
// slices that the fake driver makes first.
func newFakeHost(t *testing.T, dir string) *fakeHost {
	h := &fakeHost{sysfs: filepath.Join(dir, "sys"), procfs: filepath.Join(dir, "proc"), files: map[string]fakeFile{}}
	h.set("/dev/mxcd", charDevice, 250, 0)
	for i := range 2 {
		bdf := fmt.Sprintf("0000:0%d:00.0", i+1)
		h.addCard(t, bdf, i)
	}
	for minor := range 32 {
		h.set(fmt.Sprintf("/dev/sgpu%d", 16+minor), charDevice, majorSlice, int64(16+minor))
	}
	h.write(t, filepath.Join(h.procfs, "devices"), fmt.Sprintf("Character devices:\n  1 mem\n%3d sgpu\n\nBlock devices:\n  7 sgpu\n", majorSlice))
	return h
}

// addCard adds a card at a PCI address with a number.
func (h *fakeHost) addCard(t *testing.T, bdf string, number int) {
	folder := filepath.Join(h.sysfs, "devices", "pci0000:00", bdf)
	for name, minor := range map[string]int{fmt.Sprintf("card%d", number): number, fmt.Sprintf("renderD%d", 128+number): 128 + number} {
		h.write(t, filepath.Join(folder, "drm", name, "dev"), fmt.Sprintf("%d:%d\n", majorDRM, minor))
		h.set("/dev/dri/"+name, charDevice, majorDRM, int64(minor))
	}
	link := filepath.Join(h.sysfs, "bus", "pci", "devices", bdf)
	gputest.Must(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("../../../devices/pci0000:00/"+bdf, link)))
}

func (*fakeHost) write(t *testing.T, path, text string) {
	t.Helper()
	gputest.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

func (h *fakeHost) set(path string, mode fs.FileMode, major, minor int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[path] = fakeFile{mode, discover.DeviceNumber{Major: major, Minor: minor}}
}

func (h *fakeHost) remove(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.files, path)
}

// install makes a layout look at this host.
func (h *fakeHost) install(l *Layout) { l.Sysfs, l.Procfs, l.lstat = h.sysfs, h.procfs, h.lstat }

func (h *fakeHost) lstat(path string) (fs.FileInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, h.fail
	}
	f, ok := h.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: fs.ErrNotExist}
	}
	return f, nil
}

// A fakeFile is its own [fs.FileInfo].
func (f fakeFile) Name() string       { return "" }
func (f fakeFile) Size() int64        { return 0 }
func (f fakeFile) Mode() fs.FileMode  { return f.mode }
func (f fakeFile) ModTime() time.Time { return time.Time{} }
func (f fakeFile) IsDir() bool        { return false }
func (f fakeFile) Sys() any {
	return &syscall.Stat_t{Rdev: uint64(f.number.Major)<<8 | uint64(f.number.Minor)&0xff | uint64(f.number.Minor)&^0xff<<12}
}
