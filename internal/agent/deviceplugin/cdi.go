package deviceplugin

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// What our CDI devices are called: daybreak-gpu.io/card=NAME.
const (
	cdiVendor = "daybreak-gpu.io"
	cdiClass  = "card"
)

// specFiles keeps the specs of CDI devices; [cdiFiles] does.
type specFiles interface {
	// write writes the spec of a device, and reports whether it changed.
	write(name string, edits *specs.ContainerEdits) (changed bool, err error)
	remove(name string) error
	names() ([]string, error)
}

// cdiFiles keeps one spec file for each name, which runtimes notice.
type cdiFiles struct {
	dir   string
	cache *cdi.Cache
}

func newCDIFiles(dir string) (*cdiFiles, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of CDI specs: %w", err)
	}
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(dir))
	if err != nil {
		return nil, fmt.Errorf("folder of CDI specs: %w", err)
	}
	return &cdiFiles{dir: dir, cache: cache}, nil
}

const (
	specPrefix = cdiVendor + "-" + cdiClass + "_"
	specSuffix = ".json"
)

func specFile(name string) string { return specPrefix + name + specSuffix }

func (c *cdiFiles) write(name string, edits *specs.ContainerEdits) (changed bool, err error) {
	spec := &specs.Spec{Kind: cdiVendor + "/" + cdiClass, Devices: []specs.Device{{Name: name, ContainerEdits: *edits}}}
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return false, fmt.Errorf("CDI device %s: %w", name, err)
	}
	if before, err := cdi.ReadSpec(filepath.Join(c.dir, specFile(name)), 0); err == nil && reflect.DeepEqual(before.Spec, spec) {
		return false, nil
	}
	if err := c.cache.WriteSpec(spec, specFile(name)); err != nil {
		return false, errDisk{fmt.Errorf("CDI device %s: %w", name, err)}
	}
	return true, nil
}

func (c *cdiFiles) remove(name string) error {
	if err := c.cache.RemoveSpec(specFile(name)); err != nil {
		return errDisk{fmt.Errorf("CDI device %s: %w", name, err)}
	}
	return nil
}

func (c *cdiFiles) names() ([]string, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("folder of CDI specs: %w", err)
	}
	var names []string
	for _, e := range entries {
		name, isOurs := strings.CutPrefix(e.Name(), specPrefix)
		name, isSpec := strings.CutSuffix(name, specSuffix)
		if isOurs && isSpec {
			names = append(names, name)
		}
	}
	return names, nil
}
