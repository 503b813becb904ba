package v1alpha1

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const manifest = "crd/scheduling.koordinator.sh_devices.yaml"

// Absent and zero differ on the wire: a card with minor 0 must say so, and a
// card must always say whether it is healthy.
func TestDeviceInfoWritesZerosThatCount(t *testing.T) {
	got, err := json.Marshal(DeviceInfo{Minor: ptr.To[int32](0), Topology: &DeviceTopology{}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"minor":0,"health":false,"topology":{"socketID":0,"nodeID":0,"pcieID":""}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// crd is the part of the manifest that the tests look at.
type crd struct {
	Spec struct {
		Group string `json:"group"`
		Scope string `json:"scope"`
		Names struct {
			Kind     string `json:"kind"`
			ListKind string `json:"listKind"`
			Plural   string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Columns []struct {
				Name     string `json:"name"`
				JSONPath string `json:"jsonPath"`
			} `json:"additionalPrinterColumns"`
			Served, Storage bool
			Subresources    map[string]any `json:"subresources"`
			Schema          struct {
				Root map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

func readManifest(t *testing.T) crd {
	t.Helper()
	raw, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var c crd
	if err := yaml.Unmarshal(raw, &c); err != nil {
		t.Fatalf("read %s: %v", manifest, err)
	}
	if len(c.Spec.Versions) != 1 {
		t.Fatalf("%s has %d versions, want 1", manifest, len(c.Spec.Versions))
	}
	return c
}

func TestManifestNamesMatchKoordinators(t *testing.T) {
	spec := readManifest(t).Spec
	got := []string{spec.Group, spec.Versions[0].Name, spec.Scope, spec.Names.Kind, spec.Names.ListKind, spec.Names.Plural}
	want := []string{GroupVersion.Group, GroupVersion.Version, "Cluster", "Device", "DeviceList", "devices"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("group, version, scope and names (-want +got):\n%s", diff)
	}
	if len(spec.Versions[0].Subresources) != 0 {
		t.Errorf("subresources %v: Koordinator's writers update status with the object", spec.Versions[0].Subresources)
	}
}

// The paths of printer columns need their dots escaped; a mistake shows as an
// empty column, never as an error.
func TestPrinterColumnsFindTheirValues(t *testing.T) {
	device := map[string]any{"metadata": map[string]any{
		"annotations":       map[string]any{"daybreak-gpu.io/mode": "sgpu"},
		"labels":            map[string]any{"node.koordinator.sh/gpu-driver-version": "2.13.2", "node.koordinator.sh/gpu-model": "C500", "node.koordinator.sh/gpu-vendor": "metax"},
		"creationTimestamp": "2025-03-15T09:00:00Z",
	}}
	got := map[string]string{}
	for _, column := range readManifest(t).Spec.Versions[0].Columns {
		path := jsonpath.New(column.Name)
		if err := path.Parse("{" + column.JSONPath + "}"); err != nil {
			t.Fatalf("column %s: %v", column.Name, err)
		}
		var out bytes.Buffer
		if err := path.Execute(&out, device); err != nil {
			t.Errorf("column %s: %v", column.Name, err)
		}
		got[column.Name] = out.String()
	}
	want := map[string]string{
		"Vendor": "metax", "Model": "C500", "Driver": "2.13.2", "Mode": "sgpu", "Age": "2025-03-15T09:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}
