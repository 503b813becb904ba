package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// checkpointFile is the file, in the folder of the device plugins, in which kubelet
// keeps which container was given which devices.
const checkpointFile = "kubelet_internal_checkpoint"

// maxCheckpoint is a thousand times what a node with 64 sliced cards has.
const maxCheckpoint = 64 << 20

// checkpointEntry is what one container was given of one resource.
type checkpointEntry = checkpoint.PodDevicesEntry

// readCheckpoint returns what containers were given. A missing file means that
// kubelet has given nothing; a file without its checksum is not used.
func readCheckpoint(path string) ([]checkpointEntry, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxCheckpoint:
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxCheckpoint)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decodeCheckpoint(path, text)
}

func decodeCheckpoint(path string, text []byte) ([]checkpointEntry, error) {
	file := checkpoint.New(nil, nil)
	if err := file.UnmarshalCheckpoint(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := file.VerifyChecksum(); err != nil {
		return nil, fmt.Errorf("%s: wrong checksum: kubelet was writing it, or its version has another format", path)
	}
	entries, _ := file.GetData()
	return entries, nil
}
