package skew

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/daybreak-gpu/daybreak/internal/audit"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

// check ends the test unless everything is well after a step: nothing went wrong
// meanwhile, every new pod runs, the residents run as they did, machines hold what
// their pods do, and both versions' audits find nothing.
func (w *world) check(step string) {
	w.Helper()
	start := time.Now()
	visited := w.load.visited()
	reopen, err := w.load.quiet()
	defer reopen()
	if err = errors.Join(visited, err); err == nil {
		err = machine.Until(w.Ctx, time.Minute, func() error { return harness.Problems(w.wrong()) })
	}
	for _, x := range w.Parts.WithProcess() {
		w.Inspect(x)
	}
	list := append(w.TakeFaults(), w.load.untouched()...)
	list = append(list, w.vendor.Faults()...)
	list = append(list, w.Audit()...)
	if err != nil {
		list = append(list, err.Error())
	}
	denied, err := w.Requests.Denied(w.AuditLog())
	if err != nil {
		list = append(list, err.Error())
	}
	if err := harness.Problems(append(list, denied...)); err != nil {
		w.Fatalf("%s: %v", step, err)
	}
	w.Logf("%s: well after %s; %d pods came, %d requests of the parts were answered", step, time.Since(start).Round(100*time.Millisecond), w.load.count, w.Requests.Count)
}

// wrong returns what may take a moment to be right after pods came or went.
func (w *world) wrong() []string {
	objects, err := harness.Read(w.Ctx, w.REST())
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	for _, m := range w.Machines {
		if !m.Serving() {
			list = append(list, m.Node+" is not served")
		}
		list = append(list, m.CheckLeaks(objects)...)
		list = append(list, w.lostSlices(m)...)
	}
	return list
}

// lostSlices returns the residents' slices that are not what they were.
func (w *world) lostSlices(m *machine.Machine) []string {
	_, now, err := fake.Read(m.Driver())
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	for _, slice := range w.slices[m.Node] {
		if !slices.Contains(now, slice) {
			list = append(list, fmt.Sprintf("%s: slice %+v is gone or another", m.Node, slice))
		}
	}
	return list
}

// watchdog looks every second, while things go on, for what may never be. As the
// command does, it believes what it sees twice: objects are read one by one.
func (w *world) watchdog() {
	var before *audit.Report
	for machine.Sleep(w.Ctx, time.Second) {
		objects, err := harness.Read(w.Ctx, w.REST())
		if err != nil {
			if w.Ctx.Err() == nil {
				w.Fault("read the cluster: %v", err)
			}
			return
		}
		now := audit.Check(objects.Snapshot(), time.Now())
		if before != nil {
			for _, v := range now.Confirmed(before).Violations {
				w.Fault("audit while it went on: %s: %s (pods %v)", v.Rule, v.Message, v.Pods)
			}
		}
		before = now
	}
}
