package local

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"

	"github.com/daybreak-gpu/daybreak/internal/manager"
)

// Manager is a "daybreak manager" that runs in this process.
type Manager struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error // set before ended is closed
	log   string
}

// StartManager starts a manager of this cluster, with the rights that it would
// have in any; its log file has the given name. It returns at once.
func (c *Cluster) StartManager(ctx context.Context, name string, cfg manager.Config) (*Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig("manager"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	m := &Manager{ended: make(chan struct{}), log: filepath.Join(c.Dir, "logs", name+".log")}
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cfg.Logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(2)))
	run, err := manager.New(cfg, config)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		m.err = run.Run(ctx)
		_ = log.Close()
		close(m.ended)
	}()
	return m, nil
}

// Stop asks the manager to end and returns when it has.
func (m *Manager) Stop() {
	m.stop()
	<-m.ended
}

// Ended is closed when the manager has ended.
func (m *Manager) Ended() <-chan struct{} { return m.ended }

// Log returns the path of the log file.
func (m *Manager) Log() string { return m.log }

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
	return c.NewProcess("manager", c.Executable, ComponentManager, "--kubeconfig="+c.Kubeconfig("manager"), "--leader-elect=false", "--drain=0",
		"--audit-interval=10s", "--metrics-bind-address="+metrics, "--health-probe-bind-address="+manager.Off,
		"--admission-bind-address="+addresses[0], "--admission-host=127.0.0.1",
		"--scheduler-name="+corev1.DefaultSchedulerName, "--scheduler-name=daybreak",
		"--dashboard-bind-address="+cmp.Or(dashboard, manager.Off), "-v=2"), nil
}
