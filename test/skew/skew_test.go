package skew

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSkew upgrades Daybreak and rolls it back, once for each order of its parts,
// with pods that run and pods that arrive. After Helm has applied the other
// version's objects, and after each part: no node is BadInventory, nothing that a
// part wrote was denied, nothing was restarted, and the audits find nothing.
func TestSkew(t *testing.T) {
	start := time.Now()
	w := newWorld(t)
	w.helm(append([]string{"install", "daybreak", previous.chart(), "--create-namespace", "--set", "image.tag=" + string(previous)}, w.values()...)...)
	for _, c := range components {
		w.rolledOut(c, previous)
	}
	w.must(w.load.settle())
	w.running.Go(w.watchdog)
	w.running.Go(w.load.come)
	w.check("installed")
	t.Logf("%d pods run after %s", residents, time.Since(start).Round(time.Second))

	for _, order := range orders(components) {
		name := strings.Join(order, ", ")
		w.helm("upgrade", "daybreak", next.chart(), "--reset-then-reuse-values", "--set", "image.tag="+string(next))
		w.replace("upgrade in the order "+name, order, next)
		w.helm("rollback", "daybreak")
		w.replace("rollback in the order "+name, order, previous)
	}
	w.mentions()
	t.Logf("%d orders after %s", len(orders(components)), time.Since(start).Round(time.Second))
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
	w.check(name + ": objects")
	for _, c := range order {
		w.parts.allow(c, v)
		w.rolledOut(c, v)
		w.check(name + ": " + c)
	}
}

// rolledOut waits until a part runs in this version alone, as its controller says
// and as it is.
func (w *world) rolledOut(component string, v version) {
	w.Helper()
	err := w.until(2*time.Minute, func() error {
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
