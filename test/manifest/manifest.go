// Package manifest writes nodes, Devices, pods and Leases as YAML, for tests that read
// files.
package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Examples returns the files of the repository's examples in HAMi's and in
// Koordinator's dialect, which all tests place. root is the top of the repository.
func Examples(root string) ([]string, error) {
	hami, err := filepath.Glob(filepath.Join(root, "examples", "hami", "*.yaml"))
	koordinator, other := filepath.Glob(filepath.Join(root, "examples", "koordinator", "*.yaml"))
	return slices.Concat(hami, koordinator), errors.Join(err, other)
}

// Join makes documents one file.
func Join(docs ...string) string { return strings.Join(docs, "---\n") }

// Device returns a Device, which by itself is a node that serves whole cards and
// slices. Its cards are called GPU-<name>-0 and so on and know no links.
func Device(name string, cards int, memory string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: %s}\nspec:\n  devices:\n", name)
	for i := range cards {
		fmt.Fprintf(&b, "  - {type: gpu, id: GPU-%s-%d, minor: %d, health: true, resources: {koordinator.sh/gpu-memory: %s}}\n", name, i, i, memory)
	}
	return b.String()
}

// Counted returns a node of which only the number of cards is known.
func Counted(name string, cards int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, annotations: {daybreak-gpu.io/served-by: vendor}}\nstatus: {capacity: {metax-tech.com/gpu: %d}}\n", name, cards)
}

// Lease returns the Lease of Daybreak's scheduler or manager, held by "a", with that
// holder's settings as fields of JSON.
func Lease(part, settings string) string {
	namespace := map[string]string{"scheduler": "kube-system", "manager": "daybreak-system"}[part]
	return fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: %s, name: daybreak-%s, annotations: {daybreak-gpu.io/settings: '{"holder":"a",%s}'}}
spec: {holderIdentity: a}
`, namespace, part, settings)
}

// Pod returns a pod to place. The limits are "gpu: 1" or "sgpu: 1, vcore: 10", the
// annotations whole entries.
func Pod(name, limits string, annotations ...string) string {
	return PodOn("", name, limits, annotations...)
}

// Slice returns a running pod that holds a best-effort slice.
func Slice(node, name string, card, vcore, gib int, annotations ...string) string {
	allocated := fmt.Sprintf(`metax-tech.com/gpu-devices-allocated: '[[{"uuid":"GPU-%s-%d","compute":%d,"vRam":%d}]]'`, node, card, vcore, gib*1024)
	return PodOn(node, name, fmt.Sprintf("sgpu: 1, vcore: %d, vmemory: %d", vcore, gib), append(annotations, allocated)...)
}

// PodOn returns a pod on the node.
func PodOn(node, name, limits string, annotations ...string) string {
	limits = strings.ReplaceAll(", "+limits, ", ", ", metax-tech.com/")[2:]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations: {%s}
spec:
  nodeName: %q
  containers:
  - {name: main, resources: {limits: {%s}}}
`, name, strings.Join(annotations, ", "), node, limits)
}
