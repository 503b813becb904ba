package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// TestStaleDevice: the path of a card on the host leads to another device, and so
// do the paths of all slices. No container starts, and an event says why.
func TestStaleDevice(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	card := &c.machine.Cards[3]
	stale := map[string][2]int{fmt.Sprintf("/dev/dri/card%d", card.DRMCard): {majorDRM, card.DRMCard}}
	for minor := firstSlice; minor < firstSlice+mostSlices; minor++ {
		stale[fmt.Sprintf("/dev/sgpu%d", minor)] = [2]int{majorSlice, minor}
	}
	for path, number := range stale {
		_ = os.Remove(path)
		w.Must(mknod(path, number[0], number[1]+1))
	}
	w.Cleanup(func() {
		for path, number := range stale {
			w.Must(os.Remove(path))
			if number[0] == majorDRM || number[1]%2 == 0 { // as makeCards has them
				w.Must(mknod(path, number[0], number[1]))
			}
		}
	})
	w.create(on(pod("stale-whole", "gpu=1"), card.UUID), on(pod("stale-slice", "sgpu=1", "vcore=20", "vmemory=4"), c.machine.Cards[2].UUID))
	for _, name := range []string{"stale-whole", "stale-slice"} {
		w.Eventually("an event says why "+name+" does not start", time.Minute, func() error {
			if !slices.ContainsFunc(w.warnings(), func(text string) bool {
				return strings.HasPrefix(text, name+": CardsNotReady: ") && strings.Contains(text, "the driver has")
			}) {
				return fmt.Errorf("events %q", w.warnings())
			}
			return nil
		})
		p := w.Pod(name)
		if s := p.Status.ContainerStatuses; p.Status.Phase != corev1.PodPending || len(s) != 1 || s[0].ContainerID != "" {
			t.Errorf("pod %s: %s %+v", name, p.Status.Phase, s)
		}
	}
}

// TestFullDisk: the folder of the journal is full. New pods wait, none fails, and
// they start when there is room again.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	c.Stop()
	w.Must(syscall.Mount("tmpfs", w.stateDir(), "tmpfs", 0, "size=256k"))
	w.Cleanup(func() {
		w.deletePods()
		w.slicesAre(c, 0)
		c.Stop()
		w.Must(syscall.Unmount(w.stateDir(), 0))
	})
	w.Must(c.Start())
	w.serving("sgpu")
	filler := filepath.Join(w.stateDir(), "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	w.saysNotServing("DiskNotWritable", "no space left on device")
	w.create(pod("waits", "sgpu=1", "vcore=20", "vmemory=4"))
	w.waits("waits")
	w.Must(os.Remove(filler))
	start := time.Now()
	pods := w.running(time.Minute, "waits")
	t.Logf("the pod runs %s after there was room", time.Since(start).Round(10*time.Millisecond))
	w.inspect(c, pods...)
}

// TestSecondAgent: another agent of the node waits, reports that in /readyz,
// registers nothing and leaves the Device to the first.
func TestSecondAgent(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	const health, metrics = "127.0.0.1:9471", "127.0.0.1:9470"
	second := w.agentOf(c, "--health-probe-bind-address="+health, "--metrics-bind-address="+metrics)
	before, version := w.registrations(), w.deviceVersion()
	w.Must(second.Start())
	w.Cleanup(second.Stop)
	w.Eventually("the second agent reports that it waits", time.Minute, func() error {
		if text, err := machine.Get(w.Ctx, "http://"+health+"/readyz"); !strings.Contains(text, "another agent works with it") {
			return fmt.Errorf("/readyz: %s, %w", text, err)
		}
		return nil
	})
	w.create(pod("beside", "sgpu=1", "vcore=20", "vmemory=4"))
	w.inspect(c, w.running(time.Minute, "beside")...)
	w.noWarnings("beside")
	text, err := machine.Get(w.Ctx, "http://"+metrics+"/metrics")
	w.Must(err)
	if n := w.registrations(); n != before || strings.Contains(text, "registrations_total{resource=\"metax-tech.com/sgpu\"} 1") {
		t.Errorf("the second agent registered, or the first did again: %d registrations, %d before", n, before)
	}
	if now := w.deviceVersion(); now != version {
		t.Errorf("the Device was written: version %s, %s before", now, version)
	}
}

// deviceVersion is the version of the Device.
func (w *world) deviceVersion() string {
	w.Helper()
	d, err := w.Device(nodeName)
	w.Must(err)
	return d.ResourceVersion
}
