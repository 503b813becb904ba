package agent

import (
	"slices"
	"time"
)

// How long something that went down must be good before it counts as up again:
// firstHold, and four times as long after each further fall within flapWindow.
const (
	firstHold  = 10 * time.Second
	longHold   = 30 * time.Minute
	holdGrowth = 4
	flapWindow = time.Hour
	// goodLooks is the least number of good looks in a row, however far apart.
	goodLooks = 2
)

// damper keeps something that flaps down. The zero damper is up.
type damper struct {
	down  bool
	falls []time.Time // within flapWindow of the last one
	good  int         // good looks in a row while down
	since time.Time   // of the first of them
}

// see notes the result of a look.
func (d *damper) see(ok bool, now time.Time) {
	switch {
	case !ok && !d.down:
		d.falls = append(slices.DeleteFunc(d.falls, func(t time.Time) bool { return now.Sub(t) > flapWindow }), now)
		d.down, d.good = true, 0
	case !ok:
		d.good = 0
	case d.down:
		if d.good == 0 {
			d.since = now
		}
		d.good++
		if d.good >= goodLooks && now.Sub(d.since) >= d.hold() {
			d.down, d.good = false, 0
		}
	}
}

// hold returns how long it must be good before it is up again.
func (d *damper) hold() time.Duration {
	hold := firstHold
	for range len(d.falls) - 1 {
		hold = min(hold*holdGrowth, longHold)
	}
	return hold
}

// recovering reports whether it is good, but not for long enough.
func (d *damper) recovering() bool { return d.down && d.good > 0 }
