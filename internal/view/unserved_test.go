package view

import (
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestUnserved: explain and status name the schedulerName of a pod that none of
// Daybreak's schedulers looks at, and what to do.
func TestUnserved(t *testing.T) {
	const (
		koord   = "the pod's schedulerName is koord-scheduler, and Daybreak serves daybreak: create the pod without a schedulerName or with daybreak; "
		koordTo = "to serve koord-scheduler too, add --profile=koord-scheduler to the chart's scheduler.extraArgs and --scheduler-name=koord-scheduler to manager.extraArgs"
		own     = `"profiles":{"daybreak":{}}`
		said    = "\nstatus: {conditions: [{type: PodScheduled, status: \"False\", reason: Unschedulable, message: no room}]}"
	)
	for name, tc := range map[string]struct{ scheduler, pod, want string }{
		"a name that is served":              {own, "schedulerName: daybreak", ""},
		"a name that is not":                 {own, "schedulerName: koord-scheduler", koord + koordTo},
		"a name that was taken over":         {`"profiles":{"daybreak":{},"koord-scheduler":{}}`, "schedulerName: koord-scheduler", ""},
		"another scheduler has looked at it": {own, "schedulerName: koord-scheduler" + said, koord + koordTo + "; koord-scheduler last reported: no room"},
		"the cluster's own scheduler":        {own, "schedulerName: default-scheduler", "the pod's schedulerName is default-scheduler, and Daybreak serves daybreak: create the pod without a schedulerName or with daybreak; to serve it too, set the chart's scheduler.mode to replace"},
		"no scheduler is to be seen":         {"", "schedulerName: koord-scheduler", koord + koordTo},
		"nor whether this one is served":     {"", "schedulerName: default-scheduler", ""},
		"not seen, but one has looked at it": {"", "schedulerName: own" + said, ""},
		"a pod that is yet to be admitted":   {own, "restartPolicy: Never", ""},
		"a name of two schedulers, in order": {`"profiles":{"zeta":{},"alpha":{}}`, "schedulerName: hami-scheduler", "the pod's schedulerName is hami-scheduler, and Daybreak serves alpha and zeta: create the pod without a schedulerName or with alpha; to serve hami-scheduler too, add --profile=hami-scheduler to the chart's scheduler.extraArgs and --scheduler-name=hami-scheduler to manager.extraArgs"},
	} {
		t.Run(name, func(t *testing.T) {
			docs := []string{device("n1", 1, "64Gi"), with(pod("p", "gpu: 1"), tc.pod)}
			if tc.scheduler != "" {
				docs = append(docs, lease("scheduler", tc.scheduler))
			}
			s := snapshot(t, docs...)
			e := Explain(s, s.Pending[0], place.Default)
			if tc.want != "" && e.Scheduler != tc.want || tc.want == "" && e.Scheduler != "" && e.Scheduler != "no room" {
				t.Errorf("explain reports %q, want %q", e.Scheduler, tc.want)
			}
			if got, want := NewStatus(s, "").Pending[0].Message, "cards are free on n1: "+tc.want; tc.want != "" && got != want {
				t.Errorf("status reports %q, want %q", got, want)
			}
		})
	}
	s := snapshot(t, device("n1", 1, "64Gi"), lease("scheduler", own), with(pod("p", "other: 1"), "schedulerName: default-scheduler"))
	gputest.Equal(t, "of a pod without cards it reports", "", Explain(s, s.Pending[0], place.Default).Scheduler)
}
