package chaos

import (
	"context"
	"fmt"
	"strings"

	"github.com/daybreak-gpu/daybreak/test/machine"
)

// Series that show leaks inside processes.
const (
	seriesGoroutines   = "go_goroutines"
	seriesReservations = "daybreak_scheduler_reservations"
)

// metric reads one figure of a part.
func (w *world) metric(ctx context.Context, p *part, series string) (float64, error) {
	text, err := machine.Get(ctx, p.address+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	n, err := machine.Metrics(text).Value(series)
	if err != nil {
		err = fmt.Errorf("metrics of %s: %w", p.name, err)
	}
	return n, err
}

// ours returns the parts that are Daybreak's.
func (w *world) ours() []*part {
	var list []*part
	for _, p := range w.parts {
		if p.proxy != nil {
			list = append(list, p)
		}
	}
	return list
}

// roleOf is what parts of a kind have in common: a leader does more than others.
func (w *world) roleOf(p *part) string {
	role, _, _ := strings.Cut(p.name, "-")
	if p == leader(w.schedulers) || p == leader(w.managers) {
		return "leading " + role
	}
	return role
}

// level notes how many goroutines the parts have when nothing goes on.
func (w *world) level() {
	for _, p := range w.ours() {
		n, err := w.metric(w.Ctx, p, seriesGoroutines)
		w.Must(err)
		w.mu.Lock()
		role := w.roleOf(p)
		w.levels[role] = max(w.levels[role], n)
		w.mu.Unlock()
	}
}

// goroutineSlack is how many goroutines more than at the beginning are no leak:
// connections that idle, and a watch for each node and pod in hand.
const goroutineSlack = 120

// checkFigures: no part has more goroutines than at the beginning, and the
// schedulers keep no more reservations than there are pods.
func (w *world) checkFigures(ctx context.Context) []string {
	var list []string
	for _, p := range w.ours() {
		n, err := w.metric(ctx, p, seriesGoroutines)
		if err != nil {
			list = append(list, err.Error())
			continue
		}
		w.mu.Lock()
		most, known := w.levels[w.roleOf(p)]
		w.mu.Unlock()
		if known && n > most+goroutineSlack {
			list = append(list, fmt.Sprintf("leak: %s has %v goroutines, at the beginning a %s had %v", p.name, n, w.roleOf(p), most))
		}
	}
	return list
}
