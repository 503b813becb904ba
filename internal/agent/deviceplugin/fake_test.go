package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
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
	host   *fakeHost
	memory gpu.MiB // of each card
	alive  map[types.UID]bool
	exited map[string]int32 // exit codes of containers that the runtime has, by name

	mu     sync.Mutex
	pods   map[string]*corev1.Pod // by namespace/name
	hidden map[string]bool        // not in the watch yet
	blind  bool                   // nothing is in the watch yet
	events []string
	gets   int

	kubelet *fakeKubelet
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
		driver: &fakeDriver{cards: map[string]*discover.CardSlices{}}, runtime: withCDI(),
		cfg: Config{
			Plugins: filepath.Join(dir, "p"), PodResources: filepath.Join(dir, "r.sock"), State: filepath.Join(dir, "state"),
			CDI: filepath.Join(dir, "cdi"), VendorSockets: DefaultConfig().VendorSockets, Layout: DefaultLayout(), Runtime: EndpointScheme + filepath.Join(dir, "c.sock"),
		},
	}
	if err := os.MkdirAll(s.cfg.Plugins, 0o755); err != nil {
		t.Fatal(err)
	}
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

// pass waits until a time has passed in the scene.
func (s *scene) pass(d time.Duration) { <-s.clock.After(d) }

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
	if err != nil {
		s.Fatal(err)
	}
	p := &inventory.Publication{Node: "n1", Mode: mode, Topology: topology, Cards: make([]inventory.CardStatus, len(cards))}
	device, err := inventory.EncodeDevice(p)
	if err != nil {
		s.Fatal(err)
	}
	s.node.Inventory = inventory.ReadInventory(nil, device)
}

// start runs a server that knows nothing but what is on disk, until it serves.
func (s *scene) start() {
	s.Helper()
	s.launch()
	s.eventually("the node is served", func() bool { return s.server.Status().Serving })
}

// launch runs a server that knows nothing but what is on disk.
func (s *scene) launch() {
	s.Helper()
	server, err := New(s.cfg, s, s.driver, NewMetrics(nil), s.clock)
	if err != nil {
		s.Fatal(err)
	}
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
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("never came true: %s", what)
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
	s.gets++
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

// fakeDriver keeps slices as the driver does.
type fakeDriver struct {
	mu    sync.Mutex
	cards map[string]*discover.CardSlices
	busy  bool
	made  int
	calls []string
	fail  error
	most  gpu.MiB // that a slice may have; 0 is no limit
	reuse bool    // minor numbers of slices that are gone
}

func (d *fakeDriver) Slices(_ context.Context, bdf string) (*discover.CardSlices, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	card := d.cards[bdf]
	if card == nil {
		return nil, fmt.Errorf("no card at %s", bdf)
	}
	out := *card
	out.Slices = slices.Clone(card.Slices)
	return &out, nil
}

func (d *fakeDriver) Create(_ context.Context, o discover.SliceOrder) (*discover.Slice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	if err := d.room(o.Memory); err != nil {
		return nil, err
	}
	card := d.cards[o.BDF]
	if o.QoS != "" && o.QoS != card.QoS {
		if len(card.Slices) > 0 {
			return nil, fmt.Errorf("class: %w", discover.ErrBusy)
		}
		card.QoS = o.QoS
	}
	d.made++
	d.calls = append(d.calls, "create "+o.Alias)
	made := discover.Slice{ID: d.made, UUID: fmt.Sprintf("S-%d", d.made), Alias: o.Alias, Minor: d.minor(), Memory: o.Memory, ComputePercent: o.Compute}
	card.Slices = append(card.Slices, made)
	return &made, nil
}

// minor returns the number of the device of the next slice.
func (d *fakeDriver) minor() int {
	if !d.reuse {
		return 15 + d.made
	}
	taken := map[int]bool{}
	for _, card := range d.cards {
		for _, x := range card.Slices {
			taken[x.Minor] = true
		}
	}
	minor := 16
	for taken[minor] {
		minor++
	}
	return minor
}

// room returns an error for a slice with more memory than there is.
func (d *fakeDriver) room(memory gpu.MiB) error {
	if d.most > 0 && memory > d.most {
		return errors.New("more than there is")
	}
	return nil
}

func (d *fakeDriver) Change(_ context.Context, c discover.SliceChange) (*discover.Slice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.room(*c.Memory); err != nil {
		return nil, err
	}
	for i := range d.cards[c.BDF].Slices {
		if x := &d.cards[c.BDF].Slices[i]; x.ID == c.ID {
			x.Alias, x.Memory, x.ComputePercent = *c.Alias, *c.Memory, *c.Compute
			out := *x
			return &out, nil
		}
	}
	return nil, discover.ErrNoSlice
}

func (d *fakeDriver) Remove(_ context.Context, ref discover.SliceRef) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return discover.ErrBusy
	}
	card := d.cards[ref.BDF]
	at := slices.IndexFunc(card.Slices, func(x discover.Slice) bool { return x.ID == ref.ID && x.UUID == ref.UUID })
	if at < 0 {
		return discover.ErrNoSlice
	}
	d.calls = append(d.calls, "remove "+card.Slices[at].Alias)
	card.Slices = slices.Delete(card.Slices, at, at+1)
	return nil
}

// aliases lists the names of all slices.
func (d *fakeDriver) aliases() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, card := range d.cards {
		for _, x := range card.Slices {
			list = append(list, x.Alias)
		}
	}
	slices.Sort(list)
	return list
}

// fakeKubelet is kubelet at its sockets.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	scene *scene

	mu       sync.Mutex
	servers  []*grpc.Server
	plugins  map[string]pluginapi.DevicePluginClient
	devices  map[string][]*pluginapi.Device
	held     []*podresources.PodResources
	lists    int
	refuse   int // lists to refuse
	foreign  string
	old      error // the answer of one that does not report its devices
	register int
	// slow is held by who wants kubelet to take no list of devices for a while.
	slow sync.Mutex
}

func newFakeKubelet(t *testing.T, s *scene) *fakeKubelet {
	k := &fakeKubelet{scene: s}
	k.start(t)
	t.Cleanup(k.stop)
	return k
}

// start serves the sockets, like a kubelet that knows nothing of plugins.
func (k *fakeKubelet) start(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugins, k.devices = map[string]pluginapi.DevicePluginClient{}, map[string][]*pluginapi.Device{}
	for path, register := range map[string]func(*grpc.Server){
		filepath.Join(k.scene.cfg.Plugins, "kubelet.sock"): func(g *grpc.Server) { pluginapi.RegisterRegistrationServer(g, k) },
		k.scene.cfg.PodResources:                           func(g *grpc.Server) { podresources.RegisterPodResourcesListerServer(g, k) },
	} {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		register(g)
		k.servers = append(k.servers, g)
		go func() { _ = g.Serve(listener) }()
	}
}

func (k *fakeKubelet) stop() {
	k.mu.Lock()
	servers := k.servers
	k.servers = nil
	k.mu.Unlock()
	for _, g := range servers {
		g.Stop()
	}
}

func (k *fakeKubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.scene.cfg.Plugins, r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	k.mu.Lock()
	k.plugins[r.GetResourceName()] = client
	k.register++
	k.mu.Unlock()
	go func() {
		defer conn.Close()
		stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var answer *pluginapi.ListAndWatchResponse
			if answer, err = stream.Recv(); err == nil {
				k.slow.Lock()
				k.mu.Lock()
				k.devices[r.GetResourceName()] = answer.GetDevices()
				k.mu.Unlock()
				k.slow.Unlock()
			}
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	if k.refuse > 0 {
		k.refuse--
		return nil, errors.New("rejected by rate limit")
	}
	return &podresources.ListPodResourcesResponse{PodResources: slices.Clone(k.held)}, nil
}

func (k *fakeKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.old != nil {
		return nil, k.old
	}
	answer := &podresources.AllocatableResourcesResponse{}
	for name, devices := range k.devices {
		list := &podresources.ContainerDevices{ResourceName: name}
		for _, d := range devices {
			if d.GetHealth() == pluginapi.Healthy {
				list.DeviceIds = append(list.DeviceIds, d.GetID())
			}
		}
		answer.Devices = append(answer.Devices, list)
	}
	if k.foreign != "" {
		answer.Devices = append(answer.Devices, &podresources.ContainerDevices{ResourceName: "metax-tech.com/sgpu", DeviceIds: k.shuffled(k.foreign, "GPU-b-0:0")})
	}
	return answer, nil
}

// shuffled returns ids in any order, as kubelet does.
func (*fakeKubelet) shuffled(ids ...string) []string {
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// health counts the healthy and unhealthy devices of a resource.
func (k *fakeKubelet) health(name string) (healthy, unhealthy int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices[name] {
		if d.GetHealth() == pluginapi.Healthy {
			healthy++
		} else {
			unhealthy++
		}
	}
	return healthy, unhealthy
}

// admit gives the container main of a pod ids, as kubelet does when a pod comes,
// and returns the CDI names that it would start with.
func (s *scene) admit(resource, pod string, ids ...string) []string {
	s.Helper()
	s.kubelet.mu.Lock()
	plugin := s.kubelet.plugins[resource]
	s.kubelet.mu.Unlock()
	answer, err := plugin.Allocate(s.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	one := answer.GetContainerResponses()[0]
	for _, d := range one.GetCdiDevices() {
		names = append(names, d.GetName())
	}
	// kubelet before 1.29 has no field for them. A key must not be that of the other resource.
	keys, annotated, err := cdi.ParseAnnotations(one.GetAnnotations())
	if err != nil || !slices.Equal(names, annotated) || len(keys) != 1 || !strings.HasSuffix(keys[0], strings.ReplaceAll(resource, "/", "_")) {
		s.Fatalf("CDI devices %v, annotations %v: %v", names, one.GetAnnotations(), err)
	}
	s.kubelet.mu.Lock()
	defer s.kubelet.mu.Unlock()
	s.kubelet.held = slices.DeleteFunc(slices.Clone(s.kubelet.held), func(p *podresources.PodResources) bool {
		return slices.ContainsFunc(p.Containers[0].Devices[0].DeviceIds, func(id string) bool { return slices.Contains(ids, id) })
	})
	s.kubelet.held = append(s.kubelet.held, &podresources.PodResources{Namespace: "default", Name: pod, Containers: []*podresources.ContainerResources{{
		Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}},
	}}})
	return names
}

// begin calls PreStart.
func (s *scene) begin(resource string, ids ...string) error {
	s.Helper()
	s.kubelet.mu.Lock()
	plugin := s.kubelet.plugins[resource]
	s.kubelet.mu.Unlock()
	_, err := plugin.PreStartContainer(s.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// sees returns what a container with these CDI names would see: environment and
// devices, sorted.
func (s *scene) sees(names ...string) []string {
	s.Helper()
	cache, err := cdi.NewCache(cdi.WithAutoRefresh(false), cdi.WithSpecDirs(s.cfg.CDI))
	if err != nil {
		s.Fatal(err)
	}
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
	if err != nil {
		s.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if name, is := strings.CutPrefix(e.Name(), specPrefix); is {
			list = append(list, name)
		}
	}
	return list
}

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
