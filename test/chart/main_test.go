// Package chart tests the Helm chart: what it renders, what it refuses, and
// that a real API server takes every object of it, strictly. `make chart` runs
// it, with a Helm that is built for it.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const (
	// envBin names the folder with the binaries that `make chart` built.
	envBin    = "CHART_BIN"
	dir       = "../../charts/daybreak"
	namespace = "daybreak-system"
	// image is what has no default in the chart of the source tree.
	image = "image.repository=registry.example/daybreak,image.tag=v1"
)

func TestMain(m *testing.M) {
	if os.Getenv(envBin) == "" {
		fmt.Fprintln(os.Stderr, "test/chart: nothing was tested; make chart builds Helm and tests the chart with it")
		return
	}
	os.Exit(m.Run())
}

// bin returns the path of a binary that `make chart` built.
func bin(name string) string { return os.Getenv(envBin) + "/" + name }

// helm runs Helm and returns what it printed.
func helm(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, bin("helm"), args...)
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(strings.TrimSpace(message.String()))
	}
	return out, nil
}

// render renders the chart for a new cluster.
func render(ctx context.Context, flags ...string) ([]byte, error) {
	return helm(ctx, append([]string{"template", "daybreak", dir, "--namespace", namespace, "--kube-version", "1.36", "--set", image}, flags...)...)
}

// server is a real API server, to which kubectl and Helm speak as administrator.
type server struct {
	*testing.T
	*local.Cluster
}

func newServer(t *testing.T) *server {
	t.Helper()
	c, err := local.Start(t.Context(), local.Config{Dir: t.TempDir(), Executable: bin("playground")})
	gputest.Must(t, err)
	t.Cleanup(c.Stop)
	return &server{t, c}
}

// kubectl runs kubectl, which has to succeed, and returns what it printed.
func (s *server) kubectl(stdin []byte, args ...string) string {
	s.Helper()
	out, err := s.tryKubectl(stdin, args...)
	gputest.Must(s, err)
	return out
}

// tryKubectl is the same for what may fail.
func (s *server) tryKubectl(stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(s.Context(), bin("kubectl"), append([]string{"--kubeconfig", s.Kubeconfig("admin")}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// helm runs Helm in the chart's usual namespace, unless the arguments say
// another.
func (s *server) helm(args ...string) ([]byte, error) {
	args = append([]string{"--kubeconfig", s.Kubeconfig("admin"), "--namespace", namespace}, args...)
	if slices.Contains(args, "install") || slices.Contains(args, "upgrade") {
		args = append(args, "--set", image)
	}
	return helm(s.Context(), args...)
}

// objects are what a chart renders, by kind and name.
type objects map[string]*unstructured.Unstructured

// rendered renders the chart with values that work.
func rendered(t *testing.T, flags ...string) objects {
	t.Helper()
	text, err := render(t.Context(), flags...)
	gputest.Must(t, err)
	out := objects{}
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		key := o.GetKind() + "/" + o.GetName()
		if _, twice := out[key]; twice {
			t.Errorf("%s is rendered twice", key)
		}
		out[key] = o
	}
}

// pod returns the template of a workload's pods, which have one container.
func (o objects) pod(t *testing.T, key string) corev1.PodSpec {
	t.Helper()
	if o[key] == nil {
		t.Fatalf("there is no %s", key)
	}
	var workload struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	gputest.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o[key].Object, &workload))
	if n := len(workload.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%s has %d containers, want one", key, n)
	}
	return workload.Spec.Template.Spec
}
