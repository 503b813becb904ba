package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// starts measures the time from the start of a process to its first binding.
func (w *world) starts(ctx context.Context, result *Result) error {
	kind := w.bench.plan.Kinds[w.plan.Residents.Kind]
	took, peak := map[side][]float64{}, map[side][]float64{}
	for round := range w.bench.plan.Rounds {
		for _, c := range contenders(round) {
			s := c.side
			seconds, mib, err := w.startOnce(ctx, s, kind.pod("first", roleRun))
			if err != nil {
				return err
			}
			took[s], peak[s] = append(took[s], seconds), append(peak[s], mib)
			w.logf("%d nodes, start, round %d: %s bound its first pod after %.1f s, %.0f MiB", w.plan.Nodes, round+1, s, seconds, mib)
		}
	}
	result.Starts = append(result.Starts, Start{
		Nodes: w.plan.Nodes, BoundPods: w.plan.Nodes * w.plan.Residents.Percent / 100 * w.plan.Residents.PerNode,
		DaybreakSeconds: median(took[daybreak]), PlainSeconds: median(took[plain]),
		DaybreakPeakMiB: median(peak[daybreak]), PlainPeakMiB: median(peak[plain]),
	})
	return nil
}

func (w *world) startOnce(ctx context.Context, s side, pod *corev1.Pod) (seconds, peakMiB float64, err error) {
	if err := w.create(ctx, 1, []*corev1.Pod{pod}); err != nil {
		return 0, 0, err
	}
	bound, err := w.watchBindings(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer bound.stop()
	begin := time.Now()
	process, err := w.startScheduler(ctx, contender{s, equalLimits}, "")
	if err != nil {
		return 0, 0, err
	}
	defer process.Stop()
	go w.bench.saveProfile(ctx, process, "start", "cpu", "/debug/pprof/profile?seconds=10")
	at, err := bound.next(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("%w; its log is %s", err, process.Log())
	}
	if peakMiB, err = process.peakMiB(); err != nil {
		return 0, 0, err
	}
	return at.Sub(begin).Seconds(), peakMiB, w.clear(ctx)
}

// wakes measures what happens when residents of a full cluster end, one after
// the other: how soon the pod that this helps is bound, and how often others
// are tried for nothing.
func (w *world) wakes(ctx context.Context, result *Result) error {
	out := Wake{Nodes: w.plan.Nodes, Waiting: w.plan.Wake.Waiting.Pods, Ends: w.plan.Wake.Helped.Pods}
	for _, s := range []side{daybreak, plain} {
		figures, err := w.wakeAll(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		w.logf("%d nodes, %d pods wait: %s bound those that it helped after %.0f ms (at most %.0f ms), with %.1f attempts each",
			w.plan.Nodes, out.Waiting, s, figures.MedianMilliseconds, figures.MaxMilliseconds, figures.AttemptsPerEnd)
		if s == daybreak {
			out.Daybreak = figures
		} else {
			out.Plain = figures
		}
	}
	result.Wakes = append(result.Wakes, out)
	return nil
}

func (w *world) wakeAll(ctx context.Context, s side) (f WakeFigures, err error) {
	plan, kinds := w.plan.Wake, w.bench.plan.Kinds
	var pods []*corev1.Pod
	for i := range plan.Waiting.Pods {
		pods = append(pods, kinds[plan.Waiting.Kind].pod(fmt.Sprintf("waiting-%05d", i), roleRun))
	}
	for i := range plan.Helped.Pods {
		pods = append(pods, kinds[plan.Helped.Kind].pod(fmt.Sprintf("helped-%05d", i), roleRun))
	}
	if err := w.create(ctx, writers, pods); err != nil {
		return f, err
	}
	bound, err := w.watchBindings(ctx)
	if err != nil {
		return f, err
	}
	defer bound.stop()
	process, err := w.startScheduler(ctx, contender{s, equalLimits}, "")
	if err != nil {
		return f, err
	}
	defer process.Stop()
	before, err := w.settle(ctx, process, len(pods))
	if err != nil {
		return f, err
	}
	var delays []float64
	for i := range plan.Helped.Pods {
		// Residents are one node apart, so that no node becomes empty.
		name := fmt.Sprintf("metax-%d-%03d", i+1, 0)
		begin := time.Now()
		if err := w.delete(ctx, name); err != nil {
			return f, err
		}
		at, err := bound.next(ctx)
		if err != nil {
			return f, fmt.Errorf("after the end of %s: %w; the log is %s", name, err, process.Log())
		}
		delays = append(delays, float64(at.Sub(begin))/float64(time.Millisecond))
	}
	after, err := w.settle(ctx, process, 0)
	if err != nil {
		return f, err
	}
	for _, d := range delays {
		f.MaxMilliseconds = max(f.MaxMilliseconds, d)
	}
	f.MedianMilliseconds = median(delays)
	f.AttemptsPerEnd = (after - before) / float64(len(delays))
	if err := w.clear(ctx); err != nil {
		return f, err
	}
	_, err = w.addResidents(ctx)
	return f, err
}

// settle waits until at least so many attempts were made, and then none for a
// while, and returns how many there were. A pod's backoff may last ten seconds.
func (w *world) settle(ctx context.Context, s *scheduler, least int) (float64, error) {
	last, since := -1.0, time.Now()
	for time.Since(since) < 12*time.Second || last < float64(least) {
		if time.Since(since) > patience {
			return 0, fmt.Errorf("%v pods were tried, want %d", last, least)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
		page, err := s.metrics(ctx)
		if err != nil {
			continue // it is not up yet
		}
		if now := page.Sum("scheduler_schedule_attempts_total"); now != last {
			last, since = now, time.Now()
		}
	}
	return last, nil
}
