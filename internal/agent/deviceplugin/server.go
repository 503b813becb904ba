package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Node is what the agent knows of its node at one moment. It is never changed.
type Node struct {
	UID       types.UID
	Mode      gpu.Mode
	Inventory *inventory.Inventory
	Cards     map[gpu.CardID]Card
	// Yield is why an administrator left the node to the vendor's plugin, if so.
	Yield  string
	Vendor Vendor
}

// Card is one card of the node.
type Card struct {
	BDF string
	// Healthy cards take new containers; Here: the card was found.
	Healthy, Here bool
}

// Pods is what the agent sees of the node's pods.
type Pods interface {
	// Held returns the pods that hold cards of this node, if they are known.
	Held() (pods []*corev1.Pod, known bool)
	// Get asks the API server. It returns nil if there is no such pod.
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Event records an event on a pod.
	Event(pod *corev1.Pod, kind, reason, message string)
}

// Slicer makes slices; [discover.MXSML] does so through the vendor's library.
type Slicer interface {
	Slices(ctx context.Context, bdf string) (*discover.CardSlices, error)
	Create(ctx context.Context, order discover.SliceOrder) (*discover.Slice, error)
	Remove(ctx context.Context, slice discover.SliceRef) error
}

// Server serves the node.
type Server struct {
	cfg     Config
	pods    Pods
	slicer  Slicer
	metrics *Metrics
	clock   clock.WithTicker
	// write replaces a file and brings it to disk.
	write func(path string, text []byte) error

	holders  *holders
	runtime  *containers
	cdi      specFiles
	conns    []*grpc.ClientConn
	plugins  []*plugin
	changed  chan struct{}
	sweepNow chan struct{}
	wake     chan struct{} // wakes the loop of Run
	// sem lets one goroutine at a time give or take back.
	sem *semaphore.Weighted

	journal *journal
	// lastForeign and lastGiven are when kubelet was last asked.
	lastForeign, lastGiven time.Time
	vendor                 vendorWatch

	node atomic.Pointer[Node]

	mu sync.Mutex
	// fresh are tokens that kubelet gave a moment ago to a pod that is not known yet.
	fresh map[string]time.Time
	// background is what is done ahead of time; it ends with the server.
	background sync.WaitGroup
	ended      bool
	status     Status

	// written has the times of CDI specs, by name, reported recent events.
	written, reported *cache.Expiring
	// For the sweep: leaving are records whose pods are gone, and since when; swept
	// is when the slices of all cards were last read.
	leaving map[containerID]time.Time
	swept   time.Time
}

// resources are those that the agent may serve.
var resources = wire.DeviceResources()

// New returns a server. It does nothing before Run. The clock is the agent's.
func New(cfg Config, pods Pods, slicer Slicer, metrics *Metrics, clk clock.WithTicker) (*Server, error) {
	specs, err := newCDIFiles(cfg.CDI)
	if err != nil {
		return nil, err
	}
	conn, err := dialPodResources(cfg.PodResources)
	if err != nil {
		return nil, fmt.Errorf("kubelet's PodResources: %w", err)
	}
	s := newServer(cfg, pods, slicer, metrics, clk, specs, podresources.NewPodResourcesListerClient(conn))
	s.conns = append(s.conns, conn)
	if conn, s.runtime, err = dialRuntime(&cfg); err != nil {
		return nil, err
	}
	s.conns = append(s.conns, conn)
	return s, nil
}

func newServer(cfg Config, pods Pods, slicer Slicer, metrics *Metrics, clk clock.WithTicker, specs specFiles, lister podresources.PodResourcesListerClient) *Server {
	s := &Server{
		cfg: cfg, pods: pods, slicer: slicer, metrics: metrics, clock: clk, write: writeSynced, cdi: specs,
		holders: &holders{client: lister, checkpoint: filepath.Join(cfg.Plugins, checkpointFile), clock: clk},
		changed: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1), wake: make(chan struct{}, 1), sem: semaphore.NewWeighted(1),
		fresh: map[string]time.Time{}, leaving: map[containerID]time.Time{}, status: Status{Waits: "the first Device", Second: true},
		written: cache.NewExpiringWithClock(clk), reported: cache.NewExpiringWithClock(clk),
	}
	for _, r := range resources {
		s.plugins = append(s.plugins, newPlugin(s, r))
	}
	return s
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a notification is pending
	}
}

// sleep waits, and returns the context's error if that ends before.
func (s *Server) sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.clock.After(wait):
		return nil
	}
}

// Update sets the node's cards and mode.
func (s *Server) Update(n *Node) {
	before := s.node.Swap(n)
	for _, p := range s.plugins {
		if before != nil && before.Mode != n.Mode {
			p.confirm("") // kubelet has the devices of the other mode
		}
		p.refresh()
	}
	notify(s.wake)
	notify(s.sweepNow)
}

// Timing of the server.
const (
	// watchInterval is how often kubelet's sockets are looked at.
	watchInterval = time.Second
	// foreignInterval is how often kubelet is asked for other plugins.
	foreignInterval = 15 * time.Second
	sweepInterval   = 5 * time.Second
	// freshFor is how long kubelet may take from Allocate to PreStart.
	freshFor = 5 * time.Minute
)

// Run serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	lock, err := s.open(ctx)
	if err != nil {
		return nil // the context has ended
	}
	defer lock.Close()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { s.sweepLoop(ctx) })
	group.Go(func() { s.probeLoop(ctx) })
	group.Go(func() { s.runtimeLoop(ctx) })
	defer s.background.Wait()
	defer func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}()
	for {
		if n := s.node.Load(); n != nil {
			s.learn(ctx, n)
			s.keepRegistered(ctx, n)
		}
		select {
		case <-ctx.Done():
			for _, p := range s.plugins {
				p.stop()
			}
			return nil
		case <-s.clock.After(watchInterval):
		case <-s.wake:
		}
	}
}

func (s *Server) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// open waits until no other agent works with the state folder and the journal is
// readable. Until then nothing is registered.
func (s *Server) open(ctx context.Context) (*os.File, error) {
	var lock *os.File
	for {
		var err error
		if lock == nil {
			lock, err = lockState(s.cfg.State)
		}
		if err == nil {
			s.journal, err = openJournal(s.cfg.State, s.write)
		}
		if err == nil {
			s.vendor.vendorNote = s.journal.now().Vendor
			s.setStatus(func(st *Status) { st.Second = false })
			return lock, nil
		}
		if before := s.Status().Waits; before != err.Error() {
			klog.FromContext(ctx).Info("The node is not served yet", "why", err.Error())
		}
		s.setStatus(func(st *Status) { st.Waits, st.Second = err.Error(), errors.Is(err, errLocked) })
		if err := s.sleep(ctx, watchInterval); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
}

// learn asks kubelet regularly for other plugins of the node and what they gave.
func (s *Server) learn(ctx context.Context, n *Node) {
	if s.clock.Since(s.lastForeign) >= foreignInterval || s.vendor.Seen != "" {
		_ = s.lookForOthers(ctx) // the status shows it
	}
	if s.clock.Since(s.lastGiven) >= givenInterval {
		s.lastGiven = s.clock.Now()
		s.learnGiven(ctx, n)
	}
}

// keepRegistered registers missing plugins and checks that kubelet has accepted them.
func (s *Server) keepRegistered(ctx context.Context, n *Node) {
	if why := s.yields(n); why != "" {
		for _, p := range s.plugins {
			p.yield(s.vendor.serves[string(p.resource)] != "")
		}
		s.setStatus(func(st *Status) { st.Serving, st.Waits = false, why })
		return
	}
	var missing error
	for _, p := range s.plugins {
		if len(n.Cards) == 0 || perCard(p.resource, n.Mode) == 0 && !p.running() {
			continue
		}
		if err := p.ensureRegistered(ctx); err != nil {
			missing = errors.Join(missing, fmt.Errorf("%s: %w", p.resource, err))
		}
	}
	if missing == nil {
		missing = s.confirm(ctx, n)
	}
	if st := s.Status(); missing == nil {
		missing = st.unfit()
	}
	waits := ""
	if missing != nil {
		waits = missing.Error()
	}
	if before := s.Status(); before.Serving != (missing == nil) {
		klog.FromContext(ctx).Info("Serving changed", "serving", missing == nil, "waits", waits)
	}
	s.setStatus(func(st *Status) { st.Serving, st.Mode, st.Waits = missing == nil, n.Mode, waits })
}

// confirm asks kubelet whether it has what was sent to it.
func (s *Server) confirm(ctx context.Context, n *Node) error {
	healthy := slices.ContainsFunc(slices.Collect(maps.Values(n.Cards)), func(c Card) bool { return c.Healthy })
	for _, p := range s.plugins {
		if p.confirmed(n.Mode) || perCard(p.resource, n.Mode) == 0 || !healthy {
			continue
		}
		ok, err := s.holders.accepted(ctx, string(p.resource))
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s: kubelet has not taken the list of devices yet", p.resource)
		}
		p.confirm(n.Mode)
	}
	return nil
}

// devices returns the tokens of a resource as they are now.
func (s *Server) devices(p *plugin) []*pluginapi.Device {
	n := s.node.Load()
	if n == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.fresh, func(_ string, since time.Time) bool { return s.clock.Since(since) > freshFor })
	return tokens(p.resource, n, s.journal.now().held(), s.fresh)
}

// allocate gives every id a new CDI name, of which no runtime remembers anything.
func (s *Server) allocate(ids []string) (names []string, err error) {
	for _, id := range ids {
		names = append(names, newName(id))
	}
	var gone []string
	err = s.journal.change(func(d *document) error {
		gone = d.detach(ids)
		for i, id := range ids {
			d.name(id, names[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range gone {
		if err := s.cdi.remove(name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.fresh[id] = s.clock.Now()
	}
	return names, nil
}
