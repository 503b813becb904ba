// Package kueue tests that the real Kueue counts, lends and reclaims MetaX cards in
// true amounts: a real control plane, Daybreak's manager and scheduler, simulated
// nodes, and Kueue with the definitions, rights and webhooks of its release. All of it
// comes from the Go module proxy: `make bin/compat/kueue/kueue` builds the binary and
// copies the release's folder config next to it.
package kueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/machine"
)

const (
	// envBin names the folder of the binaries, with compat/kueue in it.
	envBin = "COMPAT_BIN"
	// examples is what the documentation shows, and the test applies.
	examples = "../../../examples/quota/kueue/"
	// The names that a release installs Kueue under.
	namespace = "kueue-system"
	account   = "kueue-controller-manager"
	secret    = "kueue-webhook-server-cert"
)

func TestMain(m *testing.M) {
	if os.Getenv(envBin) == "" {
		fmt.Fprintln(os.Stderr, "test/compat/kueue: nothing was tested; make compat-kueue builds Kueue")
		return
	}
	os.Exit(m.Run())
}

func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// world is a cluster with Daybreak and Kueue.
type world struct {
	*testing.T
	cluster *local.Cluster
	client  kubernetes.Interface
	objects dynamic.Interface
	start   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, start: time.Now()}
	gateway, egress, err := machine.NewGateway(t.Context(), t.TempDir())
	w.must(err)
	w.cluster, err = local.Start(t.Context(), local.Config{Dir: t.TempDir(), Executable: bin("playground"), Egress: egress})
	w.must(err)
	t.Cleanup(w.cluster.Stop)
	w.client, err = kubernetes.NewForConfig(w.cluster.REST())
	w.must(err)
	w.objects, err = dynamic.NewForConfig(w.cluster.REST())
	w.must(err)
	w.startDaybreak()
	w.startKueue(gateway)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) progress(format string, args ...any) {
	w.Helper()
	w.Logf("%5.1f s: %s", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	if err := machine.Until(w.Context(), 5*time.Minute, check); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// run starts a process that lasts until the end of the test.
func (w *world) run(p *local.Process) {
	w.Helper()
	w.must(p.Start())
	w.Cleanup(func() {
		p.Kill()
		if w.Failed() {
			text, _ := os.ReadFile(p.Log())
			w.Logf("the end of %s:\n%s", p.Log(), text[max(0, len(text)-6000):])
		}
	})
}

// startDaybreak starts a manager, to which Jobs are sent too, a scheduler, and two
// nodes with eight cards each.
func (w *world) startDaybreak() {
	w.Helper()
	w.must(w.cluster.Install(w.Context()))
	w.must(w.cluster.Guard(w.Context(), w.cluster.Policies()))
	addresses, err := local.FreeAddresses(w.Context(), 1)
	w.must(err)
	params := w.cluster.Policies()
	params.URL, params.Jobs = "https://"+addresses[0], true
	text, err := policy.Webhook(params)
	w.must(err)
	w.must(w.cluster.Apply(w.Context(), bytes.NewReader(text)))
	m, err := w.cluster.StartManager(w.Context(), "manager", manager.Config{Admission: manager.Admission{Address: addresses[0], Hosts: []string{"127.0.0.1"}}})
	w.must(err)
	w.Cleanup(m.Stop)
	w.run(w.cluster.NewScheduler("scheduler", "--leader-elect=false"))

	simulator, err := local.NewSimulator(context.WithoutCancel(w.Context()), w.cluster.RESTAs("simulator"))
	w.must(err)
	w.Cleanup(simulator.Stop)
	kinds, err := discover.LoadProfiles("c500-2x4")
	w.must(err)
	simulator.Managed = true
	w.must(simulator.AddNodes(w.Context(), "metax", 2, kinds))
	w.progress("the nodes advertise their cards")
}

// startKueue installs the release and runs its manager as a process, with the token
// of its service account. The API server reaches its webhooks through the gateway,
// and the test writes the Secret of its certificates to files, as kubelet does.
func (w *world) startKueue(gateway *machine.Gateway) {
	w.Helper()
	w.install()
	token, err := w.client.CoreV1().ServiceAccounts(namespace).CreateToken(w.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.must(err)
	w.must(w.cluster.WriteKubeconfig(account, &clientcmdapi.AuthInfo{Token: token.Status.Token}))
	ports, err := local.FreePorts(w.Context(), 2)
	w.must(err)
	certificates := w.TempDir()
	w.run(w.cluster.NewProcess("kueue", bin("compat/kueue/kueue"), "--kubeconfig="+w.cluster.Kubeconfig(account), "--zap-log-level=2",
		"--config="+w.configuration(map[string]any{
			"health": map[string]any{"healthProbeBindAddress": fmt.Sprintf("127.0.0.1:%d", ports[1])}, "metrics": map[string]any{"bindAddress": "0"},
			"webhook":        map[string]any{"host": "127.0.0.1", "port": ports[0], "certDir": certificates},
			"leaderElection": map[string]any{"leaderElect": false},
			"featureGates":   map[string]any{"VisibilityOnDemand": false}, // an API server of its own, with files outside of the test's folder
		})))
	go gateway.Serve(w.Context(), func(ctx context.Context) (net.Conn, error) { // Daybreak's manager is called by URL
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
	})
	w.eventually("Kueue creates its certificates", func() error {
		s, err := w.client.CoreV1().Secrets(namespace).Get(w.Context(), secret, metav1.GetOptions{})
		if err == nil && len(s.Data["tls.crt"]) == 0 {
			err = errors.New("the Secret is empty")
		}
		if err != nil {
			return err
		}
		for name, text := range s.Data {
			w.must(os.WriteFile(filepath.Join(certificates, name), text, 0o600))
		}
		return nil
	})
	w.eventually("Kueue admits queues", func() error {
		text, err := os.ReadFile(examples + "queues.yaml")
		w.must(err)
		return w.cluster.Apply(w.Context(), bytes.NewReader(text))
	})
	w.eventually("the managers answer for Jobs", func() error {
		job := w.job("team-a", "try")
		created, err := w.client.BatchV1().Jobs("team-a").Create(w.Context(), job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(created.Spec.Template.Spec.Containers[0].Resources.Limits) <= len(job.Spec.Template.Spec.Containers[0].Resources.Limits) {
			err = errors.New("the template has no amounts")
		}
		return err
	})
	w.progress("Kueue answers")
}

// install applies the release as its kustomization renders it, but for the
// Deployment, which the test replaces, and the extension of the API.
func (w *world) install() {
	w.Helper()
	rendered, err := exec.CommandContext(w.Context(), bin("kubectl"), "kustomize", bin("compat/kueue/config/default")).Output()
	w.must(err)
	docs, kept := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096), bytes.Buffer{}
	for {
		object := &unstructured.Unstructured{}
		if err := docs.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else {
			w.must(err)
		}
		if !slices.Contains([]string{"Deployment", "APIService"}, object.GetKind()) {
			text, err := object.MarshalJSON()
			w.must(err)
			fmt.Fprintf(&kept, "---\n%s\n", text)
		}
	}
	w.must(w.cluster.Apply(w.Context(), &kept))
}

// configuration writes the configuration of the examples, with what the process needs
// on this machine.
func (w *world) configuration(also map[string]any) (file string) {
	w.Helper()
	text, err := os.ReadFile(examples + "configuration.yaml")
	w.must(err)
	config := map[string]any{}
	w.must(yaml.UnmarshalStrict(text, &config))
	for key, value := range also {
		if _, ok := config[key]; ok {
			w.Fatalf("the example sets %s, and so does the test", key)
		}
		config[key] = value
	}
	text, err = yaml.Marshal(config)
	w.must(err)
	file = filepath.Join(w.cluster.Dir, "kueue.yaml")
	w.must(os.WriteFile(file, text, 0o600))
	return file
}
