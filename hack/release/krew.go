package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// repository is where releases are downloaded from.
const repository = "https://github.com/daybreak-gpu/daybreak"

// krewPlugin is the manifest with which krew installs kubectl daybreak.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	SHA256   string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

// krewManifest returns the manifest for archives with the given checksums.
func krewManifest(version string, sums map[string]string) ([]byte, error) {
	plugin := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "daybreak"},
		Spec: krewSpec{
			Version: version, Homepage: repository, ShortDescription: "Show and explain the placement of MetaX GPUs",
			Description: "Shows the MetaX GPUs of a cluster and who holds them, explains why a pod is\n" +
				"pending or where it would go, and audits allocations. Also reads YAML files\n" +
				"without a cluster.\n",
		},
	}
	for _, p := range platforms {
		name := "daybreak-" + version + "-" + p.archive()
		if sums[name] == "" {
			return nil, fmt.Errorf("there is no archive %s", name)
		}
		bin := "daybreak"
		if strings.HasSuffix(name, ".zip") {
			bin += ".exe"
		}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: map[string]map[string]string{"matchLabels": {"os": p.os, "arch": p.arch}},
			URI:      repository + "/releases/download/" + version + "/" + name, SHA256: sums[name], Bin: bin,
		})
	}
	return yaml.Marshal(plugin)
}
