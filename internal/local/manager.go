package local

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/daybreak-gpu/daybreak/internal/manager"
)

// newManager returns a manager of this cluster that answers for pods with cards,
// as a process that is not started yet. The webhook that asks it is in the
// cluster, and so are the policies. An empty dashboard is none.
func (c *Cluster) newManager(ctx context.Context, metrics, dashboard string) (*Process, error) {
	if err := c.Guard(ctx, c.Policies()); err != nil {
		return nil, err
	}
	addresses, err := FreeAddresses(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := c.Webhook(ctx, addresses[0]); err != nil {
		return nil, err
	}
	return c.NewProcess("manager", c.Executable, append([]string{
		ComponentManager, "--kubeconfig=" + c.Kubeconfig("manager"), "--drain=0",
		"--audit-interval=10s", "--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + manager.Off,
		"--admission-bind-address=" + addresses[0], "--admission-host=127.0.0.1",
		"--scheduler-name=" + corev1.DefaultSchedulerName, "--scheduler-name=daybreak",
		"--dashboard-bind-address=" + cmp.Or(dashboard, manager.Off), "-v=2",
	}, shortLease...)...), nil
}
