package skew

import (
	"fmt"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/deployed"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/fake/vendorplugin"
)

// world is a cluster that is upgraded.
type world struct {
	*deployed.World
	load   *load
	vendor *vendorplugin.Plugin
	// slices are the residents', by machine.
	slices map[string][]fake.Slice
}

// machines and cards is how large the cluster is.
const (
	machineCount = 6
	cardCount    = 8
)

// newWorld starts a cluster without Daybreak.
func newWorld(t *testing.T) *world {
	t.Helper()
	binaries := map[string]string{}
	for _, v := range versions {
		binaries[string(v)] = v.binary()
	}
	w := &world{slices: map[string][]fake.Slice{}, World: deployed.New(t, deployed.Config{
		Bin: os.Getenv(envBin), Binaries: binaries, Nodes: machineCount, Cards: cardCount, Logs: os.Getenv("SKEW_KEEP_LOGS"),
	})}
	for _, c := range deployed.Components {
		w.Parts.Allow(c, string(previous))
	}
	w.Must(w.startVendor())
	w.load = newLoad(w)
	w.Running.Go(w.load.watch)
	return w
}

// vendorNode is served by the vendor's plugin, played by the test: schedulers lock it.
// Its taint keeps it for the pods that name it.
const (
	vendorNode  = "vendor-1"
	vendorTaint = "skew/vendor"
)

func (w *world) startVendor() error {
	simulator, err := local.NewSimulator(w.Ctx, w.REST())
	if err != nil {
		return err
	}
	if w.vendor, err = vendorplugin.Start(w.Ctx, w.REST(), simulator, nil); err != nil {
		return err
	}
	w.AtEnd(func() {
		w.vendor.Stop()
		simulator.Stop()
	})
	profiles, err := discover.LoadProfiles("c500-2x4")
	if err != nil {
		return err
	}
	if err := w.vendor.AddNode(w.Ctx, vendorNode, &profiles[0]); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, vendorTaint)
	_, err = w.Client.CoreV1().Nodes().Patch(w.Ctx, vendorNode, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// election makes leaders quick to follow one another: a part that ends releases its
// lease. None is killed, so a lease may last long, and a busy machine takes none away.
const election = "--leader-elect-lease-duration=60s,--leader-elect-renew-deadline=50s,--leader-elect-retry-period=500ms"

// values are what an administrator wrote for the first installation.
func (*world) values() []string {
	return []string{
		"--set", "image.repository=registry.example/daybreak,agent.mode=sgpu,agent.poll=2s,agent.maxUnavailable=50%,agent.extraArgs={--drain=1s}",
		"--set", "manager.extraArgs={" + election + ",--audit-interval=1s,--certificate-validity=1m,--certificate-overlap=10s},scheduler.extraArgs={" + election + "}",
		"--set", "admission.publishers={admin}", // the vendor's plugin here
		"--set", "manager.verbosity=2,scheduler.verbosity=2,agent.verbosity=2",
	}
}
