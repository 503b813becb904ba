package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

func (c *command) serveFlags(f *pflag.FlagSet) {
	f.StringVar(&c.serving, "serve", serveAuto, "serve the node as its device plugin: on, off, or auto, which is on unless the cards are simulated")
	f.Var(&c.VendorPlugin, "vendor-plugin-selector", "labels of the pods of the vendor's device plugin, as set for the scheduler (default: pods of a DaemonSet gpu-device or …-gpu-device)")
	f.StringSliceVar(&c.node.VendorSockets, "vendor-plugin-sockets", deviceplugin.DefaultConfig().VendorSockets, "names of the sockets of the vendor's device plugin in --device-plugin-dir, with * as a wildcard")
	f.DurationVar(&c.Drain, "drain", DefaultDrain, "how long to keep serving after SIGTERM, once the node is marked not serving")
}

// nodeFlags adds the flags of kubelet, the container runtime and the devices.
func (c *command) nodeFlags(f *pflag.FlagSet) {
	c.node = deviceplugin.DefaultConfig()
	n, l := &c.node, &c.node.Layout
	f.StringVar(&n.Plugins, "device-plugin-dir", n.Plugins, "kubelet's folder of device plugins")
	f.StringVar(&n.PodResources, "pod-resources-socket", n.PodResources, "kubelet's socket that lists the devices of each pod")
	f.StringVar(&n.Runtime, "runtime-endpoint", n.Runtime, "endpoint of the container runtime that kubelet uses: it reports whether it injects CDI devices, and which containers exist")
	f.StringVar(&n.RuntimeRoot, "runtime-root", n.RuntimeRoot, "folder where the host's root is mounted, for the socket of the runtime")
	f.StringSliceVar(&n.AssumeCDI, "assume-cdi", nil, "names of container runtimes to treat as injecting CDI devices")
	f.StringVar(&n.State, "state-dir", n.State, "folder of the allocation journal; it must persist across restarts of the agent")
	f.StringVar(&n.CDI, "cdi-dir", n.CDI, "folder of CDI specs; it must not persist across reboots")
	f.DurationVar(&n.Settle, "cdi-settle", n.Settle, "how long the container runtime may take to load a CDI spec")
	f.StringVar(&l.Root, "device-root", l.Root, "folder below which the host's /dev is mounted")
	f.StringVar(&l.Control, "control-device", l.Control, "device of the driver, for every container with cards")
	f.StringVar(&l.Card, "card-device", l.Card, "device of a whole card, with %d for its number")
	f.StringVar(&l.Render, "render-device", l.Render, "render device of a whole card, with %d for its number")
	f.StringVar(&l.Slice, "slice-device", l.Slice, "device of a slice, with %d for its minor number")
	f.StringVar(&l.Procfs, "procfs", l.Procfs, "where procfs is mounted; the major number of slices is read from its file devices")
	f.BoolVar(&l.VendorRuntime, "vendor-runtime", l.VendorRuntime, "pass slices to the vendor's container runtime in METAX_SGPUS")
}

func (c *command) serves() bool {
	return c.serving == serveOn || c.serving == serveAuto && c.source != discover.SourceSimulated
}

func (c *command) checkNode() error {
	for name, path := range map[string]string{
		"device-plugin-dir": c.node.Plugins, "pod-resources-socket": c.node.PodResources, "state-dir": c.node.State, "cdi-dir": c.node.CDI,
		"control-device": c.node.Layout.Control, "procfs": c.node.Layout.Procfs,
	} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("--%s %q: write an absolute path", name, path)
		}
	}
	for name, path := range map[string]string{"card-device": c.node.Layout.Card, "render-device": c.node.Layout.Render, "slice-device": c.node.Layout.Slice} {
		if !filepath.IsAbs(path) || strings.Count(path, "%") != 1 || !strings.Contains(path, "%d") {
			return fmt.Errorf("--%s %q: write an absolute path with one %%d for the number", name, path)
		}
	}
	if path, is := strings.CutPrefix(c.node.Runtime, deviceplugin.EndpointScheme); !is || !filepath.IsAbs(path) {
		return fmt.Errorf("--runtime-endpoint %q: write %s and the absolute path of the socket; only the runtime knows whether a container gets its cards", c.node.Runtime, deviceplugin.EndpointScheme)
	}
	if c.node.Settle < 0 || c.node.Settle > 10*time.Second {
		return fmt.Errorf("--cdi-settle %s: write 0 to 10s", c.node.Settle)
	}
	return nil
}

func (c *command) checkServing() error {
	if err := c.checkNode(); err != nil {
		return err
	}
	for _, pattern := range c.node.VendorSockets {
		if _, err := filepath.Match(pattern, ""); err != nil || strings.Contains(pattern, "/") {
			return fmt.Errorf("--vendor-plugin-sockets %q: write names of files, with * for any letters", pattern)
		}
	}
	if c.Drain < 0 || c.Drain > 5*time.Minute {
		return fmt.Errorf("--drain %s: write 0 to 5m", c.Drain)
	}
	return nil
}
