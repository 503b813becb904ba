package kubelet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/agent/kubelet/checkpoint"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

var (
	walkSeeds   = flag.Int("walk.seeds", 16, "how many random walks TestWalk takes")
	plantedFlag = flag.Bool("walk.planted", false, "plant known mistakes and see that TestWalk finds them")
	walkSteps   = flag.Int("walk.steps", 300, "how many steps each has")
	walkFirst   = flag.Int("walk.first", 1, "the seed of the first one")
)

// TestWalk: kubelet calls in any order, pods come, restart, go and are deleted by
// force, the vendor's plugin comes and goes and gives cards by itself, the agent
// crashes at any write, disks fail, device nodes are stale, the watch is late:
// no container gets a card that another one has, or what is another's. Time is
// virtual.
func TestWalk(t *testing.T) {
	t.Parallel()
	started := 0
	for i := range *walkSeeds {
		seed := *walkFirst + i
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { started += newWalk(t, seed).run(*walkSteps) })
		})
	}
	if least := *walkSeeds * *walkSteps / 50; started < least && !t.Failed() {
		t.Errorf("%d containers started in all, want at least %d: the walks lead nowhere", started, least)
	}
	t.Logf("%d containers started", started)
}

// errCrashed is what a server gets that is not there any more.
var errCrashed = errors.New("the agent has crashed")

// crasher ends a server at one of its writes: whatever it does after that has
// no effect.
type crasher struct {
	mu    sync.Mutex
	armed bool
	left  int  // writes until then
	after bool // the last one still has an effect
	dead  bool
	fail  int // writes that fail without a crash
}

// do carries out a write, unless the server has crashed.
func (c *crasher) do(write func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return errCrashed
	case c.fail > 0:
		c.fail--
		return errors.New("no space left on device")
	case c.armed && c.left == 0:
		c.dead = true
		if c.after {
			_ = write()
		}
		return errCrashed
	}
	c.left--
	return write()
}

func (c *crasher) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// crashingSlicer and crashingSpecs write until the server crashes.
type crashingSlicer struct {
	*fakeDriver
	crash *crasher
}

func (s crashingSlicer) Create(ctx context.Context, o discover.SliceOrder) (x *discover.Slice, err error) {
	err = s.crash.do(func() (err error) { x, err = s.fakeDriver.Create(ctx, o); return err })
	return x, err
}

func (s crashingSlicer) Change(ctx context.Context, c discover.SliceChange) (x *discover.Slice, err error) {
	err = s.crash.do(func() (err error) { x, err = s.fakeDriver.Change(ctx, c); return err })
	return x, err
}

func (s crashingSlicer) Remove(ctx context.Context, ref discover.SliceRef) error {
	return s.crash.do(func() error { return s.fakeDriver.Remove(ctx, ref) })
}

type crashingSpecs struct {
	specFiles
	crash *crasher
}

func (s crashingSpecs) write(name string, edits *specs.ContainerEdits) (changed bool, err error) {
	err = s.crash.do(func() (err error) { changed, err = s.specFiles.write(name, edits); return err })
	return changed, err
}

func (s crashingSpecs) remove(name string) error {
	return s.crash.do(func() error { return s.specFiles.remove(name) })
}

// walkPod is a pod as it really is.
type walkPod struct {
	*corev1.Pod
	resource string
	cards    []gpu.CardID
	whole    bool
	compute  int
	vendor   bool // served by the vendor's plugin
	hidden   bool // not in the agent's watch yet
	// impatient is a pod whose controller deletes it when it does not start.
	impatient bool
	known     bool // to the API server
	admitted  bool // by kubelet, which counts its ids as taken
	alive     bool // its container
	ids       []string
	names     []string
}

// walk is a node and what happens on it.
type walk struct {
	*testing.T
	rng    *rand.Rand
	seed   int
	cfg    Config
	host   *fakeHost
	driver *fakeDriver
	files  bool // kubelet's file of devices is there

	server *Server
	crash  *crasher
	stop   func()

	mu         sync.Mutex
	pods       []*walkPod
	blind      bool
	foreign    bool // the vendor's plugin serves
	registered bool // ours does
	ill        map[gpu.CardID]bool
	owner      map[string]*walkPod   // of every CDI name that was ever given
	stands     map[string]gpu.CardID // for what a token was last given
	log        []string
	started    int
}

var walkCards = []gpu.CardID{"GPU-a", "GPU-b"}

func newWalk(t *testing.T, seed int) *walk {
	dir := t.TempDir()
	w := &walk{
		T: t, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 21)), driver: &fakeDriver{cards: map[string]*discover.CardSlices{}, reuse: true},
		cfg:   Config{Plugins: dir, State: filepath.Join(dir, "state"), CDI: filepath.Join(dir, "cdi"), Settle: 20 * time.Millisecond, Layout: DefaultLayout()},
		files: seed%2 == 0, ill: map[gpu.CardID]bool{}, owner: map[string]*walkPod{}, stands: map[string]gpu.CardID{}, registered: true,
	}
	w.host = newFakeHost(t, dir)
	w.host.install(&w.cfg.Layout)
	for i := range walkCards {
		w.driver.cards[bdfOf(i)] = &discover.CardSlices{On: true, QoS: gpu.FixedShare}
	}
	return w
}

func bdfOf(card int) string { return fmt.Sprintf("0000:0%d:00.0", card+1) }

// say notes what happens, for who reads a failure.
func (w *walk) say(format string, args ...any) {
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// violated ends the walk.
func (w *walk) violated(format string, args ...any) {
	w.Helper()
	w.Fatalf("walk: %s\nseed %d, the last steps:\n%s", fmt.Sprintf(format, args...), w.seed, strings.Join(w.log[max(0, len(w.log)-30):], "\n"))
}

// run takes the steps and returns how many containers started.
func (w *walk) run(steps int) (started int) {
	w.start()
	defer func() { w.stop() }()
	for range steps {
		w.step()
		if w.crash.isDead() {
			w.say("the agent crashed and starts again")
			w.stop()
			w.start()
		}
		w.check()
	}
	return w.started
}

// start runs an agent that knows what is on disk.
func (w *walk) start() {
	files, err := newCDIFiles(w.cfg.CDI)
	if err != nil {
		w.Fatal(err)
	}
	crash := &crasher{}
	s := newServer(w.cfg, w, crashingSlicer{w.driver, crash}, NewMetrics("test", "agent"), clock.RealClock{}, crashingSpecs{files, crash}, walkKubelet{w})
	s.runtime = &containers{client: walkRuntime{walk: w}}
	s.write = func(path string, text []byte) error {
		return crash.do(func() error { return os.WriteFile(path, text, 0o600) })
	}
	w.blind = w.rng.IntN(2) == 0
	w.server, w.crash = s, crash
	ctx, cancel := context.WithCancel(context.Background())
	lock, err := s.open(ctx)
	if err != nil {
		w.Fatal(err)
	}
	s.Update(w.node(nil))
	var group sync.WaitGroup
	group.Go(func() { s.sweepLoop(ctx) })
	group.Go(func() { w.loop(ctx, s) })
	w.stop = func() {
		cancel()
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.background.Wait()
		group.Wait()
		_ = lock.Close()
	}
}

// loop is what the agent does every second, apart from sockets.
func (w *walk) loop(ctx context.Context, s *Server) {
	for ctx.Err() == nil {
		s.learn(ctx, s.current())
		w.mu.Lock()
		again := !w.registered && !w.foreign && s.Status().Foreign == ""
		w.registered = w.registered || again
		w.mu.Unlock()
		if again {
			s.forgetGrants()
		}
		s.Update(w.node(s.Status().Given))
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
}

// node is what the agent knows of its cards.
func (w *walk) node(given map[types.UID]wire.Given) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &Node{Name: "n1", Mode: gpu.ModeSGPU, Cards: map[gpu.CardID]Card{}}
	var cards []gpu.Card
	for i, id := range walkCards {
		cards = append(cards, gpu.Card{ID: id, Minor: i, Memory: 64 << 10, Slots: gpu.MaxSlices, Healthy: !w.ill[id]})
		n.Cards[id] = Card{BDF: bdfOf(i), Healthy: !w.ill[id], Here: true}
	}
	topology, err := gpu.NewTopology(cards, nil)
	if err != nil {
		panic(err)
	}
	device, err := wire.EncodeDevice(&wire.Publication{Node: "n1", Mode: gpu.ModeSGPU, Topology: topology, Cards: make([]wire.CardStatus, len(cards)), Given: given})
	if err != nil {
		panic(err)
	}
	n.Inventory = wire.ReadInventory(nil, device)
	return n
}

// step does something.
func (w *walk) step() {
	steps := []struct {
		weight int
		do     func()
	}{
		{24, w.come}, {12, w.restart}, {8, w.exit}, {20, w.leave}, {6, w.reap}, {8, w.vendor}, {12, w.vendorGives},
		{6, w.armCrash}, {3, w.failDisk}, {4, w.turnHealth}, {6, w.stale}, {4, w.see}, {18, w.pass}, {5, w.upgrade},
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
	limits := corev1.ResourceList{}
	var list []string
	switch alone := w.rng.IntN(2) == 0; {
	case alone && (!wellPlaced || w.placed(cards[0]) == 0):
		p.cards, p.whole, p.compute, p.resource = cards[:1+w.rng.IntN(2)], true, 100, whole
		if wellPlaced {
			p.cards = slices.DeleteFunc(cards, func(card gpu.CardID) bool { return w.placed(card) > 0 })
		}
		limits[whole] = *resource.NewQuantity(int64(len(p.cards)), resource.DecimalSI)
	default:
		p.cards = cards[:1]
		limits[slice], limits[wire.ResourceVMemory] = resource.MustParse("1"), resource.MustParse("4")
		limits[wire.ResourceVCore] = *resource.NewQuantity(int64(p.compute), resource.DecimalSI)
	}
	for _, card := range p.cards {
		memory := 4 << 10
		if p.whole {
			memory = 64 << 10
		}
		list = append(list, fmt.Sprintf(`{"uuid":%q,"compute":%d,"vRam":%d}`, card, p.compute, memory))
	}
	w.addPod(p, limits, map[string]string{
		wire.AnnotationAllocated: "[[" + strings.Join(list, ",") + "]]", wire.AnnotationPredicateTime: strconv.Itoa(1000 + len(w.pods)), wire.AnnotationQoS: string(gpu.FixedShare),
	})
	return p
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
	var free []string
	for _, d := range w.server.devices(plugin).devices {
		id := d.GetID()
		if d.GetHealth() == deviceplugin.Healthy && w.some(func(p *walkPod) bool { return p.admitted && slices.Contains(p.ids, id) }) == nil {
			free = append(free, id)
		}
	}
	if len(free) < len(p.cards) {
		w.fails(p, "there are no free ids")
		return false
	}
	free = free[:min(len(free), len(p.cards)+1)] // so that ids are soon used again
	w.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	ids := sorted(free[:len(p.cards)])
	answer, err := plugin.Allocate(context.Background(), &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: ids}}})
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
	var entries []checkpoint.PodDevicesEntry
	for _, p := range w.pods {
		if p.admitted {
			entries = append(entries, checkpoint.PodDevicesEntry{PodUID: string(p.UID), ContainerName: "main", ResourceName: p.resource, DeviceIDs: checkpoint.DevicesPerNUMA{-1: p.ids}})
		}
	}
	text, err := checkpoint.Encode(entries)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.cfg.Plugins, checkpoint.FileName), text, 0o600)
	}
	if err != nil {
		panic(err)
	}
}

// begin starts the container of a pod, if the agent lets it.
func (w *walk) begin(p *walkPod) {
	plugin := w.plugin(p.resource)
	if plugin == nil {
		return
	}
	_, err := plugin.PreStartContainer(context.Background(), &deviceplugin.PreStartContainerRequest{DevicesIds: p.ids})
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
	if p := w.some(func(p *walkPod) bool { return p.admitted && !p.vendor && !p.alive }); p != nil {
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
// pod that the vendor's plugin served nothing would be left to tell.
func (w *walk) leave() {
	if p := w.some(func(p *walkPod) bool { return p.known }); p != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		force := w.rng.IntN(3) == 0 && !p.vendor
		p.known, p.admitted, p.alive = false, false, p.alive && force
		w.writeFile()
		w.say("%s is deleted, by force: %v", p.Name, force)
	}
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
	if !w.foreign && w.rng.IntN(4) > 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foreign = !w.foreign
	w.registered = false
	w.say("the vendor's plugin is there: %v", w.foreign)
}

// vendorGives has the vendor's plugin give a whole card to a pod, whoever else
// has it.
func (w *walk) vendorGives() {
	if !w.foreign {
		return
	}
	card := walkCards[w.rng.IntN(len(walkCards))]
	if w.some(func(p *walkPod) bool { return p.vendor && p.known && slices.Contains(p.cards, card) }) != nil {
		return
	}
	var annotations map[string]string
	if w.rng.IntN(2) == 0 {
		annotations = map[string]string{wire.AnnotationAllocated: allOf(string(card))}
	}
	p := &walkPod{resource: whole, cards: []gpu.CardID{card}, whole: true, compute: 100, vendor: true, known: true}
	w.addPod(p, oneCard, annotations)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Status.Phase = corev1.PodRunning
	p.admitted, p.alive, p.ids = true, true, []string{string(card)}
	w.writeFile()
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

// checkStart: what the container gets is its own, and nobody else has it.
func (w *walk) checkStart(p *walkPod) {
	w.Helper()
	want := []string{"250:0"}
	for _, card := range p.cards {
		at := slices.Index(walkCards, card)
		if p.whole {
			want = append(want, fmt.Sprintf("226:%d", at), fmt.Sprintf("226:%d", 128+at))
			continue
		}
		x := w.sliceOf(p, card)
		if x == nil || int(x.ComputePercent) != p.compute {
			w.violated("%s starts with slice %+v of %s", p.Name, x, card)
			return
		}
		want = append(want, fmt.Sprintf("%d:%d", majorSlice, x.Minor))
	}
	var got []string
	for _, name := range p.names {
		devices, ok := w.devicesOf(name)
		if !ok {
			w.violated("%s starts, and there is no spec %s", p.Name, name)
		}
		got = append(got, devices...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		w.violated("%s gets devices %v, its own are %v", p.Name, got, want)
	}
	for _, q := range w.pods {
		for _, card := range q.cards {
			if q == p || !q.alive || !slices.Contains(p.cards, card) {
				continue
			}
			if p.whole || q.whole || w.taken(card)+p.compute > 100 {
				w.violated("%s gets %s, which %s has", p.Name, card, q.Name)
			}
		}
	}
}

// taken is how much of a card containers have that live.
func (w *walk) taken(card gpu.CardID) int {
	return w.sum(card, func(p *walkPod) bool { return p.alive })
}

// placed is how much of a card a scheduler would take to be held.
func (w *walk) placed(card gpu.CardID) int {
	return w.sum(card, func(p *walkPod) bool { return p.alive || p.known })
}

func (w *walk) sum(card gpu.CardID, counts func(p *walkPod) bool) int {
	sum := 0
	for _, p := range w.pods {
		if counts(p) && slices.Contains(p.cards, card) {
			sum += p.compute
		}
	}
	return sum
}

// sliceOf is the pod's slice of a card, by its name.
func (w *walk) sliceOf(p *walkPod, card gpu.CardID) *discover.Slice {
	alias := aliasOf(&record{PodUID: p.UID, Container: "main"}, card)
	now, err := w.driver.Slices(context.Background(), bdfOf(slices.Index(walkCards, card)))
	if err != nil {
		return nil
	}
	if at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool { return x.Alias == alias }); at >= 0 {
		return &now.Slices[at]
	}
	return nil
}

// devicesOf are the devices that a container with a CDI name would get.
func (w *walk) devicesOf(name string) ([]string, bool) {
	spec, err := cdi.ReadSpec(filepath.Join(w.cfg.CDI, specFile(name)), 0)
	if err != nil {
		return nil, false
	}
	var list []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		list = append(list, fmt.Sprintf("%d:%d", n.Major, n.Minor))
	}
	return list, true
}

// check: every spec there is shows what its name's own pod has, and every token
// stands for the card that it was given for.
func (w *walk) check() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, p := range w.owner {
		devices, ok := w.devicesOf(name)
		if !ok {
			continue
		}
		for _, d := range devices {
			w.checkDevice(p, name, d)
		}
	}
	for token, card := range w.server.journal.now().held() {
		if w.stands[token] != card {
			w.violated("token %s stands for %s, it was given for %s", token, card, w.stands[token])
		}
	}
}

func (w *walk) checkDevice(p *walkPod, name, device string) {
	w.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(device, "%d:%d", &major, &minor); err != nil {
		w.Fatal(err)
	}
	switch major {
	case majorDRM:
		if card := walkCards[minor%128]; !p.whole || !slices.Contains(p.cards, card) {
			w.violated("spec %s was given to %s and shows %s", name, p.Name, card)
		}
	case majorSlice:
		for i, card := range walkCards {
			now, _ := w.driver.Slices(context.Background(), bdfOf(i))
			for _, x := range now.Slices {
				if x.Minor == minor && x.Alias != aliasOf(&record{PodUID: p.UID, Container: "main"}, card) {
					w.violated("spec %s was given to %s and shows slice %d, which is another pod's", name, p.Name, minor)
				}
			}
		}
	}
}

// Held, Get and Tell are the agent's view of pods.
func (w *walk) Held() ([]*corev1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blind {
		return nil, false
	}
	var list []*corev1.Pod
	for _, p := range w.pods {
		if p.known && !p.hidden {
			list = append(list, p.Pod)
		}
	}
	return list, true
}

func (w *walk) Get(_ context.Context, _, name string) (*corev1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if p.known && p.Name == name {
			return p.Pod, nil
		}
	}
	return nil, nil
}

func (*walk) Tell(*corev1.Pod, string, string, string) {}

// walkKubelet answers what kubelet's PodResources does.
type walkKubelet struct{ *walk }

func (k walkKubelet) List(context.Context, *podresources.ListPodResourcesRequest, ...grpc.CallOption) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, p := range k.pods {
		if p.admitted {
			answer.PodResources = append(answer.PodResources, &podresources.PodResources{Namespace: "default", Name: p.Name, Containers: []*podresources.ContainerResources{{
				Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: p.resource, DeviceIds: p.ids}},
			}}})
		}
	}
	return answer, nil
}

func (k walkKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest, ...grpc.CallOption) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	if k.foreign {
		answer.Devices = []*podresources.ContainerDevices{{ResourceName: whole, DeviceIds: []string{"GPU-a", "GPU-b"}}}
	}
	return answer, nil
}

func (walkKubelet) Get(context.Context, *podresources.GetPodResourcesRequest, ...grpc.CallOption) (*podresources.GetPodResourcesResponse, error) {
	return nil, errors.New("not asked for")
}

// walkRuntime tells which containers live.
type walkRuntime struct {
	cri.RuntimeServiceClient
	walk *walk
}

func (r walkRuntime) ListContainers(_ context.Context, q *cri.ListContainersRequest, _ ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	r.walk.mu.Lock()
	defer r.walk.mu.Unlock()
	answer := &cri.ListContainersResponse{}
	for _, p := range r.walk.pods {
		if p.alive && string(p.UID) == q.GetFilter().GetLabelSelector()[labelPodUID] {
			answer.Containers = append(answer.Containers, &cri.Container{State: cri.ContainerState_CONTAINER_RUNNING})
		}
	}
	return answer, nil
}
