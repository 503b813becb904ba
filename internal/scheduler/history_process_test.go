package scheduler

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
)

// process is one scheduler process: kube-scheduler's own code with the plugin,
// the fence and the binder, among informers, a client and a clock of the model.
type process struct {
	api       *modelServer
	identity  string
	informers *modelInformers
	shared    *State
	sched     *scheduler.Scheduler
	ctx       context.Context
	cancel    context.CancelCauseFunc
	clock     *processClock

	// grants lets the scheduling loop try one pod each.
	grants chan struct{}
	// busy is true while a pod is tried.
	busy atomic.Bool
	// pauseAt is where the next cycle pauses, and paused is true while it does; a
	// grant lets it go on.
	pauseAt string
	paused  atomic.Bool
	// leads is true from the first renewal on.
	leads atomic.Bool
	// over is set when the process is to end, dead when it has.
	over, dead atomic.Bool
	// cut is true while nothing gets through between it and the API server.
	cut bool
	// neighbours are the plugins that wake pods for their neighbours.
	neighbours []*neighbours
	// tried has when each pod was tried last.
	tried map[types.UID]time.Time
	// reported is the first problem that was found inside the process.
	reported atomic.Pointer[string]
	// requests counts the requests of each kind; it is under the API server's lock.
	requests map[string]int
}

// processClock is the time as a process sees it, which stands still while it is
// suspended. No two readings are equal, so that nothing depends on an order that
// kube-scheduler leaves to chance.
type processClock struct {
	clock.RealClock
	mu        sync.Mutex
	suspended bool
	since     time.Time     // it was suspended, or what the clock shows
	lost      time.Duration // in earlier suspensions
	last      time.Time
}

// Now returns the time.
func (c *processClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.reading()
	if !now.After(c.last) {
		now = c.last.Add(1)
	}
	c.last = now
	return now
}

func (c *processClock) reading() time.Time {
	if c.suspended {
		return c.since.Add(-c.lost)
	}
	return time.Now().Add(-c.lost)
}

// Since returns how long ago t was.
func (c *processClock) Since(t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reading().Sub(t)
}

// After is the waiting of the binder, without the part that is left to chance.
func (c *processClock) After(d time.Duration) <-chan time.Time { return time.After(steady(d)) }

// steady returns the wait of which d is a longer one by at most a half, picked by
// chance.
func steady(d time.Duration) time.Duration {
	const unit = 100 * time.Millisecond
	return unit * time.Duration(math.Exp2(math.Floor(math.Log2(max(1, float64(d)/float64(unit))))))
}

func (c *processClock) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended, c.since = true, time.Now()
}

func (c *processClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended = false
	c.lost += time.Since(c.since)
}

func (c *processClock) isSuspended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspended
}

// noEvents records no events.
type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (n noEvents) WithLogger(klog.Logger) events.EventRecorderLogger { return n }

// startProcess starts a scheduler as its command does. What the informers show
// at first may be behind the API server by some changes.
func startProcess(api *modelServer, profiles []config.KubeSchedulerProfile, identity string, behind int) (*process, error) {
	p := &process{
		api: api, identity: identity, informers: newModelInformers(), grants: make(chan struct{}),
		clock: &processClock{}, requests: map[string]int{}, tried: map[types.UID]time.Time{},
	}
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.shared = NewState(p.clock)
	p.shared.term.stop = p.cancel
	if reflect.ValueOf(p.shared.term.elapsed).Pointer() == reflect.ValueOf(sinceBoot).Pointer() {
		p.shared.term.elapsed = api.uptime // the model's clock that counts suspension
	}
	for _, name := range namespaces {
		// The indexer fails for objects without names alone.
		_ = p.informers.InformerFor(&corev1.Namespace{}, nil).GetIndexer().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	client := &modelClient{by: p}
	// What counts metrics every second ends at once: it would take most of the time.
	setup, done := context.WithCancel(p.ctx)
	defer done()
	sched, err := scheduler.New(setup, client, p.informers, modelDynamic{informers: p.informers},
		func(string) events.EventRecorderLogger { return noEvents{} },
		scheduler.WithProfiles(profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(p.registry()),
		scheduler.WithClock(p.clock),
		scheduler.WithParallelism(1),
		// Who sleeps is to be woken, not to be tried again after a while.
		scheduler.WithPodMaxInUnschedulablePodsDuration(24*time.Hour),
	)
	if err != nil {
		p.cancel(nil)
		return nil, fmt.Errorf("start a scheduler: %w", err)
	}
	p.sched = sched
	if err := p.shared.devices.watch(modelDynamic{informers: p.informers}); err != nil {
		p.cancel(nil)
		return nil, err
	}
	p.gate()
	lock, err := p.fence(client)
	if err != nil {
		p.cancel(nil)
		return nil, err
	}
	p.shared.wrapProfiles(sched)
	p.sync(behind)
	go p.elect(lock)
	return p, nil
}

// gate makes the scheduling loop wait before each pod until it may try one.
func (p *process) gate() {
	pop := p.sched.NextPod
	p.sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		p.busy.Store(false)
		select {
		case <-p.ctx.Done():
			return nil, nil
		case <-p.grants:
		}
		p.busy.Store(true)
		info, err := pop(logger)
		if info != nil {
			p.tried[info.Pod.UID] = time.Now()
		}
		return info, err
	}
}

// sync shows the informers what is there: as it was some changes ago for each
// kind, since lists may be served from a cache.
func (p *process) sync(behind int) {
	for _, kind := range kinds {
		log := p.api.log[kind]
		informer := p.informers.of(kind)
		for _, c := range log[:max(0, len(log)-behind)] {
			informer.receive(c)
		}
		// A list is in the order of names.
		names := slices.Sorted(slices.Values(informer.indexer.ListKeys()))
		for _, l := range informer.handlers {
			l.behind = nil
			for _, name := range names {
				if obj, ok, err := informer.indexer.GetByKey(name); ok && err == nil {
					l.handler.OnAdd(obj, true)
				}
			}
		}
	}
}

// fence ties the process to its term as leader and starts the fencing of earlier
// leaders, as the command does. It returns the lock of the election.
func (p *process) fence(client *modelClient) (resourcelock.Interface, error) {
	cfg := &schedulerconfig.Config{
		Client: client, InformerFactory: p.informers,
		LeaderElection: &leaderelection.LeaderElectionConfig{Lock: &modelLease{by: p}, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline},
	}
	cc := cfg.Complete()
	f, err := p.shared.fencer(&cc, p.sched)
	if err != nil {
		return nil, err
	}
	go p.shared.fence(p.ctx, f)
	p.shared.locks.begin(p.ctx, f.schedulers)
	return cc.LeaderElection.Lock, nil
}

// lead runs the scheduling loop.
func (p *process) lead() {
	p.leads.Store(true)
	p.sched.SchedulingQueue.Run(klog.FromContext(p.ctx))
	go func() {
		for p.ctx.Err() == nil {
			p.sched.ScheduleOne(p.ctx)
		}
	}()
}

// stop ends the process: nothing of it remains but what it has sent.
func (p *process) stop() {
	p.api.mu.Lock()
	p.dead.Store(true)
	p.api.mu.Unlock()
	p.leads.Store(false)
	p.cancel(nil)
	p.sched.SchedulingQueue.Close()
	for _, r := range p.api.pending() {
		if r.by == p {
			r.err = errLost
			p.api.answer(r, true)
		}
	}
}

// report notes a problem, unless there is one already.
func (p *process) report(problem string) { p.reported.CompareAndSwap(nil, &problem) }

// runs reports whether the process can do anything now.
func (p *process) runs() bool {
	return p != nil && !p.dead.Load() && p.ctx.Err() == nil && !p.clock.isSuspended()
}

// reserved returns the pods that cards are reserved for.
func (p *process) reserved() []types.UID {
	p.shared.pods.mu.Lock()
	defer p.shared.pods.mu.Unlock()
	var reserved []types.UID
	for uid, c := range p.shared.pods.claims {
		if c.kind == reservedClaim {
			reserved = append(reserved, uid)
		}
	}
	slices.Sort(reserved)
	return reserved
}
