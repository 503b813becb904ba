package deviceplugin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var (
	walkSeeds   = flag.Int("walk.seeds", 16, "how many random walks TestWalk takes")
	plantedFlag = flag.Bool("walk.planted", false, "plant known mistakes and see that TestWalk finds them")
	walkSteps   = flag.Int("walk.steps", 300, "how many steps each has")
	walkFirst   = flag.Int("walk.first", 1, "the seed of the first one")
)

// TestWalk: kubelet calls in any order, pods come, restart, go and are deleted by
// force, the vendor's plugin comes and goes and gives cards by itself, the agent
// crashes at any write, disks fail, device nodes are stale, the watch is late, the
// driver makes slices other than ordered: no container gets a card that another one
// has, or what is another's, and in the end no slice is left. Time is virtual.
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
	named      bool // an administrator left the node to the vendor's plugin
	ordered    bool // and took it back
	registered bool // our plugin is, and kubelet has no other
	// seen: the agent saw the vendor's plugin and has not taken over
	// since; came and left are when the plugin did, spoken when the administrator
	// last said something.
	seen               bool
	came, left, spoken time.Time
	ill                map[gpu.CardID]bool
	owner              map[string]*walkPod   // of every CDI name that was ever given
	stands             map[string]gpu.CardID // for what a token was last given
	logging            sync.Mutex
	log                []string
	started            int
	wrong              string      // what the agent's own loop did wrong
	changed            atomic.Bool // the agent is to be updated again
}

var walkCards = []gpu.CardID{"GPU-a", "GPU-b"}

func newWalk(t *testing.T, seed int) *walk {
	dir := t.TempDir()
	w := &walk{
		T: t, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 21)), driver: &fakeDriver{cards: map[string]*discover.CardSlices{}, reuse: true},
		cfg:   Config{Plugins: dir, State: filepath.Join(dir, "state"), CDI: filepath.Join(dir, "cdi"), Settle: 20 * time.Millisecond, Layout: DefaultLayout()},
		files: seed%2 == 0, ill: map[gpu.CardID]bool{}, owner: map[string]*walkPod{}, stands: map[string]gpu.CardID{},
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
	w.logging.Lock()
	defer w.logging.Unlock()
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
	w.aim()
	for range steps {
		w.step()
		if w.crash.isDead() {
			w.say("the agent crashed and starts again")
			w.stop()
			w.start()
		}
		w.check()
	}
	w.driver.setLie(nil)
	w.upgrade() // to one that does not crash
	w.see()
	w.clear()
	return w.started
}

// start runs an agent that knows what is on disk.
func (w *walk) start() {
	files, err := newCDIFiles(w.cfg.CDI)
	gputest.Must(w, err)
	crash := &crasher{}
	s := newServer(w.cfg, w, crashingSlicer{w.driver, crash}, NewMetrics(nil), clock.RealClock{}, crashingSpecs{files, crash}, walkKubelet{w})
	s.runtime = &containers{client: walkRuntime{walk: w}, changed: make(chan struct{}, 1)}
	s.write = func(path string, text []byte) error {
		return crash.do(func() error { return os.WriteFile(path, text, 0o600) })
	}
	w.mu.Lock()
	w.blind, w.registered = w.rng.IntN(2) == 0, false
	w.server, w.crash = s, crash
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	lock, err := s.open(ctx)
	gputest.Must(w, err)
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
	var last map[types.UID]inventory.PluginAllocation
	for ctx.Err() == nil {
		s.learn(ctx, s.node.Load())
		yields := s.yields(s.node.Load()) != ""
		w.mu.Lock()
		again := !w.registered && !yields
		w.registered = w.registered && !yields
		w.mu.Unlock()
		if again && s.checkAlone(ctx) == nil {
			w.register(s)
		}
		if given := s.Status().Given; w.changed.Swap(false) || !maps.EqualFunc(given, last, func(a, b inventory.PluginAllocation) bool { return reflect.DeepEqual(a, b) }) {
			last = given
			s.Update(w.node(given))
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
}

// register has the agent register its plugins with kubelet: not over another one,
// and not while the vendor's may just be restarting.
func (w *walk) register(s *Server) {
	s.forgetGrants()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.foreign:
		w.wrong = "the agent registers over the vendor's plugin"
	case w.named && time.Since(w.spoken) > 2*watchInterval:
		w.wrong = "the agent takes over what was left to the vendor's plugin"
	case w.seen && !w.ordered && time.Since(w.spoken) > 2*watchInterval && time.Since(w.left) < vendorAbsence:
		w.wrong = fmt.Sprintf("the agent takes over %s after the vendor's plugin went", time.Since(w.left))
	}
	w.registered, w.seen, w.ordered = true, false, false
	w.say("the agent registers")
}

// node is what the agent knows of its cards.
func (w *walk) node(given map[types.UID]inventory.PluginAllocation) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &Node{Mode: gpu.ModeSGPU, Cards: map[gpu.CardID]Card{}, UID: "uid"}
	if w.named {
		n.Yield = "its annotation says vendor"
	}
	var cards []gpu.Card
	for i, id := range walkCards {
		cards = append(cards, gpu.Card{ID: id, Minor: i, Memory: 64 << 10, Slots: gpu.MaxSlices, Healthy: !w.ill[id]})
		n.Cards[id] = Card{BDF: bdfOf(i), Healthy: !w.ill[id], Here: true}
	}
	topology, err := gpu.NewTopology(cards, nil)
	if err != nil {
		panic(err)
	}
	device, err := inventory.EncodeDevice(&inventory.Publication{Node: "n1", Mode: gpu.ModeSGPU, Topology: topology, Cards: make([]inventory.CardStatus, len(cards)), PluginAllocations: given})
	if err != nil {
		panic(err)
	}
	n.Inventory = inventory.ReadInventory(nil, device)
	return n
}
