package mxsml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// library is the loaded library. Functions that it does not have are nil, the
// required ones apart.
type library struct {
	path string
	// missing are the optional functions that it does not have.
	missing []string

	start       func() uint32
	count       func() uint32
	info        func(device uint32, out *deviceInfo) uint32
	memory      func(device uint32, out *memoryInfo) uint32
	errorString func(code uint32) string

	startWithFlags func(flags uint32) uint32
	physicalCount  func() uint32
	virtualDevices func(physical uint32, out *deviceIDs) uint32
	limitedDevices func(out *deviceIDs) uint32
	limitedInfo    func(device uint32, out *deviceInfo) uint32
	version        func(device, unit uint32, out *byte, size *uint32) uint32
	macaVersion    func(out *byte, size *uint32) uint32
	usage          func(device, unit uint32, percent *int32) uint32
	temperature    func(device, sensor uint32, out *int32) uint32
	boardPower     func(device uint32, ways *uint32, out *electricInfo) uint32
	state          func(device uint32, available *int32) uint32
	unavailable    func(device uint32, out *unavailableReason) uint32
	ecc            func(device uint32, out *eccErrors) uint32
	nodeAffinity   func(device, words uint32, mask *uint32) uint32
	topology       func(a, b uint32, level *uint32) uint32
	links          func(device uint32, out *linkInfo) uint32
	linksV2        func(device uint32, ports *uint32, out *portInfo) uint32
	linkRemote     func(device, port uint32, out *remoteInfo) uint32
	linkState      func(device uint32, state *uint32, text *byte, size *uint32) uint32
	linkPortState  func(device uint32, states *uint32, ports *uint32) uint32
	sgpuToggle     func(device uint32, on *uint32) uint32
	sgpuInfo       func(device, sgpu uint32, out *sgpuInfo) uint32
	sgpuQuota      func(device uint32, out *sgpuQuota) uint32
	sgpuUsage      func(device, sgpu uint32, out *int32) uint32
	sgpuMemory     func(device, sgpu uint32, out *sgpuMemory) uint32
	sgpuAlias      func(device, sgpu uint32, out *byte, size *uint32) uint32
	schedClass     func(device uint32, class *uint32) uint32

	// What changes something; only slices are ever changed.
	setToggle     func(device, on uint32) uint32
	setSchedClass func(device, class uint32) uint32
	createSGPU    func(device, mib, percent uint32, sgpu *uint32) uint32
	removeSGPU    func(device, sgpu uint32) uint32
	setVRAM       func(device, sgpu, mib uint32) uint32
	setCompute    func(device, sgpu, percent uint32) uint32
	setAlias      func(device, sgpu uint32, alias string) uint32
	setPriority   func(device, sgpu, priority uint32) uint32
}

// symbol binds a name that the library exports to the function that calls it.
type symbol struct {
	name string
	fn   any
}

func (l *library) required() []symbol {
	return []symbol{
		{"mxSmlInit", &l.start},
		{"mxSmlGetDeviceCount", &l.count},
		{"mxSmlGetDeviceInfo", &l.info},
		{"mxSmlGetMemoryInfo", &l.memory},
		{"mxSmlGetErrorString", &l.errorString},
	}
}

func (l *library) optional() []symbol {
	return []symbol{
		{"mxSmlInitWithFlags", &l.startWithFlags},
		{"mxSmlGetPfDeviceCount", &l.physicalCount},
		{"mxSmlGetVirtualDevicesByPhysicalId", &l.virtualDevices},
		{"mxSmlGetAllLimitedDevices", &l.limitedDevices},
		{"mxSmlGetLimitedDeviceInfo", &l.limitedInfo},
		{"mxSmlGetDeviceVersion", &l.version},
		{"mxSmlGetMacaVersion", &l.macaVersion},
		{"mxSmlGetDeviceIpUsage", &l.usage},
		{"mxSmlGetTemperatureInfo", &l.temperature},
		{"mxSmlGetBoardPowerInfo", &l.boardPower},
		{"mxSmlGetDeviceState", &l.state},
		{"mxSmlGetDeviceUnavailableReason", &l.unavailable},
		{"mxSmlGetTotalEccErrors", &l.ecc},
		{"mxSmlGetNodeAffinity", &l.nodeAffinity},
		{"mxSmlGetDeviceTopology", &l.topology},
		{"mxSmlGetMetaXLinkInfo", &l.links},
		{"mxSmlGetMetaXLinkInfo_v2", &l.linksV2},
		{"mxSmlGetMetaXLinkRemoteInfo", &l.linkRemote},
		{"mxSmlGetMetaXLinkState", &l.linkState},
		{"mxSmlGetMetaXLinkPortState", &l.linkPortState},
		{"mxSmlGetSgpuToggle", &l.sgpuToggle},
		{"mxSmlGetSgpuInfo", &l.sgpuInfo},
		{"mxSmlGetSgpuAvailableQuota", &l.sgpuQuota},
		{"mxSmlGetSgpuUsage", &l.sgpuUsage},
		{"mxSmlGetSgpuMemory", &l.sgpuMemory},
		{"mxSmlGetSgpuAlias", &l.sgpuAlias},
		{"mxSmlGetDeviceSchedClass", &l.schedClass},
		{"mxSmlSetSgpuToggle", &l.setToggle},
		{"mxSmlSetDeviceSchedClass", &l.setSchedClass},
		{"mxSmlCreateSgpu", &l.createSGPU},
		{"mxSmlRemoveSgpu", &l.removeSGPU},
		{"mxSmlSetSgpuVramQuota", &l.setVRAM},
		{"mxSmlSetSgpuComputeQuota", &l.setCompute},
		{"mxSmlSetSgpuAlias", &l.setAlias},
		{"mxSmlSetSgpuDeviceQueuePriority", &l.setPriority},
	}
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
	for _, s := range l.required() {
		address, err := purego.Dlsym(handle, s.name)
		if err != nil {
			return nil, fmt.Errorf("load %s: it has no function %s, so it is not the vendor's library", path, s.name)
		}
		purego.RegisterFunc(s.fn, address)
	}
	for _, s := range l.optional() {
		address, err := purego.Dlsym(handle, s.name)
		if err != nil {
			l.missing = append(l.missing, s.name)
			continue
		}
		purego.RegisterFunc(s.fn, address)
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

func (s *session) functions(struct{}) (*discover.Functions, error) {
	return &discover.Functions{Library: s.lib.path, Missing: s.lib.missing}, nil
}
