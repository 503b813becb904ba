package deviceplugin

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// FuzzJournal: what is read of a journal can be written and read again, is
// within what cards have, and can be worked with.
func FuzzJournal(f *testing.F) {
	for _, text := range []string{
		"", "null", "{}", `{"version":1}`, `{"version":2}`, `{"version":1,"records":[null],"names":{"a":null}}`,
		`{"version":1,"records":[{"podUID":"u","namespace":"n","pod":"p","container":"c","tokens":["daybreak-sgpu-000"],"shares":[{"card":"GPU-a","compute":10,"memory":1024,"slice":{"alias":"x","bdf":"0000:01:00.0","id":3,"minor":22}}]}],"names":{"daybreak-sgpu-000":["daybreak-sgpu-000-0123456789ab"]}}`,
		`{"version":1,"records":[{"shares":[{"compute":-1}]}]}`, `{"version":1,"records":[{"shares":[{"memory":9223372036854775807}]}]}`, `{"version":1,"records":[{"tokens":["a","a"],"shares":[]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := decodeJournal(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(&d)
		gputest.Must(t, err)
		back, err := decodeJournal(again)
		if diff := cmp.Diff(d, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("read back from %s: %v (-first +second):\n%s", again, err, diff)
		}
		for token := range d.held() {
			d.detach([]string{token})
		}
		if len(d.held()) != 0 {
			t.Fatalf("tokens are still held: %v", d.held())
		}
		node := ledger.NewNode("n1", nil, ledger.Serves{})
		for _, r := range slices.Clone(d.Records) {
			leftBehind(node, "h", []*record{r})
			d.put(r)
			d.drop(r)
		}
		if len(d.Records) != 0 {
			t.Fatalf("%d records are left", len(d.Records))
		}
	})
}

// FuzzHolders: whatever kubelet answers, a container is found only if it has
// exactly these ids.
func FuzzHolders(f *testing.F) {
	f.Add("p", "c", "metax-tech.com/sgpu", "daybreak-sgpu-000", "daybreak-sgpu-000")
	f.Add("", "", "metax-tech.com/gpu", "GPU-a", "GPU-b")
	f.Add("p", "c", "nvidia.com/gpu", "x", "x")
	f.Fuzz(func(t *testing.T, pod, container, resource, has, wants string) {
		answer := &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{nil, {Name: pod, Containers: []*podresources.ContainerResources{
			nil, {Name: container, Devices: []*podresources.ContainerDevices{nil, {ResourceName: resource, DeviceIds: []string{has}}}},
		}}}}
		list := listed(answer)
		if h := findListed(list, "metax-tech.com/sgpu", []string{wants}); h != nil && (has != wants || resource != "metax-tech.com/sgpu" || h.pod.Name != pod) {
			t.Fatalf("%+v has %q of %q", h, has, resource)
		}
		entries := []checkpointEntry{entry(types.UID(pod), container, resource, has)}
		if h, err := findRecorded(recorded(entries), "metax-tech.com/sgpu", []string{wants}); err != nil || h != nil && (has != wants || resource != "metax-tech.com/sgpu") {
			t.Fatalf("%+v, %v", h, err)
		}
		for _, containers := range granted(list, func(a *assignment) string { return a.pod.Name }) {
			for _, ids := range containers {
				if !isVendors(resource) || slices.ContainsFunc(ids, isToken) {
					t.Fatalf("%q of %q is not the vendor's", ids, resource)
				}
			}
		}
	})
}

// FuzzCheckpoint: a file without its checksum is not used, and what is written
// with one is read as it was.
func FuzzCheckpoint(f *testing.F) {
	good, err := os.ReadFile("testdata/checkpoint.json")
	gputest.Must(f, err)
	f.Add(good)
	for _, text := range []string{"", "{}", "null", `{"Data":{"PodDeviceEntries":[{"PodUID":"u","DeviceIDs":{"-1":["a"]}}]},"Checksum":1}`, `{"Data":{"PodDeviceEntries":null},"Checksum":-1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := decodeCheckpoint("file", text)
		var file checkpoint.Data
		if json.Unmarshal(text, &file) != nil {
			if err == nil {
				t.Fatalf("no JSON, but %+v", entries)
			}
			return
		}
		if (err == nil) != (checksum.New(file.Data) == file.Checksum) {
			t.Fatalf("checksum %d, of the content %d: %v", file.Checksum, checksum.New(file.Data), err)
		}
		wrote, _ := file.GetData()
		if err == nil && cmp.Diff(wrote, entries, cmpopts.EquateEmpty()) != "" {
			t.Fatalf("%+v is read as %+v", wrote, entries)
		}
		written, err := checkpoint.New(wrote, nil).MarshalCheckpoint()
		gputest.Must(t, err)
		back, err := decodeCheckpoint("file", written)
		if diff := cmp.Diff(wrote, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("written and read: %v (-first +second):\n%s", err, diff)
		}
	})
}
