package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const pluginDir = "/var/lib/kubelet/device-plugins"

// vendorPlugin is the vendor's plugin on the node.
type vendorPlugin struct {
	machine.VendorPlugin
	*world
}

func (w *world) newVendorPlugin(c *cards) *vendorPlugin {
	p := &vendorPlugin{world: w}
	for i := range c.machine.Cards {
		p.Cards = append(p.Cards, c.machine.Cards[i].UUID)
	}
	p.Devices = func(ids []string) []string {
		paths := []string{"/dev/mxcd"}
		for _, id := range ids {
			card := &c.machine.Cards[(&hardware{machine: c.machine}).card(id, "")]
			paths = append(paths, fmt.Sprintf("/dev/dri/card%d", card.DRMCard), fmt.Sprintf("/dev/dri/renderD%d", card.Render))
		}
		slices.Sort(paths)
		return paths
	}
	return p
}

func (p *vendorPlugin) start() {
	p.Helper()
	p.Must(p.Start(p.Ctx, pluginDir))
}

// has waits until kubelet has this many whole cards to hand out.
func (w *world) has(n int64) {
	w.Helper()
	w.Eventually(fmt.Sprintf("kubelet has %d cards", n), time.Minute, func() error {
		node := w.Node(nodeName)
		if q := node.Status.Allocatable[wire.ResourceGPU]; q.Value() != n {
			return fmt.Errorf("it has %d", q.Value())
		}
		return nil
	})
}

// TestVendorPlugin: the vendor's plugin comes, and the agent makes way. It restarts
// ten times, and the agent never registers over it. It leaves, an administrator
// gives the node back, and what it served restarts with the devices it had.
func TestVendorPlugin(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.setMode("native")
	w.serving("native")
	plugin := w.newVendorPlugin(c)
	plugin.start()
	w.Cleanup(func() { plugin.Stop() })
	w.ServedBy(nodeName, "")
	w.has(8)
	if plugin.Streams.Load() != 1 {
		t.Error("kubelet closed its connection to the vendor's plugin when the agent made way")
	}
	w.create(pod("vendors", "gpu=1"))
	served := w.running(time.Minute, "vendors")[0]
	before, err := w.look(served, "main")
	w.Must(err)
	registered := w.registrations()
	for i := range 10 {
		plugin.Stop()
		if i%3 == 0 {
			w.has(0) // else it is back before anyone noticed
		}
		plugin.start()
		w.Eventually("kubelet has the plugin", time.Minute, func() error {
			if n := plugin.Streams.Load(); n != 1 {
				return fmt.Errorf("%d streams", n)
			}
			return nil
		})
	}
	w.has(8)
	if n := w.registrations(); n != registered || plugin.Streams.Load() != 1 {
		t.Fatalf("the agent registered %d times over the vendor's plugin", n-registered)
	}
	plugin.Stop()
	w.has(0)
	w.Kubectl("annotate", "node", nodeName, wire.AnnotationServedBy+"="+wire.ServedByVendor)
	w.Eventually("the agent has seen it", time.Minute, func() error {
		if out := w.Kubectl("get", "events", "--field-selector=reason=NodeNotServed"); !strings.Contains(out, "says vendor") {
			return errors.New(out)
		}
		return nil
	})
	w.Kubectl("annotate", "node", nodeName, wire.AnnotationServedBy+"-")
	w.serving("native")
	w.Must(w.endContainer(served))
	w.restarted("vendors")
	after, err := w.look(served, "main")
	w.Must(err)
	if !maps.Equal(before.nodes, after.nodes) || len(after.nodes) != 3 {
		t.Errorf("the container saw %v, after the takeover %v", before.nodes, after.nodes)
	}
	w.create(pod("ours", "gpu=7"))
	ours := w.running(time.Minute, "ours")
	for _, view := range w.inspect(c, ours...)[ours[0].UID] {
		for path := range view.nodes {
			if _, both := after.nodes[path]; both && path != "/dev/mxcd" {
				t.Errorf("two pods have %s", path)
			}
		}
	}
}
