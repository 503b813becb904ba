package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/fake"
)

// TestModeSwitches: native, sgpu, native again, with pods on the node. A switch
// that would take cards from pods waits for them, and says so.
func TestModeSwitches(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.setMode("native")
	w.serving("native")
	w.create(pod("whole", "gpu=1"), pod("slice", "sgpu=1", "vcore=20", "vmemory=4"))
	whole := w.running(time.Minute, "whole")
	w.refused("slice")

	w.setMode("sgpu")
	w.serving("sgpu")
	slice := w.running(time.Minute, "slice")
	w.unharmed(c, whole)

	w.setMode("native")
	w.Eventually("the switch waits, and says for what", 30*time.Second, func() error {
		d, err := w.Device(nodeName)
		if err != nil {
			return err
		}
		text, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if d.Annotations[wire.AnnotationModePending] != "native" || d.Annotations[wire.AnnotationMode] != "sgpu" ||
			!strings.Contains(string(text), wire.ConditionModePending) || !strings.Contains(string(text), "mode native waits for 1 pod that holds cards") {
			return fmt.Errorf("the Device is %s", text)
		}
		return nil
	})
	w.unharmed(c, append(whole, slice...))
	w.slicesAre(c, 0, slice...)

	w.Must(w.Client.CoreV1().Pods("default").Delete(w.Ctx, "slice", metav1.DeleteOptions{}))
	w.serving("native")
	w.unharmed(c, whole)
	w.slicesAre(c, 0)
}

// refused waits until the scheduler has said why the pod is pending.
func (w *world) refused(name string) {
	w.Helper()
	w.Eventually("pod "+name+" is refused", time.Minute, func() error {
		p := w.Pod(name)
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				w.Logf("pod %s is pending: %s", name, condition.Message)
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// TestShared: two pods sit on one card, each allowed to work next to the other.
func TestShared(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.setMode("shared")
	w.serving("shared")
	card := &c.machine.Cards[4]
	w.create(on(pod("seat-0", "gpu=1"), card.UUID), on(pod("seat-1", "gpu=1"), card.UUID))
	pods := w.running(time.Minute, "seat-0", "seat-1")
	want := fmt.Sprintf("map[/dev/dri/card%d:226:%d /dev/dri/renderD%d:226:%d /dev/mxcd:1:3]", card.DRMCard, card.DRMCard, card.Render, card.Render)
	for _, p := range pods {
		v, err := w.look(p, "main")
		w.Must(err)
		if got := fmt.Sprint(v.nodes); got != want || v.env["MACA_MPS_MODE"] != "1" {
			t.Errorf("%s sees %s, want %s; MACA_MPS_MODE=%q", p.Name, got, want, v.env["MACA_MPS_MODE"])
		}
	}
	w.noWarnings("seat-0", "seat-1")
}

// TestVirtualFunctions: every virtual function is a card of its own.
func TestVirtualFunctions(t *testing.T) {
	w := newWorld(t)
	before := w.serve()
	before.Stop()
	c := w.newCards(fake.NewVirtualMachine(2))
	w.Must(c.Start())
	w.Cleanup(func() {
		w.deletePods()
		c.Stop()
		w.cluster.cards = w.newCards(before.machine)
		w.Must(w.cards.Start())
		w.forget(c.machine)
	})
	w.setMode("vgpu")
	w.forget(before.machine)
	w.serving("vgpu")
	w.create(pod("vf-0", "gpu=1"), pod("vf-1", "gpu=1"), pod("vf-2", "gpu=2"))
	pods := w.running(time.Minute, "vf-0", "vf-1", "vf-2")
	w.inspect(c, pods...)
	w.noWarnings("vf-0", "vf-1", "vf-2")
}

// forget makes the agent know that the cards of a machine were taken out for good.
func (w *world) forget(m *fake.Machine) {
	w.Helper()
	var list []string
	for i := range m.Cards {
		if !m.Cards[i].Physical { // which was none that pods could have
			list = append(list, m.Cards[i].UUID)
		}
	}
	w.Eventually("the agent forgets cards", 30*time.Second, func() error {
		d, err := w.Device(nodeName)
		if err != nil {
			return err
		}
		for i := range d.Spec.Devices {
			if slices.Contains(list, d.Spec.Devices[i].UUID) {
				_, err := w.TryKubectlAs("admin", "annotate", "--overwrite", "device", nodeName, wire.AnnotationForget+"="+strings.Join(list, ","))
				return errors.Join(err, fmt.Errorf("card %s is still there", d.Spec.Devices[i].UUID))
			}
		}
		return nil
	})
}
