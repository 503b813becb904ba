package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// between whom and the API server it goes wrong.
func (f *fault) proxies(w *world) []*proxy {
	var list []*proxy
	add := func(parts ...*part) {
		for _, p := range parts {
			list = append(list, p.proxy)
		}
	}
	switch f.random.IntN(6) {
	case 0:
		add(leader(w.schedulers))
	case 1:
		add(w.schedulers...)
	case 2:
		add(w.managers...)
	case 3:
		add(f.pickServer(w).agent)
	case 4:
		for _, s := range w.servers {
			add(s.agent)
		}
	default:
		add(w.schedulers...)
		add(w.managers...)
		for _, s := range w.servers {
			add(s.agent)
		}
	}
	return list
}

// disturb makes the rules hold for a while, on every proxy that the fault picks.
func (f *fault) disturb(ctx context.Context, w *world, rules ...rule) {
	var remove []func()
	for _, p := range f.proxies(w) {
		for _, x := range rules {
			x.random = rand.New(rand.NewPCG(f.random.Uint64(), 1))
			remove = append(remove, p.add(&x))
		}
	}
	f.struck()
	machine.Sleep(ctx, f.between(1500*time.Millisecond, 4*time.Second))
	for _, do := range remove {
		do()
	}
}

// apiKinds are what a proxy does between the parts and the API server.
func apiKinds() []*kind {
	return []*kind{
		{name: "api errors", strike: func(ctx context.Context, w *world, f *fault) error {
			// An API server that has just started forbids at times what is allowed.
			codes := []int{
				http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests,
				http.StatusUnauthorized, http.StatusForbidden,
			}
			code := codes[f.random.IntN(len(codes))]
			f.disturb(ctx, w,
				rule{is: isWatch, chance: 0.05, code: code},
				rule{is: func(r *http.Request) bool { return !isWatch(r) }, chance: f.chance(0.2, 0.8), code: code})
			return nil
		}},
		// What was carried out is denied when it is sent again.
		{name: "api answers lost, then denied", strike: func(ctx context.Context, w *world, f *fault) error {
			code := []int{http.StatusUnauthorized, http.StatusForbidden}[f.random.IntN(2)]
			f.disturb(ctx, w,
				rule{is: isWrite, chance: f.chance(0.2, 0.5), lost: true},
				rule{is: func(r *http.Request) bool { return !isWatch(r) && !isLease(r) }, chance: f.chance(0.2, 0.5), code: code})
			return nil
		}},
		{name: "api conflicts", strike: func(ctx context.Context, w *world, f *fault) error {
			f.disturb(ctx, w, rule{is: isWrite, chance: f.chance(0.2, 0.8), code: http.StatusConflict})
			return nil
		}},
		{name: "api answers lost", strike: func(ctx context.Context, w *world, f *fault) error {
			f.disturb(ctx, w, rule{is: isWrite, chance: f.chance(0.2, 0.9), lost: true})
			return nil
		}},
		{name: "api timeouts", strike: func(ctx context.Context, w *world, f *fault) error {
			f.disturb(ctx, w, rule{
				is: func(r *http.Request) bool { return !isWatch(r) }, chance: f.chance(0.1, 0.5), held: f.between(500*time.Millisecond, 3*time.Second),
			})
			return nil
		}},
		{name: "watches slow", strike: slowWatches},
		{name: "watches cut", strike: func(ctx context.Context, w *world, f *fault) error {
			proxies := f.proxies(w)
			f.struck()
			// Clients take a watch of less than a second for a sick server, and
			// then wait longer each time.
			for range 2 + f.random.IntN(2) {
				for _, p := range proxies {
					p.cutWatches()
				}
				machine.Sleep(ctx, f.between(1100*time.Millisecond, 2*time.Second))
			}
			return nil
		}},
	}
}

// slowWatches holds up every piece of every watch. Those that are open are cut,
// so that they are opened again under the rule, and at the end without it.
func slowWatches(ctx context.Context, w *world, f *fault) error {
	by := f.between(50*time.Millisecond, 700*time.Millisecond)
	var undo []func()
	for _, p := range f.proxies(w) {
		undo = append(undo, p.add(&rule{is: isWatch, chance: 1, slow: by, random: rand.New(rand.NewPCG(f.random.Uint64(), 1))}), p.cutWatches)
		p.cutWatches()
	}
	f.struck()
	machine.Sleep(ctx, f.between(2*time.Second, 5*time.Second))
	for _, do := range undo {
		do()
	}
	return nil
}
