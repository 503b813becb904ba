package chaos

import (
	"context"
	"time"
)

// victims are the processes that are killed and paused.
var victims = []struct {
	name string
	part func(w *world, f *fault) *part
	// leads reports that it may hold a lease, and is paused for longer than that
	// lasts.
	leads bool
	// back is as that of a kind.
	back func(ctx context.Context, w *world, f *fault) error
}{
	{name: "scheduler leader", part: func(w *world, _ *fault) *part { return leader(w.schedulers) }, leads: true},
	{name: "scheduler standby", part: func(w *world, _ *fault) *part { return standby(w.schedulers) }},
	{name: "manager", part: func(w *world, f *fault) *part { return w.managers[f.random.IntN(len(w.managers))] }, leads: true},
	{name: "agent", part: func(w *world, f *fault) *part { return f.pickServer(w).agent }, back: isServed},
	{name: "apiserver", part: func(w *world, _ *fault) *part { return w.apiserver }},
	{name: "etcd", part: func(w *world, _ *fault) *part { return w.etcd }},
}

// isServed says what is missing until the machine that was hit takes pods.
func isServed(ctx context.Context, w *world, f *fault) error { return w.served(ctx, f.server) }

// processKinds are kill -9 and SIGSTOP, SIGCONT of every process.
func processKinds() []*kind {
	var list []*kind
	for _, v := range victims {
		list = append(list, &kind{
			name: "kill " + v.name, back: v.back,
			strike: func(ctx context.Context, w *world, f *fault) error {
				v.part(w, f).kill(ctx, f.between(0, 1500*time.Millisecond), f.struck)
				return nil
			},
		}, &kind{
			name: "pause " + v.name, back: v.back,
			strike: func(ctx context.Context, w *world, f *fault) error {
				d := f.between(500*time.Millisecond, 4*time.Second)
				if v.leads {
					d = w.lease + f.between(500*time.Millisecond, 2*time.Second)
				}
				v.part(w, f).pause(ctx, d, f.struck)
				return nil
			},
		})
	}
	return list
}
