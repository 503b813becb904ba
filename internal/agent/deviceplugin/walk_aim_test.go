package deviceplugin

import (
	"time"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// aim walks straight to where mistakes would show that were made before; chance
// may not lead there. Each way begins and ends with an empty node.
func (w *walk) aim() {
	for _, way := range []struct {
		to   string
		walk func()
	}{
		{"a device node that is another slice's", w.toStaleNode},
		{"slices on two cards with one number", w.toSameMinor},
		{"a slice with more memory than ordered", w.toMoreMemory},
		{"a start before the pods are known", w.toBlindStart},
		{"a restart of a container whose card the vendor's plugin gave away", w.toRestart},
		{"a name that was another pod's", w.toForeignName},
		{"a token of a pod that had two", w.toSplitTokens},
		{"a restart of the vendor's plugin", w.toVendorRestart},
		{"a restart of what the vendor's plugin should not have given", w.toDoubleGift},
		{"what the vendor's plugin served, after a takeover", w.toVendorServed},
	} {
		w.say("on the way to %s", way.to)
		w.settle()
		way.walk()
		w.check()
		w.clear()
	}
}

// settle waits until the agent serves an empty node and sees all.
func (w *walk) settle() {
	w.see()
	w.driver.setLie(nil)
	for range 60 {
		w.mu.Lock()
		ready := w.registered
		w.mu.Unlock()
		w.server.mu.Lock()
		ready = ready && w.server.status.GivenKnown
		w.server.mu.Unlock()
		if ready {
			return
		}
		time.Sleep(watchInterval)
	}
	w.violated("the agent does not serve: %+v", w.server.Status())
}

// clear ends all there is, and checks that nothing is left of it.
func (w *walk) clear() {
	w.setVendor(false)
	for _, p := range w.pods {
		if p.known || p.alive {
			w.remove(p, false)
		}
	}
	w.takeOver()
	time.Sleep(20 * time.Second)
	if d := w.server.journal.now(); len(d.all()) > 0 {
		w.violated("all pods are gone, and the journal has records of %v", d.all())
	}
	if left := w.driver.aliases(); len(left) > 0 {
		w.violated("all pods are gone, and slices %v are left", left)
	}
}

// placedOn is a pod that was placed on cards: whole ones, or a slice of one.
func (w *walk) placedOn(whole bool, cards ...gpu.CardID) *walkPod {
	p := &walkPod{resource: slice, cards: cards, whole: whole, compute: 30, known: true}
	w.place(p)
	return p
}

// give gives a pod the ids with these numbers.
func (w *walk) give(p *walkPod, numbers ...int) {
	plugin := w.plugin(p.resource)
	if plugin == nil {
		w.violated("the agent does not serve: %+v", w.server.Status())
		return
	}
	var ids []string
	for _, n := range numbers {
		ids = append(ids, token(plugin.resource, n))
	}
	if !w.allocate(p, plugin, ids) {
		w.violated("%s is not admitted", p.Name)
	}
}

// mustStart starts the container of a pod.
func (w *walk) mustStart(p *walkPod) {
	w.begin(p)
	if !p.alive {
		w.violated("%s does not start", p.Name)
	}
}

// end ends the container of a pod.
func (w *walk) end(p *walkPod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.alive = false
	w.say("the container of %s ends", p.Name)
}

// toStaleNode: the path of the next slice leads to another one.
func (w *walk) toStaleNode() {
	p := w.placedOn(false, "GPU-a")
	w.give(p, 0)
	w.host.set("/dev/sgpu16", charDevice, majorSlice, 17)
	w.begin(p)
	w.host.set("/dev/sgpu16", charDevice, majorSlice, 16)
	w.mustStart(p)
}

// toSameMinor: the driver counts the devices of slices on each card.
func (w *walk) toSameMinor() {
	p, q := w.placedOn(false, "GPU-a"), w.placedOn(false, "GPU-b")
	w.give(p, 0)
	w.mustStart(p)
	w.driver.setLie(lies["a minor number on each GPU"].make)
	w.give(q, 1)
	w.begin(q)
	w.check()
	w.driver.setLie(nil)
	w.mustStart(q)
}

// toMoreMemory: the driver takes memory in another unit.
func (w *walk) toMoreMemory() {
	p := w.placedOn(false, "GPU-a")
	w.driver.setLie(lies["all of the memory"].make)
	w.give(p, 0)
	w.begin(p)
	w.driver.setLie(nil)
	w.mustStart(p)
}

// toBlindStart: the vendor's plugin gave a card while no agent was there, and the
// next agent does not see the node's pods yet.
func (w *walk) toBlindStart() {
	w.stop()
	w.setVendor(true)
	w.giveByVendor("GPU-a", false)
	w.setVendor(false)
	w.seen = false // the agent did not see it
	w.start()
	w.mu.Lock()
	w.blind = true
	w.mu.Unlock()
	time.Sleep(2 * givenInterval)
	p := w.placedOn(true, "GPU-a")
	w.give(p, 0)
	w.begin(p)
}

// toRestart: while a container is down the vendor's plugin comes, gives its card
// to another pod and goes.
func (w *walk) toRestart() {
	p := w.placedOn(true, "GPU-a")
	w.give(p, 0)
	w.mustStart(p)
	w.end(p)
	w.setVendor(true)
	time.Sleep(2 * foreignInterval)
	w.giveByVendor("GPU-a", true)
	time.Sleep(2 * givenInterval)
	w.setVendor(false)
	w.takeOver()
	w.begin(p)
}

// toForeignName: a pod is given an id and never starts; the next one with the id
// does.
func (w *walk) toForeignName() {
	never, p := w.placedOn(false, "GPU-b"), w.placedOn(false, "GPU-a")
	w.give(never, 0)
	w.remove(never, false)
	w.give(p, 0)
	w.mustStart(p)
}

// toSplitTokens: of a pod with two cards that was deleted by force kubelet gives
// one id to another pod.
func (w *walk) toSplitTokens() {
	p := w.placedOn(true, "GPU-a", "GPU-b")
	w.give(p, 0, 1)
	w.mustStart(p)
	w.remove(p, true)
	w.give(w.placedOn(true, "GPU-a"), 0)
}

// toVendorRestart: the vendor's plugin restarts, and so does the agent; when the
// plugin is gone for good the agent takes over.
func (w *walk) toVendorRestart() {
	w.setVendor(true)
	time.Sleep(2 * foreignInterval)
	for i := range 10 {
		w.setVendor(false)
		time.Sleep(vendorAbsence / 20)
		if i%3 == 0 {
			w.upgrade()
			time.Sleep(foreignInterval)
		}
		w.setVendor(true)
		time.Sleep(3 * watchInterval)
		w.check()
	}
	w.setVendor(false)
	w.passLong()
	w.settle()
}

// toDoubleGift: the vendor's plugin gave a card that a container of ours has; its
// own container ends and is to restart after the takeover.
func (w *walk) toDoubleGift() {
	p := w.placedOn(true, "GPU-a")
	w.give(p, 0)
	w.mustStart(p)
	w.setVendor(true)
	time.Sleep(2 * foreignInterval)
	second := w.giveByVendor("GPU-a", true)
	time.Sleep(2 * givenInterval)
	w.end(second)
	w.setVendor(false)
	w.takeOver()
	w.begin(second)
}

// toVendorServed: of two pods that the vendor's plugin served one restarts after
// the takeover and one was deleted by force and lives on; a third pod gets the
// card of neither.
func (w *walk) toVendorServed() {
	w.setVendor(true)
	time.Sleep(2 * foreignInterval)
	a, b := w.giveByVendor("GPU-a", w.rng.IntN(2) == 0), w.giveByVendor("GPU-b", w.rng.IntN(2) == 0)
	time.Sleep(2 * givenInterval)
	w.end(a)
	w.remove(b, true)
	w.setVendor(false)
	w.upgrade()
	w.takeOver()
	for i, card := range walkCards {
		p := w.placedOn(true, card)
		w.give(p, i)
		w.begin(p)
		if card == "GPU-a" && p.alive {
			w.violated("%s gets the card of %s, which may restart", p.Name, a.Name)
		}
		w.remove(p, false)
	}
	time.Sleep(2 * givenInterval)
	w.mustStart(a)
}
