package inventory

import (
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestDecodeModes(t *testing.T) {
	cases := map[string]struct {
		cluster, nodes string
		want           map[string]gpu.Mode // of nodes
	}{
		"the example of the vendor": {
			cluster: "mode: \"native\" # sgpu/shared/vgpu, cluster scope\n",
			nodes:   "- nodeName: \"sample-node1\"\n  mode: \"sgpu\" # sgpu/shared/vgpu, node scope\n",
			want:    map[string]gpu.Mode{"sample-node1": gpu.ModeSGPU, "other": gpu.ModeNative},
		},
		"as operator 0.15 writes it":  {cluster: "mode: \"\"\nsgpuHybrid: false\nshareNums:\ndeviceAllocationStrategy: \"\"\n", want: map[string]gpu.Mode{"a": ""}},
		"nothing for the cluster":     {nodes: "- {nodeName: a, mode: vgpu}\n- {nodeName: b, mode: shared}", want: map[string]gpu.Mode{"a": gpu.ModeVGPU, "b": gpu.ModeShared, "c": ""}},
		"nothing at all":              {want: map[string]gpu.Mode{"a": ""}},
		"comments alone":              {cluster: "# mode: sgpu", nodes: "# none yet", want: map[string]gpu.Mode{"a": ""}},
		"an empty list":               {cluster: "mode: shared", nodes: "[]", want: map[string]gpu.Mode{"a": gpu.ModeShared}},
		"fields of a newer version":   {cluster: "mode: sgpu\nslices: 16", nodes: "- {nodeName: a, mode: native, since: today}", want: map[string]gpu.Mode{"a": gpu.ModeNative, "b": gpu.ModeSGPU}},
		"a node that only looks like": {cluster: "mode: sgpu", nodes: "- {nodeName: node-10, mode: native}", want: map[string]gpu.Mode{"node-1": gpu.ModeSGPU}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := DecodeModes(map[string]string{"version": "v1", "cluster-config": tc.cluster, "nodes-config": tc.nodes})
			gputest.Must(t, err)
			for node, want := range tc.want {
				gputest.Equal(t, "mode of "+node, want, m.Of(node))
			}
		})
	}
}

func TestDecodeModesRefuses(t *testing.T) {
	cases := map[string]struct{ key, text, want string }{
		"another version":             {"version", "v2", `version: "v2": this agent reads v1`},
		"a mode that does not exist":  {"cluster-config", "mode: sliced", `cluster-config: mode "sliced": write native, sgpu, shared or vgpu`},
		"a mode in capitals":          {"cluster-config", "mode: SGPU", `cluster-config: mode "SGPU": write native, sgpu, shared or vgpu`},
		"a misspelt key":              {"cluster-config", "mdoe: sgpu", "cluster-config: has no mode: write native, sgpu, shared or vgpu"},
		"an empty mode":               {"nodes-config", `- {nodeName: a, mode: ""}`, `nodes-config: node a: mode "": write native, sgpu, shared or vgpu`},
		"a mode that is a number":     {"cluster-config", "mode: 1", "cluster-config: ..."},
		"a list for the cluster":      {"cluster-config", "- mode: sgpu", "cluster-config: ..."},
		"a key twice":                 {"cluster-config", "mode: sgpu\nmode: native", "cluster-config: ..."},
		"no YAML":                     {"cluster-config", "{", "cluster-config: ..."},
		"a map of nodes":              {"nodes-config", "a: sgpu", "nodes-config: ..."},
		"an entry without its node":   {"nodes-config", "- mode: sgpu", "nodes-config: entry 1 has no nodeName"},
		"an entry without its mode":   {"nodes-config", "- nodeName: a", "nodes-config: node a: has no mode: write native, sgpu, shared or vgpu"},
		"an entry with a wrong mode":  {"nodes-config", "- {nodeName: a, mode: sgpu}\n- {nodeName: b, mode: x}", `nodes-config: node b: mode "x": write native, sgpu, shared or vgpu`},
		"a node twice":                {"nodes-config", "- {nodeName: a, mode: sgpu}\n- {nodeName: a, mode: native}", "nodes-config: node a is listed twice"},
		"more than anyone would list": {"nodes-config", strings.Repeat("- {nodeName: a, mode: sgpu}\n", 10_001), "nodes-config: 10001 nodes, at most 10000 are read"},
		"a document without end":      {"nodes-config", strings.Repeat("#", 2<<20), "nodes-config: 2097152 bytes, at most 1048576 are read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := DecodeModes(map[string]string{tc.key: tc.text})
			if !matches(err, tc.want) {
				t.Errorf("got %v and %v, want %s", m, err, tc.want)
			}
		})
	}
}

// FuzzDecodeModes: whatever the ConfigMap says, every node has a mode that
// exists, or none, or the whole document is refused.
func FuzzDecodeModes(f *testing.F) {
	f.Add("v1", "mode: \"native\" # sgpu/shared/vgpu", "- nodeName: \"sample-node1\"\n  mode: \"sgpu\"")
	f.Add("", "mode: vgpu", "- {nodeName: a, mode: shared}\n- {nodeName: b, mode: sgpu}")
	f.Add("v2", "{", "[[[")
	f.Add("v1", "mode: &a sgpu\nx: *a", "- &n {nodeName: a, mode: sgpu}\n- *n")
	f.Fuzz(func(t *testing.T, version, cluster, nodes string) {
		m, err := DecodeModes(map[string]string{"version": version, "cluster-config": cluster, "nodes-config": nodes})
		if err != nil {
			if m != nil || err.Error() == "" {
				t.Fatalf("modes %v with error %q", m, err)
			}
			return
		}
		names := []string{"", "a", "sample-node1"}
		for name := range m.nodes {
			names = append(names, name)
		}
		for _, name := range names {
			if mode := m.Of(name); mode != "" && !mode.Valid() {
				t.Fatalf("node %q has mode %q", name, mode)
			}
		}
	})
}
