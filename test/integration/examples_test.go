package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// TestExamples applies every example with plain kubectl and wants the node, the
// cards and the annotations that daybreak place prints.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t, local.Config{}) // with pods that another scheduler has placed
	w.exampleCluster()
	w.scheduler("scheduler")
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.yaml"))
	w.must(err)
	if len(files) < 15 {
		t.Fatalf("only %d examples", len(files))
	}
	for _, file := range files {
		name := strings.TrimPrefix(file, root+"/")
		var golden view.Placements
		answer := strings.TrimSuffix(strings.TrimPrefix(name, "examples/"), ".yaml") + ".json"
		readJSON(t, filepath.Join(root, "internal", "command", "testdata", "examples", answer), &golden)
		want := golden.Pods[0]

		w.kubectl("apply", "-f", file)
		got := w.bound(want.Name)
		if got.Spec.NodeName != want.Node {
			t.Errorf("%s: on node %s, want %s", name, got.Spec.NodeName, want.Node)
		}
		for key, value := range want.Annotations {
			if key == wire.AnnotationPredicateTime {
				if got.Annotations[key] == "" {
					t.Errorf("%s: no %s", name, key)
				}
				continue
			}
			if diff := cmp.Diff(value, got.Annotations[key]); diff != "" {
				t.Errorf("%s: annotation %s (-place +scheduler):\n%s", name, key, diff)
			}
		}
		w.kubectl("delete", "-f", file, "--grace-period=0", "--force", "--wait=true")
		w.eventually(name+" gone", time.Minute, func() error {
			_, err := w.client.CoreV1().Pods("default").Get(w.ctx, want.Name, metav1.GetOptions{})
			if err == nil {
				return os.ErrExist
			}
			return nil
		})
	}
	t.Logf("%d examples", len(files))
	w.audit()
}

// TestExampleFolders applies the folders of the examples as a whole to nodes as
// the playground has them. Every pod is admitted and placed, the one that names
// its card on that card.
func TestExampleFolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, local.Config{})
	w.admission()
	w.nodes(4)
	w.scheduler("scheduler")
	files, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.yaml"))
	w.must(err)
	w.kubectl("apply", "-f", "examples/hami/", "-f", "examples/koordinator/")
	if pods := w.allBound(time.Minute); len(pods) != len(files) {
		t.Errorf("%d pods of %d files", len(pods), len(files))
	}
	p := w.bound("sgpu-specific-card")
	if cards := w.cardsOf(p); p.Spec.NodeName != "metax-3" || !cmp.Equal(cards, []int{7}) {
		t.Errorf("cards %v of %s, want card 7 of metax-3", cards, p.Spec.NodeName)
	}
	w.audit()
}

// exampleCluster makes the cluster of examples/cluster.yaml.
func (w *world) exampleCluster() {
	w.Helper()
	objects, err := cluster.ReadFiles([]string{filepath.Join(root, "examples", "cluster.yaml")}, nil)
	w.must(err)
	for _, node := range objects.Nodes {
		w.must(w.simulator.AdoptNode(w.ctx, node))
	}
	for _, d := range objects.Devices {
		device := d.Device.DeepCopy()
		device.ResourceVersion, device.UID = "", ""
		w.must(w.simulator.CreateDevice(w.ctx, device))
	}
	for _, p := range objects.Pods {
		p := p.DeepCopy()
		_, err := w.client.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
		w.eventually("service account", time.Minute, func() error {
			_, err := w.client.CoreV1().ServiceAccounts(p.Namespace).Get(w.ctx, "default", metav1.GetOptions{})
			return err
		})
		p.Status = corev1.PodStatus{}
		for i := range p.Spec.Containers { // what is read is trimmed
			p.Spec.Containers[i].Image = "example.com/image"
		}
		w.create(p)
	}
	w.eventually("running pods", time.Minute, func() error {
		list, err := w.client.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		return nil
	})
}
