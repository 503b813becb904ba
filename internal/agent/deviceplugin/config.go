package deviceplugin

import (
	"path/filepath"
	"strings"
	"time"
)

// Config is where kubelet, the runtime and the host's devices are.
type Config struct {
	// Plugins is kubelet's folder of device plugins, PodResources its socket.
	Plugins, PodResources string
	// Runtime is the endpoint of kubelet's container runtime, RuntimeRoot where the
	// host's root is mounted, if not at the root.
	Runtime, RuntimeRoot string
	// AssumeCDI names runtimes that inject CDI devices although nothing shows it.
	AssumeCDI []string
	// State is the folder of the journal, CDI that of the specs.
	State, CDI string
	// Settle is how long a runtime may take to notice a spec.
	Settle time.Duration
	// VendorSockets are patterns of the vendor's sockets in the folder Plugins.
	VendorSockets []string
	Layout        Layout
}

// DefaultConfig is that of a node as it is usually set up.
func DefaultConfig() Config {
	return Config{
		Plugins: "/var/lib/kubelet/device-plugins", PodResources: "/var/lib/kubelet/pod-resources/kubelet.sock",
		Runtime: "unix:///run/containerd/containerd.sock", State: "/var/lib/daybreak", CDI: "/var/run/cdi",
		Settle: 20 * time.Millisecond, VendorSockets: []string{"*metax*", "*sgpu*", "*gpu-device*"}, Layout: DefaultLayout(),
	}
}

// EndpointScheme is how the endpoint of a container runtime begins.
const EndpointScheme = "unix://"

// kubeletSocket is where kubelet takes registrations of plugins.
func (c *Config) kubeletSocket() string { return filepath.Join(c.Plugins, "kubelet.sock") }

// runtimeSocket returns where the endpoint's socket is seen from here.
func (c *Config) runtimeSocket() string {
	return filepath.Join(string(filepath.Separator), c.RuntimeRoot, strings.TrimPrefix(c.Runtime, EndpointScheme))
}
