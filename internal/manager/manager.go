package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/manager/audit"
	"github.com/daybreak-gpu/daybreak/internal/manager/cert"
	"github.com/daybreak-gpu/daybreak/internal/manager/controllers/noderesource"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const (
	// DefaultNamespace is the manager's namespace unless the config names another.
	DefaultNamespace = wire.Namespace
	// LeaseName is the name of the lease by which managers elect their leader.
	LeaseName = wire.ManagerComponent
	// Off as an address means that nothing is served.
	Off = "0"

	// DefaultDrain is the command's default of [Config.Drain].
	DefaultDrain = 5 * time.Second
	// shutdownTimeout is how long the parts may take to end after that. Both fit
	// into the grace period of the chart's pods.
	shutdownTimeout = 20 * time.Second
)

// Config configures a manager. The zero value is one that leads without an
// election and serves nothing.
type Config struct {
	// Namespace is the manager's own; empty means [DefaultNamespace].
	Namespace string
	// MetricsAddress and HealthAddress are where /metrics and /healthz, /readyz
	// are served; empty or [Off] means nowhere.
	MetricsAddress, HealthAddress string
	// MetricsCertFile and MetricsKeyFile are the certificate of /metrics; they
	// are read again when they change. Without them it is served over plain HTTP.
	MetricsCertFile, MetricsKeyFile string
	// LeaderElect makes the manager write only while it holds the lease
	// [LeaseName] in LeaderElectNamespace, which is its own when empty.
	LeaderElect          bool
	LeaderElectNamespace string
	// Lease is how the election goes; zero durations mean the usual 15, 10 and
	// 2 seconds.
	Lease Lease
	// Admission configures how pods are admitted; without an address they are not.
	Admission Admission
	// AuditInterval is the least time between two audits of the whole account;
	// zero means that there are none.
	AuditInterval time.Duration
	// Dashboard configures the page of cards; without an address it is
	// not.
	Dashboard Dashboard
	// VendorPlugin decides who serves a node without a Device.
	VendorPlugin inventory.VendorPlugin
	// Drain is how long the manager answers after it was asked to end, while it
	// reports that it is not ready: API servers call a pod for a moment after it
	// has left its Service.
	Drain time.Duration
	// Clock is for what waits; nil is the real one.
	Clock clock.WithTicker
	// Logger is where the manager logs to; the zero value is klog's own.
	Logger klog.Logger
}

// Lease is how long leadership lasts and how often it is renewed.
type Lease struct {
	Duration, RenewDeadline, RetryPeriod time.Duration
}

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.VendorPlugin.Daybreak = c.Namespace
	c.LeaderElectNamespace = cmp.Or(c.LeaderElectNamespace, c.Namespace)
	c.MetricsAddress = cmp.Or(c.MetricsAddress, Off)
	c.HealthAddress = cmp.Or(c.HealthAddress, Off)
	c.Lease.Duration = cmp.Or(c.Lease.Duration, 15*time.Second)
	c.Lease.RenewDeadline = cmp.Or(c.Lease.RenewDeadline, 10*time.Second)
	c.Lease.RetryPeriod = cmp.Or(c.Lease.RetryPeriod, 2*time.Second)
	c.Admission = c.Admission.withDefaults(c.Namespace)
	c.Dashboard.Address = cmp.Or(c.Dashboard.Address, Off)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger.GetSink() == nil {
		c.Logger = klog.Background()
	}
	return c
}

// Manager is a manager that has not been run yet, or runs.
type Manager struct {
	cfg     Config
	rest    *rest.Config
	client  kubernetes.Interface
	ctrl    ctrlmanager.Manager
	metrics *prometheus.Registry
	source  *cluster.Reader
	caches  cluster.Informers
	keeper  *cert.Keeper // of the webhook's certificates; nil without a webhook
	// draining is set while the manager answers although it was asked to end.
	draining atomic.Bool
}

// addParts adds the controllers and servers of all that the manager does, before it
// starts. The context lasts as long as it runs. The order matters: the dashboard may
// use the certificate of admission.
func (m *Manager) addParts(ctx context.Context) error {
	for _, part := range []struct {
		name string
		on   bool
		add  func(context.Context) error
	}{
		{"node resources", true, m.addNodeResources},
		{"settings", m.cfg.LeaderElect, m.addSettings},
		{"audit", m.cfg.AuditInterval > 0, m.addAudit},
		{"admission", m.cfg.Admission.Address != Off, m.addAdmission},
		{"dashboard", m.cfg.Dashboard.Address != Off, m.addDashboard},
	} {
		if !part.on {
			continue
		}
		if err := part.add(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

func (m *Manager) addNodeResources(ctx context.Context) error {
	return noderesource.Add(ctx, m.ctrl, m.metrics, m.cfg.Clock)
}

func (m *Manager) addAudit(context.Context) error {
	return audit.Add(m.ctrl, audit.Options{Source: m.source, Metrics: m.metrics, Clock: m.cfg.Clock, Interval: m.cfg.AuditInterval})
}

// addSettings has the leader write its settings on the lease.
func (m *Manager) addSettings(context.Context) error {
	host, err := os.Hostname() // with which controller-runtime begins the identity
	if err != nil {
		return err
	}
	settings := cluster.Settings{ToleratedTaint: m.cfg.Admission.Rules.Taint.String()}
	return m.ctrl.Add(ctrlmanager.RunnableFunc(func(ctx context.Context) error {
		settings.Publish(ctx, m.client.CoordinationV1().Leases(m.cfg.LeaderElectNamespace), LeaseName, host+"_")
		return nil
	}))
}

// New returns a manager of the cluster that the rest config leads to. It opens
// the addresses it serves at, and asks the API server what it knows.
func New(cfg Config, restConfig *rest.Config) (*Manager, error) {
	// controller-runtime's own logger stays silent, and complains that it does,
	// until it is set.
	ctrllog.SetLogger(klog.Background())
	cfg = cfg.withDefaults()
	restConfig = rest.CopyConfig(restConfig)
	if restConfig.QPS == 0 {
		// The API server knows better than we do how much is too much.
		restConfig.QPS = -1
	}
	if err := reach(restConfig); err != nil {
		return nil, err
	}
	api, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, rest: restConfig, client: api, metrics: prometheus.NewRegistry()}
	m.ctrl, err = ctrlmanager.New(restConfig, ctrlmanager.Options{
		Cache: cache.Options{DefaultTransform: request.Trim},
		// Devices are read as they are: one that can't be decoded must not keep
		// the others from being seen.
		Client:                        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Logger:                        cfg.Logger,
		BaseContext:                   func() context.Context { return klog.NewContext(context.Background(), cfg.Logger) },
		LeaderElection:                cfg.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       cfg.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &cfg.Lease.Duration,
		RenewDeadline:                 &cfg.Lease.RenewDeadline,
		RetryPeriod:                   &cfg.Lease.RetryPeriod,
		GracefulShutdownTimeout:       new(shutdownTimeout),
		Metrics:                       metricsserver.Options{BindAddress: Off}, // see serveMetrics
		HealthProbeBindAddress:        cfg.HealthAddress,
		// Several managers may run in one process.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	if err := m.serveMetrics(); err != nil {
		return nil, err
	}
	return m, nil
}

// Run runs the manager until the context ends, leadership is lost, or one of
// its parts fails. It returns nil in the first case only, and ends with one
// sentence when the cluster lacks something that the manager needs.
func (m *Manager) Run(ctx context.Context) error {
	logger := m.cfg.Logger
	ctx = klog.NewContext(ctx, logger)
	if err := m.check(ctx); err != nil {
		return err
	}
	if err := m.readCaches(ctx); err != nil {
		return err
	}
	running, stop := m.untilDrained(ctx)
	defer stop()
	if err := m.addParts(running); err != nil {
		return err
	}
	go m.source.Run(running, m.client)
	if err := errors.Join(m.ctrl.AddHealthzCheck("ping", healthz.Ping), m.ctrl.AddReadyzCheck("caches", m.ready)); err != nil {
		return err
	}
	logger.Info("Manager starts", "namespace", m.cfg.Namespace, "leaderElect", m.cfg.LeaderElect)
	err := m.ctrl.Start(running)
	if err != nil && ctx.Err() != nil {
		// Whatever still went on when it was asked to end was cut short.
		logger.Info("Manager did not end in order", "reason", err.Error())
		err = nil
	}
	logger.Info("Manager has ended")
	return err
}

// untilDrained returns a context that ends when it is stopped, or Drain after the
// given one.
func (m *Manager) untilDrained(ctx context.Context) (running context.Context, stop context.CancelFunc) {
	running, stop = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		defer stop()
		m.draining.Store(true)
		if m.cfg.Drain == 0 {
			return
		}
		m.cfg.Logger.Info("Manager drains", "for", m.cfg.Drain)
		select {
		case <-m.cfg.Clock.After(m.cfg.Drain):
		case <-running.Done():
		}
	})
	return running, stop
}

// readCaches makes the parts read the cluster from the manager's caches. Without the
// definition of Devices there would never be any.
func (m *Manager) readCaches(ctx context.Context) error {
	lists, err := dynamic.NewForConfig(m.rest)
	if err != nil {
		return err
	}
	m.caches, err = cluster.Open(ctx, lists, func(_ schema.GroupVersionResource, kind cluster.Object) (toolscache.SharedIndexInformer, error) {
		return m.informer(ctx, kind)
	})
	if err == nil && m.caches.Devices == nil {
		err = fmt.Errorf("the API server knows no devices: apply the CustomResourceDefinition %s first", devices)
	}
	m.source = cluster.NewReader(m.caches, m.cfg.VendorPlugin)
	return err
}

// informer returns the cache of a kind, which fills once the manager starts.
func (m *Manager) informer(ctx context.Context, kind client.Object) (toolscache.SharedIndexInformer, error) {
	informer, err := m.ctrl.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("watch %T: got a %T", kind, informer)
	}
	return shared, nil
}

// ready reports whether the caches are filled. Replicas that do not lead are
// ready too, since they serve.
func (m *Manager) ready(req *http.Request) error {
	if m.draining.Load() {
		return errors.New("the manager is shutting down")
	}
	ctx, cancel := context.WithTimeout(req.Context(), time.Second)
	defer cancel()
	if !m.ctrl.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
