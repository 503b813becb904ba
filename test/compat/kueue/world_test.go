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
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
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
	// patience is how long anything may take.
	patience = 5 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, "make compat-kueue builds Kueue", envBin)) }

func bin(name string) string { return filepath.Join(os.Getenv(envBin), name) }

// world is a cluster with Daybreak and Kueue.
type world struct {
	*harness.World
	objects dynamic.Interface
	start   time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	start := time.Now()
	gateway, egress, err := machine.NewGateway(t.Context(), t.TempDir())
	gputest.Must(t, err)
	w := &world{World: harness.New(t, bin(""), local.Config{APIServerArgs: []string{"--egress-selector-config-file=" + egress}}), start: start}
	w.objects, err = dynamic.NewForConfig(w.REST())
	w.Must(err)
	w.startDaybreak()
	w.startKueue(gateway)
	return w
}

func (w *world) progress(format string, args ...any) {
	w.Helper()
	w.Logf("%5.1f s: %s", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
}

// startDaybreak starts a manager, to which Jobs are sent too, a scheduler, and two
// nodes with eight cards each.
func (w *world) startDaybreak() {
	w.Helper()
	w.Must(w.Guard(w.Ctx, w.Policies()))
	address := w.FreeAddress()
	params := w.Policies()
	params.URL, params.Jobs = "https://"+address, true
	text, err := policy.Webhook(params)
	w.Must(err)
	w.Must(w.Apply(w.Ctx, bytes.NewReader(text)))
	w.Manager("manager", manager.Config{Admission: manager.Admission{Address: address}})
	w.Run(w.NewScheduler("scheduler"))

	w.Simulate()
	w.Simulator.Managed = true
	w.AddNodes(2)
	w.progress("the nodes advertise their cards")
}

// startKueue installs the release and runs its manager as a process, with the token
// of its service account. The API server reaches its webhooks through the gateway,
// and the test writes the Secret of its certificates to files, as kubelet does.
func (w *world) startKueue(gateway *machine.Gateway) {
	w.Helper()
	w.install()
	token, err := w.Client.CoreV1().ServiceAccounts(namespace).CreateToken(w.Ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	w.Must(w.WriteKubeconfig(account, &clientcmdapi.AuthInfo{Token: token.Status.Token}))
	ports, err := local.FreePorts(w.Ctx, 2)
	w.Must(err)
	certificates := w.TempDir()
	w.Run(w.NewProcess("kueue", bin("compat/kueue/kueue"), "--kubeconfig="+w.Kubeconfig(account), "--zap-log-level=2",
		"--config="+w.configuration(map[string]any{
			"health": map[string]any{"healthProbeBindAddress": fmt.Sprintf("127.0.0.1:%d", ports[1])}, "metrics": map[string]any{"bindAddress": "0"},
			"webhook":        map[string]any{"host": "127.0.0.1", "port": ports[0], "certDir": certificates},
			"leaderElection": map[string]any{"leaderElect": false},
			"featureGates":   map[string]any{"VisibilityOnDemand": false}, // an API server of its own, with files outside of the test's folder
		})))
	go gateway.Serve(w.Ctx, func(ctx context.Context) (net.Conn, error) { // Daybreak's manager is called by URL
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])))
	})
	w.Eventually("Kueue creates its certificates", patience, func() error {
		s, err := w.Client.CoreV1().Secrets(namespace).Get(w.Ctx, secret, metav1.GetOptions{})
		if err == nil && len(s.Data["tls.crt"]) == 0 {
			err = errors.New("the Secret is empty")
		}
		if err != nil {
			return err
		}
		for name, text := range s.Data {
			w.Must(os.WriteFile(filepath.Join(certificates, name), text, 0o600))
		}
		return nil
	})
	w.Eventually("Kueue admits queues", patience, func() error {
		text, err := os.ReadFile(examples + "queues.yaml")
		w.Must(err)
		return w.Apply(w.Ctx, bytes.NewReader(text))
	})
	w.Eventually("the managers answer for Jobs", patience, func() error {
		job := w.job("team-a", "try")
		created, err := w.Client.BatchV1().Jobs("team-a").Create(w.Ctx, job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
	rendered, err := exec.CommandContext(w.Ctx, bin("kubectl"), "kustomize", bin("compat/kueue/config/default")).Output()
	w.Must(err)
	docs, kept := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096), bytes.Buffer{}
	for {
		object := &unstructured.Unstructured{}
		if err := docs.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else {
			w.Must(err)
		}
		if !slices.Contains([]string{"Deployment", "APIService"}, object.GetKind()) {
			text, err := object.MarshalJSON()
			w.Must(err)
			fmt.Fprintf(&kept, "---\n%s\n", text)
		}
	}
	w.Must(w.Apply(w.Ctx, &kept))
}

// configuration writes the configuration of the examples, with what the process needs
// on this machine.
func (w *world) configuration(also map[string]any) (file string) {
	w.Helper()
	text, err := os.ReadFile(examples + "configuration.yaml")
	w.Must(err)
	config := map[string]any{}
	w.Must(yaml.UnmarshalStrict(text, &config))
	for key, value := range also {
		if _, ok := config[key]; ok {
			w.Fatalf("the example sets %s, and so does the test", key)
		}
		config[key] = value
	}
	text, err = yaml.Marshal(config)
	w.Must(err)
	file = filepath.Join(w.Dir, "kueue.yaml")
	w.Must(os.WriteFile(file, text, 0o600))
	return file
}
