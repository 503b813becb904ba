package compat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/deployed"
	"github.com/daybreak-gpu/daybreak/test/fake"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/harness"
	"github.com/daybreak-gpu/daybreak/test/machine"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

const (
	// image is the tag of the tree's image.
	image = "tree"
	// specificCard is the example that names its card.
	specificCard = "../../examples/hami/sgpu-specific-card.yaml"
	// patience is how long pods may take to run: a leader's lease is good for 15
	// seconds.
	patience = 2 * time.Minute
)

// suite is what is tested on one server.
type suite struct {
	*deployed.World
	result *result
	// version is what the server calls itself: "v1.28.15".
	version string
	// pods are those that were created.
	pods []string
}

func newSuite(t *testing.T, server string, r *result) *suite {
	t.Helper()
	cfg := deployed.Config{
		Bin: os.Getenv(envBin), Binaries: map[string]string{image: bin("daybreak")}, Nodes: 4, Cards: 8, Logs: os.Getenv("COMPAT_KEEP_LOGS"),
	}
	if server != ownServer {
		cfg.Kubernetes = filepath.Join(os.Getenv(envBin), "compat", server)
	}
	s := &suite{World: deployed.New(t, cfg), result: r}
	info, err := s.Client.Discovery().ServerVersion()
	s.Must(err)
	s.version = info.GitVersion
	if server != ownServer && !strings.HasPrefix(s.version, "v"+server+".") {
		t.Fatalf("the server is %s, want %s", s.version, server)
	}
	r.server = s.version
	return s
}

// progress reports a step.
func (s *suite) progress(format string, args ...any) {
	s.Helper()
	s.Logf("%s: %s", s.version, fmt.Sprintf(format, args...))
}

func (s *suite) run() {
	s.applyDry()
	s.install()
	s.placeExamples()
	s.rejectForged()
	s.result.scheduler = s.failOver("scheduler")
	s.result.manager = s.failOver("manager")
	s.withoutManagers()
	s.cleanUp()
}

// applyDry renders the chart for the server's version, as GitOps does, and has the
// server check every object: a server-side apply rejects fields that it does not know.
func (s *suite) applyDry() {
	s.Helper()
	objects, err := client.New(s.REST(), client.Options{DryRun: new(true)})
	s.Must(err)
	_, err = s.Client.CoreV1().Namespaces().Create(s.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}}, metav1.CreateOptions{})
	s.Must(err)
	for name, values := range map[string]string{
		"by default": "agent.poll=30s",
		"everything": "agent.deviceConfig.create=true,agent.deviceConfig.clusterConfig=mode: sgpu,scheduler.policy=spread,dashboard.serve=service," +
			"dashboard.tlsSecret=page,monitoring.tlsSecret=metrics,networkPolicies.enabled=true," +
			"networkPolicies.dashboardFrom[0].ipBlock.cidr=10.0.0.0/8,networkPolicies.apiServers={192.0.2.1/32}",
		"in the scheduler's place": "scheduler.mode=replace",
	} {
		text, err := machine.Output(exec.CommandContext(s.Ctx, bin("helm"), "template", "daybreak", chart, "--kube-version", s.version,
			"--namespace", deployed.Namespace, "--set", "image.repository=registry.example/daybreak,image.tag="+image+","+values))
		s.Must(err)
		count := 0
		for docs := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
			object := &unstructured.Unstructured{}
			if err := docs.Decode(&object.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				s.Fatal(err)
			}
			// The pod of helm test needs an account that a dry run does not make.
			if len(object.Object) == 0 || object.GetKind() == "Pod" {
				continue
			}
			if err := objects.Apply(s.Ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("compat"), client.ForceOwnership); err != nil {
				s.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
			count++
		}
		s.progress("chart %s: %d objects checked by the server", name, count)
	}
}

// install installs the chart and waits until its parts are ready.
func (s *suite) install() {
	s.Helper()
	start := time.Now()
	s.giveExampleCard()
	s.Helm("install", "daybreak", chart,
		"--set", "image.repository=registry.example/daybreak,image.tag="+image+",agent.mode=sgpu,agent.poll=2s",
		"--set", "manager.extraArgs={--audit-interval=1s}",
		"--set", "manager.verbosity=2,scheduler.verbosity=2,agent.verbosity=2")
	for _, c := range deployed.Components {
		s.RolledOut(c, image)
	}
	s.progress("installed after %s", since(start))
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// giveExampleCard gives a machine the card that an example names.
func (s *suite) giveExampleCard() {
	s.Helper()
	pod := readPod(s, specificCard)
	m := s.Machines[0]
	cards, _, err := fake.Read(m.Driver())
	s.Must(err)
	cards.Cards[s.Cards-1].UUID, _, _ = strings.Cut(pod.Annotations[wire.AnnotationUseCards], ",")
	s.Must(cards.Write(m.Driver()))
}

func readPod(t testing.TB, path string) *corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(path)
	gputest.Must(t, err)
	pod := &corev1.Pod{}
	gputest.Must(t, yaml.UnmarshalStrict(text, pod))
	return pod
}

// placeExamples creates the examples of both dialects, which run with their cards.
func (s *suite) placeExamples() {
	s.Helper()
	start := time.Now()
	files, err := manifest.Examples("../..")
	s.Must(err)
	if len(files) < 15 {
		s.Fatalf("only %d examples", len(files))
	}
	// First the one that names its card, while the card is free.
	for i, file := range append([]string{specificCard}, files...) {
		if i > 0 && file == specificCard {
			continue
		}
		text, err := os.ReadFile(file)
		s.Must(err)
		s.Must(s.Apply(s.Ctx, bytes.NewReader(text)))
		s.pods = append(s.pods, readPod(s, file).Name)
		if i == 0 {
			s.allRun()
		}
	}
	s.allRun()
	s.progress("%d examples run after %s", len(files), since(start))
}

// allRun waits until all pods run with their cards.
func (s *suite) allRun() {
	s.Helper()
	s.Must(machine.Until(s.Ctx, patience, func() error {
		for _, name := range s.pods {
			p := s.Pod(name)
			if p.Status.Phase != corev1.PodRunning || p.Annotations[wire.AnnotationAllocated] == "" {
				return fmt.Errorf("pod %s is %s on %q: %v", name, p.Status.Phase, p.Spec.NodeName, p.Status.Conditions)
			}
		}
		return nil
	}))
	s.result.placed = len(s.pods)
}

// create creates a pod with cards. As its owner would, it tries again for a moment
// when the API server's connection to a manager has ended with the manager.
func (s *suite) create(name string) {
	s.Helper()
	pod := gputest.MakePod(name).App("sgpu: 1, vcore: 5, vmemory: 1").Obj()
	pod.Spec.Containers[0].Image = "none"
	s.Must(machine.Until(s.Ctx, 5*time.Second, func() error {
		_, err := s.Client.CoreV1().Pods(pod.Namespace).Create(s.Ctx, pod, metav1.CreateOptions{})
		return err
	}))
	s.pods = append(s.pods, name)
}

// failOver kills the leader of a component, and returns how long it takes until new
// pods run and there is another leader.
func (s *suite) failOver(component string) time.Duration {
	s.Helper()
	leader, err := s.leader(component)
	s.Must(err)
	s.Parts.Kill(leader)
	start := time.Now()
	for i := range 10 {
		s.create(fmt.Sprintf("%s-killed-%d", component, i))
	}
	s.allRun()
	s.Must(machine.Until(s.Ctx, patience, func() error {
		_, err := s.leader(component)
		return err
	}))
	took := time.Since(start)
	s.Must(s.Parts.Restart(leader))
	s.progress("%s: the leader was killed, 10 more pods run and another leads after %s", component, took.Round(100*time.Millisecond))
	return took
}

// withoutManagers: while no manager runs, agents keep serving. Below 1.30 what they write
// is rejected until a manager is back.
func (s *suite) withoutManagers() {
	s.Helper()
	managers := s.Parts.Ready("manager")
	for _, x := range managers {
		s.Parts.Kill(x)
	}
	m := s.Machines[0]
	cards, _, err := fake.Read(m.Driver())
	s.Must(err)
	cards.Driver += "1"
	s.Must(cards.Write(m.Driver()))
	devices := s.Devices(s.REST())
	published := func() error {
		d, err := devices.Get(s.Ctx, m.Node, metav1.GetOptions{})
		if err == nil && d.GetLabels()[wire.LabelDriver] != cards.Driver {
			err = fmt.Errorf("the Device of %s has driver %q, want %q", m.Node, d.GetLabels()[wire.LabelDriver], cards.Driver)
		}
		return err
	}
	old := version.MustParseGeneric(s.version).LessThan(version.MajorMinor(1, 30))
	if err := machine.Until(s.Ctx, 10*time.Second, published); (err != nil) != old {
		s.Errorf("without a manager: %v, want that it is rejected: %v", err, old)
	}
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(s.Ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.Node})
	s.Must(err)
	for i := range pods.Items {
		s.Must(machine.Until(s.Ctx, patience, func() error { return m.Restart(pods.Items[i].UID) }))
	}
	for _, x := range managers {
		s.Must(s.Parts.Restart(x))
	}
	s.Must(machine.Until(s.Ctx, patience, published))
	s.progress("no manager: containers of %d pods were started again; the Device was published: %v", len(pods.Items), !old)
}

// leader returns the part that leads the others of its component: of those that run,
// only the leader has had the lease.
func (s *suite) leader(component string) (*deployed.Part, error) {
	for _, x := range s.Parts.Ready(component) {
		text, err := os.ReadFile(x.Log())
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte("uccessfully acquired lease")) {
			return x, nil
		}
	}
	return nil, fmt.Errorf("no %s leads", component)
}

// cleanUp deletes all pods, and wants nothing left of them, an audit without
// findings, and no request of a part that was denied.
func (s *suite) cleanUp() {
	s.Helper()
	list := s.Audit()
	for _, name := range s.pods {
		s.Must(s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(s.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}))
	}
	err := machine.Until(s.Ctx, patience, func() error {
		for _, name := range s.pods {
			if _, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(s.Ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s is still there: %w", name, err)
			}
		}
		objects, err := harness.Read(s.Ctx, s.REST())
		if err != nil {
			return err
		}
		var left []string
		for _, m := range s.Machines {
			left = append(left, m.CheckLeaks(objects)...)
		}
		return harness.Problems(left)
	})
	if err != nil {
		list = append(list, err.Error())
	}
	for _, x := range s.Parts.WithProcess() {
		s.Inspect(x)
	}
	denied, err := s.Requests.Denied(s.AuditLog())
	s.Must(err)
	denied = slices.DeleteFunc(denied, func(line string) bool { return strings.Contains(line, "fieldManager="+harness.ForgerName) })
	list = append(append(append(list, denied...), s.TakeFaults()...), s.Audit()...)
	s.result.audit = "clean"
	if err := harness.Problems(list); err != nil {
		s.result.audit = "findings"
		s.Fatal(err)
	}
	s.progress("pods deleted, audit clean")
}
