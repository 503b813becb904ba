package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/gputest"
)

// readText reads a text by the general decoder alone, whatever its size.
func readText(text []byte) (*Objects, error) {
	r := newDecoder()
	return r.objects, r.general(text, "in")
}

// readDump reads a text as if it were large.
func readDump(text []byte) (*Objects, error) {
	r := newDecoder()
	documents, pieces, err := splitDump(text)
	if err != nil {
		return nil, err
	}
	return r.objects, r.dump(documents, pieces, "in")
}

// sameObjects compares what both ways of reading keep.
func sameObjects(t *testing.T, a, b *Objects) string {
	t.Helper()
	return cmp.Diff(projections(t, a), projections(t, b))
}

// projections are the objects as they would be written, without the fields that
// are not kept.
func projections(t *testing.T, o *Objects) map[string]any {
	t.Helper()
	all := map[string]any{"notes": o.Notes}
	add := func(key string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		all[key] = prune(v, kept)
	}
	for i, n := range o.Nodes {
		add(fmt.Sprint("node ", i), n)
	}
	for i, p := range o.Pods {
		add(fmt.Sprint("pod ", i), p)
	}
	for name, d := range o.Devices {
		if d.Err != nil {
			all["device "+name] = d.Err.Error()
			continue
		}
		add("device "+name, d.Device)
	}
	return all
}

// prune drops what is not kept, and what is empty.
func prune(v any, s *shape) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, x := range v {
			field, err := s.field(key)
			if err != nil || field == nil || key == "apiVersion" || key == "kind" {
				continue
			}
			if x = prune(x, field); x != nil && x != false && x != "" {
				out[key] = x
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		var out []any
		for _, x := range v {
			if s.each != nil {
				out = append(out, prune(x, s.each))
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return v
}

// TestDump: what the lean readers make of a file is what the general decoder
// makes of it, in each of the forms that programs write.
func TestDump(t *testing.T) {
	text, err := os.ReadFile("../../examples/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var items []json.RawMessage
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		asJSON, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			t.Fatal(err)
		}
		if string(asJSON) != "null" {
			items = append(items, asJSON)
		}
	}
	list, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := yaml.JSONToYAML(list)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readText(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Nodes) != 3 || len(want.Devices) != 3 || len(want.Pods) != 3 {
		t.Fatalf("the example cluster has %d nodes, %d Devices and %d pods, want 3 of each", len(want.Nodes), len(want.Devices), len(want.Pods))
	}
	for name, form := range map[string][]byte{
		"documents":                    text,
		"a list in JSON":               list,
		"a list in YAML":               blocks,
		"JSON objects, one after one":  bytes.Join(rawItems(items), []byte("\n")),
		"a list, then more":            append(append([]byte{}, blocks...), []byte("---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\n")...),
		"documents that begin with --": append([]byte("---\n"), text...),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readDump(form)
			if err != nil {
				t.Fatal(err)
			}
			got.Notes = nil
			if diff := sameObjects(t, want, got); diff != "" {
				t.Errorf("read (-general +lean):\n%s", diff)
			}
		})
	}
}

func rawItems(items []json.RawMessage) [][]byte {
	out := make([][]byte, len(items))
	for i := range items {
		out[i] = items[i]
	}
	return out
}

// TestDumpIsLean: what kubectl writes needs no help from the general decoder,
// or reading it would take minutes.
func TestDumpIsLean(t *testing.T) {
	pod := func(i int) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"v1","kind":"Pod"}
    metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-1","compute":10,"vRam":1024}]]'
    note: 'it''s "quoted"'
    escaped: "a \"b\" \\ c"
    time: "2026-03-15T10:00:00Z"
  creationTimestamp: "2026-03-15T10:00:00Z"
  labels:
    app: web
  name: p%d
  namespace: team
spec:
  containers:
  - args:
    - --flag
    - -c
    - a=b
    command: []
    image: example.com/image:v1
    name: main
    resources:
      limits:
        cpu: 500m
        memory: 1Gi
        metax-tech.com/sgpu: "1"
      requests: {}
    volumeMounts:
    - mountPath: /data
      name: data
      readOnly: true
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution: []
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - key: pool
            operator: In
            values:
            - train
            - serve
          matchFields:
          - key: metadata.name
            operator: NotIn
            values:
            - n9
  nodeName: n1
  nodeSelector:
    zone: a
  overhead:
    cpu: 250m
  resources:
    requests:
      cpu: "2"
  tolerations:
  - effect: NoExecute
    key: node.kubernetes.io/not-ready
    operator: Exists
    tolerationSeconds: 300
  volumes:
  - name: data
    emptyDir: {}
status:
  conditions:
  - lastProbeTime: null
    lastTransitionTime: "2026-03-15T10:00:00Z"
    status: "True"
    type: PodScheduled
  containerStatuses:
  - allocatedResources:
      cpu: "3"
    name: main
    ready: true
    resources:
      requests:
        cpu: "3"
  hostIP: 10.0.0.1
  phase: Running
  startTime: "2026-03-15T10:00:00Z"
`, i)
	}
	var list strings.Builder
	list.WriteString("apiVersion: v1\nitems:\n")
	for i := range 3 {
		list.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(pod(i)), "\n", "\n  ") + "\n")
	}
	list.WriteString("- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n  spec:\n    taints:\n    - effect: NoSchedule\n      key: team\n      value: a\n")
	list.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	_, pieces, err := splitDump([]byte(list.String()))
	if err != nil || len(pieces) != 4 {
		t.Fatalf("%d pieces and the error %v, want 4", len(pieces), err)
	}
	for i := range pieces {
		if _, err := pieces[i].read(newArena()); err != nil {
			t.Errorf("piece %d: %v", i, err)
		}
	}
	want, err := readText([]byte(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readDump([]byte(list.String()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := sameObjects(t, want, got); diff != "" {
		t.Errorf("read (-general +lean):\n%s", diff)
	}
	demands := got.Pods[0].Spec
	if demands.Affinity == nil || demands.NodeSelector == nil || demands.Overhead == nil || demands.Resources == nil || demands.Tolerations == nil ||
		got.Pods[0].Status.ContainerStatuses == nil || got.Nodes[0].Spec.Taints == nil {
		t.Errorf("what the pod demands of its node, or the node's taints are not read: %+v, %+v", got.Pods[0], got.Nodes[0].Spec)
	}
	if got := got.Pods[0].Annotations["note"] + got.Pods[0].Annotations["escaped"]; got != `it's "quoted"a "b" \ c` {
		t.Errorf("quotes read as %q", got)
	}
}

// TestDumpErrors: a large file that can't be read is told of in the same words
// as a small one.
func TestDumpErrors(t *testing.T) {
	padding := strings.Repeat("# "+strings.Repeat("x", 998)+"\n", 2*dumpSize/1000)
	for name, text := range map[string]string{
		"a Pod without a name": "apiVersion: v1\nkind: Pod\n",
		"a Node twice":         nodeText + "---\n" + nodeText,
		"no quantity":          "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\nstatus:\n  capacity:\n    metax-tech.com/gpu: eight\n",
		"a number of hours":    "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\nstatus:\n  capacity:\n    cpu: \"1e-999999999\"\n",
		"no kind in a list":    "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n- metadata:\n    name: n2\nkind: List\n",
		"no YAML":              "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: a: b\nkind: List\n",
		"a key twice":          "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  kind: Node\n  metadata:\n    name: n1\nkind: List\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, want := readText([]byte(text))
			if want == nil {
				t.Fatal("the general decoder has nothing to object to")
			}
			path := filepath.Join(t.TempDir(), "in")
			if err := os.WriteFile(path, []byte(text+padding), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadFiles([]string{path}, nil)
			if err == nil || strings.ReplaceAll(err.Error(), path, "in") != want.Error() {
				t.Errorf("error %v, want %v", err, want)
			}
		})
	}
}

// FuzzDump: where both ways of reading a text succeed they agree, and the lean
// readers refuse nothing that the general decoder takes.
func FuzzDump(f *testing.F) {
	addExamples(f)
	f.Add([]byte("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p\n    annotations:\n      a: |\n        x\n         y\n      b: 'it''s'\n  spec:\n    priority: 7\nkind: List\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","labels":{"a":"\"\\\n"}},"spec":{"unschedulable":true},"status":{"capacity":{"cpu":8}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		want, err := readText(text)
		if err != nil {
			return
		}
		got, err := readDump(text)
		if errors.Is(err, errUnsure) {
			return
		}
		if err != nil {
			t.Fatalf("the lean readers refuse it: %v", err)
		}
		if diff := sameObjects(t, want, got); diff != "" {
			t.Errorf("read (-general +lean):\n%s", diff)
		}
	})
}

// TestDumpRandom: values of all sorts, as programs write them and as nobody
// does, are read as the general decoder reads them.
func TestDumpRandom(t *testing.T) {
	r := gputest.Rand(1)
	words := []string{
		"a", "Z", "0", "7", "08", "-", "--", "+", ".", "..", "e", "E3", "0x1f", "0o7", "1_000", "yes", "No", "null", "~", "true", "TRUE", "off", "y",
		" ", "  ", "\"", "'", "''", "\\", "\\n", "\\u0041", "\\x41", ":", ": ", " #", "#", "{", "}", "[", "]", ",", "&x", "*x", "!", "|", ">", "%", "@", "`",
		"é", "中", "\u2028", "\u0085", "\t", "\n", "\n ", "\n      ", "=", "<<", "?", "? ", "- ", "Gi", "2026-03-15", "12:30:45", "1.5", ".inf", "/", "\r",
	}
	random := func() string {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			b.WriteString(words[r.IntN(len(words))])
		}
		return b.String()
	}
	lean := 0
	for range 4000 {
		raw := random()
		value := raw
		if r.IntN(2) == 0 { // as a program writes it
			text, err := yaml.Marshal(random())
			if err != nil {
				t.Fatal(err)
			}
			value = strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n        ")
		}
		text := []byte("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n    annotations:\n      a: " + value + "\n      b: c\n    labels:\n      b: c\n  spec:\n    providerID: " + value + "\nkind: List\n")
		want, err := readText(text)
		if err != nil {
			continue
		}
		got, err := readDump(text)
		if errors.Is(err, errUnsure) {
			continue
		}
		if err != nil {
			t.Fatalf("%q: the lean readers refuse it: %v", text, err)
		}
		if diff := sameObjects(t, want, got); diff != "" {
			t.Fatalf("%q (-general +lean):\n%s", text, diff)
		}
		if _, pieces, err := splitDump(text); err == nil && len(pieces) == 1 {
			if _, err := pieces[0].read(newArena()); err == nil {
				lean++
			}
		}
	}
	if lean < 1000 {
		t.Errorf("only %d texts were read by the lean readers", lean)
	}
	t.Logf("%d texts", lean)
}
