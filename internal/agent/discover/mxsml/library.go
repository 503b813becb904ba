package mxsml

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
)

// searchPath is where the vendor's packages put the library: the driver's, the
// user-space stack's, and that of the N100.
var searchPath = []string{
	"/opt/mxdriver/lib/libmxsml.so",
	"/opt/maca/lib/libmxsml.so",
	"/opt/mxn100/lib/libmxsml.so",
}

// library is the loaded library, each function with its C name as tag. Optional
// functions that it does not have are nil.
type library struct {
	path string
	// missing are the optional functions that it does not have.
	missing []string

	start       func() uint32                               `required:"mxSmlInit"`
	count       func() uint32                               `required:"mxSmlGetDeviceCount"`
	info        func(device uint32, out *deviceInfo) uint32 `required:"mxSmlGetDeviceInfo"`
	memory      func(device uint32, out *memoryInfo) uint32 `required:"mxSmlGetMemoryInfo"`
	errorString func(code uint32) string                    `required:"mxSmlGetErrorString"`

	startWithFlags func(flags uint32) uint32                                           `optional:"mxSmlInitWithFlags"`
	physicalCount  func() uint32                                                       `optional:"mxSmlGetPfDeviceCount"`
	virtualDevices func(physical uint32, out *deviceIDs) uint32                        `optional:"mxSmlGetVirtualDevicesByPhysicalId"`
	version        func(device, unit uint32, out *byte, size *uint32) uint32           `optional:"mxSmlGetDeviceVersion"`
	macaVersion    func(out *byte, size *uint32) uint32                                `optional:"mxSmlGetMacaVersion"`
	usage          func(device, unit uint32, percent *int32) uint32                    `optional:"mxSmlGetDeviceIpUsage"`
	temperature    func(device, sensor uint32, out *int32) uint32                      `optional:"mxSmlGetTemperatureInfo"`
	boardPower     func(device uint32, ways *uint32, out *electricInfo) uint32         `optional:"mxSmlGetBoardPowerInfo"`
	state          func(device uint32, available *int32) uint32                        `optional:"mxSmlGetDeviceState"`
	unavailable    func(device uint32, out *unavailableReason) uint32                  `optional:"mxSmlGetDeviceUnavailableReason"`
	ecc            func(device uint32, out *eccErrors) uint32                          `optional:"mxSmlGetTotalEccErrors"`
	topology       func(a, b uint32, level *uint32) uint32                             `optional:"mxSmlGetDeviceTopology"`
	links          func(device uint32, out *linkInfo) uint32                           `optional:"mxSmlGetMetaXLinkInfo"`
	linksV2        func(device uint32, ports *uint32, out *portInfo) uint32            `optional:"mxSmlGetMetaXLinkInfo_v2"`
	linkRemote     func(device, port uint32, out *remoteInfo) uint32                   `optional:"mxSmlGetMetaXLinkRemoteInfo"`
	linkState      func(device uint32, state *uint32, text *byte, size *uint32) uint32 `optional:"mxSmlGetMetaXLinkState"`
	linkPortState  func(device uint32, states *uint32, ports *uint32) uint32           `optional:"mxSmlGetMetaXLinkPortState"`
	sgpuToggle     func(device uint32, on *uint32) uint32                              `optional:"mxSmlGetSgpuToggle"`
	sgpuInfo       func(device, sgpu uint32, out *sgpuInfo) uint32                     `optional:"mxSmlGetSgpuInfo"`
	sgpuQuota      func(device uint32, out *sgpuQuota) uint32                          `optional:"mxSmlGetSgpuAvailableQuota"`
	sgpuUsage      func(device, sgpu uint32, out *int32) uint32                        `optional:"mxSmlGetSgpuUsage"`
	sgpuMemory     func(device, sgpu uint32, out *sgpuMemory) uint32                   `optional:"mxSmlGetSgpuMemory"`
	sgpuAlias      func(device, sgpu uint32, out *byte, size *uint32) uint32           `optional:"mxSmlGetSgpuAlias"`
	schedClass     func(device uint32, class *uint32) uint32                           `optional:"mxSmlGetDeviceSchedClass"`

	// What changes something; only slices are ever changed.
	setToggle     func(device, on uint32) uint32                         `optional:"mxSmlSetSgpuToggle"`
	setSchedClass func(device, class uint32) uint32                      `optional:"mxSmlSetDeviceSchedClass"`
	createSGPU    func(device, mib, percent uint32, sgpu *uint32) uint32 `optional:"mxSmlCreateSgpu"`
	removeSGPU    func(device, sgpu uint32) uint32                       `optional:"mxSmlRemoveSgpu"`
	setAlias      func(device, sgpu uint32, alias string) uint32         `optional:"mxSmlSetSgpuAlias"`
	setPriority   func(device, sgpu, priority uint32) uint32             `optional:"mxSmlSetSgpuDeviceQueuePriority"`
}

// load finds and loads the library; path is the only place to look at unless
// it is empty.
func load(path string) (*library, error) {
	path, err := find(path)
	if err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	l := &library{path: path}
	value := reflect.ValueOf(l).Elem()
	for i := range value.NumField() {
		tag := value.Type().Field(i).Tag
		name := cmp.Or(tag.Get("required"), tag.Get("optional"))
		if name == "" {
			continue
		}
		address, err := purego.Dlsym(handle, name)
		switch {
		case err == nil:
			function := reflect.NewAt(value.Field(i).Type(), value.Field(i).Addr().UnsafePointer())
			purego.RegisterFunc(function.Interface(), address)
		case tag.Get("required") != "":
			return nil, fmt.Errorf("load %s: it has no function %s, so it is not the vendor's library", path, name)
		default:
			l.missing = append(l.missing, name)
		}
	}
	return l, nil
}

func find(path string) (string, error) {
	paths := searchPath
	if path != "" {
		paths = []string{path}
	}
	for _, p := range paths {
		_, err := os.Stat(p)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find the library: %w", err)
		}
	}
	return "", fmt.Errorf("no library at %s: %w", strings.Join(paths, ", "), discover.ErrNotInstalled)
}

// failure is the library's own words for a code, or nil for success.
func (l *library) failure(code uint32) error {
	if code == success {
		return nil
	}
	return fmt.Errorf("%s (code %d)", cleanOr(l.errorString(code), "no reason given"), code)
}

// read calls a function that fills a struct of a device. It returns false if the
// library has no such function, or it fails.
func read[T any](function func(device uint32, out *T) uint32, device uint32) (T, bool) {
	var out padded[T]
	ok := function != nil && function(device, &out.value) == success
	return out.value, ok
}

// readPart is read for a part of a device, such as a sensor or a slice.
func readPart[T any](function func(device, part uint32, out *T) uint32, device, part uint32) (T, bool) {
	var out padded[T]
	ok := function != nil && function(device, part, &out.value) == success
	return out.value, ok
}

// readText calls a function that writes a text of at most size bytes.
func readText(call func(b *byte, size *uint32) uint32) string {
	var buffer padded[[128]byte]
	size := uint32(len(buffer.value))
	if call(&buffer.value[0], &size) != success {
		return ""
	}
	return strings.TrimSpace(text(buffer.value[:]))
}

// cleanOr returns the text in one line, or another one where it is empty.
func cleanOr(s, other string) string {
	return cmp.Or(strings.Join(strings.Fields(s), " "), other)
}
