package discover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Where things are in sysfs.
const (
	pciDevices    = "bus/pci/devices"
	moduleVersion = "module/metax/version"

	vendorMetaX = 0x9999
	classBridge = 0x06
)

var (
	rootPattern   = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	cardPattern   = regexp.MustCompile(`^card(\d{1,6})$`)
	renderPattern = regexp.MustCompile(`^renderD(\d{1,6})$`)
)

// Sysfs reads what the kernel knows of the cards: where on the PCI bus they
// are, and near which processor. It knows neither uuid nor memory, and numbers the
// cards in the order of their addresses.
type Sysfs struct {
	root string
	// sem is held by a look, even after its context ended.
	sem *semaphore.Weighted
}

// NewSysfs returns the source; root is where sysfs is mounted.
func NewSysfs(root string) *Sysfs { return &Sysfs{root: root, sem: semaphore.NewWeighted(1)} }

// Name implements [Source].
func (s *Sysfs) Name() string { return SourceSysfs }

// Look implements [Source].
func (s *Sysfs) Look(ctx context.Context) (*Snapshot, error) { return s.look(ctx, s.read) }

// look ends with its context. One that hangs in the kernel is not joined by more.
func (s *Sysfs) look(ctx context.Context, read func() (*Snapshot, error)) (*Snapshot, error) {
	if s.sem.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("an earlier look has not ended: %w", context.Cause(ctx))
	}
	var out *Snapshot
	var err error
	done := make(chan struct{})
	go func() {
		defer s.sem.Release(1)
		defer close(done)
		out, err = read()
	}()
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in time: %w", context.Cause(ctx))
	}
}

func (s *Sysfs) read() (*Snapshot, error) {
	root, err := os.OpenRoot(s.root) // nothing in the tree leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readSysfs(root.FS())
}

// readSysfs reads the cards from a tree.
func readSysfs(sys fs.FS) (*Snapshot, error) {
	entries, err := fs.ReadDir(sys, pciDevices)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	out := &Snapshot{Source: SourceSysfs, Cards: []Card{}}
	for _, entry := range entries {
		bdf := entry.Name()
		card, err := sysfsCard(sys, bdf)
		if err != nil {
			return nil, fmt.Errorf("PCI device %.40q: %w", bdf, err)
		}
		if card == nil {
			continue
		}
		card.Minor = len(out.Cards)
		out.Cards = append(out.Cards, *card)
	}
	if len(out.Cards) > gpu.MaxCards {
		return nil, fmt.Errorf("%d cards: a node may hold %d", len(out.Cards), gpu.MaxCards)
	}
	version, err := attribute(sys, moduleVersion)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("driver version: %w", err)
	}
	out.Driver = printable(version)
	return out, nil
}

// sysfsCard reads one device of the bus; nil is none of our cards, or one that
// is handed out as its virtual functions, which are listed themselves.
func sysfsCard(sys fs.FS, bdf string) (*Card, error) {
	where, err := placeOf(sys, bdf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it goes away while we look
	}
	if err != nil {
		return nil, err
	}
	ours, err := isCard(sys, where)
	if err != nil || !ours {
		return nil, err
	}
	c := &Card{BDF: bdf}
	if c.PCIeRoot, c.PCIeSwitch, err = pciePath(where, bdf); err != nil {
		return nil, err
	}
	physical, err := present(sys, path.Join(where, "virtfn0"))
	if err != nil || physical {
		return nil, err
	}
	if c.Virtual, err = present(sys, path.Join(where, "physfn")); err != nil {
		return nil, err
	}
	node, known, err := number(sys, path.Join(where, "numa_node"))
	if err != nil {
		return nil, err
	}
	if known && node >= 0 { // -1 is the kernel's word for unknown
		c.NUMA = new(int(node))
	}
	return c, nil
}

// placeOf returns the folder of a PCI device.
func placeOf(sys fs.FS, bdf string) (string, error) {
	link, err := fs.ReadLink(sys, path.Join(pciDevices, bdf))
	if err != nil {
		return "", err
	}
	// Links are followed by their text alone: a tree of links has loops.
	where := path.Join(pciDevices, link)
	if !strings.HasPrefix(where, "devices/") {
		return "", fmt.Errorf("it is a link to %.200q, which is not under devices", link)
	}
	return where, nil
}

// isCard reports whether a PCI device is the vendor's and not a bridge on one
// of its boards. A device that goes away meanwhile is none.
func isCard(sys fs.FS, where string) (bool, error) {
	vendor, known, err := number(sys, path.Join(where, "vendor"))
	if err != nil || !known || vendor != vendorMetaX {
		return false, err
	}
	class, known, err := number(sys, path.Join(where, "class"))
	return !known || class>>16 != classBridge, err
}

// present reports whether there is a file, a folder or a link, wherever it
// leads.
func present(sys fs.FS, name string) (bool, error) {
	_, err := fs.Lstat(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// pciePath reads the place of a device in the PCI tree from its real path:
//
//	devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0
//	        root       its port     switch: up   down         card
//
// A switch is a pair of bridges, one port up and one down to the card; a card
// at a root port is behind no switch.
func pciePath(place, bdf string) (root, upstream string, err error) {
	parts := strings.Split(place, "/")
	if !bdfPattern.MatchString(bdf) {
		return "", "", errors.New("its name is no PCI address like 0000:0e:00.0")
	}
	if parts[len(parts)-1] != bdf {
		return "", "", fmt.Errorf("it is a link to %.200q, which is another device", place)
	}
	var chain []string
	for _, part := range parts[1:] {
		switch {
		case rootPattern.MatchString(part):
			root, chain = part, nil
		case root != "" && bdfPattern.MatchString(part):
			chain = append(chain, part)
		case root != "":
			return "", "", fmt.Errorf("%.60q in its path %.200q is no PCI address", part, place)
		}
	}
	if root == "" {
		return "", "", fmt.Errorf("no PCI root like pci0000:3a in its path %.200q", place)
	}
	if n := len(chain); n >= 4 {
		upstream = chain[n-3]
	}
	return root, upstream, nil
}

// DeviceNumber is the identity of a character device.
type DeviceNumber struct{ Major, Minor int64 }

// String returns the number as sysfs shows it, "226:128".
func (n DeviceNumber) String() string { return fmt.Sprintf("%d:%d", n.Major, n.Minor) }

// DRMDevice is a device of a card: Index is the N of cardN or renderDN.
type DRMDevice struct {
	Index  int
	Number DeviceNumber
}

// DRM is the devices of a whole card.
type DRM struct{ Card, Render DRMDevice }

// DRMDevices returns the devices of the card at a PCI address as sysfs, which is
// mounted at root, shows them now.
func DRMDevices(root, bdf string) (*DRM, error) {
	if !bdfPattern.MatchString(bdf) {
		return nil, fmt.Errorf("%.40q is no PCI address like 0000:0e:00.0", bdf)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	out, err := readDRM(dir.FS(), bdf)
	if err != nil {
		return nil, fmt.Errorf("PCI device %s: %w", bdf, err)
	}
	return out, nil
}

func readDRM(sys fs.FS, bdf string) (*DRM, error) {
	where, err := placeOf(sys, bdf)
	if err != nil {
		return nil, err
	}
	folder := path.Join(where, "drm")
	entries, err := fs.ReadDir(sys, folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out DRM
	for _, kind := range []struct {
		pattern *regexp.Regexp
		device  *DRMDevice
	}{{cardPattern, &out.Card}, {renderPattern, &out.Render}} {
		found := slices.DeleteFunc(slices.Clone(entries), func(entry fs.DirEntry) bool { return !kind.pattern.MatchString(entry.Name()) })
		switch len(found) {
		case 0:
			return nil, errors.New("sysfs has no cardN and renderDN of it: is the driver loaded?")
		case 1:
			kind.device.Index = atoi(kind.pattern.FindStringSubmatch(found[0].Name())[1])
		default:
			return nil, fmt.Errorf("two device nodes of one kind in %s: %q is the second", folder, found[1].Name())
		}
		if kind.device.Number, err = deviceNumber(sys, path.Join(folder, found[0].Name())); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// deviceNumber reads the number of the device that a folder is about.
func deviceNumber(sys fs.FS, folder string) (DeviceNumber, error) {
	name := path.Join(folder, "dev")
	text, err := attribute(sys, name)
	if err != nil {
		return DeviceNumber{}, err
	}
	left, right, _ := strings.Cut(text, ":")
	major, errMajor := strconv.ParseInt(left, 10, 32)
	minor, errMinor := strconv.ParseInt(right, 10, 32)
	if errMajor != nil || errMinor != nil || major <= 0 || minor < 0 {
		return DeviceNumber{}, fmt.Errorf("%s is %.40q, not the number of a device", name, text)
	}
	return DeviceNumber{major, minor}, nil
}

// attribute reads a file of one line.
func attribute(sys fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(sys, name)
	return strings.TrimSpace(string(text)), err
}

// number reads a file with one number, as 12 or as 0x9999; known is false where
// there is no such file.
func number(sys fs.FS, name string) (n int64, known bool, err error) {
	text, err := attribute(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if n, err = strconv.ParseInt(text, 0, 32); err != nil {
		return 0, false, fmt.Errorf("%s is %.40q, not a number", name, text)
	}
	return n, true, nil
}
