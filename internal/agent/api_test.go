package agent

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

func TestPaced(t *testing.T) {
	limiter := flowcontrol.NewFakeAlwaysRateLimiter()
	for name, tc := range map[string]struct {
		config rest.Config
		qps    float32
		burst  int
	}{
		"nothing said":         {rest.Config{}, requestsPerSecond, requestsAtOnce},
		"no limit wanted":      {rest.Config{QPS: -1}, -1, 0},
		"a limit of its own":   {rest.Config{QPS: 7, Burst: 8}, 7, 8},
		"a limiter of its own": {rest.Config{RateLimiter: limiter}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.config
			got := paced(&tc.config)
			if got.QPS != tc.qps || got.Burst != tc.burst {
				t.Errorf("%v a second and %d at once, want %v and %d", got.QPS, got.Burst, tc.qps, tc.burst)
			}
			if tc.config.QPS != before.QPS {
				t.Error("the caller's own config was changed")
			}
		})
	}
}
