package hostile

import (
	"fmt"
	"strings"
)

// Annotation is an annotation of a Node or a Pod that something is wrong with.
type Annotation struct {
	Name, Key, Value string
}

// NodeAnnotations returns inventories and tables that can't be read. The last
// two are read on nodes that advertise metax-tech.com/gpu and have neither a
// Device nor an inventory.
func NodeAnnotations() []Annotation {
	var list []Annotation
	one := func(fields string) string { return `[{"uuid":"GPU-0","healthy":true,` + fields + `}]` }
	for name, value := range map[string]string{
		"empty": "", "garbage": "{[", "object": "{}", "word": `"cards"`, "number": "8", "deep": Deep(50_000), "numbers": "[1,2,3]",
		"no-uuid": `[{"healthy":true}]`, "uuid-nul": `[{"uuid":"\u0000"}]`, "uuid-surrogate": `[{"uuid":"\ud800"}]`, "uuid-number": `[{"uuid":7}]`,
		"uuid-huge": `[{"uuid":"` + strings.Repeat("G", 100_000) + `"}]`, "same-uuid": `[{"uuid":"GPU-0","totalVRam":65536},{"uuid":"GPU-0","totalVRam":65536}]`,
		"memory-negative": one(`"totalVRam":-1`), "memory-overflowing": one(`"totalVRam":9223372036854775808`), "memory-exponent": one(`"totalVRam":1e400`), "memory-none": one(`"totalVRam":0`),
		"memory-word": one(`"totalVRam":"65536"`), "slots-negative": one(`"totalVRam":65536,"totalDevCount":-16`), "slots-huge": one(`"totalVRam":65536,"totalDevCount":4294967296`),
		"compute-negative": one(`"totalVRam":65536,"totalCompute":-100`), "compute-huge": one(`"totalVRam":65536,"totalCompute":101`), "qos": one(`"totalVRam":65536,"qosPolicy":"first-come"`),
		"healthy-word": `[{"uuid":"GPU-0","healthy":"true","totalVRam":65536}]`, "zone-word": one(`"totalVRam":65536,"linkZone":"left"`),
		"cards": "[" + strings.TrimSuffix(strings.Repeat(`{"uuid":"GPU-0","totalVRam":65536},`, 65), ",") + "]",
	} {
		list = append(list, Annotation{"cards-" + name, "metax-tech.com/node-gpu-devices", value})
	}
	for name, value := range map[string]string{
		"garbage": "{", "list": "[1]", "negative": `{"1":-1}`, "overflowing": `{"1":9223372036854775808}`, "zero": `{"0":1}`, "word": `{"one":1}`, "padded": `{"01":1}`, "many": `{"65":1}`,
		"fraction": `{"1":0.5}`, "deep": Deep(50_000), "nul": "{\"1\x00\":1}", "text": `{"1":"1"}`,
	} {
		list = append(list, Annotation{"scores-" + name, "metax-tech.com/gpu.topology.scores", value}, Annotation{"losses-" + name, "metax-tech.com/gpu.topology.losses", value})
	}
	return list
}

// Locks are invalid values of the node lock.
func Locks() map[string]string {
	return map[string]string{
		"empty": "", "garbage": "garbage!", "commas": ",,", "more-commas": "2026-01-02T15:04:05Z,default,p,q", "no-pod": "2026-01-02T15:04:05Z,default", "year": "12026-01-02T15:04:05Z,default,p",
		"nul": "2026-01-02T15:04:05Z,default,\x00", "path": "2026-01-02T15:04:05Z,..,/etc", "huge": "2026-01-02T15:04:05Z,default," + strings.Repeat("p", 100_000),
	}
}

// Allocations returns annotations with what a pod holds that can't be
// read. All are for pods with one container that asks for one share.
func Allocations() []Annotation {
	const vendor, sgpu, whole, koordinator = "metax-tech.com/gpu-devices-allocated", "hami.io/metax-sgpu-devices-allocated", "hami.io/metax-gpu-devices-allocated", "scheduling.koordinator.sh/device-allocated"
	var list []Annotation
	add := func(key string, values map[string]string) {
		for name, value := range values {
			list = append(list, Annotation{name, key, value})
		}
	}
	share := func(fields string) string { return `[[{"uuid":"GPU-0"` + fields + `}]]` }
	add(vendor, map[string]string{
		"vendor-empty": "", "vendor-garbage": "[[", "vendor-null": "null", "vendor-object": "{}", "vendor-flat": `[{"uuid":"GPU-0"}]`, "vendor-no-card": "[[]]", "vendor-deep": Deep(50_000),
		"vendor-negative": share(`,"compute":-1`), "vendor-too-much": share(`,"compute":101`), "vendor-wraps": share(`,"compute":4294967301`), "vendor-overflows": share(`,"vRam":9223372036854775808`),
		"vendor-memory-negative": share(`,"vRam":-4096`), "vendor-fraction": share(`,"compute":0.5`), "vendor-text": share(`,"compute":"5"`), "vendor-twice": `[[{"uuid":"GPU-0"},{"uuid":"GPU-0"}]]`,
		"vendor-no-uuid": `[[{"compute":5}]]`, "vendor-uuid-huge": `[[{"uuid":"` + strings.Repeat("G", 100_000) + `"}]]`, "vendor-containers": "[" + strings.Repeat("[],", 5000) + "[]]",
		"vendor-two-lists": `[[{"uuid":"GPU-0"}],[{"uuid":"GPU-1"}]]`, "vendor-cards": "[[" + strings.TrimSuffix(repeat(`{"uuid":"GPU-%d"},`, 65), ",") + "]]",
	})
	for _, key := range []string{sgpu, whole} {
		kind := map[string]string{sgpu: "hami-sgpu-", whole: "hami-gpu-"}[key]
		add(key, map[string]string{
			kind + "garbage": "garbage", kind + "no-end": "GPU-0,Metax-SGPU,4096,5", kind + "fields": "GPU-0,Metax-SGPU:;", kind + "type": "GPU-0,NVIDIA,4096,5:;",
			kind + "negative": "GPU-0,Metax-SGPU,-4096,5:;", kind + "overflows": "GPU-0,Metax-SGPU,99999999999999999999,5:;", kind + "compute": "GPU-0,Metax-SGPU,4096,500:;",
			kind + "nul": "\x00,Metax-SGPU,\x00,\x00:;", kind + "empty-share": ":;", kind + "twice": "GPU-0,Metax-SGPU,1,1:GPU-0,Metax-SGPU,1,1:;", kind + "semicolons": strings.Repeat(";", 100_000),
			kind + "no-card": ";",
		})
	}
	entry := func(fields string) string { return `{"gpu":[{"id":"GPU-0"` + fields + `}]}` }
	add(koordinator, map[string]string{
		"koord-empty": "", "koord-garbage": `{"gpu":`, "koord-list": "[]", "koord-no-card": `{"gpu":[]}`, "koord-word": `{"gpu":"all"}`, "koord-deep": `{"gpu":` + Deep(50_000) + `}`,
		"koord-core-negative": entry(`,"resources":{"koordinator.sh/gpu-core":"-5"}`), "koord-core-huge": entry(`,"resources":{"koordinator.sh/gpu-core":"5k"}`),
		"koord-core-milli": entry(`,"resources":{"koordinator.sh/gpu-core":"500m"}`), "koord-endless": entry(`,"resources":{"koordinator.sh/gpu-memory":"1e-999999999"}`),
		"koord-memory-negative": entry(`,"resources":{"koordinator.sh/gpu-memory":"-1Gi"}`), "koord-memory-huge": entry(`,"resources":{"koordinator.sh/gpu-memory":"8Ei"}`),
		"koord-ratio": entry(`,"resources":{"koordinator.sh/gpu-memory-ratio":"101"}`), "koord-twice": `{"gpu":[{"id":"GPU-0"},{"id":"GPU-0"}]}`, "koord-resources": entry(`,"resources":7`),
		"koord-minor": `{"gpu":[{"minor":99999999999}]}`, "koord-no-such-minor": `{"gpu":[{"minor":63}]}`,
	})
	return list
}

func repeat(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Wishes returns invalid annotations of users; a pod with one of them is rejected.
func Wishes() []Annotation {
	var list []Annotation
	for name, value := range map[string]string{
		"empty": "", "unknown": "first-class", "nul": "best-effort\x00", "huge": strings.Repeat("x", 100_000), "list": `["fixed-share"]`, "escape": "\x1b[31mfixed-share",
	} {
		for key, of := range map[string]string{
			"qos": "metax-tech.com/sgpu-qos-policy", "class": "metax-tech.com/sgpu-app-class", "topology": "metax-tech.com/sgpu-topology-aware",
			"node-policy": "hami.io/node-scheduler-policy", "card-policy": "hami.io/gpu-scheduler-policy",
		} {
			if name == "empty" && key != "class" && key != "qos" {
				continue // which is as good as nothing
			}
			list = append(list, Annotation{key + "-" + name, of, value})
		}
	}
	return list
}

// ConfigMaps returns contents of metax-device-config that can't be read.
func ConfigMaps() map[string]map[string]string {
	cluster := func(text string) map[string]string { return map[string]string{"cluster-config": text} }
	nodes := func(text string) map[string]string { return map[string]string{"nodes-config": text} }
	return map[string]map[string]string{
		"version": {"version": "v2", "cluster-config": "mode: native"}, "version-nul": {"version": "\x00"},
		"cluster-word": cluster("native"), "cluster-list": cluster("[native]"), "cluster-mode": cluster("mode: turbo"), "cluster-mode-list": cluster("mode: [native]"),
		"cluster-no-mode": cluster("modus: native"), "cluster-garbage": cluster("mode: \"native"), "cluster-tab": cluster("\tmode: native"), "cluster-nul": cluster("mode: \"native\\0\""),
		"cluster-twice": cluster("mode: native\nmode: sgpu"), "cluster-deep": cluster(Deep(5000)), "cluster-bomb": cluster(bomb()),
		"nodes-object": nodes("nodeName: n\nmode: native"), "nodes-no-name": nodes("- mode: native"), "nodes-no-mode": nodes("- nodeName: n"),
		"nodes-twice": nodes("- {nodeName: n, mode: native}\n- {nodeName: n, mode: sgpu}"), "nodes-many": nodes(repeat("- {nodeName: n%d, mode: native}\n", 10_001)),
		"nodes-mode": nodes("- {nodeName: n, mode: -1}"), "nodes-garbage": nodes("- - - :"),
	}
}

// bomb is YAML that names the same list again and again: short to write and
// endless to write out.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%[1]d: &a%[1]d [*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d,*a%[2]d]\n", i, i-1)
	}
	return b.String() + "mode: native\n"
}
