package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// hardware is a fake machine that an agent looks at through the fake library.
type hardware struct {
	*fake.Machine
	t     *testing.T
	path  string
	saves int
}

func newHardware(t *testing.T, cards, zone int) *hardware {
	t.Helper()
	h := &hardware{Machine: fake.NewMachine(cards, zone), t: t, path: filepath.Join(t.TempDir(), "machine")}
	h.save()
	return h
}

// save makes what was changed happen. The kernel notices first.
func (h *hardware) save() {
	h.t.Helper()
	h.saves++
	tree := fmt.Sprintf("%s.sys-%d", h.path, h.saves)
	for _, err := range []error{h.WriteSysfs(tree), os.Symlink(tree, tree+".link"), os.Rename(tree+".link", h.sysfs()), h.Write(h.path)} {
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *hardware) sysfs() string { return h.path + ".sys" }

// TestAgentFaults: hardware breaks in every way, the Device says so, people
// get an event, and new pods keep clear of it.
func TestAgentFaults(t *testing.T) {
	t.Parallel()
	library := fake.Library(t, fake.V231)
	w := newWorld(t)
	w.admission()
	w.Scheduler("scheduler")
	const node = "faults"
	w.adopt(node, 8)
	h := newHardware(t, 8, 4)
	address := w.FreeAddress()
	w.agent(node, []string{fake.EnvConfig + "=" + h.path}, "--source=mxsml", "--mxsml="+library, "--sysfs="+h.sysfs(),
		"--health-probe-bind-address="+address, "--metrics-bind-address="+address, "--look-timeout=3s")
	d := w.deviceSays(node, "eight cards", func(d *v1alpha1.Device) bool { return healthyCards(d) == 8 })
	for i, c := range h.Cards {
		got := &d.Spec.Devices[i]
		if got.UUID != c.UUID || got.Topology.BusID != c.BDF || int(got.Topology.NodeID) != c.NUMA || !strings.HasPrefix(c.Path, got.Topology.PCIEID+"/") {
			t.Errorf("card %d is %s at %+v, want %s at %s (%s), NUMA node %d", i, got.UUID, got.Topology, c.UUID, c.BDF, c.Path, c.NUMA)
		}
	}

	// Two pods, of which one holds the card that will break.
	w.Create(pod("holder", "sgpu=1", "vcore=10", "vmemory=4"))
	broken := w.CardsOf(w.Bound("holder"))[0]
	h.Cards[broken].ECC[3] = 1
	h.save()
	w.deviceSays(node, "an ECC fault in the Device", func(d *v1alpha1.Device) bool {
		return reasonOf(d, broken) == "UncorrectableECC" && healthyCards(d) == 7
	})
	w.advertises(node, 7)
	w.event("Node", node, "CardUnhealthy", "uncorrectable memory errors rose from 0 to 1")
	w.event("Pod", "holder", "CardUnhealthy", "this pod holds card "+h.Cards[broken].UUID)
	w.Create(pod("after-ecc", "sgpu=1", "vcore=10", "vmemory=4"))
	if got := w.CardsOf(w.Bound("after-ecc")); got[0] == broken {
		t.Errorf("a new pod is on the broken card %d", broken)
	}

	// A card of the other zone falls off the bus.
	const lost = 7
	h.Cards[lost].Lost = true
	h.save()
	w.deviceSays(node, "a lost card in the Device", func(d *v1alpha1.Device) bool {
		return len(d.Spec.Devices) == 8 && reasonOf(d, lost) == "CardLost" && healthyCards(d) == 6
	})
	w.advertises(node, 6)
	w.event("Node", node, "CardUnhealthy", h.Cards[lost].UUID)
	// Links to it are down; so is now the one between 4 and 5.
	for i := range h.Links {
		if l := &h.Links[i]; l.A == 4 && l.B == 5 {
			l.Down = true
		}
	}
	h.save()
	w.deviceSays(node, "a dead link in the Device", func(d *v1alpha1.Device) bool {
		inv := inventory.ReadInventory(nil, d)
		return inv.Problem == nil && !inv.Topology.Linked(4).Has(5) && inv.Topology.Linked(4).Has(6) && d.Spec.Devices[4].Health
	})
	w.event("Node", node, "CardLinkDown", h.Cards[4].UUID)
	// The rest of the first zone goes first, then two that are linked.
	w.Create(pod("two-cards", "gpu=2"))
	w.Bound("two-cards")
	w.Create(pod("two-more", "gpu=2"))
	if got := w.CardsOf(w.Bound("two-more")); !slices.Equal(got, []int{4, 6}) {
		t.Errorf("two cards of the second zone are %v, want 4 and 6: 4 and 5 are not linked any more, 7 is lost", got)
	}

	w.hangs(h, node, address)
	w.Audit()
}

// TestAgentNonsense: what the driver says makes no sense. Each time there is a
// clear event, and the Device stays as it was.
func TestAgentNonsense(t *testing.T) {
	t.Parallel()
	library, command := fake.Library(t, fake.V228), fake.MXSMI(t)
	w := newWorld(t)
	for _, tc := range []struct {
		node    string
		args    []string
		change  func(*fake.Machine)
		problem string
	}{
		{"same-uuid", []string{"--source=mxsml", "--mxsml=" + library}, func(m *fake.Machine) { m.Cards[1].UUID = m.Cards[0].UUID }, "uuid"},
		{"300-cards", []string{"--source=mxsml", "--mxsml=" + library}, func(m *fake.Machine) { m.Count = new(300) }, "300"},
		{"no-memory", []string{"--source=mxsml", "--mxsml=" + library}, func(m *fake.Machine) { m.Cards[1].MemoryKiB = 0 }, "memory"},
		{"truncated", []string{"--source=mx-smi", "--mx-smi=" + command}, func(m *fake.Machine) {
			m.Faults = []fake.Fault{{Kind: "truncate", Function: "-L", Code: 50}}
		}, "mx-smi"},
	} {
		t.Run(tc.node, func(t *testing.T) {
			w := world{w.Part(t)}
			h := newHardware(t, 16, 8)
			w.adopt(tc.node, 16)
			w.agent(tc.node, []string{fake.EnvConfig + "=" + h.path}, append(tc.args, "--sysfs="+h.sysfs())...)
			d := w.deviceSays(tc.node, "sixteen cards", func(d *v1alpha1.Device) bool { return healthyCards(d) == 16 })
			for i, c := range h.Cards {
				if got := &d.Spec.Devices[i]; got.UUID != c.UUID || int(*got.Minor) != i || got.Topology.BusID != c.BDF {
					t.Errorf("card %d is %s, minor %d, at %s; want %s at %s", i, got.UUID, *got.Minor, got.Topology.BusID, c.UUID, c.BDF)
				}
			}
			tc.change(h.Machine)
			h.save()
			w.event("Node", tc.node, "LookFailed", tc.problem)
			if after := w.device(tc.node); after == nil || after.ResourceVersion != d.ResourceVersion {
				t.Errorf("the Device changed: %+v", after)
			}
		})
	}
}

// hangs: the driver does not answer any more, then again.
func (w *world) hangs(h *hardware, node, address string) {
	before := w.device(node)
	h.Faults = []fake.Fault{{Kind: "hang", Function: "mxSmlGetDeviceInfo"}}
	h.save()
	w.event("Node", node, "LookFailed", "the last Device stays")
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		code, text := w.get(address, path)
		if code != http.StatusOK {
			w.Errorf("%s while the driver hangs: %d %s", path, code, text)
		}
	}
	if after := w.device(node); after.ResourceVersion != before.ResourceVersion {
		w.Error("the Device changed while the driver hangs")
	}
	h.Faults = nil
	h.save()
	w.event("Node", node, "LookRecovered", "")
	h.Faults = []fake.Fault{{Kind: "crash", Function: "mxSmlGetDeviceInfo"}}
	h.save()
	time.Sleep(10 * time.Second)
	if code, text := w.get(address, "/healthz"); code != http.StatusOK {
		w.Errorf("/healthz while the library crashes: %d %s", code, text)
	}
	if after := w.device(node); after.ResourceVersion != before.ResourceVersion {
		w.Error("the Device changed while the library crashes")
	}
	h.Faults = nil
	h.Cards[0].Reason = "overheated"
	h.save()
	w.deviceSays(node, "the first fault after crashes", func(d *v1alpha1.Device) bool { return !d.Spec.Devices[0].Health })
}

// get asks the agent over HTTP and gives it two seconds.
func (w *world) get(address, path string) (code int, text string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	w.Must(err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.Must(err)
	return response.StatusCode, string(body)
}
