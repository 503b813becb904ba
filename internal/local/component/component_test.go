package component

import (
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestEtcdWarnings: etcd logs the requests that take long, not all of them.
func TestEtcdWarnings(t *testing.T) {
	cfg := etcdConfig(t.TempDir(), "1", "2")
	gputest.Equal(t, "how long a request takes of which etcd warns", embed.DefaultWarningUnaryRequestDuration, cfg.WarningUnaryRequestDuration)
	gputest.Equal(t, "how long etcd applies a request of which it warns", embed.DefaultWarningApplyDuration, cfg.WarningApplyDuration)
}
