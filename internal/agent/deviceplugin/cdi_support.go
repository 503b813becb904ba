package deviceplugin

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Reasons of a [RuntimeFault].
const (
	// ReasonRuntimeUnreachable: the container runtime does not answer.
	ReasonRuntimeUnreachable = "RuntimeUnreachable"
	// ReasonNoCDI: it has CDI off, or does not read the folder of the specs.
	ReasonNoCDI = "NoCDI"
	// ReasonCDIUnknown: it is not known whether it injects CDI devices.
	ReasonCDIUnknown = "CDIUnknown"
)

// RuntimeFault is why the runtime can't start containers with cards; zero: none.
type RuntimeFault struct{ Reason, Message string }

// RuntimeAnswer is CRI's Version of a runtime and what a verbose Status adds.
type RuntimeAnswer struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Info    map[string]string `json:"info,omitempty"`
	// changes is how many connections there were before it.
	changes int64
}

// Names of runtimes, as Version has them.
const (
	runtimeContainerd = "containerd"
	runtimeCRIO       = "cri-o"
	runtimeDocker     = "docker" // as cri-dockerd has it
)

// runtimeConfig is what matters of a runtime's configuration. containerd has both
// keys since 1.7; from 2.4 on CDI is always on. CRI-O reports neither.
type runtimeConfig struct {
	EnableCDI json.RawMessage `json:"enableCDI,omitempty"`
	SpecDirs  *[]string       `json:"cdiSpecDirs,omitempty"`
}

// config returns the configuration, as far as the runtime reports one.
func (a *RuntimeAnswer) config() (*runtimeConfig, bool) {
	c := &runtimeConfig{}
	text, ok := a.Info["config"]
	return c, ok && json.Unmarshal([]byte(text), c) == nil
}

// injects reports whether the runtime injects CDI devices. With CDI off it starts
// containers without them and reports no error.
func (a *RuntimeAnswer) injects() (does, known bool) {
	config, readable := a.config()
	switch string(config.EnableCDI) {
	case "true", "null":
		return true, true
	case "false":
		return false, true
	case "":
	default:
		return false, false
	}
	v, err := version.ParseGeneric(a.Version)
	switch {
	case err != nil:
	case a.Name == runtimeContainerd && readable:
		return v.AtLeast(containerdCDI), true
	case a.Name == runtimeCRIO: // which has no switch
		return v.AtLeast(crioCDI), true
	}
	return false, false
}

// Versions: containerd can inject CDI devices from 1.7 on and does by default from
// 2.0 on, CRI-O from 1.24 on.
var (
	containerdSwitch = version.MustParseGeneric("1.7")
	containerdCDI    = version.MustParseGeneric("2.0")
	crioCDI          = version.MustParseGeneric("1.24")
)

// otherRuntimes is what to do where the runtime can't be configured to inject them.
const otherRuntimes = "use containerd 1.7 or later or CRI-O 1.24 or later, or leave the node to the vendor's device plugin with the annotation " +
	wire.AnnotationServedBy + "=" + wire.ServedByVendor

// Fault returns why containers whose devices are in specs in the folder can't be left
// to this runtime; zero if they can. Of runtimes of which nothing is known, those that
// are assumed to inject devices do.
func (a *RuntimeAnswer) Fault(folder string, assumed []string) RuntimeFault {
	name := fmt.Sprintf("container runtime %.40s %.40s", a.Name, a.Version)
	switch does, known := a.injects(); {
	case !known && a.Name == runtimeDocker && !slices.Contains(assumed, a.Name):
		return RuntimeFault{ReasonNoCDI, fmt.Sprintf("%s would start containers without their cards: cri-dockerd passes no CDI devices from annotations to it; %s", name, otherRuntimes)}
	case known && !does:
		return RuntimeFault{ReasonNoCDI, fmt.Sprintf("%s has CDI off and would start containers without their cards: %s", name, a.advice(folder))}
	case !known && !slices.Contains(assumed, a.Name):
		return RuntimeFault{ReasonCDIUnknown, fmt.Sprintf(
			"it is not known whether %s injects CDI devices: if it does, add %q to agent.assumeCDI (--assume-cdi)", name, a.Name)}
	}
	if c, _ := a.config(); c.SpecDirs != nil && !slices.ContainsFunc(*c.SpecDirs, func(dir string) bool { return sameFolder(dir, folder) }) {
		return RuntimeFault{ReasonNoCDI, fmt.Sprintf("%s reads CDI specs in %v, not in %s: %s", name, *c.SpecDirs, folder, a.advice(folder))}
	}
	return RuntimeFault{}
}

func (a *RuntimeAnswer) advice(folder string) string {
	v, err := version.ParseGeneric(a.Version)
	if a.Name != runtimeContainerd || err != nil || v.LessThan(containerdSwitch) {
		return "it can't inject them; " + otherRuntimes
	}
	table := "io.containerd.cri.v1.runtime"
	if v.LessThan(containerdCDI) {
		table = "io.containerd.grpc.v1.cri"
	}
	dirs := []string{"/etc/cdi", folder}
	if sameFolder(folder, dirs[0]) {
		dirs = dirs[:1]
	}
	return fmt.Sprintf("in its config.toml write enable_cdi = true and cdi_spec_dirs = [%s] under [plugins.%q], then restart it", `"`+strings.Join(dirs, `", "`)+`"`, table)
}

// sameFolder reports whether two paths are one folder: /var/run links to /run.
func sameFolder(a, b string) bool {
	clean := func(path string) string {
		path = filepath.Clean(path)
		if rest, is := strings.CutPrefix(path, "/var/run/"); is {
			return "/run/" + rest
		}
		return path
	}
	return clean(a) == clean(b)
}
