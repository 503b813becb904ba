// Package checkpoint reads the file in which kubelet keeps which container was
// given which devices. It is kubelet's own: it is read, never written, and what
// does not carry its checksum is not believed.
//
// The checksum covers the names of the types, so those of this package, its own
// name included, are kubelet's and must not change.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	"k8s.io/utils/dump"
)

// DevicesPerNUMA are ids of devices by NUMA node.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is what one container was given of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

// FileName is the name of the file in the folder of the device plugins.
const FileName = "kubelet_internal_checkpoint"

// maxSize bounds what is read: a node with 64 cards, all sliced, has a
// thousandth of it.
const maxSize = 64 << 20

// Read returns what containers were given. A file that is not there is a
// kubelet that has given nothing.
func Read(path string) ([]PodDevicesEntry, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxSize:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	entries, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

// file is what is in it.
type file struct {
	Data     checkpointData
	Checksum uint64
}

// Encode returns the text of a file as kubelet writes it. Only those who stand
// in for kubelet need it.
func Encode(entries []PodDevicesEntry) ([]byte, error) {
	data := checkpointData{PodDeviceEntries: entries}
	return json.Marshal(file{Data: data, Checksum: sum(data)})
}

func decode(text []byte) ([]PodDevicesEntry, error) {
	var file file
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if got := sum(file.Data); got != file.Checksum {
		return nil, fmt.Errorf("its checksum is %d, what it says has %d: kubelet was writing it, or is of a version that does it in another way", file.Checksum, got)
	}
	return file.Data.PodDeviceEntries, nil
}

func sum(data checkpointData) uint64 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(dump.ForHash(data))) // never fails
	return uint64(hash.Sum32())
}
