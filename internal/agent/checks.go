package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/daybreak-gpu/daybreak/internal/agent/check"
)

// Time between two runs of the checks: while none fails, and while one does.
const (
	checkInterval = 10 * time.Minute
	checkRetry    = 30 * time.Second
)

// nodeChecks is what the agent knows of the checks of its node.
type nodeChecks struct {
	run func(context.Context) (*check.Report, error)
	// waived are the names of checks that may fail.
	waived []string
	// report is of the last run, nil before the first has ended.
	report *check.Report
}

// CheckNode makes the agent check its node regularly. It is called before Run.
func (a *Agent) CheckNode(asker *check.Asker, waived []string) {
	a.checks = nodeChecks{waived: waived, run: func(ctx context.Context) (*check.Report, error) {
		facts, err := asker.Ask(ctx)
		if err != nil {
			return nil, err
		}
		return check.Run(facts), nil
	}}
}

// checkNode runs the checks regularly and returns the reports. Nothing waits for its
// end: the driver may never answer.
func (a *Agent) checkNode(ctx context.Context) <-chan *check.Report {
	if a.checks.run == nil {
		return nil
	}
	reports := make(chan *check.Report)
	go func() {
		for {
			wait := checkRetry
			if r := a.checkTwice(ctx); r != nil {
				if !r.Failed() {
					wait = checkInterval
				}
				select {
				case reports <- r:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-a.clock.After(wait):
			case <-ctx.Done():
				return
			}
		}
	}()
	return reports
}

// checkTwice repeats checks of which one failed: slices may have changed meanwhile.
func (a *Agent) checkTwice(ctx context.Context) *check.Report {
	r, err := a.checks.run(ctx)
	if err == nil && len(r.Blocking(a.checks.waived)) > 0 {
		r, err = a.checks.run(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Node not checked")
		return nil
	}
	return r
}

// fault returns why the checks block serving; no reason if they do not.
func (c *nodeChecks) fault() fault {
	switch {
	case c.run == nil:
		return fault{}
	case c.report == nil:
		return fault{reasonChecking, "the checks of the node have not ended yet"}
	}
	var texts []string
	for _, o := range c.report.Blocking(c.waived) {
		texts = append(texts, fmt.Sprintf("check %s failed: %s; %s", o.Name, o.Detail, o.Advice))
	}
	if len(texts) == 0 {
		return fault{}
	}
	return fault{reasonCheckFailed, strings.Join(texts, "; ") + "; agent.waive (--waive) has the node served all the same"}
}

// waivedFault describes the checks that are waived; no reason if there are none.
func (c *nodeChecks) waivedFault() fault {
	if len(c.waived) == 0 {
		return fault{}
	}
	var texts []string
	for _, name := range slices.Sorted(slices.Values(c.waived)) {
		text := name
		if c.report != nil {
			if o, ok := c.report.Of(name); ok {
				text += fmt.Sprintf(" (%s: %s)", o.Result, o.Detail)
			}
		}
		texts = append(texts, text)
	}
	return fault{reasonWaived, "the node is served regardless of these checks: " + strings.Join(texts, ", ")}
}
