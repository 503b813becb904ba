package koordinator

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestTakeover: Koordinator's scheduler fills half of a cluster, Daybreak takes it
// over under the same schedulerName and fills the rest, and Koordinator's scheduler
// comes back. No card is allocated twice and no pod restarts.
func TestTakeover(t *testing.T) {
	w := newWorld(t, 2)

	stop := w.koordinator("koord-before")
	w.oneByOne(several("k-slice", 8, slice)...)
	w.oneByOne(several("k-half", 3, half)...)
	w.oneByOne(cards("k-one", 1), cards("k-two", 2))
	w.check("Koordinator")
	stop()

	// Pods that came while no scheduler ran are placed too.
	w.Create(several("d-early", 2, slice)...)
	back := w.admission()
	for _, node := range w.nodes {
		w.handOver(node)
	}
	stop = w.daybreak(SchedulerName, "daybreak")
	own := several("d-own", 2, half)
	for _, p := range own {
		p.Spec.SchedulerName = "daybreak"
	}
	w.Create(own...)
	w.Create(several("d-slice", 6, slice)...)
	w.Create(cards("d-two", 2))
	w.run()
	w.check("Daybreak")
	// Eight whole cards are more than there are, until Koordinator's pods end.
	w.Create(on("vendor-1", cards("d-late", 8))...)
	w.run("d-late")
	w.check("Daybreak, full")
	var gone []string
	for _, p := range w.Pods() {
		if p.Spec.NodeName == "vendor-1" {
			gone = append(gone, p.Name)
		}
	}
	w.delete(gone...)
	w.run()
	w.check("Daybreak, after ends of Koordinator's pods")
	w.planted()
	w.Create(on("vendor-1", slice("d-waits"))...)
	w.run("d-waits")
	stop()

	// Koordinator's scheduler reads the agents' Devices and what Daybreak allocated. A
	// pod that waits carries amounts, which no node advertises: it is created again.
	back()
	stop = w.koordinator("koord-after")
	w.Create(slice("k-first"))
	w.run("d-waits")
	w.delete("d-waits")
	w.Create(slice("d-waits"))
	w.run()
	w.oneByOne(several("k-again", 4, slice)...)
	w.Create(on("vendor-1", slice("k-late"))...)
	w.run("k-late")
	w.check("Koordinator again")
	w.delete("k-late", "d-late")
	w.again(on("vendor-1", cards("k-all", 8))[0])
	w.check("Koordinator again, after the end of Daybreak's pod")
	stop()
}

// planted checks that a card that is allocated twice, a pod that moved and
// annotations that disagree are detected.
func (w *world) planted() {
	w.Helper()
	pods := w.Pods()
	running := func(p corev1.Pod) bool { return p.Spec.NodeName != "" && p.Name != "d-late" }
	victim := slices.IndexFunc(pods, running)
	whole := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == "d-late" })
	if problems := overbooked(pods); len(problems) > 0 || victim < 0 || whole < 0 {
		w.Fatalf("nothing to plant in: %v", problems)
	}
	twice := slices.Clone(pods)
	copied := *pods[whole].DeepCopy()
	copied.Name = "planted"
	if text := joined(overbooked(append(twice, copied))); !strings.Contains(text, "is allocated to 200 %") {
		w.Errorf("a planted pod on the cards of another was not detected: %s", text)
	}
	other := pods[victim].DeepCopy()
	other.Annotations[wire.AnnotationAllocated] = strings.ReplaceAll(other.Annotations[wire.AnnotationAllocated], `"vRam":`, `"vRam":1`)
	if text := joined(overbooked([]corev1.Pod{*other})); !strings.Contains(text, "disagree") {
		w.Errorf("planted amounts were not detected: %s", text)
	}
	other = pods[victim].DeepCopy()
	other.Spec.NodeName = "elsewhere"
	if changed(&pods[victim], other) == "" {
		w.Error("a planted move was not detected")
	}
}

// TestRatio: what Daybreak leaves of a card in slices by GiB is not allocated again by
// Koordinator's scheduler to a pod that asks by percent.
func TestRatio(t *testing.T) {
	w := newWorld(t, 1)
	w.guard(SchedulerName)
	stop := w.daybreak(SchedulerName)
	// Nine slices of 7 GiB are 63 of 64 GiB, but 10.9 percent each: rounded down,
	// they would leave 10 percent, 6.4 GiB.
	for _, name := range names("d", 9) {
		p := pod(name, "gpu.shared: 1, gpu-core: 5, gpu-memory: 7Gi, sgpu: 1")
		p.Annotations[wire.AnnotationUseCards] = w.card("vendor-1", 0)
		w.Create(p)
	}
	w.Create(cards("d-rest", 7))
	w.run()
	w.check("Daybreak")
	stop()
	w.koordinator("koord")
	w.Create(pod("k", "gpu.shared: 1, gpu-core: 5, gpu-memory-ratio: 8, sgpu: 1"))
	w.run("k")
	w.check("Koordinator")
}

// TestAlongside: both schedulers place pods at the same time, each on nodes of its
// own.
func TestAlongside(t *testing.T) {
	w := newWorld(t, 2)
	w.koordinator("koord")
	w.daybreak("daybreak")
	for _, name := range names("both", 20) {
		ours, theirs := slice("d-"+name), slice("k-"+name)
		ours.Spec.SchedulerName = "daybreak"
		w.Create(on("vendor-1", ours)...)
		w.oneByOne(on("vendor-2", theirs)...)
	}
	w.check("both")
}
