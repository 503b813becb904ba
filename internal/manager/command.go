package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/manager/audit"
	"github.com/daybreak-gpu/daybreak/internal/manager/cert"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// command is the manager subcommand.
type command struct {
	cfg        Config
	kubeconfig string
	cardMemory resource.QuantityValue
	logs       *logsapi.LoggingConfiguration
}

// NewCommand returns the command that runs the manager.
func NewCommand() *cobra.Command {
	c := &command{logs: logsapi.NewLoggingConfiguration()}
	c.cardMemory.Quantity = *resource.NewQuantity(int64(webhook.DefaultCardMemory)*wire.Mebibyte, resource.BinarySI)
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers, the admission webhook, the audit and the dashboard",
		Long: `Manager runs the cluster-wide functions of Daybreak.

Node resources: from each node's Device, the manager writes the resources of the
healthy cards to the Node, and the vendor, model and driver version as labels. They
are removed with the Device. Devices of other vendors are ignored.

  koordinator.sh/gpu.shared, gpu-core, gpu-memory-ratio, gpu    100 for each card
  koordinator.sh/gpu-memory                                     total card memory

Admission: the webhook sets the defaults of pods that request MetaX cards and rejects
invalid requests with a message that shows a valid alternative. The manager creates
and rotates the certificates of the webhook.

Audit: the manager audits the cluster continuously, as daybreak audit does. A
violation is reported as an Event on its pods and its node, and as a metric.

Dashboard: by default it is served on 127.0.0.1, for kubectl port-forward. On other
addresses it is served over TLS and requires a login. Users who may list nodes and
devices see the cards, and the pods of the namespaces in which they may list pods.

Run two or more replicas for availability. All replicas answer requests; the leader
writes. The CustomResourceDefinition of Device is required.`,
		Example: `  # Inside a cluster, in the namespace daybreak-system
  daybreak manager

  # Outside the cluster, a single replica
  daybreak manager --kubeconfig ~/.kube/config --leader-elect=false

  # Open the dashboard at http://localhost:8082
  kubectl -n daybreak-system port-forward deployment/daybreak-manager 8082

  # Metrics
  curl localhost:8080/metrics | grep daybreak_manager`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default: the cluster the manager runs in)")
	f.StringVar(&c.cfg.Namespace, "namespace", DefaultNamespace, "`NAMESPACE` of the manager")
	f.StringVar(&c.cfg.MetricsAddress, "metrics-bind-address", ":8080", "`ADDRESS` of /metrics, 0 for none")
	f.StringVar(&c.cfg.MetricsCertFile, "metrics-tls-cert-file", "", "`FILE` with the certificate of /metrics (default: plain HTTP)")
	f.StringVar(&c.cfg.MetricsKeyFile, "metrics-tls-key-file", "", "`FILE` with its key")
	f.StringVar(&c.cfg.HealthAddress, "health-probe-bind-address", ":8081", "`ADDRESS` of /healthz and /readyz, 0 for none")
	f.DurationVar(&c.cfg.AuditInterval, "audit-interval", audit.DefaultInterval, "minimum time between two audits, 0 for no audit")
	f.DurationVar(&c.cfg.Drain, "drain", DefaultDrain, "how long to keep answering after SIGTERM while /readyz fails; a second signal ends the manager immediately")
	f.Var(&c.cfg.VendorPlugin, "vendor-plugin-selector", "labels of the pods of the vendor's device plugin, as set for the scheduler (default: pods of a DaemonSet gpu-device or …-gpu-device)")
	f.StringVar(&c.cfg.VendorPlugin.Namespace, "vendor-namespace", wire.VendorNamespace, "`NAMESPACE` of the vendor's operator; pods of its device plugin in other namespaces do not count")
	cli.Group(cmd, "Leader election", c.leaderFlags)
	cli.Group(cmd, "Admission", c.admissionFlags)
	cli.Group(cmd, "Dashboard", c.dashboardFlags)
	cli.Group(cmd, "Logging", func(f *pflag.FlagSet) { logsapi.AddFlags(c.logs, f) })
	cli.Words(cmd, "logging-format", "text")
	cmd.MarkFlagsRequiredTogether("metrics-tls-cert-file", "metrics-tls-key-file")
	cmd.MarkFlagsRequiredTogether("dashboard-tls-cert-file", "dashboard-tls-key-file")
	return cmd
}

func (c *command) leaderFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.cfg.LeaderElect, "leader-elect", true, "write only while holding the lease "+LeaseName)
	f.StringVar(&c.cfg.LeaderElectNamespace, "leader-elect-namespace", "", "`NAMESPACE` of the lease (default: the manager's own)")
	f.DurationVar(&c.cfg.Lease.Duration, "leader-elect-lease-duration", 0, "how long other replicas wait for a leader that does not renew the lease (default 15s)")
	f.DurationVar(&c.cfg.Lease.RenewDeadline, "leader-elect-renew-deadline", 0, "how long a leader tries to renew the lease (default 10s)")
	f.DurationVar(&c.cfg.Lease.RetryPeriod, "leader-elect-retry-period", 0, "time between two attempts (default 2s)")
}

func (c *command) admissionFlags(f *pflag.FlagSet) {
	a := &c.cfg.Admission
	f.StringVar(&a.Address, "admission-bind-address", ":9443", "`ADDRESS` of the admission webhook, 0 for none")
	f.StringArrayVar(&a.Hosts, "admission-host", nil, "`NAME` or address that the API server calls (repeatable; default: the Service "+policy.Service+")")
	f.StringArrayVar(&a.Rules.Schedulers, "scheduler-name", []string{DefaultScheduler}, "`NAME` of Daybreak's scheduler (repeatable); pods with cards that have none get the first")
	f.Var(&a.Rules.Taint, "tolerated-taint", "taint of GPU nodes; pods with cards get a toleration for it (default: none)")
	f.StringArrayVar(&a.Rules.DirectBinders, "direct-binder", nil, "`USER` that may create pods with cards and spec.nodeName (repeatable), such as the service account of the vendor's operator")
	f.Var(&c.cardMemory, "quota-card-memory", "memory of a whole card in quotas if the cluster has no card that fits the pod")
	f.StringVar(&a.Policies, "policies", "", "evaluate the admission policies in `FILE`, for API servers older than 1.30 (default: the API server evaluates them)")
	f.DurationVar(&a.Validity, "certificate-validity", cert.DefaultValidity, "validity of the webhook's certificate; its CA is valid four times as long")
	f.DurationVar(&a.Overlap, "certificate-overlap", cert.DefaultOverlap, "how long a new CA is published before it signs certificates")
}

func (c *command) dashboardFlags(f *pflag.FlagSet) {
	d := &c.cfg.Dashboard
	f.StringVar(&d.Address, "dashboard-bind-address", DefaultDashboard, "`ADDRESS` of the dashboard, 0 for none; addresses other than loopback require a login")
	f.StringVar(&d.CertFile, "dashboard-tls-cert-file", "", "`FILE` with the certificate of the dashboard (default: that of the webhook)")
	f.StringVar(&d.KeyFile, "dashboard-tls-key-file", "", "`FILE` with its key")
}

func (c *command) run(ctx context.Context) error {
	if c.cfg.Drain < 0 {
		return fmt.Errorf("--drain %s: write 0 or more", c.cfg.Drain)
	}
	if c.cfg.AuditInterval != 0 && c.cfg.AuditInterval < time.Second {
		return fmt.Errorf("--audit-interval %s: write at least 1s, or 0 for none", c.cfg.AuditInterval)
	}
	if q := &c.cardMemory; q.CmpInt64(1<<30) < 0 || q.CmpInt64(1<<40) > 0 {
		return fmt.Errorf("--quota-card-memory %s: write the memory of a card, from 1Gi to 1Ti, such as 64Gi", q)
	}
	c.cfg.Admission.Rules.CardMemory = gpu.MiB(c.cardMemory.Value() / wire.Mebibyte).RoundDown()
	if a := c.cfg.Admission; a.Policies != "" && a.Address == Off {
		return fmt.Errorf("--policies %s needs an address at which the API server asks: set --admission-bind-address", a.Policies)
	}
	if err := logsapi.ValidateAndApply(c.logs, nil); err != nil {
		return err
	}
	defer logs.FlushLogs()
	config, err := cluster.Access{Kubeconfig: c.kubeconfig}.Config()
	if err != nil {
		return err
	}
	if err := cluster.CheckServer(ctx, config); err != nil {
		return err
	}
	m, err := New(c.cfg, config)
	if err != nil {
		return err
	}
	if err := m.Run(ctx); err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	return nil
}
