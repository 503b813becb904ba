package fake

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// WriteSysfs makes a tree like /sys with the machine's cards, the bridges above
// them and a network card, in an empty folder.
func (m *Machine) WriteSysfs(root string) error {
	tree := &tree{root: root}
	tree.device("pci0000:00/0000:00:1f.6", "0x8086", "0x020000")
	tree.file("devices/pci0000:00/0000:00:1f.6/numa_node", "0")
	virtuals := map[int]int{}
	for i := range m.Cards {
		c := &m.Cards[i]
		if c.Lost {
			continue
		}
		steps := strings.Split(c.Path, "/")
		for n := 2; n < len(steps); n++ {
			tree.device(strings.Join(steps[:n], "/"), "0x1000", "0x060400")
		}
		tree.device(c.Path, "0x9999", "0x038000")
		folder := "devices/" + c.Path
		tree.file(folder+"/device", "0x4001")
		tree.file(folder+"/numa_node", strconv.Itoa(c.NUMA))
		tree.file(fmt.Sprintf("%s/drm/card%d/dev", folder, c.DRMCard), fmt.Sprintf("226:%d", c.DRMCard))
		tree.file(fmt.Sprintf("%s/drm/renderD%d/dev", folder, c.Render), fmt.Sprintf("226:%d", c.Render))
		if c.VirtualOf != nil {
			physical := &m.Cards[*c.VirtualOf]
			tree.link(folder+"/physfn", "../"+physical.BDF)
			tree.link(fmt.Sprintf("devices/%s/virtfn%d", physical.Path, virtuals[*c.VirtualOf]), "../"+c.BDF)
			virtuals[*c.VirtualOf]++
		}
	}
	if m.Driver != "" {
		tree.file("module/metax/version", m.Driver)
	}
	return tree.err
}

// tree writes files and keeps the first error.
type tree struct {
	root string
	err  error
}

// device makes a PCI device at its place, and the link by which it is found.
func (t *tree) device(path, vendor, class string) {
	t.file("devices/"+path+"/vendor", vendor)
	t.file("devices/"+path+"/class", class)
	t.link("bus/pci/devices/"+filepath.Base(path), "../../../devices/"+path)
}

func (t *tree) file(name, text string) {
	t.make(name, func(path string) error { return os.WriteFile(path, []byte(text+"\n"), 0o600) })
}

func (t *tree) link(name, target string) {
	t.make(name, func(path string) error {
		if err := os.Symlink(target, path); !os.IsExist(err) { // a bridge of two cards
			return err
		}
		return nil
	})
}

func (t *tree) make(name string, create func(path string) error) {
	path := filepath.Join(t.root, name)
	if t.err == nil {
		t.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if t.err == nil {
		t.err = create(path)
	}
}
