package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/daybreak-gpu/daybreak/internal/cli"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/manager/audit"
	"github.com/daybreak-gpu/daybreak/internal/manager/cert"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

// command is the manager subcommand.
type command struct {
	cfg        Config
	kubeconfig string
	logs       *logsapi.LoggingConfiguration
}

// NewCommand returns the command that runs the manager.
func NewCommand() *cobra.Command {
	c := &command{logs: logsapi.NewLoggingConfiguration()}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Make nodes advertise their cards, admit pods, audit the account, serve the dashboard",
		Long: `Manager looks after the cluster as a whole. From each node's Device it makes the
node advertise what its healthy cards have, as Koordinator's resources:

  koordinator.sh/gpu.shared, gpu-core, gpu-memory-ratio, gpu    100 for each card
  koordinator.sh/gpu-memory                                     their memory, summed

and it puts the cards' vendor, model and driver version on the node as labels.
When the Device goes, so do they. Devices of other vendors are left alone.

It answers the API server for pods that ask for MetaX cards: it fills in defaults
and rejects invalid requests with a sentence that explains what to write. It
creates and renews the certificates for that by itself.

It audits the whole account as daybreak audit does, all the time: a violation is
an Event on its pods and its node, and a metric.

It serves a page that shows every card, the pods on it, the pods that wait and
why: by default on this machine only, where kubectl port-forward reaches it. On
any other address it is served over TLS, to users of the cluster who may list
nodes and devices; pods are shown in the namespaces where they may list pods.

Run two or more for availability: all of them answer, one leads and writes.
The manager requires the CustomResourceDefinition of Device.`,
		Example: `  # Inside a cluster, in the namespace daybreak-system
  daybreak manager

  # From outside, one alone
  daybreak manager --kubeconfig ~/.kube/config --leader-elect=false

  # The page, from outside of the cluster; then open http://localhost:8082
  kubectl -n daybreak-system port-forward deployment/daybreak-manager 8082

  # What it counts
  curl localhost:8080/metrics | grep daybreak_manager`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "reach the cluster that this `FILE` names (default: the one it runs in)")
	f.StringVar(&c.cfg.Namespace, "namespace", DefaultNamespace, "`NAMESPACE` of the manager")
	f.StringVar(&c.cfg.MetricsAddress, "metrics-bind-address", ":8080", "`ADDRESS` of /metrics, 0 for none")
	f.StringVar(&c.cfg.MetricsCertFile, "metrics-tls-cert-file", "", "`FILE` with the certificate of /metrics (default: plain HTTP)")
	f.StringVar(&c.cfg.MetricsKeyFile, "metrics-tls-key-file", "", "`FILE` with its key")
	f.StringVar(&c.cfg.HealthAddress, "health-probe-bind-address", ":8081", "`ADDRESS` of /healthz and /readyz, 0 for none")
	f.DurationVar(&c.cfg.AuditInterval, "audit-interval", audit.DefaultInterval, "least time between two audits of the whole account, 0 for none")
	f.DurationVar(&c.cfg.Drain, "drain", DefaultDrain, "how long to answer after the signal to end, while /readyz fails; a second signal ends the manager at once")
	f.Var(&c.cfg.VendorPlugin, "vendor-plugin-selector", "labels of the pods of the vendor's device plugin, as the scheduler has them (default: pods of a DaemonSet gpu-device or …-gpu-device)")
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
	f.DurationVar(&c.cfg.Lease.Duration, "leader-elect-lease-duration", 0, "how long others wait for a leader that does not renew (default 15s)")
	f.DurationVar(&c.cfg.Lease.RenewDeadline, "leader-elect-renew-deadline", 0, "how long a leader tries to renew before it gives up (default 10s)")
	f.DurationVar(&c.cfg.Lease.RetryPeriod, "leader-elect-retry-period", 0, "how often it is tried (default 2s)")
}

func (c *command) admissionFlags(f *pflag.FlagSet) {
	a := &c.cfg.Admission
	f.StringVar(&a.Address, "admission-bind-address", ":9443", "`ADDRESS` at which pods are admitted, 0 for none")
	f.StringArrayVar(&a.Hosts, "admission-host", nil, "`NAME` or address that the API server calls (repeatable; default: the Service "+policy.DefaultService+")")
	f.StringArrayVar(&a.Rules.Schedulers, "scheduler-name", []string{DefaultScheduler}, "`NAME` of Daybreak's scheduler (repeatable); the first is given to pods with cards that name none")
	f.Var(&a.Rules.Taint, "tolerated-taint", "taint of nodes with cards that pods with cards are made to tolerate (default: none)")
	f.StringArrayVar(&a.Rules.DirectBinders, "direct-binder", nil, "`USER` that may create pods with cards on a node of its choice (repeatable), such as the vendor operator's service account")
	f.StringVar(&a.Policies, "policies", "", "evaluate the admission policies in `FILE`, for API servers below 1.30 (default: the API server has them)")
	f.DurationVar(&a.Validity, "certificate-validity", cert.DefaultValidity, "how long the certificate of the webhook lasts; its authority lasts four times as long")
	f.DurationVar(&a.Overlap, "certificate-overlap", cert.DefaultOverlap, "how long a new authority is published before it signs")
}

func (c *command) dashboardFlags(f *pflag.FlagSet) {
	d := &c.cfg.Dashboard
	f.StringVar(&d.Address, "dashboard-bind-address", DefaultDashboard, "`ADDRESS` of the page of cards, 0 for none; other than loopback it asks users to log in")
	f.StringVar(&d.CertFile, "dashboard-tls-cert-file", "", "`FILE` with the page's certificate (default: that of the webhook)")
	f.StringVar(&d.KeyFile, "dashboard-tls-key-file", "", "`FILE` with its key")
}

func (c *command) run(ctx context.Context) error {
	if c.cfg.Drain < 0 {
		return fmt.Errorf("--drain %s: write 0 or more", c.cfg.Drain)
	}
	if c.cfg.AuditInterval != 0 && c.cfg.AuditInterval < time.Second {
		return fmt.Errorf("--audit-interval %s: write at least 1s, or 0 for none", c.cfg.AuditInterval)
	}
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
	m, err := New(c.cfg, config)
	if err != nil {
		return err
	}
	if err := m.Run(ctx); err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	return nil
}
