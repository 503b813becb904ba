package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// operatorNode is a machine in a cluster with the vendor's operator. The operator is
// a ConfigMap, and the pod and the device plugin of its DaemonSet metax-gpu-device.
type operatorNode struct {
	*world
	*machine.Machine
	name   string
	plugin machine.VendorPlugin
	pods   map[string]types.UID // that run, and must go on running
	// stop ends the vendor's plugin; nil while it does not run.
	stop func()
}

// newOperatorNode starts the machine with its agent, and the vendor's plugin first.
func newOperatorNode(w *world, name string) *operatorNode {
	w.Helper()
	dir, err := os.MkdirTemp("", "m") // sockets need a short path
	w.Must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Ctx))
	m, err := machine.New(ctx, machine.Config{
		Node: name, Dir: dir, Number: 1, Cards: 8, Labels: map[string]string{"metax-tech.com/gpu.installed": "true"},
		Foreign: func(pod *corev1.Pod) bool { return pod.Namespace == wire.VendorNamespace },
	}, w.Client)
	w.Must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Run()
	}()
	n := &operatorNode{world: w, Machine: m, name: name, pods: map[string]types.UID{}}
	w.Cleanup(func() {
		if n.stop != nil {
			n.stop()
		}
		cancel()
		<-done
		m.Stop()
		_ = os.RemoveAll(dir)
	})
	described, _, err := fake.Read(m.Driver())
	w.Must(err)
	for i := range described.Cards {
		n.plugin.Cards = append(n.plugin.Cards, described.Cards[i].UUID)
	}
	slices.Reverse(n.plugin.Cards) // so that kubelet picks others than Daybreak
	n.startPlugin()
	agent := w.NewAgent(name, append(m.AgentArgs(fake.Library(w.TB, fake.V231), "0"), "--serve=on", "--poll=500ms", "--drain=0s")...)
	agent.Env = []string{fake.EnvConfig + "=" + m.Driver()}
	w.Run(agent)
	return n
}

// modesOfOperator writes the ConfigMap as the chart of operator 0.14.2 does; mode is
// that of the node, empty for the cluster's.
func (n *operatorNode) modesOfOperator(mode string) {
	n.Helper()
	nodes := "- nodeName: \"sample-node1\"\n  mode: \"sgpu\"\n- nodeName: \"sample-node2\"\n  mode: \"native\"\n"
	if mode != "" {
		nodes += fmt.Sprintf("- nodeName: %q\n  mode: %q\n", n.name, mode)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wire.ModesConfigMap}, Data: map[string]string{
		"version": "v1", "cluster-config": "mode: \"native\"\n", "nodes-config": nodes,
	}}
	maps := n.Client.CoreV1().ConfigMaps(wire.VendorNamespace)
	if _, err := maps.Update(n.Ctx, m, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(n.Ctx, m, metav1.CreateOptions{})
		n.Must(err)
	}
}

// startPlugin starts the vendor's device plugin in mode native, and its pod.
func (n *operatorNode) startPlugin() {
	n.Helper()
	n.Must(n.plugin.Start(n.Ctx, filepath.Join(n.Dir, "p")))
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metax-gpu-device-", Namespace: wire.VendorNamespace},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "gpu-device-plugin", Image: "none"}}},
	}
	pods := n.Client.CoreV1().Pods(wire.VendorNamespace)
	p, err := pods.Create(n.Ctx, p, metav1.CreateOptions{})
	n.Must(err)
	n.stop = func() {
		n.plugin.Stop()
		_ = pods.Delete(context.WithoutCancel(n.Ctx), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		n.stop = nil
	}
}

// runs waits until the pods run, on the node.
func (n *operatorNode) runs(names ...string) {
	n.Helper()
	n.running(2*time.Minute, names...)
	for _, name := range names {
		n.pods[name] = n.Bound(name).UID
	}
}

// ends deletes the pods.
func (n *operatorNode) ends(names ...string) {
	n.Helper()
	n.Delete(names...)
	for _, name := range names {
		delete(n.pods, name)
	}
}

// untouched checks that all pods run on, that none was rejected, and that no card has
// two holders.
func (n *operatorNode) untouched() {
	n.Helper()
	for name, uid := range n.pods {
		pod := n.Pod(name)
		if pod.UID != uid || pod.Status.Phase != corev1.PodRunning || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			n.Errorf("pod %s: UID %s, was %s; %s, %d restarts", name, pod.UID, uid, pod.Status.Phase, pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
	if rejected := n.Rejections(); rejected > 0 {
		n.Errorf("kubelet rejected %d pods", rejected)
	}
	n.Audit()
}

// vendorHas returns the cards that kubelet gave from the vendor's plugin.
func (n *operatorNode) vendorHas() []string {
	n.Helper()
	list, err := n.List(n.Ctx, nil)
	n.Must(err)
	var cards []string
	for _, pod := range list.GetPodResources() {
		for _, c := range pod.GetContainers() {
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					if slices.Contains(n.plugin.Cards, id) {
						cards = append(cards, id)
					}
				}
			}
		}
	}
	slices.Sort(cards)
	return cards
}

// mode waits until the Device has the mode and, if another one waits, that.
func (n *operatorNode) mode(mode, pending string) {
	n.Helper()
	n.deviceSays(n.name, "mode "+mode+" "+pending, func(d *v1alpha1.Device) bool {
		return d.Annotations[wire.AnnotationMode] == mode && d.Annotations[wire.AnnotationModePending] == pending
	})
}

// TestVendorOperator: a node of the vendor's operator is scheduled by Daybreak, handed
// to Daybreak's agent, and given back, while a pod of the vendor's plugin runs on.
func TestVendorOperator(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	w.Namespace(wire.VendorNamespace, nil)
	w.modes(map[string]string{"cluster-config": "mode: sgpu"}) // Daybreak's own
	n := newOperatorNode(w, "gpu-1")
	n.event("Node", n.name, "NodeNotServed", "Daybreak's agent only observes this node")
	n.mode("sgpu", "") // Daybreak's own is all that there is
	n.modesOfOperator("")
	n.mode("native", "")
	n.event("Node", n.name, "ModesIgnored", "daybreak-system/metax-device-config asks for mode sgpu and is not used")

	// The operator's plugin serves the node, and Daybreak only schedules.
	w.Scheduler("scheduler")
	w.Create(pod("whole", "gpu=2"))
	n.runs("whole")
	whole := n.vendorHas()
	if len(whole) != 2 {
		t.Fatalf("kubelet gave %v", whole)
	}
	n.modesOfOperator("sgpu")
	n.mode("native", "sgpu")
	n.event("Node", n.name, "ModePending", "mode sgpu waits for 1 pod that holds cards")
	n.modesOfOperator("")
	n.mode("native", "")
	n.untouched()

	// The operator's component is switched off on the node, and Daybreak's agent serves it.
	w.Kubectl("annotate", "node", n.name, wire.AnnotationServedBy+"="+wire.ServedByVendor)
	n.stop()
	w.Kubectl("annotate", "node", n.name, wire.AnnotationServedBy+"-")
	n.ServedBy(n.name, wire.ServedByDaybreak)
	n.mode("sgpu", "")
	w.Create(pod("slice", "sgpu=1", "vcore=20", "vmemory=8"), pod("five", "gpu=5"))
	n.runs("slice", "five")
	for _, name := range []string{"slice", "five"} {
		text := w.Bound(name).Annotations[wire.AnnotationAllocated]
		for _, card := range whole {
			if strings.Contains(text, card) {
				t.Errorf("pod %s was given %s, a card of the vendor's plugin: %s", name, card, text)
			}
		}
	}
	w.Create(pod("more", "gpu=1"))
	w.refused("more")
	n.untouched()

	// Back: what Daybreak's agent served has to end first, since the plugin does not know it.
	w.Kubectl("annotate", "--overwrite", "node", n.name, wire.AnnotationServedBy+"="+wire.ServedByVendor)
	n.ends("more", "slice", "five")
	n.Eventually("kubelet has no cards, and the cards no slices", time.Minute, func() error {
		_, left, err := fake.Read(n.Driver())
		if q := w.Node(n.name).Status.Allocatable[wire.ResourceGPU]; err != nil || q.Value() != 0 || len(left) > 0 {
			return fmt.Errorf("kubelet has %d cards, the cards have slices %v, %w", q.Value(), left, err)
		}
		return nil
	})
	n.startPlugin()
	n.mode("native", "")
	w.Create(pod("six", "gpu=6"))
	n.runs("six")
	if cards := n.vendorHas(); len(slices.Compact(cards)) != 8 {
		t.Errorf("kubelet gave %v", cards)
	}
	n.untouched()
}
