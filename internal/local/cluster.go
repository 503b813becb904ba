package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names under which the playground's binary runs itself, as its first argument.
const (
	ComponentEtcd              = "etcd"
	ComponentAPIServer         = "kube-apiserver"
	ComponentControllerManager = "kube-controller-manager"
	ComponentScheduler         = "scheduler"
	ComponentManager           = "manager"
	// ComponentPlainScheduler is kube-scheduler without Daybreak, to compare with.
	ComponentPlainScheduler = "kube-scheduler"
)

// Config is the configuration of a cluster.
type Config struct {
	// Dir is the cluster's folder; a cluster that was there goes on.
	Dir string
	// Executable is the playground's binary.
	Executable string
	// APIServer and ControllerManager, if set, are Kubernetes' own binaries of
	// another version, which run in place of the playground's.
	APIServer, ControllerManager string
	// APIServerArgs are further arguments of the API server.
	APIServerArgs []string
}

// Cluster is a running control plane.
type Cluster struct {
	Config
	Etcd, APIServer, ControllerManager *Process

	pki     *pki
	port    int
	client  kubernetes.Interface // as administrator
	objects client.Client        // as administrator
}

// Start starts the control plane and returns when the API server serves and
// namespaces work. On failure nothing is left running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not up after two minutes"))
	defer cancel()
	c := &Cluster{Config: cfg}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.pki, err = newPKI(filepath.Join(c.Dir, "pki")); err != nil {
		return err
	}
	ports, err := FreePorts(ctx, 3)
	if err != nil {
		return err
	}
	c.port = ports[2]
	for _, user := range []struct {
		name, commonName string
		groups           []string
	}{
		{"admin", "admin", []string{"system:masters"}},
		{"controller-manager", "system:kube-controller-manager", nil},
		{"scheduler", SchedulerUser, nil},
		{"manager", ManagerUser, nil},
		{"simulator", SimulatorUser, nil},
	} {
		if err := c.AddUser(user.name, user.commonName, user.groups...); err != nil {
			return err
		}
	}
	for _, name := range []string{"apiserver", "service-accounts"} { // of the latter only the key is used
		if err := c.pki.issue(name, name); err != nil {
			return err
		}
	}
	if c.client, err = kubernetes.NewForConfig(c.REST()); err != nil {
		return err
	}
	if c.objects, err = client.New(c.REST(), client.Options{}); err != nil {
		return err
	}
	c.Etcd = c.NewProcess(ComponentEtcd, c.Executable, ComponentEtcd, filepath.Join(c.Dir, "etcd"), strconv.Itoa(ports[0]), strconv.Itoa(ports[1]))
	c.APIServer = c.newComponent(ComponentAPIServer, c.Config.APIServer, c.apiServerArgs(ports[0]))
	c.ControllerManager = c.newComponent(ComponentControllerManager, c.Config.ControllerManager, c.controllerManagerArgs())
	for _, p := range []*Process{c.Etcd, c.APIServer} {
		if err := p.Start(); err != nil {
			return err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	if err := c.ControllerManager.Start(); err != nil {
		return err
	}
	return c.ControllerManager.waitFor(ctx, "the default service account", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// newComponent returns a process of one of Kubernetes' components: of the binary, or
// of the playground's if there is none.
func (c *Cluster) newComponent(name, binary string, args []string) *Process {
	if binary == "" {
		return c.NewProcess(name, c.Executable, append([]string{name}, args...)...)
	}
	return c.NewProcess(name, binary, args...)
}

func (c *Cluster) apiServerArgs(etcd int) []string {
	return append([]string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcd),
		fmt.Sprintf("--secure-port=%d", c.port),
		"--tls-cert-file=" + c.pki.cert("apiserver"), "--tls-private-key-file=" + c.pki.keyFile("apiserver"),
		"--client-ca-file=" + c.pki.cert("ca"),
		"--service-cluster-ip-range=10.0.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.keyFile("service-accounts"),
		"--service-account-signing-key-file=" + c.pki.keyFile("service-accounts"),
		"--allow-privileged=true", "--authorization-mode=RBAC",
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		// One client must not be able to slow the others down in a test.
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500",
	}, c.APIServerArgs...)
}

func (c *Cluster) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + c.Kubeconfig("controller-manager"),
		"--service-account-private-key-file=" + c.pki.keyFile("service-accounts"),
		"--root-ca-file=" + c.pki.cert("ca"),
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true",
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

// Kubeconfig returns the path of the kubeconfig of "admin", "scheduler",
// "manager", "simulator" or "controller-manager".
func (c *Cluster) Kubeconfig(user string) string { return filepath.Join(c.Dir, user+".kubeconfig") }

// URL returns the API server's address.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }

// AddUser issues the certificate of a user, unless there is one, and writes the
// kubeconfig. The certificate is USER.crt in the folder pki, its key USER.key.
func (c *Cluster) AddUser(user, commonName string, groups ...string) error {
	if err := c.pki.issue(user, commonName, groups...); err != nil {
		return err
	}
	cert, err := os.ReadFile(c.pki.cert(user))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.pki.keyFile(user))
	if err != nil {
		return err
	}
	return c.WriteKubeconfig(user, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// WriteKubeconfig writes the kubeconfig of a user with these credentials; its path is
// that of [Cluster.Kubeconfig].
func (c *Cluster) WriteKubeconfig(user string, auth *clientcmdapi.AuthInfo) error {
	const name = contextName
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: c.URL(), CertificateAuthorityData: pkiutil.EncodeCertPEM(c.pki.ca),
			DisableCompression: true, // of no use on one machine
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: auth},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, c.Kubeconfig(user))
}

// REST returns how to reach the API server as administrator, without a limit
// on the rate.
func (c *Cluster) REST() *rest.Config { return c.RESTAs("admin") }

// RESTAs returns how to reach the API server as one of the users that
// [Cluster.Kubeconfig] names, without a limit on the rate. It holds what is in
// the files and not their names: clients would reload files that are gone with
// the cluster.
func (c *Cluster) RESTAs(user string) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(user))
	if err != nil {
		// Its user gets the error.
		return &rest.Config{Host: c.URL(), TLSClientConfig: rest.TLSClientConfig{CAFile: c.Kubeconfig(user)}}
	}
	config.QPS = -1
	return config
}

// WaitReady waits until the API server serves.
func (c *Cluster) WaitReady(ctx context.Context) error {
	if err := c.Etcd.failure(); err != nil {
		return err
	}
	return c.APIServer.waitFor(ctx, "readyz", func(ctx context.Context) error {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// shortLease are arguments of the election: after a leader was killed, the next one waits
// for the end of the lease.
var shortLease = []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=500ms"}

// NewScheduler returns a scheduler of this cluster, not started yet. The
// arguments are those of "daybreak scheduler"; a later one overrides an earlier.
func (c *Cluster) NewScheduler(name string, args ...string) *Process {
	all := append([]string{ComponentScheduler, "--kubeconfig=" + c.Kubeconfig("scheduler"), "--secure-port=0"}, shortLease...)
	return c.NewProcess(name, c.Executable, append(all, args...)...)
}

// Stop stops everything, the last started first.
func (c *Cluster) Stop() {
	c.ControllerManager.Kill()
	c.APIServer.Kill()
	c.Etcd.Stop()
}
