package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
)

const (
	// startAnswers is how often the API server is asked at the start: with several
	// servers behind one address, an upgrade makes them differ for a while.
	startAnswers = 10
	// serverPoll is how often it is asked later.
	serverPoll = 30 * time.Second
	// serverSettled is for how long all answers must allow a better setting before
	// this process ends to take it, and serverRestart how long it runs before that.
	serverSettled = 10 * time.Minute
	serverRestart = time.Hour
	// mostLacking is how many answers in that time may lack a resource in use.
	mostLacking = 2
)

// errOutdated ends a process whose setting no longer fits the API server.
var errOutdated = errors.New("ending, so that the next process uses what it serves")

// serverWatch compares the API server with the setting of this process. Settings
// are made once, at the start, so another one needs another process: serverWatch
// ends this one when a resource in use is gone, or when a newer server allows a
// better setting. The time since the start limits how often the latter happens,
// so nothing has to be kept between processes.
type serverWatch struct {
	*setting
	clock clock.Clock
	// ask returns one answer.
	ask func(context.Context) (*cluster.Server, error)
	// settled is for how long all answers must allow a better setting.
	settled time.Duration

	start time.Time
	// known are the versions that were logged.
	known sets.Set[string]
	// better is since when all answers allow a better setting; zero: they do not.
	better time.Time
	// lacking are the times of answers without a resource in use.
	lacking []time.Time
}

func newServerWatch(s *setting, clk clock.Clock, ask func(context.Context) (*cluster.Server, error)) *serverWatch {
	return &serverWatch{
		setting: s, clock: clk, ask: ask, start: clk.Now(), known: sets.New(s.server.Version.String(), s.server.Newest.String()),
		// Replicas that saw the same upgrade must not end at the same time.
		settled: wait.Jitter(serverSettled, 1),
	}
}

// run asks until the context ends or this process has to; then it returns why.
func (w *serverWatch) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.clock.After(wait.Jitter(serverPoll, 0.2)):
		}
		server, err := w.ask(ctx)
		if err := w.take(klog.FromContext(ctx), server, err); err != nil {
			return err
		}
	}
}

// take takes an answer and returns why this process has to end, if it has to.
func (w *serverWatch) take(logger klog.Logger, server *cluster.Server, err error) error {
	if err != nil {
		logger.V(2).Info("The API server's version is not known now", "cause", err)
		w.better = time.Time{} // what that server would allow is not known
		return nil
	}
	now := w.clock.Now()
	if v := server.Version.String(); !w.known.Has(v) {
		w.known.Insert(v)
		logger.Info("An API server of another version answers", "version", v, "emulated", w.emulated.String())
	}
	w.lacking = slices.DeleteFunc(w.lacking, func(at time.Time) bool { return now.Sub(at) > serverSettled })
	if i := slices.IndexFunc(w.inUse, func(r schema.GroupVersionResource) bool { return !server.Serves(r) }); i >= 0 {
		if w.lacking = append(w.lacking, now); len(w.lacking) > mostLacking {
			return fmt.Errorf("API server %s does not serve %s, which is in use: %w", server.Version, nameOf(w.inUse[i]), errOutdated)
		}
	}
	if !w.improves(server) {
		w.better = time.Time{}
		return nil
	}
	if w.better.IsZero() {
		w.better = now
	}
	if now.Sub(w.better) < w.settled || now.Sub(w.start) < serverRestart {
		return nil
	}
	return fmt.Errorf("API server %s has newer features than %s, which answered at the start: %w", server.Version, w.setting.server.Version, errOutdated)
}

// improves reports whether a process that starts now would have a newer setting.
func (w *serverWatch) improves(server *cluster.Server) bool {
	return w.emulate != nil && w.emulate(server).GreaterThan(w.emulated) || slices.ContainsFunc(w.missing, server.Serves)
}
