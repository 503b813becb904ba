package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/version"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/clock"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Facts is what the node's kubelet and container runtime answer, and whether the
// agent's folders can be written to. It names no pod and no namespace.
type Facts struct {
	// Runtime is without other parts of its configuration, which may have passwords.
	Runtime *RuntimeAnswer `json:"runtime,omitempty"`
	// Fault is why no container with cards can be left to it.
	Fault RuntimeFault `json:"fault,omitzero"`
	// Pods is how many pods kubelet lists, Sandboxes how many of them the container
	// runtime has, and SandboxesError why that is not known.
	Pods           int    `json:"pods"`
	Sandboxes      int    `json:"sandboxes"`
	SandboxesError string `json:"sandboxesError,omitempty"`
	// Plugins is why kubelet takes no plugins, PodResources why it does not list
	// devices, Checkpoint why its file of devices can't be read.
	Plugins      string `json:"plugins,omitempty"`
	PodResources string `json:"podResources,omitempty"`
	Checkpoint   string `json:"checkpoint,omitempty"`
	// Advertised counts kubelet's devices; Foreign is a resource of another plugin.
	Advertised map[string]int `json:"advertised,omitempty"`
	Foreign    string         `json:"foreign,omitempty"`
	// Folders is why each folder of the agent's can't be written to.
	Folders map[string]string `json:"folders"`
	// Persists is why CDI specs would outlive a reboot, after which they may lead to other
	// devices, and kubelet starts containers before the agent does.
	Persists string `json:"persists,omitempty"`
}

// sandboxTimeout is how long a runtime may take to make the sandbox of the first pod.
const sandboxTimeout = 10 * time.Second

// Examine asks kubelet and the container runtime of the node. It changes nothing but
// a file that it writes and removes in each of the agent's folders.
func Examine(ctx context.Context, cfg *Config, clk clock.Clock) (*Facts, error) {
	f := &Facts{Folders: map[string]string{}}
	for _, dir := range []string{cfg.State, cfg.CDI} {
		f.Folders[dir] = text(tryWrite(dir))
	}
	f.Persists = text(inMemory(cfg.CDI))
	_, err := os.Stat(cfg.kubeletSocket())
	f.Plugins = text(err)
	_, err = readCheckpoint(filepath.Join(cfg.Plugins, checkpointFile))
	f.Checkpoint = text(err)
	conn, runtime, err := dialRuntime(cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := runtime.ask(ctx)
	if err == nil {
		f.Runtime, f.Fault = answer.brief(), answer.Fault(cfg.CDI, cfg.AssumeCDI)
	} else {
		f.Fault = cfg.unreachable(err)
	}
	kubelet, err := dialPodResources(cfg.PodResources)
	if err != nil {
		return nil, fmt.Errorf("kubelet's PodResources: %w", err)
	}
	defer kubelet.Close()
	pods := f.askKubelet(ctx, kubelet)
	if f.Runtime != nil && pods != nil {
		f.countSandboxes(ctx, runtime, pods, clk)
	}
	return f, nil
}

func tryWrite(dir string) error {
	file, err := os.CreateTemp(dir, probeFile)
	if err != nil {
		return err
	}
	_, err = file.WriteString("\n")
	return errors.Join(err, file.Close(), os.Remove(file.Name()))
}

// inMemory returns an error for a folder, or the one that it is to be made in, that is on
// no filesystem in memory.
func inMemory(dir string) error {
	var on unix.Statfs_t
	err := unix.Statfs(dir, &on)
	switch {
	case errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir):
		return inMemory(filepath.Dir(dir))
	case err != nil:
		return fmt.Errorf("filesystem of %s: %w", dir, err)
	case on.Type != unix.TMPFS_MAGIC && on.Type != unix.RAMFS_MAGIC:
		return fmt.Errorf("%s is on a filesystem of type %#x and not on tmpfs", dir, on.Type)
	}
	return nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// brief returns the answer with the part of the configuration that matters.
func (a *RuntimeAnswer) brief() *RuntimeAnswer {
	out := &RuntimeAnswer{Name: a.Name, Version: a.Version}
	if c, ok := a.config(); ok {
		if config, err := json.Marshal(c); err == nil {
			out.Info = map[string]string{"config": string(config)}
		}
	}
	return out
}

func (f *Facts) askKubelet(ctx context.Context, conn *grpc.ClientConn) []*podresources.PodResources {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	client := podresources.NewPodResourcesListerClient(conn)
	has, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		f.PodResources = plain(err)
		return nil
	}
	f.Advertised = map[string]int{}
	for _, d := range has.GetDevices() {
		f.Advertised[d.GetResourceName()] += len(d.GetDeviceIds())
	}
	for resource := range foreignIDs(has) {
		f.Foreign = max(f.Foreign, resource)
	}
	list, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		f.PodResources = plain(err)
		return nil
	}
	f.Pods = len(list.GetPodResources())
	return list.GetPodResources()
}

// countSandboxes counts the pods of kubelet that the runtime has. With none, kubelet
// uses another runtime, unless all pods are new.
func (f *Facts) countSandboxes(ctx context.Context, runtime *containers, pods []*podresources.PodResources, clk clock.Clock) {
	for start := clk.Now(); ; {
		answer, err := runtime.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			f.SandboxesError = plain(err)
			return
		}
		there := map[[2]string]bool{}
		for _, s := range answer.GetItems() {
			there[[2]string{s.GetLabels()[kubelettypes.KubernetesPodNamespaceLabel], s.GetLabels()[kubelettypes.KubernetesPodNameLabel]}] = true
		}
		for _, p := range pods {
			if there[[2]string{p.GetNamespace(), p.GetName()}] {
				f.Sandboxes++
			}
		}
		if f.Sandboxes > 0 || len(pods) == 0 || clk.Since(start) > sandboxTimeout {
			return
		}
		select {
		case <-ctx.Done():
			f.SandboxesError = context.Cause(ctx).Error()
			return
		case <-clk.After(time.Second):
		}
	}
}

// SlicesSince is the first driver that makes slices the way they are used.
var SlicesSince = version.MustParseGeneric("2.32.0")

// MakesNoSlices reports whether a driver is known to be older than that.
func MakesNoSlices(driver string) bool {
	v, err := version.ParseGeneric(driver)
	return err == nil && v.LessThan(SlicesSince)
}

// Devices is why containers would not get devices; empty where they would.
type Devices struct {
	Control     string            `json:"control,omitempty"`
	SliceDriver string            `json:"sliceDriver,omitempty"`
	Cards       map[string]string `json:"cards,omitempty"`  // by PCI address
	Slices      map[string]string `json:"slices,omitempty"` // by name
	// Absent are paths that the host does not have, by the same keys: containers get a
	// device there by its number, and nothing shows that it is the driver's path.
	Absent map[string]string `json:"absent,omitempty"`
}

// Check finds the devices of cards, by PCI address, and of slices, by name.
func (l *Layout) Check(cards []string, minors map[string]int) Devices {
	d := Devices{Cards: map[string]string{}, Slices: map[string]string{}, Absent: map[string]string{}}
	absent := func(key string, nodes ...*specs.DeviceNode) {
		for _, node := range nodes {
			if _, err := l.lstat(l.onHost(node.Path)); errors.Is(err, fs.ErrNotExist) {
				d.Absent[key] = l.onHost(node.Path)
			}
		}
	}
	_, err := l.node(l.Control, nil)
	d.Control = text(err)
	_, err = l.majorOf(sliceDriver)
	d.SliceDriver = text(err)
	for _, bdf := range cards {
		nodes, err := l.cardNodes(bdf)
		d.Cards[bdf] = text(err)
		absent(bdf, nodes...)
	}
	for name, minor := range minors {
		node, err := l.sliceNode(minor)
		d.Slices[name] = text(err)
		if err == nil {
			absent(name, node)
		}
	}
	return d
}

// DescribeDevice returns a file of the host's /dev with its type, rights and number.
func DescribeDevice(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}
	if stat, is := info.Sys().(*syscall.Stat_t); is && info.Mode()&fs.ModeDevice != 0 {
		return fmt.Sprintf("%s %s %s", path, info.Mode(), numberOf(stat.Rdev))
	}
	return fmt.Sprintf("%s %s", path, info.Mode())
}
