package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// step does something.
func (w *walk) step() {
	steps := []struct {
		weight int
		do     func()
	}{
		{24, w.come}, {12, w.restart}, {8, w.exit}, {20, w.leave}, {6, w.reap}, {8, w.vendor}, {8, w.vendorRestarts}, {12, w.vendorGives}, {6, w.speak}, {1, w.passLong},
		{6, w.armCrash}, {3, w.failDisk}, {4, w.turnHealth}, {6, w.stale}, {4, w.see}, {18, w.pass}, {5, w.upgrade}, {4, w.lie},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := w.rng.IntN(total)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			s.do()
			return
		}
	}
}

// some returns one of the pods that are so; nil if none is.
func (w *walk) some(is func(p *walkPod) bool) *walkPod {
	var list []*walkPod
	for _, p := range w.pods {
		if is(p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[w.rng.IntN(len(list))]
}

// come brings one to three pods, which may be placed badly, and starts them.
func (w *walk) come() {
	if w.plugin(whole) == nil {
		return // kubelet has no ids to give
	}
	var list []*walkPod
	for range 1 + w.rng.IntN(3) {
		p := w.newPod()
		if w.admit(p) && w.rng.IntN(8) > 0 { // the others may be started later, or never
			list = append(list, p)
		}
	}
	var starts sync.WaitGroup
	for _, p := range list {
		starts.Go(func() { w.begin(p) })
	}
	starts.Wait()
}

func (w *walk) newPod() *walkPod {
	p := &walkPod{resource: slice, compute: 20 + 10*w.rng.IntN(5), known: true, hidden: w.rng.IntN(4) == 0, impatient: w.rng.IntN(2) == 0}
	cards := slices.Clone(walkCards)
	w.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	wellPlaced := w.rng.IntN(3) > 0
	if wellPlaced {
		slices.SortStableFunc(cards, func(a, b gpu.CardID) int { return w.placed(a) - w.placed(b) })
	}
	switch alone := w.rng.IntN(2) == 0; {
	case alone && (!wellPlaced || w.placed(cards[0]) == 0):
		p.cards, p.whole = cards[:1+w.rng.IntN(2)], true
		if wellPlaced {
			p.cards = slices.DeleteFunc(cards, func(card gpu.CardID) bool { return w.placed(card) > 0 })
		}
	default:
		p.cards = cards[:1]
	}
	w.place(p)
	return p
}

// place adds a pod that a scheduler has placed on its cards.
func (w *walk) place(p *walkPod) {
	limits := corev1.ResourceList{}
	memory := 4 << 10
	if p.whole {
		p.compute, p.resource, memory = 100, whole, 64<<10
		limits[whole] = *resource.NewQuantity(int64(len(p.cards)), resource.DecimalSI)
	} else {
		limits[slice], limits[wire.ResourceVMemory] = resource.MustParse("1"), resource.MustParse("4")
		limits[wire.ResourceVCore] = *resource.NewQuantity(int64(p.compute), resource.DecimalSI)
	}
	var list []string
	for _, card := range p.cards {
		list = append(list, fmt.Sprintf(`{"uuid":%q,"compute":%d,"vRam":%d}`, card, p.compute, memory))
	}
	w.addPod(p, limits, map[string]string{
		wire.AnnotationAllocated: "[[" + strings.Join(list, ",") + "]]", wire.AnnotationPredicateTime: strconv.Itoa(1000 + len(w.pods)), wire.AnnotationQoS: string(gpu.FixedShare),
	})
}

func (w *walk) addPod(p *walkPod, limits corev1.ResourceList, annotations map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf("p%d", len(w.pods))
	p.Pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
	w.pods = append(w.pods, p)
	w.say("%s comes for %v, %d%%, by the vendor: %v, hidden: %v", name, p.cards, p.compute, p.vendor, p.hidden)
}

// plugin is what kubelet calls for a resource; nil while it has none of ours.
func (w *walk) plugin(resource string) *plugin {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.registered || w.foreign {
		return nil
	}
	return w.server.plugins[slices.Index(resources, corev1.ResourceName(resource))]
}

// admit gives a pod ids, as kubelet does when it comes.
func (w *walk) admit(p *walkPod) bool {
	plugin := w.plugin(p.resource)
	if plugin == nil {
		w.fails(p, "no plugin is there")
		return false
	}
	free := w.free(plugin)
	if len(free) < len(p.cards) {
		w.fails(p, "there are no free ids")
		return false
	}
	free = free[:min(len(free), len(p.cards)+1)] // so that ids are soon used again
	w.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return w.allocate(p, plugin, slices.Sorted(slices.Values(free[:len(p.cards)])))
}

// free returns the ids of a plugin that kubelet may give.
func (w *walk) free(plugin *plugin) []string {
	var free []string
	for _, d := range w.server.devices(plugin) {
		id := d.GetID()
		if d.GetHealth() == pluginapi.Healthy && w.some(func(p *walkPod) bool { return p.admitted && slices.Contains(p.ids, id) }) == nil {
			free = append(free, id)
		}
	}
	return free
}

// allocate gives a pod these ids.
func (w *walk) allocate(p *walkPod, plugin *plugin, ids []string) bool {
	answer, err := plugin.Allocate(context.Background(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil || w.crash.isDead() {
		w.fails(p, fmt.Sprintf("Allocate: %v", err))
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.admitted, p.ids = true, ids
	for _, d := range answer.GetContainerResponses()[0].GetCdiDevices() {
		_, name, _ := strings.Cut(d.GetName(), "=")
		p.names = append(p.names, name)
		w.owner[name] = p
	}
	for i, id := range ids {
		w.stands[id] = p.cards[i]
	}
	w.writeFile()
	w.say("%s is given %v", p.Name, ids)
	return true
}

// fails is a pod that kubelet does not admit.
func (w *walk) fails(p *walkPod, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.known = false
	w.say("%s is not admitted: %s", p.Name, why)
}

// writeFile writes kubelet's file of devices.
func (w *walk) writeFile() {
	if !w.files {
		return
	}
	var entries []checkpointEntry
	for _, p := range w.pods {
		if p.admitted {
			entries = append(entries, entry(p.UID, "main", p.resource, p.ids...))
		}
	}
	if err := writeCheckpoint(w.cfg.Plugins, entries); err != nil {
		panic(err)
	}
}

// begin starts the container of a pod, if the agent lets it. While the vendor's
// plugin serves, kubelet asks the agent for nothing.
func (w *walk) begin(p *walkPod) {
	plugin := w.plugin(p.resource)
	if plugin == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.alive = p.alive || p.vendor && w.foreign
		return
	}
	_, err := plugin.PreStartContainer(context.Background(), &pluginapi.PreStartContainerRequest{DevicesIds: p.ids})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.crash.isDead() || !p.admitted {
		w.say("%s does not start: %v", p.Name, err)
		if p.impatient {
			p.known, p.admitted = false, false // its controller gives up
			w.writeFile()
		}
		return
	}
	w.say("%s starts", p.Name)
	w.started++
	w.checkStart(p)
	p.alive = true
	p.Pod = p.Pod.DeepCopy()
	p.Status.Phase = corev1.PodRunning
}

func (w *walk) restart() {
	if p := w.some(func(p *walkPod) bool { return p.admitted && !p.alive }); p != nil {
		w.begin(p)
	}
}

func (w *walk) exit() {
	if p := w.some(func(p *walkPod) bool { return p.admitted && p.alive }); p != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.alive = false
		w.say("the container of %s ends", p.Name)
	}
}

// leave deletes a pod, now and then by force: then its container lives on. Of a
// pod that the vendor's plugin served the agent has to have learned before.
func (w *walk) leave() {
	if p := w.some(func(p *walkPod) bool { return p.known }); p != nil {
		noted := slices.ContainsFunc(w.server.journal.now().Foreign, func(r *record) bool { return r.PodUID == p.UID })
		w.remove(p, w.rng.IntN(3) == 0 && (!p.vendor || noted))
	}
}

// remove deletes a pod.
func (w *walk) remove(p *walkPod, force bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.known, p.admitted, p.alive = false, false, p.alive && force
	w.writeFile()
	w.say("%s is deleted, by force: %v", p.Name, force)
}

// reap ends the container of a pod that was deleted by force.
func (w *walk) reap() {
	if p := w.some(func(p *walkPod) bool { return p.alive && !p.known }); p != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.alive = false
		w.say("what was left of %s ends", p.Name)
	}
}

// vendor brings the vendor's plugin, or takes it away.
func (w *walk) vendor() {
	if w.foreign || w.rng.IntN(4) == 0 {
		w.setVendor(!w.foreign)
	}
}

func (w *walk) setVendor(there bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.foreign = there; there {
		w.came = time.Now()
	} else if time.Since(w.came) > 2*watchInterval { // else the agent can not have noticed
		w.left = time.Now()
	}
	w.registered = false
	if !there && w.server.Status().Foreign != "" {
		w.seen = true // it must remember
	}
	w.say("the vendor's plugin is there: %v, the agent has seen it: %v", there, w.seen)
}

// vendorRestarts takes the vendor's plugin away for a moment, or several minutes.
func (w *walk) vendorRestarts() {
	if !w.foreign {
		return
	}
	w.setVendor(false)
	d := time.Duration(w.rng.Int64N(int64(30 * time.Second)))
	if w.rng.IntN(8) == 0 {
		d *= 12
	}
	time.Sleep(d)
	w.setVendor(true)
}

// speak has an administrator leave the node to the vendor's plugin, or take it
// back.
func (w *walk) speak() { w.setNamed(!w.named && w.rng.IntN(2) == 0) }

func (w *walk) setNamed(named bool) {
	w.mu.Lock()
	w.ordered = w.named && !named || w.ordered && !named
	w.named, w.spoken = named, time.Now()
	w.say("the node is left to the vendor's plugin: %v, the agent is to take over: %v", named, w.ordered)
	w.mu.Unlock()
	w.changed.Store(true)
}

// takeOver has an administrator order the agent to take over.
func (w *walk) takeOver() {
	w.setNamed(true)
	time.Sleep(3 * watchInterval)
	w.setNamed(false)
	w.settle()
}

// passLong lets more time pass than the vendor's plugin may be away.
func (w *walk) passLong() {
	w.say("%s pass", vendorAbsence)
	time.Sleep(vendorAbsence + 10*time.Second)
}

// vendorGives has the vendor's plugin give a whole card to a pod, whatever other pod
// has it.
func (w *walk) vendorGives() {
	if !w.foreign {
		return
	}
	card := walkCards[w.rng.IntN(len(walkCards))]
	if w.some(func(p *walkPod) bool { return p.vendor && p.known && slices.Contains(p.cards, card) }) != nil {
		return
	}
	w.giveByVendor(card, w.rng.IntN(2) == 0)
}

// giveByVendor has the vendor's plugin give a card to a pod that says so, or
// does not.
func (w *walk) giveByVendor(card gpu.CardID, says bool) *walkPod {
	var annotations map[string]string
	if says {
		annotations = map[string]string{wire.AnnotationAllocated: allOf(string(card))}
	}
	p := &walkPod{resource: whole, cards: []gpu.CardID{card}, whole: true, compute: 100, vendor: true, known: true}
	w.addPod(p, oneCard, annotations)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Status.Phase = corev1.PodRunning
	p.admitted, p.alive, p.ids = true, true, []string{string(card)}
	w.writeFile()
	return p
}

// upgrade ends the agent and starts another one.
func (w *walk) upgrade() {
	w.say("the agent is upgraded")
	w.stop()
	w.start()
}

// armCrash lets the agent crash at one of its next writes.
func (w *walk) armCrash() {
	w.crash.mu.Lock()
	defer w.crash.mu.Unlock()
	w.crash.armed, w.crash.left, w.crash.after = true, w.rng.IntN(8), w.rng.IntN(2) == 0
	w.say("the agent will crash after %d writes, the next one has an effect: %v", w.crash.left, w.crash.after)
}

func (w *walk) failDisk() {
	w.crash.mu.Lock()
	defer w.crash.mu.Unlock()
	w.crash.fail = 1 + w.rng.IntN(4)
	w.say("%d writes will fail", w.crash.fail)
}

func (w *walk) turnHealth() {
	w.mu.Lock()
	defer w.mu.Unlock()
	card := walkCards[w.rng.IntN(len(walkCards))]
	w.ill[card] = !w.ill[card] && w.rng.IntN(4) == 0
	w.say("%s is ill: %v", card, w.ill[card])
	w.changed.Store(true)
}

// stale puts a device node in the way that is another slice's, or takes it away.
func (w *walk) stale() {
	path, minor := fmt.Sprintf("/dev/sgpu%d", 16+w.rng.IntN(4)), 16+w.rng.IntN(4)
	if w.rng.IntN(2) == 0 {
		w.host.remove(path)
		w.say("%s is gone", path)
		return
	}
	w.host.set(path, charDevice, majorSlice, int64(minor))
	w.say("%s leads to slice %d", path, minor)
}

// lie makes slices other than ordered, or as ordered again.
func (w *walk) lie() {
	name := slices.Sorted(maps.Keys(lies))[w.rng.IntN(len(lies))]
	if name == "no name" || w.rng.IntN(2) == 0 { // after a crash no journal would lead to it
		w.say("the driver makes what is ordered")
		w.driver.setLie(nil)
		return
	}
	w.say("the driver makes %s", name)
	w.driver.setLie(lies[name].make)
}

// see lets the watch catch up.
func (w *walk) see() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blind = false
	for _, p := range w.pods {
		p.hidden = false
	}
	w.say("the watch has caught up")
}

func (w *walk) pass() {
	d := time.Duration(w.rng.Int64N(int64(20 * time.Second)))
	w.say("%s pass", d)
	time.Sleep(d)
	if w.rng.IntN(3) == 0 {
		w.see()
	}
}
