package discover

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// sysfsWith is a tree with one card, and with files added to it or, where the
// text is empty, taken out.
func sysfsWith(link string, files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{
		"bus/pci/devices/0000:3d:00.0":           {Data: []byte(link), Mode: fs.ModeSymlink},
		"bus/pci/devices/0000:00:1f.6":           {Data: []byte("../../../devices/pci0000:00/0000:00:1f.6"), Mode: fs.ModeSymlink},
		"devices/pci0000:00/0000:00:1f.6/vendor": {Data: []byte("0x8086\n")},
		"module/metax/version":                   {Data: []byte("3.8.30\n")},
	}
	all := map[string]string{"vendor": "0x9999\n", "class": "0x038000\n", "numa_node": "1\n", "drm/card1/dev": "226:1\n", "drm/renderD128/dev": "226:128\n"}
	maps.Copy(all, files)
	const folder = "devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0/"
	for name, text := range all {
		target, isLink := strings.CutPrefix(text, "-> ")
		switch {
		case isLink:
			tree[folder+name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		case text != "":
			tree[path.Join(folder, name)] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return tree
}

const cardLink = "../../../devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0"

func TestReadSysfs(t *testing.T) {
	card := Card{BDF: "0000:3d:00.0", NUMA: new(1), PCIeRoot: "pci0000:3a", PCIeSwitch: "0000:3b:00.0"}
	with := func(change func(*Card)) []Card {
		c := card
		change(&c)
		return []Card{c}
	}
	cases := map[string]struct {
		files map[string]string
		want  []Card
	}{
		"a card behind a switch":        {want: []Card{card}},
		"an unknown NUMA node":          {map[string]string{"numa_node": "-1\n"}, with(func(c *Card) { c.NUMA = nil })},
		"no NUMA node":                  {map[string]string{"numa_node": ""}, with(func(c *Card) { c.NUMA = nil })},
		"a virtual function":            {map[string]string{"physfn": "-> ../0000:3d:00.1"}, with(func(c *Card) { c.Virtual = true })},
		"a card with virtual functions": {map[string]string{"virtfn0": "-> ../0000:3d:00.1"}, []Card{}},
		"a bridge of the vendor's":      {map[string]string{"class": "0x060400\n"}, []Card{}},
		"a device of another vendor":    {map[string]string{"vendor": "0x10de\n"}, []Card{}},
		"no class":                      {map[string]string{"class": ""}, []Card{card}},
		"a device that goes away":       {map[string]string{"vendor": ""}, []Card{}},
		"an accelerator, not a display": {map[string]string{"class": "0x120000\n"}, []Card{card}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readSysfs(sysfsWith(cardLink, tc.files))
			gputest.Must(t, err)
			if diff := cmp.Diff(tc.want, got.Cards); diff != "" || got.Driver != "3.8.30" {
				t.Errorf("driver %q, cards (-want +got):\n%s", got.Driver, diff)
			}
		})
	}
}

func TestReadDRM(t *testing.T) {
	cases := map[string]struct {
		files map[string]string
		want  string // "" for the devices of the tree
	}{
		"a card":                     {},
		"other things in the folder": {files: map[string]string{"drm/controlD64/dev": "1", "drm/version": "1", "drm/card1x": "1"}},
		"no driver":                  {map[string]string{"drm/card1/dev": "", "drm/renderD128/dev": ""}, "is the driver loaded?"},
		"two render nodes":           {map[string]string{"drm/renderD129/dev": "1"}, "two device nodes of one kind"},
		"no number":                  {map[string]string{"drm/card1/dev": "1"}, "not the number of a device"},
		"drm is a file":              {map[string]string{"drm/card1/dev": "", "drm/renderD128/dev": "", "drm": "x"}, "drm"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readDRM(sysfsWith(cardLink, tc.files), "0000:3d:00.0")
			want := &DRM{Card: DRMDevice{1, DeviceNumber{226, 1}}, Render: DRMDevice{128, DeviceNumber{226, 128}}}
			switch {
			case tc.want == "" && (err != nil || *got != *want):
				t.Errorf("got %+v, %v", got, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestPCIePath(t *testing.T) {
	cases := map[string]struct{ path, root, upstream, problem string }{
		"at a root port":                {path: "devices/pci0000:80/0000:80:01.0/0000:81:00.0", root: "pci0000:80"},
		"in the root complex":           {path: "devices/pci0000:80/0000:81:00.0", root: "pci0000:80"},
		"behind a switch":               {path: "devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:81:00.0", root: "pci0000:3a", upstream: "0000:3b:00.0"},
		"behind two, the nearer counts": {path: "devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0/0000:3e:00.0/0000:81:00.0", root: "pci0000:3a", upstream: "0000:3d:00.0"},
		"in a domain of its own":        {path: "devices/pci0000:3a/0000:3a:00.5/pci10000:00/10000:00:02.0/0000:81:00.0", root: "pci10000:00"},
		"below a platform device":       {path: "devices/platform/soc/pci0002:00/0002:00:00.0/0000:81:00.0", root: "pci0002:00"},
		"another device":                {path: "devices/pci0000:80/0000:82:00.0", problem: "which is another device"},
		"no root":                       {path: "devices/0000:81:00.0", problem: "no PCI root"},
		"junk on the way":               {path: "devices/pci0000:80/junk/0000:81:00.0", problem: `"junk" in its path`},
	}
	for name, tc := range cases {
		root, upstream, err := pciePath(tc.path, "0000:81:00.0")
		if tc.problem != "" {
			gputest.ErrorHas(t, name, tc.problem, err)
			continue
		}
		if err != nil || root != tc.root || upstream != tc.upstream {
			t.Errorf("%s: got %q, %q, %v", name, root, upstream, err)
		}
	}
}

func TestReadSysfsRefuses(t *testing.T) {
	cases := map[string]struct {
		link  string
		files map[string]string
		want  string
	}{
		"a link that leads out":         {link: "../../../../etc/0000:3d:00.0", want: "which is not under devices"},
		"a link to another device":      {link: "../../../devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0/../0000:3d:00.0/../0000:3d:00.1", files: map[string]string{"../0000:3d:00.1/vendor": "0x9999"}, want: "which is another device"},
		"a vendor that is no number":    {files: map[string]string{"vendor": "\x00\xff\x00"}, want: `vendor is "\x00\xff\x00", not a number`},
		"a NUMA node that is no number": {files: map[string]string{"numa_node": "one"}, want: `numa_node is "one", not a number`},
		"a NUMA node out of range":      {files: map[string]string{"numa_node": "99999999999"}, want: "not a number"},
		"a folder instead of a file":    {files: map[string]string{"numa_node": "", "numa_node/x": "1"}, want: "numa_node"},
		"a class that is no number":     {files: map[string]string{"class": "bridge"}, want: "not a number"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			link := cardLink
			if tc.link != "" {
				link = tc.link
			}
			_, err := readSysfs(sysfsWith(link, tc.files))
			gputest.ErrorHas(t, "readSysfs", tc.want, err)
		})
	}
}

// The source reads a real tree, and nothing in it can keep it.
func TestSysfsHostile(t *testing.T) {
	root := t.TempDir()
	if _, err := NewSysfs(root).Look(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty tree: got %v", err)
	}
	if _, err := NewSysfs(filepath.Join(root, "missing")).Look(t.Context()); err == nil {
		t.Error("no tree: want an error")
	}
	device := filepath.Join(root, "devices", "pci0000:80", "0000:81:00.0")
	for _, dir := range []string{device, filepath.Join(root, "bus", "pci", "devices")} {
		gputest.Must(t, os.MkdirAll(dir, 0o755))
	}
	gputest.Must(t, os.Symlink("../../../devices/pci0000:80/0000:81:00.0", filepath.Join(root, "bus", "pci", "devices", "0000:81:00.0")))
	gputest.Must(t, os.WriteFile(filepath.Join(device, "vendor"), []byte("0x9999"), 0o600))
	try := func(name string, prepare func(path string) error) {
		path := filepath.Join(device, "numa_node")
		gputest.Must(t, prepare(path))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if got, err := NewSysfs(root).Look(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%s: got %+v, %v; want an error in time", name, got, err)
		}
		gputest.Must(t, os.Remove(path))
	}
	try("a loop", func(path string) error { return os.Symlink("numa_node", path) })
	try("a way out", func(path string) error { return os.Symlink("/etc/hostname", path) })
	got, err := NewSysfs(root).Look(t.Context())
	if err != nil || len(got.Cards) != 1 {
		t.Errorf("afterwards: got %+v, %v", got, err)
	}
}

// A look that hangs ends in time, and so does the next.
func TestSysfsHangs(t *testing.T) {
	t.Parallel()
	s, leave := NewSysfs(t.TempDir()), make(chan struct{})
	defer close(leave)
	for _, want := range []string{"no answer in time", "an earlier look has not ended"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.look(ctx, func() (*Snapshot, error) { <-leave; return nil, nil })
		cancel()
		gputest.ErrorHas(t, "Look", want, err)
	}
}
