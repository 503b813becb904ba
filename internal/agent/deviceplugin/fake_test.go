package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// scene is a server with a kubelet, a driver and pods around it in which only
// the test moves.
type scene struct {
	*testing.T
	server *Server
	clock  *clocktesting.FakeClock
	stop   func()
	cfg    Config
	node   *Node
	driver *fakeDriver
	slicer Slicer // in place of the driver, unless it is nil
	host   *fakeHost
	memory gpu.MiB // of each card
	alive  map[types.UID]bool
	exited map[string]int32 // exit codes of containers that the runtime has, by name

	mu     sync.Mutex
	pods   map[string]*corev1.Pod // by namespace/name
	hidden map[string]bool        // not in the watch yet
	blind  bool                   // nothing is in the watch yet
	events []string

	kubelet *fakeKubelet
	// patience is how long a start is tried that is to fail.
	patience time.Duration
	// disk, unless it is nil, is asked before every write.
	disk func() error
	// runtime is what the container runtime reports of itself, unless it is
	// down, and asked counts the questions.
	runtime     *RuntimeAnswer
	runtimeDown bool
	asked       int
	stopRuntime func()
	sandboxes   []string // names of pods that the runtime has
}

// write writes like the disk does, as far as it lets.
func (s *scene) write(path string, text []byte) error {
	s.mu.Lock()
	disk := s.disk
	s.mu.Unlock()
	if disk != nil {
		if err := disk(); err != nil {
			return err
		}
	}
	return writeSynced(path, text)
}

// newScene is a node with two cards of 64 GiB in the mode.
func newScene(t *testing.T, mode gpu.Mode) *scene {
	t.Helper()
	dir := t.TempDir()
	s := &scene{
		T: t, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), memory: 64 << 10, pods: map[string]*corev1.Pod{}, hidden: map[string]bool{}, alive: map[types.UID]bool{},
		patience: 200 * time.Millisecond,
		driver:   &fakeDriver{cards: map[string]*discover.CardSlices{}}, runtime: withCDI(),
		cfg: Config{
			Plugins: filepath.Join(dir, "p"), PodResources: filepath.Join(dir, "r.sock"), State: filepath.Join(dir, "state"),
			CDI: filepath.Join(dir, "cdi"), VendorSockets: DefaultConfig().VendorSockets, Layout: DefaultLayout(), Runtime: EndpointScheme + filepath.Join(dir, "c.sock"),
		},
	}
	gputest.Must(t, os.MkdirAll(s.cfg.Plugins, 0o755))
	s.host = newFakeHost(t, dir)
	s.host.install(&s.cfg.Layout)
	s.setMode(mode)
	s.kubelet = newFakeKubelet(t, s)
	s.stopRuntime = serveRuntime(t, s.cfg.Runtime, fakeRuntime{scene: s})
	s.runClock()
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// runClock lets the time of the scene pass, a good deal faster than it does
// elsewhere.
func (s *scene) runClock() {
	ticker, done := time.NewTicker(2*time.Millisecond), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				s.clock.Step(10 * time.Millisecond)
			case <-done:
				return
			}
		}
	}()
	s.Cleanup(func() { ticker.Stop(); close(done) })
}

// pass lets time pass in the scene, quicker still: a step for each moment that all others
// have to work.
func (s *scene) pass(d time.Duration) {
	for end := s.clock.Now().Add(d); s.clock.Now().Before(end); time.Sleep(time.Millisecond) {
		s.clock.Step(20 * time.Millisecond)
	}
}

// setMode describes the node.
func (s *scene) setMode(mode gpu.Mode) {
	cards := []gpu.Card{}
	s.node = &Node{Mode: mode, Cards: map[gpu.CardID]Card{}}
	for i, id := range []gpu.CardID{"GPU-a", "GPU-b"} {
		cards = append(cards, gpu.Card{ID: id, Minor: i, Memory: s.memory, Slots: gpu.MaxSlices, Healthy: true})
		bdf := fmt.Sprintf("0000:0%d:00.0", i+1)
		s.node.Cards[id] = Card{BDF: bdf, Healthy: true, Here: true}
		if s.driver.cards[bdf] == nil {
			s.driver.cards[bdf] = &discover.CardSlices{On: true, QoS: gpu.BestEffort}
		}
	}
	topology, err := gpu.NewTopology(cards, nil)
	gputest.Must(s, err)
	p := &inventory.Publication{Node: "n1", Mode: mode, Topology: topology, Cards: make([]inventory.CardStatus, len(cards))}
	device, err := inventory.EncodeDevice(p)
	gputest.Must(s, err)
	s.node.Inventory = inventory.ReadInventory(nil, device)
}

// start runs a server that knows nothing but what is on disk, until it serves.
func (s *scene) start() {
	s.Helper()
	s.launch()
	s.isServed(true)
}

// launch runs a server that knows nothing but what is on disk.
func (s *scene) launch() {
	s.Helper()
	slicer := s.slicer
	if slicer == nil {
		slicer = s.driver
	}
	server, err := New(s.cfg, s, slicer, NewMetrics(nil), s.clock)
	gputest.Must(s, err)
	server.write = s.write
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.server = server
	go func() {
		defer close(done)
		_ = server.Run(ctx)
	}()
	s.stop = func() { cancel(); <-done }
	server.Update(s.node)
}

// restart ends the server, as a crash would, and starts another one.
func (s *scene) restart() {
	s.Helper()
	s.stop()
	s.start()
}

func (s *scene) eventually(what string, is func() bool) {
	s.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; s.pass(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	s.Fatalf("never came true: %s", what)
}

// isServed waits until the node is served, or is not.
func (s *scene) isServed(want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("served: %t", want), func() bool { return s.server.Status().Serving == want })
}

// locked changes what the server asks for.
func (s *scene) locked(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// setAlive sets whether a container of a pod lives.
func (s *scene) setAlive(pod string, alive bool) {
	s.locked(func() { s.alive[types.UID("uid-"+pod)] = alive })
}

// records is what the journal has of Daybreak's own.
func (s *scene) records() []*record { return s.server.journal.now().Records }

// changeNode updates the server with another node.
func (s *scene) changeNode(change func(n *Node)) {
	n := *s.node
	n.Cards = maps.Clone(n.Cards)
	change(&n)
	s.node = &n
	s.server.Update(&n)
}

// makeIll makes a card unhealthy.
func (s *scene) makeIll(id gpu.CardID) {
	s.changeNode(func(n *Node) {
		card := n.Cards[id]
		card.Healthy = false
		n.Cards[id] = card
	})
}

// Held, Get and Event are the agent's view of pods.
func (s *scene) Held() ([]*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*corev1.Pod
	for key, p := range s.pods {
		if !s.hidden[key] && wire.Holds(p) {
			list = append(list, p)
		}
	}
	if s.blind {
		return nil, false
	}
	return list, true
}

func (s *scene) Get(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[namespace+"/"+name], nil
}

func (s *scene) Event(pod *corev1.Pod, _, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, pod.Name+" "+reason+" "+message)
}

func (s *scene) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, "default/"+name)
}

// slicePod is a pod with one container that has a slice of a card.
func (s *scene) slicePod(name, card string, compute, gib int, more ...func(*corev1.Pod)) *corev1.Pod {
	limits := corev1.ResourceList{
		wire.ResourceSGPU: resource.MustParse("1"), wire.ResourceVCore: resource.MustParse(strconv.Itoa(compute)), wire.ResourceVMemory: resource.MustParse(strconv.Itoa(gib)),
	}
	return s.pod(name, limits, fmt.Sprintf(`[[{"uuid":%q,"compute":%d,"vRam":%d}]]`, card, compute, gib<<10), more...)
}

// pod adds a pod that was placed on the node.
func (s *scene) pod(name string, limits corev1.ResourceList, allocation string, more ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{
			wire.AnnotationAllocated: allocation, wire.AnnotationPredicateTime: "1000", wire.AnnotationQoS: string(gpu.FixedShare),
		}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
	for _, f := range more {
		f(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods["default/"+name] = p
	return p
}

// sees returns what a container with these CDI names would see: environment and
// devices, sorted.
func (s *scene) sees(names ...string) []string {
	s.Helper()
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(s.cfg.CDI))
	gputest.Must(s, err)
	var list []string
	for _, name := range names {
		device := cache.GetDevice(name)
		if device == nil {
			list = append(list, "nothing")
			continue
		}
		list = append(list, device.ContainerEdits.Env...)
		for _, n := range device.ContainerEdits.DeviceNodes {
			list = append(list, n.Path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// specs lists the files of CDI specs.
func (s *scene) specs() []string {
	entries, err := os.ReadDir(s.cfg.CDI)
	gputest.Must(s, err)
	var list []string
	for _, e := range entries {
		if name, is := strings.CutPrefix(e.Name(), specPrefix); is {
			list = append(list, name)
		}
	}
	return list
}
