package inventory

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// Modes is what the vendor's ConfigMap says: how nodes hand their cards out.
type Modes struct {
	// Cluster is the mode of nodes that are not named, or empty.
	Cluster gpu.Mode
	nodes   map[string]gpu.Mode
}

// Of returns the mode that the document asks of a node; the node's own entry
// comes before the cluster's. It is empty where the document has neither.
func (m *Modes) Of(node string) gpu.Mode {
	if mode, ok := m.nodes[node]; ok {
		return mode
	}
	return m.Cluster
}

// Keys of the ConfigMap and what they hold.
const (
	modesVersion = "version"
	modesCluster = "cluster-config"
	modesNodes   = "nodes-config"

	wantMode = "write native, sgpu, shared or vgpu"
	// maxNodeModes and the size of an annotation bound the document.
	maxNodeModes = 10_000
)

// modeEntry is one entry of nodes-config, or all of cluster-config. Fields of
// newer versions are ignored.
type modeEntry struct {
	NodeName string    `json:"nodeName"`
	Mode     *gpu.Mode `json:"mode"`
}

func (e *modeEntry) mode() (gpu.Mode, error) {
	switch {
	case e.Mode == nil:
		return "", fmt.Errorf("has no mode: %s", wantMode)
	case *e.Mode == "" && e.NodeName == "":
		return "", nil // as the vendor's operator writes cluster-config where its values name no mode
	case !e.Mode.Valid():
		return "", fmt.Errorf("mode %.40q: %s", *e.Mode, wantMode)
	}
	return *e.Mode, nil
}

// DecodeModes reads the data of the vendor's ConfigMap. One mistake refuses
// the whole document: half of it may mean something else.
func DecodeModes(data map[string]string) (*Modes, error) {
	if v, ok := data[modesVersion]; ok && strings.TrimSpace(v) != "v1" {
		return nil, fmt.Errorf("%s: %.40q: this agent reads v1", modesVersion, v)
	}
	m := &Modes{nodes: map[string]gpu.Mode{}}
	var cluster *modeEntry
	if err := decodeYAML(data[modesCluster], &cluster); err != nil {
		return nil, fmt.Errorf("%s: %w", modesCluster, err)
	}
	if cluster != nil {
		mode, err := cluster.mode()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", modesCluster, err)
		}
		m.Cluster = mode
	}
	var nodes []modeEntry
	if err := decodeYAML(data[modesNodes], &nodes); err != nil {
		return nil, fmt.Errorf("%s: %w", modesNodes, err)
	}
	if len(nodes) > maxNodeModes {
		return nil, fmt.Errorf("%s: %d nodes, at most %d are read", modesNodes, len(nodes), maxNodeModes)
	}
	for i := range nodes {
		e := &nodes[i]
		mode, err := e.mode()
		switch {
		case e.NodeName == "":
			return nil, fmt.Errorf("%s: entry %d has no nodeName", modesNodes, i+1)
		case err != nil:
			return nil, fmt.Errorf("%s: node %.63s: %w", modesNodes, e.NodeName, err)
		}
		if _, ok := m.nodes[e.NodeName]; ok {
			return nil, fmt.Errorf("%s: node %.63s is listed twice", modesNodes, e.NodeName)
		}
		m.nodes[e.NodeName] = mode
	}
	return m, nil
}

// decodeYAML reads a small document. What is empty, or has comments only,
// leaves the target as it is.
func decodeYAML(text string, into any) error {
	const most = 1 << 20 // what a ConfigMap may hold
	if len(text) > most {
		return fmt.Errorf("%d bytes, at most %d are read", len(text), most)
	}
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return fmt.Errorf("%.1000s", err.Error()) // which lists each line that is wrong
	}
	return yaml.Unmarshal(asJSON, into)
}
