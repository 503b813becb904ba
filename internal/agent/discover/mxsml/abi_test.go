package mxsml

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// The numbers are those of the vendor's ABI on 64-bit Linux.
func TestLayout(t *testing.T) {
	cases := map[string]struct{ got, want uintptr }{
		"size of mxSmlDeviceInfo_t":           {unsafe.Sizeof(deviceInfo{}), 184},
		"deviceId":                            {unsafe.Offsetof(deviceInfo{}.deviceID), 0},
		"bdfId":                               {unsafe.Offsetof(deviceInfo{}.bdf), 8},
		"gpuId":                               {unsafe.Offsetof(deviceInfo{}.gpuID), 40},
		"nodeId":                              {unsafe.Offsetof(deviceInfo{}.nodeID), 44},
		"uuid":                                {unsafe.Offsetof(deviceInfo{}.uuid), 48},
		"brand":                               {unsafe.Offsetof(deviceInfo{}.brand), 144},
		"mode":                                {unsafe.Offsetof(deviceInfo{}.mode), 148},
		"deviceName":                          {unsafe.Offsetof(deviceInfo{}.name), 152},
		"size of mxSmlMemoryInfo_t":           {unsafe.Sizeof(memoryInfo{}), 48},
		"vramTotal":                           {unsafe.Offsetof(memoryInfo{}.vramTotal), 16},
		"vramUse":                             {unsafe.Offsetof(memoryInfo{}.vramUsed), 24},
		"size of mxSmlBoardWayElectricInfo_t": {unsafe.Sizeof(electricInfo{}), 12},
		"power":                               {unsafe.Offsetof(electricInfo{}.power), 8},
		"size of mxSmlMetaXLinkInfo_t":        {unsafe.Sizeof(linkInfo{}), 56},
		"width of all ports":                  {unsafe.Offsetof(linkInfo{}.width), 28},
		"size of mxSmlSingleMxlkInfo_t":       {unsafe.Sizeof(portInfo{}), 8},
		"size of mxSmlMetaXLinkRemoteInfo_t":  {unsafe.Sizeof(remoteInfo{}), 36},
		"remote bdfId":                        {unsafe.Offsetof(remoteInfo{}.bdf), 4},
		"size of mxSmlSgpuInfo_t":             {unsafe.Sizeof(sgpuInfo{}), 124},
		"vramQuota":                           {unsafe.Offsetof(sgpuInfo{}.vramQuota), 8},
		"computeQuota":                        {unsafe.Offsetof(sgpuInfo{}.computeQuota), 16},
		"minor":                               {unsafe.Offsetof(sgpuInfo{}.minor), 20},
		"sgpu uuid":                           {unsafe.Offsetof(sgpuInfo{}.uuid), 28},
		"size of mxSmlSgpuMemoryInfo_t":       {unsafe.Sizeof(sgpuMemory{}), 24},
		"size of mxSmlSgpuAvailableQuota_t":   {unsafe.Sizeof(sgpuQuota{}), 12},
		"size of mxSmlEccErrorCount_t":        {unsafe.Sizeof(eccErrors{}), 20},
		"dramUE":                              {unsafe.Offsetof(eccErrors{}.dramUncorrectable), 12},
		"size of mxSmlDeviceUnavailableReasonInfo_t": {unsafe.Sizeof(unavailableReason{}), 68},
		"unavailableReason":                          {unsafe.Offsetof(unavailableReason{}.reason), 4},
		"size of mxSmlVirtualDeviceIds_t":            {unsafe.Sizeof(deviceIDs{}), 516},
		"deviceId of virtual devices":                {unsafe.Offsetof(deviceIDs{}.ids), 4},
	}
	for name, tc := range cases {
		gputest.Equal(t, name, tc.want, tc.got)
	}
}

func TestText(t *testing.T) {
	for given, want := range map[string]string{"MXC500\x00\x00": "MXC500", "full": "full", "\x00junk": "", "a\x00b\x00": "a"} {
		gputest.Equal(t, fmt.Sprintf("%q", given), want, text([]byte(given)))
	}
}

func TestIDs(t *testing.T) {
	for number, want := range map[int32]int{-1: 0, 3: 3, 1 << 30: 128} {
		if got := (&deviceIDs{number: number}).list(); len(got) != want {
			t.Errorf("%d ids: %d are listed, want %d", number, len(got), want)
		}
	}
}

// ptr lets a Go function write to an array of which it gets the first element, as C
// does.
func ptr[T any](first *T) unsafe.Pointer { return unsafe.Pointer(first) }
