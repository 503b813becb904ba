package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// agentNode is a node with a process of bin/daybreak as its agent.
type agentNode struct {
	*world
	*local.Process
	name string
}

// adopt creates a node with the resources of a C500 server and no Device.
func (w *world) adopt(name string, cards int) {
	w.Helper()
	profile := &discover.Profile{Model: "C500", MemoryMiB: 65536, Mode: "sgpu", Driver: "3.8.30", Cards: cards}
	topology, err := profile.Topology(name)
	w.Must(err)
	w.Must(w.Simulator.AdoptNode(w.Ctx, local.NodeOf(profile, name, topology)))
}

// agent starts an agent for the node, under the rights that an agent has.
func (w *world) agent(node string, env []string, args ...string) *agentNode {
	w.Helper()
	// There is no kubelet here to be served.
	process := w.NewAgent(node, append([]string{"--serve=off", "--poll=500ms"}, args...)...)
	a := &agentNode{world: w, Process: process, name: node}
	a.Env = env
	w.Run(process)
	return a
}

// device returns the node's Device, nil if there is none.
func (w *world) device(node string) *v1alpha1.Device {
	w.Helper()
	d, err := w.Device(node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.Must(err)
	return d
}

// advertises waits until the node has as many cards to give as it should, and
// logs how long that took.
func (w *world) advertises(node string, cards int64) {
	w.Helper()
	start := time.Now()
	w.Eventually(fmt.Sprintf("%d cards on %s", cards, node), 30*time.Second, func() error {
		n := w.Node(node)
		for what, list := range map[string]corev1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
			if q := list[wire.KoordCore]; q.Value() != 100*cards {
				return fmt.Errorf("%s of %s is %s", what, wire.KoordCore, q.String())
			}
		}
		return nil
	})
	w.Logf("%d cards advertised after %s", cards, time.Since(start).Round(10*time.Millisecond))
}

// deviceSays waits until the Device is as wanted and logs how long that took.
func (w *world) deviceSays(node, what string, check func(*v1alpha1.Device) bool) *v1alpha1.Device {
	w.Helper()
	start := time.Now()
	var d *v1alpha1.Device
	w.Eventually(what, 30*time.Second, func() error {
		if d = w.device(node); d == nil || !check(d) {
			text, _ := yaml.Marshal(d)
			return fmt.Errorf("the Device is\n%s", text)
		}
		return nil
	})
	w.Logf("%s after %s", what, time.Since(start).Round(10*time.Millisecond))
	return d
}

// reasonOf returns why a card is or is not healthy.
func reasonOf(d *v1alpha1.Device, card int) string {
	if card >= len(d.Spec.Devices) {
		return ""
	}
	for _, c := range d.Spec.Devices[card].Conditions {
		if c.Type == wire.ConditionHealthy {
			return c.Reason
		}
	}
	return ""
}

func healthyCards(d *v1alpha1.Device) int {
	n := 0
	for i := range d.Spec.Devices {
		if d.Spec.Devices[i].Health {
			n++
		}
	}
	return n
}

// event waits for an event with the reason and a part of the message.
func (w *world) event(kind, name, reason, part string) {
	w.Helper()
	w.Eventually(fmt.Sprintf("event %s on %s %s", reason, kind, name), 20*time.Second, func() error {
		list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		w.Must(err)
		var others []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Kind == kind && e.Reason == reason && strings.Contains(e.Message, part) {
				return nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("there are %q", others)
	})
}

// profileFile writes a profile for one agent.
func profileFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	writeFile(t, path, text)
	return path
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	gputest.Must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	gputest.Must(t, os.Rename(path+".new", path))
}

const oneCard = "model: C500\nmemoryMiB: 65536\ncards: 1\nnuma: [[], [], [], [0]]\n"

// The two listings of Koordinator's documentation for MetaX, as they are there
// but for the name of the node. Values that depend on the machine are marked
// "*"; a list in a Device has no more entries than here.
const (
	listedDevice = `
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata:
  labels:
    node.koordinator.sh/gpu-model: C500
    node.koordinator.sh/gpu-vendor: metax
  name: sample-node1
spec:
  devices:
    - health: true
      id: "*"
      minor: 0
      resources:
        koordinator.sh/gpu-core: "100"
        koordinator.sh/gpu-memory: "64Gi"
        koordinator.sh/gpu-memory-ratio: "100"
      topology:
        busID: "*"
        nodeID: 3
        pcieID: "*"
        socketID: -1
      type: gpu
      conditions:
        - lastTransitionTime: "*"
          message: device is healthy
          reason: DeviceHealthy
          status: "True"
          type: Healthy
status: {}
`
	listedNode = `
apiVersion: v1
kind: Node
metadata:
  name: sample-node1
status:
  allocatable:
    koordinator.sh/gpu.shared: "100"
    koordinator.sh/gpu-core: "100"
    koordinator.sh/gpu-memory: 64Gi
    koordinator.sh/gpu-memory-ratio: "100"
    metax-tech.com/sgpu: "16"
  capacity:
    koordinator.sh/gpu.shared: "100"
    koordinator.sh/gpu-core: "100"
    koordinator.sh/gpu-memory: 64Gi
    koordinator.sh/gpu-memory-ratio: "100"
    metax-tech.com/sgpu: "16"
`
)

// matchListing compares what kubectl prints with a listing, field by field.
func matchListing(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %v, want an object", path, got)}
		}
		var problems []string
		for key, value := range want {
			field, ok := object[key]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s.%s is missing", path, key))
				continue
			}
			problems = append(problems, matchListing(path+"."+key, value, field)...)
		}
		return problems
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return []string{fmt.Sprintf("%s is %v, want %d entries", path, got, len(want))}
		}
		var problems []string
		for i := range want {
			problems = append(problems, matchListing(fmt.Sprintf("%s[%d]", path, i), want[i], list[i])...)
		}
		return problems
	case string:
		if want == "*" && got != "" && got != nil {
			return nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	}
	return nil
}

// listing runs kubectl get … -o yaml and compares the result.
func (w *world) listing(want string, args ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.Ctx, bin("kubectl"), append([]string{"--kubeconfig", w.Kubeconfig("admin"), "get", "-o", "yaml"}, args...)...)
	out, err := cmd.Output()
	w.Must(err)
	var wanted, got any
	w.Must(yaml.Unmarshal([]byte(want), &wanted))
	w.Must(yaml.Unmarshal(out, &got))
	problems := matchListing("", wanted, got)
	slices.Sort(problems)
	for _, p := range problems {
		w.Error(p)
	}
}

// TestAgent runs agents on one control plane, each with a node of its own.
func TestAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.Scheduler("scheduler")
	for name, test := range map[string]func(*world){
		"what kubectl shows is what is documented": (*world).agentListing,
		"a bad document changes nothing":           (*world).agentBadDocuments,
		"a mode waits for pods":                    (*world).agentModes,
		"the vendor's plugin comes and goes":       (*world).agentVendor,
		"the Device is put right":                  (*world).agentPutRight,
		"killed and started again":                 (*world).agentKilled,
	} {
		t.Run(name, func(t *testing.T) {
			inner := world{w.Part(t)}
			test(&inner)
		})
	}
	w.Audit()
}

func (w *world) agentListing() {
	w.adopt("sample-node1", 1)
	w.agent("sample-node1", nil, "--source=simulated", "--profile="+profileFile(w.TB, oneCard))
	d := w.deviceSays("sample-node1", "a Device", func(d *v1alpha1.Device) bool { return len(d.Spec.Devices) == 1 })
	w.advertises("sample-node1", 1)
	w.listing(listedDevice, "device", "sample-node1")
	w.listing(listedNode, "node", "sample-node1")
	node := w.Node("sample-node1")
	if owners := d.OwnerReferences; len(owners) != 1 || owners[0].UID != node.UID || owners[0].Kind != "Node" {
		w.Errorf("owners %v", owners)
	}
	for key, want := range map[string]string{wire.LabelDriver: "3.8.30"} {
		gputest.Equal(w, "label "+key, want, d.Labels[key])
	}
}

func (w *world) agentBadDocuments() {
	const node = "bad-documents"
	w.adopt(node, 2)
	profile := profileFile(w.TB, "model: C500\nmemoryMiB: 65536\ncards: 2\n")
	w.agent(node, nil, "--source=simulated", "--profile="+profile, "--poll=500ms")
	first := w.deviceSays(node, "a Device", func(d *v1alpha1.Device) bool { return healthyCards(d) == 2 })
	for _, bad := range []struct{ text, want string }{
		{"model: C500\nmemoryMiB: 65536\ncards: 300\n", "cards is 300: write 1 to 64"},
		{"model: C500\nmemoryMiB: 0\ncards: 2\n", "memory"},
		{"model: C500\nmemoryMiB: 65536\ncards: two\n", "profile"},
		{"{", "profile"},
	} {
		writeFile(w.TB, profile, bad.text)
		w.event("Node", node, "LookFailed", bad.want)
	}
	if d := w.device(node); d == nil || d.ResourceVersion != first.ResourceVersion {
		w.Errorf("bad profiles changed the Device: %+v", d)
	}
	writeFile(w.TB, profile, "model: C500\nmemoryMiB: 65536\ncards: 2\nunhealthy: [1]\n")
	w.event("Node", node, "LookRecovered", "")
	w.deviceSays(node, "what a good profile says", func(d *v1alpha1.Device) bool { return healthyCards(d) == 1 })
}

// modes writes the ConfigMap of the modes.
func (w *world) modes(data map[string]string) {
	w.Helper()
	_, err := w.Client.CoreV1().Namespaces().Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: local.AgentNamespace}}, metav1.CreateOptions{})
	if err == nil {
		w.Logf("created the namespace %s", local.AgentNamespace)
	}
	maps := w.Client.CoreV1().ConfigMaps(local.AgentNamespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wire.ModesConfigMap}, Data: data}
	if _, err := maps.Update(w.Ctx, m, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(w.Ctx, m, metav1.CreateOptions{})
		w.Must(err)
	}
}

func (w *world) agentModes() {
	const node = "modes"
	w.adopt(node, 2)
	w.agent(node, nil, "--source=simulated", "--profile="+profileFile(w.TB, "model: C500\nmemoryMiB: 65536\ncards: 2\n"))
	mode := func(d *v1alpha1.Device) string {
		return d.Annotations[wire.AnnotationMode] + " " + d.Annotations[wire.AnnotationModePending]
	}
	w.deviceSays(node, "mode sgpu", func(d *v1alpha1.Device) bool { return mode(d) == "sgpu " })
	p := pod("holds-a-slice", "sgpu=1", "vcore=10", "vmemory=4")
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	w.Create(p)
	w.Bound(p.Name)

	w.modes(map[string]string{"version": "v1", "cluster-config": "mode: sgpu", "nodes-config": "- nodeName: modes\n  mode: nativ\n"})
	w.event("Node", node, "BadModes", `node modes: mode "nativ": write native, sgpu, shared or vgpu`)
	w.modes(map[string]string{"version": "v1", "cluster-config": "mode: sgpu", "nodes-config": "- nodeName: modes\n  mode: native\n"})
	w.event("Node", node, "ModePending", "mode native waits for 1 pod that holds cards")
	d := w.deviceSays(node, "mode native pending", func(d *v1alpha1.Device) bool { return mode(d) == "sgpu native" })
	if c := d.Spec.Devices[0].Conditions; len(c) != 2 || c[1].Type != wire.ConditionModePending || c[1].Reason != "PodsHoldCards" {
		w.Errorf("conditions %+v", c)
	}
	w.Delete(p.Name)
	w.deviceSays(node, "mode native", func(d *v1alpha1.Device) bool { return mode(d) == "native " })
	w.event("Node", node, "ModeChanged", "the node's mode is native, it was sgpu")
	w.Must(w.Client.CoreV1().ConfigMaps(local.AgentNamespace).Delete(w.Ctx, wire.ModesConfigMap, metav1.DeleteOptions{}))
	w.deviceSays(node, "mode sgpu again", func(d *v1alpha1.Device) bool { return mode(d) == "sgpu " })
}

func (w *world) agentVendor() {
	const node = "vendor"
	w.adopt(node, 2)
	w.agent(node, nil, "--source=simulated", "--profile="+profileFile(w.TB, "model: C500\nmemoryMiB: 65536\ncards: 2\n"))
	annotation := func() string {
		n := w.Node(node)
		return n.Annotations[wire.AnnotationNodeCards]
	}
	available := func(want int64) {
		w.Helper()
		w.Eventually("the annotation", 30*time.Second, func() error {
			cards, err := inventory.DecodeNodeCards(annotation())
			if err != nil {
				return err
			}
			if len(cards) != 2 {
				return errors.New("no two cards")
			}
			if sum := *cards[0].AvailableVRam + *cards[1].AvailableVRam; sum != want {
				return fmt.Errorf("%d MiB available, want %d", sum, want)
			}
			return nil
		})
	}
	available(2 * 65536)
	p := pod("seen-in-the-annotation", "sgpu=1", "vcore=10", "vmemory=4")
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	w.Create(p)
	w.Bound(p.Name)
	available(2*65536 - 4096)

	const theirs = `[{"uuid":"GPU-theirs"}]`
	w.KubectlAs("simulator", "annotate", "--overwrite", "node", node, wire.AnnotationNodeCards+"="+theirs)
	w.event("Node", node, "AnnotationsNotOurs", wire.AnnotationNodeCards)
	w.Delete(p.Name)
	time.Sleep(12 * time.Second) // longer than the time between two writes
	gputest.Equal(w, "the vendor's annotation is now", theirs, annotation())
	w.KubectlAs("simulator", "annotate", "node", node, wire.AnnotationNodeCards+"-")
	available(2 * 65536)
}

func (w *world) agentPutRight() {
	const node = "put-right"
	w.adopt(node, 2)
	w.agent(node, nil, "--source=simulated", "--profile="+profileFile(w.TB, "model: C500\nmemoryMiB: 65536\ncards: 2\n"))
	well := func(d *v1alpha1.Device) bool { return healthyCards(d) == 2 && d.Labels[wire.LabelVendor] == "metax" }
	first := w.deviceSays(node, "a Device", well)
	w.KubectlAs("simulator", "patch", "device", node, "--type=json", "-p", `[{"op":"replace","path":"/spec/devices/0/health","value":false},{"op":"remove","path":"/spec/devices/1"}]`)
	w.deviceSays(node, "an edited Device put right", func(d *v1alpha1.Device) bool { return well(d) && d.ResourceVersion != first.ResourceVersion })
	w.KubectlAs("simulator", "label", "device", node, wire.LabelVendor+"-", "mine=yes")
	w.deviceSays(node, "a label put back", func(d *v1alpha1.Device) bool { return well(d) && d.Labels["mine"] == "yes" })
	w.KubectlAs("simulator", "delete", "device", node)
	w.deviceSays(node, "a deleted Device put back", func(d *v1alpha1.Device) bool { return well(d) && d.UID != first.UID })
}

func (w *world) agentKilled() {
	const node = "killed"
	w.adopt(node, 4)
	profile := profileFile(w.TB, "model: C500\nmemoryMiB: 65536\ncards: 4\nzones: [[0, 1, 2, 3]]\n")
	a := w.agent(node, nil, "--source=simulated", "--profile="+profile)
	w.deviceSays(node, "four cards", func(d *v1alpha1.Device) bool { return healthyCards(d) == 4 })
	writeFile(w.TB, profile, "model: C500\nmemoryMiB: 65536\ncards: 4\nzones: [[0, 1, 2, 3]]\nlost: [2]\n")
	before := w.deviceSays(node, "a card lost", func(d *v1alpha1.Device) bool { return reasonOf(d, 2) == "CardLost" })
	a.Kill()
	w.Must(a.Start())
	time.Sleep(3 * time.Second) // several polls
	after := w.device(node)
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || before.ResourceVersion != after.ResourceVersion {
		w.Errorf("a restart of the agent changed the Device from version %s to %s:\n%s", before.ResourceVersion, after.ResourceVersion, diff)
	}
	id := before.Spec.Devices[2].UUID
	w.Kubectl("annotate", "device", node, wire.AnnotationForget+"="+id)
	d := w.deviceSays(node, "the lost card forgotten", func(d *v1alpha1.Device) bool { return len(d.Spec.Devices) == 3 })
	w.event("Node", node, "CardForgotten", id)
	if _, ok := d.Annotations[wire.AnnotationForget]; ok {
		w.Eventually("the note taken off", 10*time.Second, func() error {
			if _, ok := w.device(node).Annotations[wire.AnnotationForget]; ok {
				return errors.New("still there")
			}
			return nil
		})
	}
}
