// Package crd carries the generated CustomResourceDefinition of Device.
package crd

import _ "embed"

// Device is the CustomResourceDefinition of Device, as YAML.
//
//go:embed scheduling.koordinator.sh_devices.yaml
var Device []byte
