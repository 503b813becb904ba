package deviceplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// The file was written by kubelet's own code, of Kubernetes 1.36; that of 1.23.17 and
// 1.28.15 writes the same bytes.
func TestReadCheckpoint(t *testing.T) {
	got, err := readCheckpoint("testdata/checkpoint.json")
	gputest.Must(t, err)
	want := []checkpointEntry{
		{PodUID: "uid-1", ContainerName: "main", ResourceName: "metax-tech.com/sgpu", DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"daybreak-sgpu-003"}}, AllocResp: []byte{42, 3, 1}},
		{PodUID: "uid-2", ContainerName: "init", ResourceName: "metax-tech.com/gpu", DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"daybreak-gpu-001", "daybreak-gpu-000"}}},
		{PodUID: "uid-2", ContainerName: "main", ResourceName: "metax-tech.com/gpu", DeviceIDs: checkpoint.DevicesPerNUMA{-1: {"daybreak-gpu-000", "daybreak-gpu-001"}}},
	}
	gputest.Equal(t, "entries", want, got)
}

func TestReadBadCheckpoint(t *testing.T) {
	good, err := os.ReadFile("testdata/checkpoint.json")
	gputest.Must(t, err)
	cases := map[string]struct{ text, want string }{
		"a pod was changed by hand": {strings.Replace(string(good), "uid-1", "uid-9", 1), "wrong checksum"},
		"half of it":                {string(good[:len(good)/2]), "unexpected end of JSON input"},
		"nothing":                   {"", "unexpected end of JSON input"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), checkpointFile)
			gputest.Must(t, os.WriteFile(path, []byte(tc.text), 0o600))
			_, err := readCheckpoint(path)
			gputest.ErrorHas(t, "readCheckpoint", tc.want, err)
		})
	}
	if entries, err := readCheckpoint(filepath.Join(t.TempDir(), checkpointFile)); err != nil || entries != nil {
		t.Errorf("no file: %v, %v", entries, err)
	}
}
