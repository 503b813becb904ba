package command

import (
	"context"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/view"
)

// follow shows the status as it changes, until the context ends.
func (o *statusOptions) follow(ctx context.Context, stdout io.Writer, colors palette) error {
	client, err := o.access.Client()
	if err != nil {
		return err
	}
	watcher, err := cluster.NewWatcher(ctx, client, o.plugin)
	if err != nil {
		return err
	}
	screen := newScreen(stdout)
	defer screen.close()
	f := follower{palette: colors, options: o, screen: screen, confirmed: &audit.Report{}}
	err = watcher.Run(ctx, f.show)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// follower shows what a watcher sees.
type follower struct {
	palette
	options *statusOptions
	screen  *screen

	seen   cluster.Sight
	status *view.Status
	// report is the audit made at the time checked, and confirmed has those of its
	// violations that the audit before had too: what was only seen halfway through a
	// change is left out. Due means that another audit is.
	report, confirmed *audit.Report
	checked           time.Time
	due               bool
}

// recheck is how often a cluster that does not change is audited: some rules are
// broken by mere time.
const recheck = 30 * time.Second

// show shows what is seen. On a terminal the clock and the ages advance; elsewhere
// only what is new is printed.
func (f *follower) show(seen cluster.Sight) error {
	changed := seen.Objects != f.seen.Objects
	fresh := changed || !seen.Lost.Equal(f.seen.Lost)
	f.seen = seen
	if age := f.options.now().Sub(f.checked); changed || f.due && age >= settle || age >= recheck {
		news, err := f.look()
		if err != nil {
			return err
		}
		fresh = fresh || news
	}
	if !fresh && f.screen.terminal == nil {
		return nil
	}
	return f.screen.show(f.text(), f.options.now())
}

// look makes a status of what is seen, and reports whether the number of violations
// is another one.
func (f *follower) look() (news bool, err error) {
	snapshot, before := f.seen.Objects.Snapshot(), len(f.confirmed.Violations)
	f.audit(snapshot, f.options.now())
	f.status, err = f.options.status(snapshot, f.confirmed)
	return len(f.confirmed.Violations) != before, err
}

// audit audits the cluster, unless that was just done: of a large one that changes
// all the time it takes as long as all else together.
func (f *follower) audit(snapshot *cluster.Snapshot, now time.Time) {
	if f.due = now.Sub(f.checked) < settle; f.due {
		return
	}
	report := audit.Check(snapshot, now)
	f.confirmed = report.Confirmed(f.report)
	f.due = len(f.confirmed.Violations) < len(report.Violations)
	f.report, f.checked = report, now
}

// text renders what is seen: on a terminal with the time and how old it is, and
// dimmed while the connection is lost.
func (f *follower) text() text {
	seen, lost := f.seen, !f.seen.Lost.IsZero()
	status, now := f.status, f.options.now()
	return func(columns, rows int) []string {
		t := f.options.text(status, f.palette, columns)
		if f.screen.terminal == nil {
			if lost {
				return wrap("", lostSince(&seen), columns)
			}
			return strings.Split(strings.TrimSuffix(t.text(), "\n"), "\n")
		}
		head := f.head(&seen, now, columns)
		lines := strings.Split(strings.TrimSuffix(t.text(), "\n"), "\n")
		if rows > 0 {
			lines = t.fitting(max(1, rows-len(head)))
		}
		if lost {
			lines = f.dimmed(lines)
		}
		return append(head, lines...)
	}
}

// head says what time it is, and how old the data is.
func (f *follower) head(seen *cluster.Sight, now time.Time, columns int) []string {
	age := "data " + duration.HumanDuration(max(0, now.Sub(seen.Answered))) + " old"
	color, state := dim, "connected, "+age
	if !seen.Lost.IsZero() {
		color, state = red, lostSince(seen)+"; "+age
	}
	var head []string
	for _, line := range wrap("", now.Format(time.TimeOnly)+" "+state, columns) {
		head = append(head, f.paint(color, line))
	}
	return append(head, "")
}

// lostSince says since when the cluster can't be read, and why.
func lostSince(seen *cluster.Sight) string {
	text := "connection lost at " + seen.Lost.Format(time.TimeOnly) + ", retrying"
	if seen.Err != nil {
		text += " (" + seen.Err.Error() + ")"
	}
	return text
}
