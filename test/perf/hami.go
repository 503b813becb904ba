package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

// hami is HAMi's extender next to kube-scheduler, built from a checkout: HAMi is not on
// the Go module proxy.
const hami side = "hami"

// envHAMi names the checkout. `make bench-peers` builds its scheduler.
const envHAMi = "HAMI_SRC"

// hamiDevices is the part about MetaX of the device configuration in HAMi's chart, and
// hamiExtender what the chart adds to kube-scheduler's configuration.
const (
	hamiDevices = `metax:
  resourceCountName: metax-tech.com/gpu
  resourceVCountName: metax-tech.com/sgpu
  resourceVCoreName: metax-tech.com/vcore
  resourceVMemoryName: metax-tech.com/vmemory
`
	hamiExtender = `extenders:
- urlPrefix: http://%s
  filterVerb: filter
  bindVerb: bind
  nodeCacheCapable: true
  weight: 1
  httpTimeout: 30s
  managedResources:
  - {name: metax-tech.com/gpu, ignoredByScheduler: true}
  - {name: metax-tech.com/sgpu, ignoredByScheduler: true}
  - {name: metax-tech.com/vcore, ignoredByScheduler: true}
  - {name: metax-tech.com/vmemory, ignoredByScheduler: true}
`
)

// startExtender starts HAMi's extender and returns it with what kube-scheduler's
// configuration needs to call it.
func (w *world) startExtender(ctx context.Context, name string, qps, burst int) (extender *local.Process, config string, err error) {
	addresses, err := local.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, "", err
	}
	devices := filepath.Join(w.dir, "hami-devices.yaml")
	if err := os.WriteFile(devices, []byte(hamiDevices), 0o600); err != nil {
		return nil, "", err
	}
	args := []string{"--http_bind=" + addresses[0], "--metrics-bind-address=" + addresses[1], "--device-config-file=" + devices}
	if qps > 0 {
		args = append(args, fmt.Sprintf("--kube-qps=%d", qps), fmt.Sprintf("--kube-burst=%d", burst))
	}
	extender = w.cluster.NewProcess(name+"-extender", filepath.Join(w.peers, "hami", "scheduler"), args...)
	extender.Env = []string{"KUBECONFIG=" + w.cluster.Kubeconfig("admin")}
	if err := extender.Start(); err != nil {
		return nil, "", err
	}
	return extender, fmt.Sprintf(hamiExtender, addresses[0]), nil
}

// as returns the plan with pods in the words that the scheduler reads.
func (p *Plan) as(s side) *Plan {
	if s != hami {
		return p
	}
	other := *p
	other.Kinds = map[string]Kind{}
	for name, kind := range p.Kinds {
		kind.Resources = kind.HAMi
		other.Kinds[name] = kind
	}
	return &other
}
