package component

import (
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// TestEtcdWarnings: etcd logs the requests that take long, not all of them.
func TestEtcdWarnings(t *testing.T) {
	cfg := etcdConfig(t.TempDir(), "1", "2")
	if got := cfg.WarningUnaryRequestDuration; got != embed.DefaultWarningUnaryRequestDuration {
		t.Errorf("etcd warns of requests that take more than %s", got)
	}
	if got := cfg.WarningApplyDuration; got != embed.DefaultWarningApplyDuration {
		t.Errorf("etcd warns of requests that it applies for more than %s", got)
	}
}
