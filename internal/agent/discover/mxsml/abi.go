package mxsml

import "bytes"

// The library's structs, in C's layout on 64-bit Linux. Sizes and offsets are
// asserted in the tests; the fields' order and types must not change.

// deviceInfo is mxSmlDeviceInfo_t.
type deviceInfo struct {
	deviceID uint32
	_        uint32 // type, deprecated
	bdf      [32]byte
	gpuID    uint32
	nodeID   uint32
	uuid     [96]byte
	brand    uint32
	mode     uint32
	name     [32]byte
}

// memoryInfo is mxSmlMemoryInfo_t, in KiB.
type memoryInfo struct {
	_, _                int64 // what the processor sees of it
	vramTotal, vramUsed int64
	_, _                int64 // host memory the card may use
}

// electricInfo is mxSmlBoardWayElectricInfo_t: mV, mA, mW of one supply.
type electricInfo struct{ _, _, power uint32 }

// linkInfo is mxSmlMetaXLinkInfo_t, of all ports.
type linkInfo struct {
	speed [linkPorts]float32
	width [linkPorts]uint32
}

// portInfo is mxSmlSingleMxlkInfo_t: GT/s and lanes of one port.
type portInfo struct {
	speed float32
	width uint32
}

// remoteInfo is mxSmlMetaXLinkRemoteInfo_t: the card at the other end of a port.
type remoteInfo struct {
	deviceID int32
	bdf      [32]byte
}

// sgpuInfo is mxSmlSgpuInfo_t; the quota of memory is in MiB.
type sgpuInfo struct {
	_, _, vramQuota, _     uint32 // ids of the card and the slice; a priority
	computeQuota, minor, _ uint32 // a priority
	uuid                   [96]byte
}

// sgpuMemory is mxSmlSgpuMemoryInfo_t: total, used, free, in bytes.
type sgpuMemory struct{ _, used, _ int64 }

// sgpuQuota is mxSmlSgpuAvailableQuota_t: MiB; MiB and percent that are free.
type sgpuQuota struct{ totalVRAM, _, _ uint32 }

// eccErrors is mxSmlEccErrorCount_t.
type eccErrors struct {
	sramCorrectable, sramUncorrectable uint32
	dramCorrectable, dramUncorrectable uint32
	retiredPages                       uint32
}

// unavailableReason is mxSmlDeviceUnavailableReasonInfo_t; code 0 is fine.
type unavailableReason struct {
	code   int32
	reason [64]byte
}

// deviceIDs is mxSmlVirtualDeviceIds_t.
type deviceIDs struct {
	number int32
	ids    [128]int32
}

// list returns the ids, at most as many as there is room for.
func (d *deviceIDs) list() []int32 {
	return d.ids[:min(max(int(d.number), 0), len(d.ids))]
}

// padded is room for a struct that the library fills. A newer version may
// write a longer one than we know; it then hits the padding.
type padded[T any] struct {
	value T
	_     [512]byte
}

// Values of the library's enumerations, as far as they are used.
const (
	success             = 0
	noDevice            = 2
	operationNotSupport = 3
	busyDevice          = 23

	brandN = 1

	modePhysical = 1
	modeVirtual  = 2

	versionBIOS   = 0
	versionDriver = 1

	usageDLA   = 0
	usageXCore = 4

	sensorHotspot = 0

	// topologyMetaXLink is one level of several whose numbers are no order, and
	// what follows it differs by version: it is only ever compared for equality.
	topologyMetaXLink = 5

	linkTopologyInvalid = 3
	linkTrainingFailed  = 4

	portNoTraining   = 0
	portUp           = 1
	portOpticalDown  = 2
	portOpticalOut   = 3
	firstPhysicalID  = 100
	linkPorts        = 7
	maxDevices       = 64
	maxPhysical      = 16
	maxSGPU          = 16
	temperatureScale = 100
	usageScale       = 100
)

// text reads a fixed array that ends at its first NUL, or at its end.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
