package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Layout is which devices of a card or a slice a container gets, and where the
// host lists them. All that is not confirmed on hardware is here, each with a
// value of its own.
//
// A device is its type and its numbers, as the driver has them at the moment at
// which a container gets it; what is at its path on the host must be that very
// device or nothing at all.
type Layout struct {
	// Root is where the host's devices are found; empty is the root itself.
	Root string
	// Sysfs and Procfs are where the kernel lists the numbers of devices.
	Sysfs, Procfs string
	// Control is the device that every container needs.
	Control string
	// Card and Render are the devices of a whole card, with %d for the number.
	Card, Render string
	// Slice is the device of a slice, with %d for its minor number.
	Slice string
	// VendorRuntime adds METAX_SGPUS, for the vendor's runtime, where there are
	// slices.
	VendorRuntime bool

	lstat func(path string) (fs.FileInfo, error)
}

// DefaultLayout is that of the vendor's driver.
func DefaultLayout() Layout {
	return Layout{
		Sysfs: "/sys", Procfs: "/proc", Control: "/dev/mxcd", Card: "/dev/dri/card%d", Render: "/dev/dri/renderD%d", Slice: "/dev/sgpu%d",
		lstat: os.Lstat,
	}
}

// sliceDriver is the driver's name for the devices of slices in /proc/devices.
const sliceDriver = "sgpu"

// node returns a character device for a container. With want, which is the device,
// the path may be missing on the host; without it, the host's is taken.
func (l *Layout) node(path string, want *discover.DeviceNumber) (*specs.DeviceNode, error) {
	host := l.onHost(path)
	node := &specs.DeviceNode{Path: path, Type: "c", Permissions: "rw"}
	info, err := l.lstat(host)
	if errors.Is(err, fs.ErrNotExist) && want != nil {
		node.Major, node.Minor = want.Major, want.Minor
		return node, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device of the host: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != fs.ModeDevice|fs.ModeCharDevice {
		return nil, fmt.Errorf("%s on the host is %s, not a character device", host, info.Mode())
	}
	is := numberOf(stat.Rdev)
	if want != nil && is != *want {
		return nil, fmt.Errorf("%s on the host is device %s, the driver has %s there: remove it, it is another card's or slice's", host, is, *want)
	}
	node.Major, node.Minor = is.Major, is.Minor
	if host != path {
		node.HostPath = host
	}
	return node, nil
}

// onHost returns where a path of the host is found.
func (l *Layout) onHost(path string) string {
	return filepath.Join(string(filepath.Separator), l.Root, path)
}

func numberOf(rdev uint64) discover.DeviceNumber {
	return discover.DeviceNumber{Major: int64(unix.Major(rdev)), Minor: int64(unix.Minor(rdev))}
}

func (l *Layout) sliceNode(minor int) (*specs.DeviceNode, error) {
	major, err := l.majorOf(sliceDriver)
	if err != nil {
		return nil, err
	}
	return l.node(fmt.Sprintf(l.Slice, minor), &discover.DeviceNumber{Major: major, Minor: int64(minor)})
}

// majorOf returns the number under which a driver's character devices are known.
func (l *Layout) majorOf(driver string) (int64, error) {
	path := filepath.Join(l.Procfs, "devices")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("major number of driver %s: %w", driver, err)
	}
	characters, _, _ := strings.Cut(string(text), "Block devices:")
	var found []int64
	for line := range strings.Lines(characters) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == driver {
			if major, err := strconv.ParseInt(fields[0], 10, 32); err == nil && major > 0 {
				found = append(found, major)
			}
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s has %d major numbers of driver %s, one is needed to know its devices", path, len(found), driver)
	}
	return found[0], nil
}

// edits returns what the container gets, by share, with the same environment.
func (l *Layout) edits(r *record, cards map[gpu.CardID]Card) ([]*specs.ContainerEdits, error) {
	env := []string{"MACA_VISIBLE_DEVICES=" + counted(len(r.Shares))}
	if slices.ContainsFunc(r.Shares, func(s share) bool { return s.Seat }) {
		env = append(env, "MACA_MPS_MODE=1")
	}
	if text := vendorSlices(r); l.VendorRuntime && text != "" {
		env = append(env, "METAX_SGPUS="+text)
	}
	control, err := l.node(l.Control, nil)
	if err != nil {
		return nil, err
	}
	var out []*specs.ContainerEdits
	for i := range r.Shares {
		nodes, err := l.shareNodes(&r.Shares[i], cards)
		if err != nil {
			return nil, fmt.Errorf("card %s: %w", r.Shares[i].Card, err)
		}
		out = append(out, &specs.ContainerEdits{Env: env, DeviceNodes: append([]*specs.DeviceNode{control}, nodes...)})
	}
	return out, nil
}

func (l *Layout) shareNodes(s *share, cards map[gpu.CardID]Card) ([]*specs.DeviceNode, error) {
	if s.Slice != nil {
		node, err := l.sliceNode(s.Slice.Minor)
		if err != nil {
			return nil, fmt.Errorf("slice %d: %w", s.Slice.ID, err)
		}
		return []*specs.DeviceNode{node}, nil
	}
	return l.cardNodes(cards[s.Card].BDF)
}

func (l *Layout) cardNodes(bdf string) ([]*specs.DeviceNode, error) {
	drm, err := discover.DRMDevices(l.Sysfs, bdf)
	if err != nil {
		return nil, err
	}
	var nodes []*specs.DeviceNode
	for _, d := range []struct {
		pattern string
		device  *discover.DRMDevice
	}{{l.Card, &drm.Card}, {l.Render, &drm.Render}} {
		node, err := l.node(fmt.Sprintf(d.pattern, d.device.Index), &d.device.Number)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// counted is "0,1,2" for 3: in the container its cards are the only ones.
func counted(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ",")
}

// vendorSlices describes slices to the vendor's container runtime.
func vendorSlices(r *record) string {
	var list []string
	for i := range r.Shares {
		if n := r.Shares[i].Slice; n != nil {
			list = append(list, fmt.Sprintf("sgpu=%s#%d;compute=%d;vram=%d;alias=%s", n.BDF, n.ID, r.Shares[i].Compute, r.Shares[i].Memory, n.Alias))
		}
	}
	return strings.Join(list, ",")
}
