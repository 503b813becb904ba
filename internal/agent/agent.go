package agent

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
)

// Config is how an agent works.
type Config struct {
	// Node is the name of the node that the agent runs on.
	Node string
	// Namespace is where Daybreak's own ConfigMap with modes is.
	Namespace string
	// VendorNamespace is where the vendor's operator has its own, for the nodes that the
	// vendor's plugin serves; empty if it is not read. VendorSelector selects it by
	// labels; empty selects it by its name.
	VendorNamespace, VendorSelector string
	// Mode is used where the ConfigMap has none; empty for what the hardware can do.
	Mode gpu.Mode
	// Poll is the time between two looks at the cards, LookTimeout bounds one.
	Poll, LookTimeout time.Duration
	// VendorAnnotations writes metax-tech.com/node-gpu-devices on the Node,
	// TopologyAnnotations metax-tech.com/gpu.topology.scores and .losses, unless a
	// plugin of the vendor's does.
	VendorAnnotations, TopologyAnnotations bool
	// VendorPlugin selects the pods of the vendor's plugin, which keeps its nodes.
	VendorPlugin inventory.VendorPlugin
	// Drain is how long pods that were placed before are served after the node was
	// marked not serving, when the agent ends.
	Drain time.Duration
	// MetricsTLS is how metrics are served; nil for plain HTTP.
	MetricsTLS *tls.Config
}

// Timing of the loop.
const (
	// DefaultPoll and DefaultLookTimeout publish a fault within ten seconds.
	DefaultPoll        = 3 * time.Second
	DefaultLookTimeout = 10 * time.Second

	writeTimeout = 10 * time.Second
	// nodeInterval is the least time between two writes to the Node.
	nodeInterval = 10 * time.Second
	// idleTick wakes the loop when nothing else does, for the health checks.
	idleTick = 10 * time.Second
	// syncTimeout is how long publishing waits for modes and pods.
	syncTimeout = 10 * time.Second
	// lastLook is how long the end of the agent waits for a look.
	lastLook = 2 * time.Second
	// failuresToReport is how many looks must fail in a row to be reported.
	failuresToReport = 3
)

// Agent answers for the cards of one node.
type Agent struct {
	cfg    Config
	source discover.Source
	api    api
	watch  watcher
	clock  clock.WithTicker
	events *events
	pods   *podView
	// server serves the node; nil where the agent only looks.
	server nodeServer

	// registry, metrics and status are read by others while the loop runs.
	registry *prometheus.Registry
	metrics  *metrics
	status   atomic.Pointer[status]
	beat     atomic.Int64 // when the loop last came round

	// All below belongs to the loop.
	started  time.Time
	roster   roster
	snapshot *discover.Snapshot // of the last good look; nil before the first
	lastGood time.Time
	failures int      // in a row
	reported []string // failures that were reported
	recalled bool     // the Device of an earlier agent was read

	checks   nodeChecks
	modes    modeBook
	device   deviceWriter
	node     nodeWriter
	stopping bool                                  // the agent is about to end
	foreign  map[gpu.CardID]inventory.ForeignSlice // foreign slices, as last reported
	previous *inventory.Publication                // what was published last
}

type status struct {
	publication *inventory.Publication
	snapshot    *discover.Snapshot
	holders     map[gpu.CardID][]*corev1.Pod
	lastGood    time.Time
	// ready: all there is to publish was published; waits is what is missing.
	ready bool
	waits string
}

// New returns an agent that looks at cards through the source once it runs.
func New(cfg Config, source discover.Source, c *Clients, clk clock.WithTicker) *Agent {
	a := newAgent(cfg, source, c, newWatcher(&cfg, c), c.Events, clk)
	a.pods.core = c.Core
	return a
}

func newAgent(cfg Config, source discover.Source, api api, watch watcher, recorder recorder, clk clock.WithTicker) *Agent {
	if cfg.Poll <= 0 {
		cfg.Poll = DefaultPoll
	}
	if cfg.LookTimeout <= 0 {
		cfg.LookTimeout = DefaultLookTimeout
	}
	a := &Agent{cfg: cfg, source: source, api: api, watch: watch, clock: clk, registry: prometheus.NewRegistry()}
	a.events = &events{recorder: recorder, node: cfg.Node, last: map[string]string{}}
	a.device.retry = workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 32*time.Second)
	a.pods = &podView{watch: watch, events: a.events}
	a.status.Store(&status{waits: "the first poll of the cards"})
	a.beat.Store(clk.Now().UnixNano())
	a.metrics = newMetrics(a.registry)
	// The process's own, as every other part has them.
	a.registry.MustRegister(newCollector(a), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return a
}

type look struct {
	snapshot *discover.Snapshot
	err      error
	took     time.Duration
}

// Run does the agent's work until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("node", a.cfg.Node)
	ctx = klog.NewContext(ctx, logger)
	logger.Info("Agent started", "source", a.source.Name(), "poll", a.cfg.Poll)
	a.started = a.clock.Now()
	// What serves pods outlives the end of the context by a moment.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	looks := make(chan look)
	group.Go(func() { a.watch.run(serving) })
	served := a.serveNode(serving, &group)
	checked := a.checkNode(serving)
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		a.look(ctx, looks)
	}()
	for wait := idleTick; ; {
		select {
		case <-ctx.Done():
			a.drain(serving)
			stop()
			group.Wait()
			select {
			case <-looking:
			case <-time.After(lastLook): // the driver may never answer
			}
			logger.Info("Agent stopped")
			return nil
		case l := <-looks:
			a.observe(ctx, l)
		case <-a.watch.changed():
		case <-served:
		case a.checks.report = <-checked:
		case <-a.clock.After(wait):
		}
		a.beat.Store(a.clock.Now().UnixNano())
		wait = min(idleTick, a.step(ctx))
	}
}

// look looks at the cards every Poll. It is not part of the loop: a driver that does
// not answer stops looks and nothing else.
func (a *Agent) look(ctx context.Context, looks chan<- look) {
	for {
		start := a.clock.Now()
		s, err := discover.LookWithin(ctx, a.source, a.cfg.LookTimeout)
		select {
		case <-ctx.Done():
			return
		case looks <- look{s, err, a.clock.Since(start)}:
		}
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(a.cfg.Poll):
		}
	}
}

func (a *Agent) observe(ctx context.Context, l look) {
	a.metrics.look(l)
	if l.err != nil {
		a.failures++
		if a.failures >= failuresToReport && a.isNews(l.err) {
			a.events.onNode(corev1.EventTypeWarning, eventLookFailed, "the cards can't be read, the last Device stays: %v", l.err)
			klog.FromContext(ctx).Error(l.err, "Cards can't be read", "failures", a.failures)
		}
		return
	}
	if len(a.reported) > 0 {
		a.events.onNode(corev1.EventTypeNormal, eventLookRecovered, "the cards can be read again")
	}
	a.failures, a.reported = 0, nil
	a.snapshot, a.lastGood = l.snapshot, a.clock.Now()
	if a.recalled {
		a.sawCards()
	}
}

// isNews reports whether a failure, apart from numbers in it, was not reported yet.
func (a *Agent) isNews(failure error) bool {
	const most = 8
	text := deviceplugin.WithoutNumbers(failure.Error())
	if slices.Contains(a.reported, text) || len(a.reported) >= most {
		return false
	}
	a.reported = append(a.reported, text)
	return true
}

// sawCards brings the last good look into the roster.
func (a *Agent) sawCards() {
	a.snapshot = a.roster.look(a.snapshot, a.lastGood)
	nameless := strings.Join(a.roster.nameless, ", ")
	a.events.warn(eventNameless, nameless, "cards without a UUID are not published: those at "+nameless)
}

// step does what is to be done now and returns how long that is enough.
func (a *Agent) step(ctx context.Context) time.Duration {
	v := a.watch.view()
	now := a.clock.Now()
	current := a.device.current(&v)
	st := &status{snapshot: a.snapshot, lastGood: a.lastGood, publication: a.previous}
	defer func() { a.status.Store(st) }()
	switch {
	case v.node == nil:
		st.waits = "node " + a.cfg.Node + ", which the API server does not show"
		return idleTick
	case !v.devicesKnown:
		st.waits = "the list of Devices: is their definition installed?"
		return idleTick
	}
	a.events.uid = v.node.UID
	a.recall(ctx, current, now)
	if a.snapshot == nil {
		st.waits = "the first good look at the cards"
		return idleTick
	}
	if current != nil && writes(koordlet, current) {
		a.events.warn(eventYielded, koordlet,
			koordlet+" writes this node's Device, so Daybreak's agent does not: switch off its feature gate Accelerators and delete the Device on its behalf, or run no agent here")
		st.ready = true
		return idleTick
	}
	if a.server != nil && a.server.Status().Second {
		st.waits = a.server.Status().Waits // the other agent publishes
		return idleTick
	}
	if (!v.modesKnown || !v.podsKnown) && now.Sub(a.started) < syncTimeout {
		st.waits = "the pods of the node and the modes"
		return syncTimeout - now.Sub(a.started)
	}
	if len(a.roster.members) == 0 {
		st.ready = true // no card, so nothing to publish
		return idleTick
	}
	return a.publish(ctx, &v, current, st)
}

// recall reads what an earlier agent published, once.
func (a *Agent) recall(ctx context.Context, d *v1alpha1.Device, now time.Time) {
	if a.recalled {
		return
	}
	a.recalled = true
	if d != nil && !writes(koordlet, d) {
		p, err := inventory.DecodePublication(d)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The Device can't be read and is written again")
		} else {
			a.roster.remember(p, now)
			a.previous = p
		}
	}
	if a.snapshot != nil {
		a.sawCards()
	}
}
