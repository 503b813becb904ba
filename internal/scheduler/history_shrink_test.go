package scheduler

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// replay plays the steps, those that can be done, and then lets all go well.
func replay(t *testing.T, in outcome) (out outcome) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(in.profiles, in.slots)
		for _, s := range in.steps {
			if s.op != opCalm {
				w.do(s)
			}
		}
		w.finish()
		out = w.outcome()
		w.end()
	})
	return out
}

// What may come of a history that goes wrong.
const (
	givenTwice = "a card is given twice"
	sleeps     = "a pod sleeps"
	kept       = "cards are kept"
	leaks      = "a record is kept"
	miscounts  = "a budget is counted wrong"
)

// class returns what kind of problem it is: who is freed of other problems must
// keep his own.
func (o *outcome) class() string {
	switch {
	case o.problem == "":
		return ""
	case strings.Contains(o.problem, "waits although"):
		return sleeps
	case strings.Contains(o.problem, "keeps cards"):
		return kept
	case strings.Contains(o.problem, "keeps a record"):
		return leaks
	case strings.Contains(o.problem, "from scratch"):
		return miscounts
	default:
		return givenTwice
	}
}

// shrinkTime bounds the search for a shorter history.
const shrinkTime = 30 * time.Second

// shrink leaves out as many steps as it can without losing the problem.
func shrink(t *testing.T, found outcome) outcome {
	t.Helper()
	began := time.Now()
	best := found
	for size := len(best.steps) / 2; size > 0; size /= 2 {
		for changed := true; changed; {
			changed = false
			for from := len(best.steps) - size; from > -size; from -= size {
				if time.Since(began) > shrinkTime {
					return best
				}
				less := best
				less.steps = slices.Delete(slices.Clone(best.steps), max(0, from), min(len(best.steps), from+size))
				if got := replay(t, less); got.class() == found.class() && len(got.steps) < len(best.steps) {
					best, changed = got, true
				}
			}
		}
	}
	return best
}
