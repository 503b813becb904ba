// Command chart writes what the Helm chart takes from the sources into a folder
// that has the chart's own shape:
//
//	go run ./hack/chart charts/daybreak
//
// `make generate` runs it on the chart, `make verify` on a temporary folder, to
// compare.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chart FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	policies, err := policy.Chart()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"templates/policies.yaml": policies,
		"files/device.yaml":       crd.Device,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
