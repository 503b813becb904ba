package nodelock

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// noon is when every test begins.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestJudge(t *testing.T) {
	const expiry = 5 * time.Minute
	const value = "2026-01-02T12:00:00Z,ns,a"
	tests := map[string]struct {
		value string
		owner owner
		// first and running are when the lock and its running owner were first
		// seen, now is when it is judged, all after noon.
		first, running, now time.Duration
		wantOver            bool
		wantUntil           time.Duration // after noon; 0 for no such time
	}{
		"fresh, of a pod that another scheduler binds":   {value: value, owner: pending, now: time.Second, wantUntil: expiry},
		"just before it expires":                         {value: value, owner: pending, now: expiry - 1, wantUntil: expiry},
		"expired by its own time":                        {value: value, owner: pending, now: expiry, wantOver: true},
		"expired by its own time, though just seen":      {value: value, owner: pending, first: time.Hour, now: time.Hour, wantOver: true},
		"bound and not served":                           {value: value, owner: bound, now: time.Minute, wantUntil: expiry},
		"bound and not served in time":                   {value: value, owner: bound, now: expiry, wantOver: true},
		"this process is binding":                        {value: value, owner: binding, now: time.Second},
		"this process is still binding after an hour":    {value: value, owner: binding, now: time.Hour},
		"this scheduler has given it up":                 {value: value, owner: left, now: time.Second, wantOver: true},
		"bound elsewhere":                                {value: value, owner: elsewhere, now: time.Second, wantOver: true},
		"gone":                                           {value: value, owner: gone, now: time.Second, wantOver: true},
		"runs, and the plugin may be about to unlock":    {value: value, owner: served, running: time.Minute, now: time.Minute + 9*time.Second, wantUntil: time.Minute + servedGrace},
		"runs, and the plugin has left the lock":         {value: value, owner: served, running: time.Minute, now: time.Minute + servedGrace, wantOver: true},
		"runs, and it expires before the plugin's grace": {value: value, owner: served, running: expiry - time.Second, now: expiry, wantOver: true},
		"of an old scheduler":                            {value: "2026-01-02T12:00:00Z", owner: unnamed, now: time.Minute, wantUntil: expiry},
		"of an old scheduler, expired":                   {value: "2026-01-02T12:00:00Z", owner: unnamed, now: expiry, wantOver: true},
		"unreadable, counted from when it was seen":      {value: "??", owner: unnamed, first: time.Hour, now: time.Hour + time.Minute, wantUntil: time.Hour + expiry},
		"unreadable for too long":                        {value: "??", owner: unnamed, first: time.Hour, now: time.Hour + expiry, wantOver: true},
		"of a future that can't be right":                {value: "2099-01-01T00:00:00Z,ns,a", owner: pending, now: time.Minute, wantUntil: expiry},
		"of a future that can't be right, for too long":  {value: "2099-01-01T00:00:00Z,ns,a", owner: pending, now: expiry, wantOver: true},
		"of a clock that is a little ahead":              {value: "2026-01-02T12:00:02Z,ns,a", owner: pending, first: time.Second, now: time.Minute, wantUntil: expiry + time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := see(tt.value, noon.Add(tt.first))
			if tt.running > 0 {
				s.running = noon.Add(tt.running)
			}
			got := judge(&s, tt.owner, expiry, noon.Add(tt.now))
			if got.over != tt.wantOver || got.why == "" {
				t.Errorf("judge() = %+v, want over %v and a reason", got, tt.wantOver)
			}
			var want time.Time
			if tt.wantUntil > 0 {
				want = noon.Add(tt.wantUntil)
			}
			if !got.over && !got.until.Equal(want) {
				t.Errorf("held until %s, want %s", got.until, want)
			}
		})
	}
}

func TestStarted(t *testing.T) {
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	tests := map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"no status yet":                {},
		"all are being made":           {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting, waiting}}},
		"one runs":                     {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting, running}}, want: true},
		"an init container has run":    {status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{ended}, ContainerStatuses: []corev1.ContainerStatus{waiting}}, want: true},
		"a container ended and waits":  {status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{ended}}, want: true},
		"the phase alone says nothing": {status: corev1.PodStatus{Phase: corev1.PodRunning}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := started(&corev1.Pod{Status: tt.status}); got != tt.want {
				t.Errorf("started() = %v, want %v", got, tt.want)
			}
		})
	}
}
