package deviceplugin

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Reasons of a [RuntimeFault].
const (
	// ReasonRuntimeUnreachable: the container runtime does not answer.
	ReasonRuntimeUnreachable = "RuntimeUnreachable"
	// ReasonNoCDI: it does not inject CDI devices, or does not read the folder of the
	// specs.
	ReasonNoCDI = "NoCDI"
	// ReasonCDIUnknown: it is not known whether it injects CDI devices.
	ReasonCDIUnknown = "CDIUnknown"
)

// RuntimeFault is why containers with cards can't be left to the container runtime;
// zero: none.
type RuntimeFault struct{ Reason, Message string }

// RuntimeAnswer is CRI's Version of a container runtime and what a verbose Status
// adds.
type RuntimeAnswer struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Info    map[string]string `json:"info,omitempty"`
}

// Names of runtimes, as Version has them.
const (
	runtimeContainerd = "containerd"
	runtimeCRIO       = "cri-o"
)

// support is whether a runtime injects CDI devices.
type support int

const (
	cdiUnknown support = iota
	cdiOn
	cdiOff
)

// runtimeConfig is the part of a runtime's configuration that matters here.
// containerd has both keys since 1.7; from 2.4 on CDI is always on. CRI-O reports
// neither.
type runtimeConfig struct {
	EnableCDI json.RawMessage `json:"enableCDI"`
	SpecDirs  *[]string       `json:"cdiSpecDirs"`
}

// config returns the configuration, as far as the runtime reports one.
func (a *RuntimeAnswer) config() (*runtimeConfig, bool) {
	c := &runtimeConfig{}
	text, ok := a.Info["config"]
	return c, ok && json.Unmarshal([]byte(text), c) == nil
}

// injects reports whether the runtime injects CDI devices. With CDI off it starts
// containers without them and reports no error.
func (a *RuntimeAnswer) injects() support {
	config, readable := a.config()
	switch string(config.EnableCDI) {
	case "true", "null":
		return cdiOn
	case "false":
		return cdiOff
	case "":
	default:
		return cdiUnknown
	}
	major, minor, ok := versionOf(a.Version)
	switch {
	case !ok:
	case a.Name == runtimeContainerd && readable:
		return since(major >= 2)
	case a.Name == runtimeCRIO: // which has no switch; kubelet names devices in CRI's field, not in annotations
		return since(major > 1 || major == 1 && minor >= 28)
	}
	return cdiUnknown
}

func since(reached bool) support {
	if reached {
		return cdiOn
	}
	return cdiOff
}

// Fault returns why containers whose devices are in specs in the folder can't be left
// to this runtime; nil if they can. Of runtimes of which nothing is known, those that
// are assumed to inject devices do.
func (a *RuntimeAnswer) Fault(folder string, assumed []string) *RuntimeFault {
	name := fmt.Sprintf("container runtime %.40s %.40s", a.Name, a.Version)
	switch s := a.injects(); {
	case s == cdiOff:
		return &RuntimeFault{ReasonNoCDI, fmt.Sprintf("%s has CDI off and would start containers without their cards: %s", name, a.advice(folder))}
	case s == cdiUnknown && !slices.Contains(assumed, a.Name):
		return &RuntimeFault{ReasonCDIUnknown, fmt.Sprintf(
			"it is not known whether %s injects CDI devices: if it does, add %q to agent.assumeCDI (--assume-cdi)", name, a.Name)}
	}
	if c, _ := a.config(); c.SpecDirs != nil && !slices.ContainsFunc(*c.SpecDirs, func(dir string) bool { return sameFolder(dir, folder) }) {
		return &RuntimeFault{ReasonNoCDI, fmt.Sprintf("%s reads CDI specs in %v, not in %s: %s", name, *c.SpecDirs, folder, a.advice(folder))}
	}
	return nil
}

// advice describes how to switch CDI on.
func (a *RuntimeAnswer) advice(folder string) string {
	major, minor, ok := versionOf(a.Version)
	if a.Name != runtimeContainerd || !ok {
		return "use a version of it that injects the CDI devices in CRI's field, or containerd 2.0 or later"
	}
	if major < 1 || major == 1 && minor < 7 {
		return "it can't inject them; install containerd 2.0 or later"
	}
	table := "io.containerd.cri.v1.runtime"
	if major < 2 {
		table = "io.containerd.grpc.v1.cri"
	}
	dirs := []string{"/etc/cdi", folder}
	if sameFolder(folder, dirs[0]) {
		dirs = dirs[:1]
	}
	return fmt.Sprintf("in its config.toml write enable_cdi = true and cdi_spec_dirs = [%s] under [plugins.%q], then restart it", `"`+strings.Join(dirs, `", "`)+`"`, table)
}

// sameFolder reports whether two paths of the host are one folder: /var/run is a link
// to /run.
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

// versionOf reads major and minor of a version such as v1.7.27-k3s1.
func versionOf(text string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(strings.TrimPrefix(text, "v"), ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, err := strconv.Atoi(first)
	if err != nil || !found {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(second)
	return major, minor, err == nil
}
