package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/harness"
)

// Numbers of device nodes. Opening one of a slice or a card fails, as there is
// no driver; the control node is the null device under another name.
const (
	majorDRM, majorSlice = 226, 236
	firstSlice           = 16
	mostSlices           = 128
	metricsAddress       = "127.0.0.1:9460"
)

// cards are the cards of the node, and the agent that serves them.
type cards struct {
	*local.Process
	machine *fake.Machine
	config  string
}

// sysfs is where the kernel lists the cards.
func (c *cards) sysfs() string { return filepath.Join(filepath.Dir(c.config), "sys") }

// exampleCard is the card that one of the examples names.
const exampleCard = "GPU-000000c5-c550-0000-0000-000000000000"

// serve returns the cards of the node, eight in two zones, served in mode sgpu
// and with no slice of ours on them.
func (w *world) serve() *cards {
	w.Helper()
	if w.cards == nil {
		m := fake.NewMachine(8, 4)
		m.Cards[5].UUID = exampleCard
		w.cluster.cards = w.newCards(m)
	}
	if !w.cards.alive() {
		w.Must(w.cards.Start())
	}
	w.setMode("sgpu")
	w.serving("sgpu")
	w.slicesAre(w.cards, 0)
	return w.cards
}

// alive reports whether the agent runs.
func (c *cards) alive() bool {
	if c.Exited() == nil {
		return false
	}
	select {
	case <-c.Exited():
		return false
	default:
		return true
	}
}

// setMode writes the mode of all nodes to the vendor's ConfigMap.
func (w *world) setMode(mode string) {
	w.Helper()
	w.Must(w.Apply(w.Ctx, strings.NewReader(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: metax-device-config
  namespace: %s
data:
  version: v1
  cluster-config: |
    mode: %q
`, local.AgentNamespace, mode))))
}

// makeCards makes the cards of a server: the library's answers, sysfs and the
// device nodes.
func (w *world) makeCards(m *fake.Machine) *cards {
	w.Helper()
	dir := filepath.Join(w.dir, "cards")
	w.Must(os.RemoveAll(dir))
	w.Must(os.MkdirAll(dir, 0o755))
	c := &cards{machine: m, config: filepath.Join(dir, "machine")}
	w.Must(m.Write(c.config))
	w.Must(m.WriteSysfs(c.sysfs()))
	w.Must(os.RemoveAll("/dev/dri"))
	w.Must(os.Mkdir("/dev/dri", 0o755))
	node := func(path string, major, minor int) {
		if err := mknod(path, major, minor); !errors.Is(err, fs.ErrExist) {
			w.Must(err)
		}
	}
	node("/dev/mxcd", 1, 3)
	for i := range m.Cards {
		node(fmt.Sprintf("/dev/dri/card%d", m.Cards[i].DRMCard), majorDRM, m.Cards[i].DRMCard)
		node(fmt.Sprintf("/dev/dri/renderD%d", m.Cards[i].Render), majorDRM, m.Cards[i].Render)
	}
	// Whether the driver makes a node for each slice is not known: every other
	// one has to be made from its number.
	for minor := firstSlice; minor < firstSlice+mostSlices; minor += 2 {
		node(fmt.Sprintf("/dev/sgpu%d", minor), majorSlice, minor)
	}
	return c
}

// newCards makes the cards of a server and the agent that serves them.
func (w *world) newCards(m *fake.Machine) *cards {
	w.Helper()
	c := w.makeCards(m)
	c.Process = w.agentOf(c)
	return c
}

// agentOf returns an agent that serves the cards, with flags besides.
func (w *world) agentOf(c *cards, more ...string) *local.Process {
	w.Helper()
	args := append([]string{
		"--source=mxsml", "--mxsml=" + fake.Library(w, fake.V231), "--sysfs=" + c.sysfs(), "--poll=1s",
		"--metrics-bind-address=" + metricsAddress, "--state-dir=" + w.stateDir(), "-v=2",
	}, more...)
	agent := w.newAgent(args)
	agent.Env = []string{fake.EnvConfig + "=" + c.config}
	return agent
}

// newAgent returns an agent of the node. In an older cluster its token names a pod that
// runs there, which the manager looks up.
func (w *world) newAgent(args []string) *local.Process {
	w.Helper()
	if !older() {
		return w.NewAgent(nodeName, args...)
	}
	config, err := harness.Agent(w.Ctx, w.Cluster, nodeName, imageUbuntu)
	w.Must(err)
	return w.NewAgentAs(config.BearerToken, nodeName, args...)
}

// stateDir is the folder of the agent's journal.
func (w *world) stateDir() string { return filepath.Join(w.dir, "agent") }

// serving waits until the agent serves the node in the mode.
func (w *world) serving(mode string) {
	w.Helper()
	start := time.Now()
	w.Eventually("the agent serves in mode "+mode, time.Minute, func() error {
		d, err := w.Device(nodeName)
		if err != nil {
			return err
		}
		if d.Annotations[wire.AnnotationMode] != mode {
			return fmt.Errorf("the mode is %q", d.Annotations[wire.AnnotationMode])
		}
		node := w.Node(nodeName)
		if by := node.Annotations[wire.AnnotationServedBy]; by != wire.ServedByDaybreak {
			return fmt.Errorf("the node is served by %q", by)
		}
		resource := wire.ResourceGPU
		if mode == "sgpu" {
			resource = wire.ResourceSGPU
		}
		if q := node.Status.Allocatable[resource]; q.IsZero() {
			return fmt.Errorf("kubelet offers no %s", resource)
		}
		return serves(d)
	})
	w.Logf("serving in mode %s after %s", mode, time.Since(start).Round(10*time.Millisecond))
}

// serves returns an error unless the Device says that the agent serves.
func serves(d *v1alpha1.Device) error {
	for i := range d.Spec.Devices {
		if !slices.ContainsFunc(d.Spec.Devices[i].Conditions, func(c metav1.Condition) bool {
			return c.Type == "Serving" && c.Status == metav1.ConditionTrue
		}) {
			return fmt.Errorf("card %d is not served: %v", i, d.Spec.Devices[i].Conditions)
		}
	}
	return nil
}

// share is one entry of a pod's allocation, read as others read it.
type share struct {
	UUID    string `json:"uuid"`
	Compute *int   `json:"compute"`
	VRAM    int    `json:"vRam"`
}

// sharesOf returns what each container of the pod was given, by the order of
// the containers.
func sharesOf(p *corev1.Pod) ([][]share, error) {
	var all [][]share
	if err := json.Unmarshal([]byte(p.Annotations[wire.AnnotationAllocated]), &all); err != nil {
		return nil, fmt.Errorf("allocation of %s: %w", p.Name, err)
	}
	if len(all) != len(p.Spec.InitContainers)+len(p.Spec.Containers) {
		return nil, fmt.Errorf("allocation of %s: %d entries", p.Name, len(all))
	}
	return all, nil
}

// isSlice reports whether a share is a slice, not a whole card.
func (s share) isSlice() bool { return s.Compute == nil || *s.Compute < 100 }

// classes are the library's numbers of the QoS classes.
var classes = map[string]int{"best-effort": 0, "fixed-share": 1, "burst-share": 2}

// hardware is what the cards say of themselves.
type hardware struct {
	machine *fake.Machine
	slices  []fake.Slice
	class   map[int]int // by card
}

func (c *cards) hardware() (*hardware, error) {
	m, list, err := fake.Read(c.config)
	if err != nil {
		return nil, err
	}
	h := &hardware{machine: m, slices: list, class: map[int]int{}}
	text, err := os.ReadFile(c.config + ".slices")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 5 && fields[0] == "card" {
			if h.class[h.card("", fields[1])], err = strconv.Atoi(fields[3]); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// card returns the index of the card with the UUID or the PCI address.
func (h *hardware) card(uuid, bdf string) int {
	return slices.IndexFunc(h.machine.Cards, func(c fake.Card) bool { return c.UUID == uuid || c.BDF == bdf })
}

// ours are the slices that the agent made.
func (h *hardware) ours() []fake.Slice {
	return slices.DeleteFunc(slices.Clone(h.slices), func(s fake.Slice) bool { return !strings.HasPrefix(s.Alias, "daybreak-") })
}

// addForeign makes a slice of the last card as someone else would, next to the
// agent.
func (c *cards) addForeign() error {
	const id, mib, compute = 9, 1024, 5
	return c.editSlices(func(text string) string {
		bdf := c.machine.Cards[len(c.machine.Cards)-1].BDF
		return text + fmt.Sprintf("slice %s %d %d %d %d 0 GPU-foreign by-hand\n", bdf, id, mib, compute, firstSlice+mostSlices)
	})
}

// removeForeign removes what addForeign made.
func (c *cards) removeForeign() error {
	return c.editSlices(func(text string) string {
		var kept strings.Builder
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "GPU-foreign") {
				kept.WriteString(line)
			}
		}
		return kept.String()
	})
}

// editSlices changes the library's state under its lock.
func (c *cards) editSlices(edit func(string) string) error {
	path := c.config + ".slices"
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(edit(string(text))), 0o600)
}
