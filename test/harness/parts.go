package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2/textlogger"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

// UseBinaries sets the binaries of another version of Kubernetes to those in a folder.
func UseBinaries(cfg *local.Config, folder string) {
	cfg.APIServer, cfg.ControllerManager = filepath.Join(folder, local.ComponentAPIServer), filepath.Join(folder, local.ComponentControllerManager)
}

// Audited returns the configuration of a cluster in the folder whose API server logs
// what the audit policy in a file says, to [World.AuditLog].
func Audited(dir, policy string) local.Config {
	return local.Config{Dir: dir, APIServerArgs: []string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(dir), "--audit-log-mode=batch",
	}}
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// AuditLog returns the path of the API server's audit log, if it has one.
func (w *World) AuditLog() string { return auditLog(w.Dir) }

// NewPlainScheduler returns a kube-scheduler of a cluster without anything of ours, not
// started yet: the one in the folder with binaries of another version, or the
// playground's if that is "". The arguments are its own.
func NewPlainScheduler(c *local.Cluster, folder, name string, args ...string) *local.Process {
	args = append([]string{"--secure-port=0"}, args...)
	if folder != "" {
		return c.NewProcess(name, filepath.Join(folder, local.ComponentPlainScheduler), args...)
	}
	return c.NewProcess(name, c.Executable, append([]string{local.ComponentPlainScheduler}, args...)...)
}

// Validate makes the API server ask the manager at this address about pods that ask
// for cards and about what the policies are about, as below Kubernetes 1.30. It
// returns the file with the policies, for the manager.
func Validate(ctx context.Context, c *local.Cluster, p policy.Params, address string) (file string, err error) {
	p.URL = "https://" + address
	policies, err := policy.Guards(p)
	if err != nil {
		return "", err
	}
	mutating, err := policy.Webhook(p)
	if err != nil {
		return "", err
	}
	validating, err := policy.Validating(p)
	if err != nil {
		return "", err
	}
	file = filepath.Join(c.Dir, "policies.yaml")
	if err := os.WriteFile(file, policies, 0o600); err != nil {
		return "", err
	}
	return file, c.Apply(ctx, bytes.NewReader(slices.Concat(mutating, validating)))
}

// Validate is [Validate] for the world's cluster.
func (w *World) Validate(p policy.Params, address string) (file string) {
	w.Helper()
	file, err := Validate(w.Ctx, w.Cluster, p, address)
	w.Must(err)
	return file
}

// Manager is a "daybreak manager" that runs in this process.
type Manager struct {
	stop  context.CancelFunc
	ended chan struct{}
	log   string
}

// StartManager starts a manager of a cluster, with the rights that it would
// have in any; its log file has the given name. It returns at once.
func StartManager(ctx context.Context, c *local.Cluster, name string, cfg manager.Config) (*Manager, error) {
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
		if err := run.Run(ctx); err != nil {
			cfg.Logger.Error(err, "The manager has ended")
		}
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

// NewAgent returns an agent of this cluster, a process of bin/daybreak, not
// started yet. It is a service account whose token names its node, which has to
// exist. The arguments are those of "daybreak agent".
func (w *World) NewAgent(node string, args ...string) *local.Process {
	w.Helper()
	token, err := w.Client.CoreV1().ServiceAccounts(local.AgentNamespace).CreateToken(w.Ctx, local.AgentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind: "Node", APIVersion: "v1", Name: node, UID: w.Node(node).UID,
		}},
	}, metav1.CreateOptions{})
	w.Must(err)
	return w.NewAgentAs(token.Status.Token, node, args...)
}

// NewAgentAs returns an agent as [World.NewAgent] does, with a token of its own: API
// servers before 1.29 bind tokens to pods, not to nodes.
func (w *World) NewAgentAs(token, node string, args ...string) *local.Process {
	w.Helper()
	name := "agent-" + node
	w.Must(w.WriteKubeconfig(name, &clientcmdapi.AuthInfo{Token: token}))
	all := append([]string{
		"agent", "--kubeconfig=" + w.Kubeconfig(name), "--node-name=" + node, "--namespace=" + local.AgentNamespace,
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, args...)
	return w.NewProcess(name, filepath.Join(w.Bin, "daybreak"), all...)
}
