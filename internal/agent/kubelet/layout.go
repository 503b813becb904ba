package kubelet

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Layout is what a container gets to see of a card or a slice. All that is not
// confirmed on hardware is here, each with a value of its own.
type Layout struct {
	// Root is where the host's devices are found; empty is the root itself.
	Root string
	// Control is the device that every container needs.
	Control string
	// Card and Render are the devices of a whole card, with %d for the number.
	Card, Render string
	// Slice is the device of a slice, with %d for its minor number. Where the
	// host has none it is made from the driver's major number.
	Slice string
	// VendorRuntime adds METAX_SGPUS, which the vendor's container runtime is
	// said to read, to containers with slices.
	VendorRuntime bool
}

// DefaultLayout is that of the vendor's driver.
func DefaultLayout() Layout {
	return Layout{Control: "/dev/mxcd", Card: "/dev/dri/card%d", Render: "/dev/dri/renderD%d", Slice: "/dev/sgpu%d"}
}

// sliceMajor is the driver's name for the devices of slices in /proc/devices.
const sliceMajor = "sgpu"

// node returns a device of the host, at the same path in the container.
func (l *Layout) node(path string) (*specs.DeviceNode, error) {
	host := filepath.Join(string(filepath.Separator), l.Root, path)
	info, err := os.Stat(host)
	switch {
	case err != nil:
		return nil, fmt.Errorf("device of the host: %w", err)
	case info.Mode()&os.ModeDevice == 0:
		return nil, fmt.Errorf("%s is no device", host)
	}
	node := &specs.DeviceNode{Path: path, Permissions: "rw"}
	if host != path {
		node.HostPath = host
	}
	return node, nil
}

// sliceNode returns the device of a slice.
func (l *Layout) sliceNode(minor int) (*specs.DeviceNode, error) {
	path := fmt.Sprintf(l.Slice, minor)
	node, err := l.node(path)
	if major, known := majorOf(sliceMajor); err != nil && known {
		return &specs.DeviceNode{Path: path, Type: "c", Major: major, Minor: int64(minor), Permissions: "rw"}, nil
	}
	return node, err // a new one may take a moment to appear: whoever asks tries again
}

// majorOf returns the number under which a driver's devices are known.
func majorOf(driver string) (int64, bool) {
	f, err := os.Open("/proc/devices")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	for scanner.Scan() && scanner.Text() != "Block devices:" {
		if fields := strings.Fields(scanner.Text()); len(fields) == 2 && fields[1] == driver {
			major, err := strconv.ParseInt(fields[0], 10, 64)
			return major, err == nil
		}
	}
	return 0, false
}

// edits returns what the container gets, share by share. The environment is
// the same in all: the last one wins.
func (l *Layout) edits(r *record, cards map[gpu.CardID]Card) ([]*specs.ContainerEdits, error) {
	env := []string{"MACA_VISIBLE_DEVICES=" + counted(len(r.Shares))}
	if slices.ContainsFunc(r.Shares, func(s share) bool { return s.Seat }) {
		env = append(env, "MACA_MPS_MODE=1")
	}
	if text := vendorSlices(r); l.VendorRuntime && text != "" {
		env = append(env, "METAX_SGPUS="+text)
	}
	control, err := l.node(l.Control)
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
	card := cards[s.Card]
	if card.DRMCard == nil || card.DRMRender == nil {
		return nil, fmt.Errorf("its devices under %s are not known: sysfs does not tell them", filepath.Dir(l.Card))
	}
	var nodes []*specs.DeviceNode
	for _, path := range []string{fmt.Sprintf(l.Card, *card.DRMCard), fmt.Sprintf(l.Render, *card.DRMRender)} {
		node, err := l.node(path)
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

// sameSpec reports whether two specs say the same.
func sameSpec(a, b *specs.Spec) bool { return reflect.DeepEqual(a, b) }
