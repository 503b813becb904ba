package skew

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/deployed"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

var ordersFlag = flag.Int("skew.orders", 6, "how many of the orders of the parts are gone through")

// TestSkew upgrades Daybreak and rolls it back, once for each order of its parts,
// with pods that run and pods that arrive. After Helm has applied the other
// version's objects, and after each part: no node is BadInventory, nothing that a
// part wrote was denied, nothing was restarted, and the audits find nothing.
func TestSkew(t *testing.T) {
	start := time.Now()
	w := newWorld(t)
	w.Must(w.load.settlers())
	w.Helm(append([]string{"install", "daybreak", previous.chart(), "--create-namespace", "--set", "image.tag=" + string(previous)}, w.values()...)...)
	for _, c := range deployed.Components {
		w.RolledOut(c, string(previous))
	}
	w.Must(w.enforceQuota()) // which rejects pods that no manager has answered for
	w.Must(w.load.settle())
	// A new manager may find the settlers before the agents have reported their cards.
	for _, x := range w.Parts.WithProcess() {
		w.Inspect(x)
	}
	w.TakeFaults()
	w.Running.Go(w.watchdog)
	w.Running.Go(w.load.come)
	w.check("installed")
	t.Logf("%d pods run after %s", residents, time.Since(start).Round(time.Second))

	all := orders(deployed.Components)
	for _, order := range all[:min(*ordersFlag, len(all))] {
		name := strings.Join(order, ", ")
		w.Helm("upgrade", "daybreak", next.chart(), "--reset-then-reuse-values", "--set", "image.tag="+string(next))
		w.replace("upgrade in the order "+name, order, next)
		w.Helm("rollback", "daybreak")
		w.replace("rollback in the order "+name, order, previous)
	}
	w.mentions()
	t.Logf("all orders after %s; %d pods were created, none was rejected; %d requests were repeated, since a manager ended",
		time.Since(start).Round(time.Second), residents+settlers+w.load.count, w.load.retried)
}

// orders returns the list in every order.
func orders(list []string) [][]string {
	if len(list) == 0 {
		return [][]string{nil}
	}
	var all [][]string
	for i, first := range list {
		rest := append(append([]string{}, list[:i]...), list[i+1:]...)
		for _, order := range orders(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

// replace checks that the other version's parts go on with what Helm has applied,
// and replaces them one by one.
func (w *world) replace(name string, order []string, v version) {
	w.Helper()
	if err := w.exercise(); err != nil {
		w.Fault("%v", err)
	}
	w.check(name + ": objects")
	for _, c := range order {
		w.Parts.Allow(c, string(v))
		w.RolledOut(c, string(v))
		if c == "agent" {
			w.restartContainers()
		}
		w.check(name + ": " + c)
	}
}

// enforceQuota sets the label by which quotas must hold.
func (w *world) enforceQuota() error {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, wire.LabelQuota, wire.QuotaEnforced)
	_, err := w.Client.CoreV1().Namespaces().Patch(w.Ctx, metav1.NamespaceDefault, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// exercise makes the parts write what they do only now and then: what they write when
// they start and end, when a card has another driver, when kubelet has forgotten what
// its node advertises, and when there is something to report. Pods make the schedulers
// write, and time the managers, whose certificates are short-lived here.
func (w *world) exercise() error {
	agents := w.Parts.Ready("agent")
	if len(agents) == 0 {
		return fmt.Errorf("restart an agent: %w", deployed.ErrNotReady)
	}
	m := w.MachineOf(agents[0].Pod.Spec.NodeName)
	for _, x := range append(w.Parts.Ready("manager"), agents[0]) {
		if err := w.Parts.Restart(x); err != nil {
			return err
		}
	}
	cards, _, err := fake.Read(m.Driver())
	if err != nil {
		return err
	}
	cards.Driver += "1"
	if err := cards.Write(m.Driver()); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status":{"capacity":{%q:null},"allocatable":{%[1]q:null}}}`, wire.KoordCore)
	if _, err := w.Client.CoreV1().Nodes().Patch(w.Ctx, m.Node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wire.ModesConfigMap}, Data: map[string]string{"cluster-config": "]"}}
	if _, err := w.Client.CoreV1().ConfigMaps(deployed.Namespace).Create(w.Ctx, bad, metav1.CreateOptions{}); err != nil {
		return err
	}
	since := time.Now().Add(-time.Second) // Events have whole seconds
	err = machine.Until(w.Ctx, time.Minute, func() error { return w.written(m.Node, cards.Driver, since) })
	return errors.Join(err, w.Client.CoreV1().ConfigMaps(deployed.Namespace).Delete(w.Ctx, bad.Name, metav1.DeleteOptions{}))
}

// written returns what is missing until the parts have written what [world.exercise] is for.
func (w *world) written(name, driver string, since time.Time) error {
	node, err := w.Client.CoreV1().Nodes().Get(w.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if q := node.Status.Allocatable[wire.KoordCore]; q.Value() != 100*cardCount || node.Labels[wire.LabelDriver] != driver {
		return fmt.Errorf("%s advertises %s of %s and driver %s, want %d and %s", name, q.String(), wire.KoordCore, node.Labels[wire.LabelDriver], 100*cardCount, driver)
	}
	events, err := w.Client.CoreV1().Events(metav1.NamespaceDefault).List(w.Ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err
	}
	for i := range events.Items {
		if e := &events.Items[i]; e.LastTimestamp.After(since) && strings.Contains(e.Message, wire.ModesConfigMap) {
			return nil
		}
	}
	return fmt.Errorf("%s: no Event is about the ConfigMap of modes, which can't be read", name)
}

// restartContainers has kubelet start a pod's containers again on each machine, which
// the other version's agent has prepared.
func (w *world) restartContainers() {
	for _, m := range w.Machines {
		uid := w.load.residentOn(m.Node)
		if uid == "" {
			continue
		}
		if err := machine.Until(w.Ctx, 10*time.Second, func() error { return m.Restart(uid) }); err != nil {
			w.Fault("start a container of %s again: %v", m.Node, err)
		}
	}
}

// mentions looks through all Events for a node that could not be read.
func (w *world) mentions() {
	w.Helper()
	list, err := w.Client.CoreV1().Events(metav1.NamespaceAll).List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "BadInventory" || strings.Contains(e.Message, "unreadable card inventory") {
			w.Errorf("Event of %s %s/%s: %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}
