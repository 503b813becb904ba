package scheduler

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The election as kube-scheduler has it by default.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

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
