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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
)

// The election as kube-scheduler has it by default.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// process is one scheduler process: kube-scheduler's own code with the plugin,
// the fence and the binder, among informers, a client and a clock of the model.
type process struct {
	api       *modelServer
	identity  string
	elects    bool
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
	// leads is true from the first renewal on.
	leads atomic.Bool
	// over is set when the process is to end, dead when it has.
	over, dead atomic.Bool
	// cut is true while nothing gets through between it and the API server.
	cut bool
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

// modelProfile is the plugin among none but what kube-scheduler can't do without:
// nothing but cards decides.
func modelProfile() config.KubeSchedulerProfile {
	return config.KubeSchedulerProfile{
		SchedulerName: DefaultProfile,
		Plugins: &config.Plugins{MultiPoint: config.PluginSet{Enabled: []config.Plugin{
			{Name: names.PrioritySort}, {Name: Name, Weight: 1}, {Name: names.DefaultBinder},
		}}},
	}
}

// startProcess starts a scheduler as its command does. What the informers show
// at first may be behind the API server by some changes.
func startProcess(api *modelServer, identity string, elects bool, behind int) (*process, error) {
	p := &process{
		api: api, identity: identity, elects: elects, informers: newModelInformers(), grants: make(chan struct{}),
		clock: &processClock{}, requests: map[string]int{},
	}
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.shared = NewState(p.clock)
	p.shared.term.stop = p.cancel
	if reflect.ValueOf(p.shared.term.elapsed).Pointer() == reflect.ValueOf(sinceBoot).Pointer() {
		p.shared.term.elapsed = api.uptime // the model's clock that counts suspension
	}
	client := &modelClient{by: p}
	// What counts metrics every second ends at once: it would take most of the time.
	setup, done := context.WithCancel(p.ctx)
	defer done()
	sched, err := scheduler.New(setup, client, p.informers, modelDynamic{informers: p.informers},
		func(string) events.EventRecorderLogger { return noEvents{} },
		scheduler.WithProfiles(modelProfile()),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: func(_ context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			return p.shared.Factory()(p.ctx, args, h)
		}}),
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
	pop := sched.NextPod
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		p.busy.Store(false)
		select {
		case <-p.ctx.Done():
			return nil, nil
		case <-p.grants:
		}
		p.busy.Store(true)
		return pop(logger)
	}
	lock, err := p.fence(client)
	if err != nil {
		p.cancel(nil)
		return nil, err
	}
	p.sync(behind)
	if elects {
		go p.elect(lock)
	} else {
		p.lead()
	}
	return p, nil
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
// leaders, as the command does. It returns the lock of the election, if there is
// one.
func (p *process) fence(client *modelClient) (resourcelock.Interface, error) {
	cfg := &schedulerconfig.Config{Client: client, InformerFactory: p.informers}
	if p.elects {
		cfg.LeaderElection = &leaderelection.LeaderElectionConfig{Lock: &modelLease{by: p}, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline}
	}
	cc := cfg.Complete()
	f, err := p.shared.fencer(&cc, p.sched)
	if err != nil {
		return nil, err
	}
	go p.shared.fence(p.ctx, f)
	p.shared.locks.begin(p.ctx, f.schedulers)
	if p.elects {
		return cc.LeaderElection.Lock, nil
	}
	return nil, nil
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

// elect takes part in the election as client-go's elector does, without its
// random waits.
func (p *process) elect(lock resourcelock.Interface) {
	e := elector{process: p, lock: lock}
	renewed := p.clock.Now()
	for p.ctx.Err() == nil {
		if e.acquire() {
			renewed = p.clock.Now()
			if !p.leads.Load() {
				p.lead()
			}
		} else if p.leads.Load() && p.clock.Since(renewed) >= renewDeadline {
			p.over.Store(true)
			return
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
}

// elector is one candidate's view of the lease.
type elector struct {
	*process
	lock     resourcelock.Interface
	observed resourcelock.LeaderElectionRecord
	at       time.Time
}

// acquire takes or renews the lease.
func (e *elector) acquire() bool {
	now := e.clock.Now()
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity: e.identity, LeaseDurationSeconds: int(leaseDuration.Seconds()), RenewTime: metav1.NewTime(now), AcquireTime: metav1.NewTime(now),
	}
	ctx, cancel := context.WithTimeout(e.ctx, renewDeadline)
	defer cancel()
	if e.leads.Load() && e.observed.HolderIdentity == e.identity && e.lock.Update(ctx, record) == nil {
		e.observed, e.at = record, e.clock.Now()
		return true
	}
	old, _, err := e.lock.Get(ctx)
	if err != nil {
		if e.lock.Create(ctx, record) != nil {
			return false
		}
		e.observed, e.at = record, e.clock.Now()
		return true
	}
	if *old != e.observed {
		e.observed, e.at = *old, e.clock.Now()
	}
	if old.HolderIdentity != "" && old.HolderIdentity != e.identity && e.at.Add(leaseDuration).After(now) {
		return false
	}
	if e.leads.Load() && old.HolderIdentity != e.identity {
		return false
	}
	if e.lock.Update(ctx, record) != nil {
		return false
	}
	e.observed, e.at = record, e.clock.Now()
	return true
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

// runs reports whether the process can do anything now.
func (p *process) runs() bool {
	return p != nil && !p.dead.Load() && p.ctx.Err() == nil && !p.clock.isSuspended()
}

// reserved returns the pods that cards are reserved for.
func (p *process) reserved() []types.UID {
	p.shared.pods.mu.Lock()
	defer p.shared.pods.mu.Unlock()
	var reserved []types.UID
	for uid, record := range p.shared.pods.byUID {
		if record.reservation != nil {
			reserved = append(reserved, uid)
		}
	}
	slices.Sort(reserved)
	return reserved
}
