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
	w.must(w.load.settlers())
	w.helm(append([]string{"install", "daybreak", previous.chart(), "--create-namespace", "--set", "image.tag=" + string(previous)}, w.values()...)...)
	for _, c := range components {
		w.rolledOut(c, previous)
	}
	w.must(w.load.settle())
	// A new manager may find the settlers before the agents have reported their cards.
	for _, x := range w.parts.running() {
		w.inspect(x)
	}
	w.takeFaults()
	w.running.Go(w.watchdog)
	w.running.Go(w.load.come)
	w.check("installed")
	t.Logf("%d pods run after %s", residents, time.Since(start).Round(time.Second))

	all := orders(components)
	for _, order := range all[:min(*ordersFlag, len(all))] {
		name := strings.Join(order, ", ")
		w.helm("upgrade", "daybreak", next.chart(), "--reset-then-reuse-values", "--set", "image.tag="+string(next))
		w.replace("upgrade in the order "+name, order, next)
		w.helm("rollback", "daybreak")
		w.replace("rollback in the order "+name, order, previous)
	}
	w.mentions()
	t.Logf("all orders after %s; %d times a pod was created again, since a manager ended", time.Since(start).Round(time.Second), w.load.retried)
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
		w.fault("%v", err)
	}
	w.check(name + ": objects")
	for _, c := range order {
		w.parts.allow(c, v)
		w.rolledOut(c, v)
		if c == "agent" {
			w.restartContainers()
		}
		w.check(name + ": " + c)
	}
}

// exercise makes the parts write what they do only now and then: what they write when
// they start and end, when a card has another driver, when kubelet has forgotten what
// its node advertises, and when there is something to report. Pods make the schedulers
// write, and time the managers, whose certificates are short-lived here.
func (w *world) exercise() error {
	agents := w.parts.ready("agent")
	if len(agents) == 0 {
		return fmt.Errorf("restart an agent: %w", errNotReady)
	}
	m := w.parts.machineOf(agents[0])
	for _, x := range append(w.parts.ready("manager"), agents[0]) {
		if err := w.parts.restart(x); err != nil {
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
	if _, err := w.client.CoreV1().Nodes().Patch(w.ctx, m.Node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wire.ModesConfigMap}, Data: map[string]string{"cluster-config": "]"}}
	if _, err := w.client.CoreV1().ConfigMaps(namespace).Create(w.ctx, bad, metav1.CreateOptions{}); err != nil {
		return err
	}
	since := time.Now().Add(-time.Second) // Events have whole seconds
	err = machine.Until(w.ctx, time.Minute, func() error { return w.written(m.Node, cards.Driver, since) })
	return errors.Join(err, w.client.CoreV1().ConfigMaps(namespace).Delete(w.ctx, bad.Name, metav1.DeleteOptions{}))
}

// written returns what is missing until the parts have written what [world.exercise] is for.
func (w *world) written(name, driver string, since time.Time) error {
	node, err := w.client.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if q := node.Status.Allocatable[wire.KoordCore]; q.Value() != 100*cardCount || node.Labels[wire.LabelDriver] != driver {
		return fmt.Errorf("%s advertises %s of %s and driver %s, want %d and %s", name, q.String(), wire.KoordCore, node.Labels[wire.LabelDriver], 100*cardCount, driver)
	}
	events, err := w.client.CoreV1().Events(metav1.NamespaceDefault).List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
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
	for _, m := range w.machines {
		uid := w.load.residentOn(m.Node)
		if uid == "" {
			continue
		}
		if err := machine.Until(w.ctx, 10*time.Second, func() error { return m.Restart(uid) }); err != nil {
			w.fault("start a container of %s again: %v", m.Node, err)
		}
	}
}

// rolledOut waits until a part runs in this version alone, as its controller says
// and as it is.
func (w *world) rolledOut(component string, v version) {
	w.Helper()
	err := machine.Until(w.ctx, 2*time.Minute, func() error {
		if err := w.complete(component, v); err != nil {
			return err
		}
		for _, x := range w.parts.running() {
			if x.component == component && x.version != v {
				return fmt.Errorf("%s still runs in the %s version", x.pod.Name, x.version)
			}
		}
		return nil
	})
	if err != nil {
		w.Fatalf("roll out the %s version of the %s: %v\n%v", v, component, err, w.takeFaults())
	}
}

// complete says what is missing until a workload is rolled out, as kubectl rollout
// status does.
func (w *world) complete(component string, v version) error {
	apps, name := w.client.AppsV1(), "daybreak-"+component
	var image string
	var done bool
	var status any
	if component == "agent" {
		d, err := apps.DaemonSets(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		image, status = d.Spec.Template.Spec.Containers[0].Image, s
		done = s.ObservedGeneration == d.Generation && s.UpdatedNumberScheduled == machineCount && s.NumberAvailable == machineCount
	} else {
		d, err := apps.Deployments(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := d.Status
		image, status = d.Spec.Template.Spec.Containers[0].Image, s
		done = s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.AvailableReplicas == s.UpdatedReplicas && s.Replicas == s.UpdatedReplicas
	}
	if !done || !strings.HasSuffix(image, ":"+string(v)) {
		return fmt.Errorf("%s has image %s, status %+v", name, image, status)
	}
	return nil
}

// mentions looks through all Events for a node that could not be read.
func (w *world) mentions() {
	w.Helper()
	list, err := w.client.CoreV1().Events(metav1.NamespaceAll).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "BadInventory" || strings.Contains(e.Message, "unreadable card inventory") {
			w.Errorf("Event of %s %s/%s: %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}
