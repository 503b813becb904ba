package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/allocation"
	"github.com/daybreak-gpu/daybreak/internal/cluster"
	"github.com/daybreak-gpu/daybreak/internal/ledger"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/machine"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// TestExamples applies every example with plain kubectl and wants the node, the
// cards and the annotations that daybreak place prints.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t) // with pods that another scheduler has placed
	w.exampleCluster()
	w.Scheduler("scheduler")
	files, err := manifest.Examples(root)
	w.Must(err)
	if len(files) < 15 {
		t.Fatalf("only %d examples", len(files))
	}
	for _, file := range files {
		name := strings.TrimPrefix(file, root+"/")
		var golden view.Placements
		answer := strings.TrimSuffix(strings.TrimPrefix(name, "examples/"), ".yaml") + ".json"
		readJSON(t, filepath.Join(root, "internal", "command", "testdata", "examples", answer), &golden)
		want := golden.Pods[0]

		w.Kubectl("apply", "-f", file)
		got := w.Bound(want.Name)
		gputest.Equal(t, name+": on node", want.Node, got.Spec.NodeName)
		for key, value := range want.Annotations {
			if key == wire.AnnotationPredicateTime {
				if got.Annotations[key] == "" {
					t.Errorf("%s: no %s", name, key)
				}
				continue
			}
			gputest.Equal(t, fmt.Sprintf("%s: annotation %s, place and scheduler", name, key), value, got.Annotations[key])
		}
		w.Kubectl("delete", "-f", file, "--grace-period=0", "--force", "--wait=true")
		w.Eventually(name+" gone", time.Minute, func() error {
			_, err := w.Client.CoreV1().Pods("default").Get(w.Ctx, want.Name, metav1.GetOptions{})
			if err == nil {
				return os.ErrExist
			}
			return nil
		})
	}
	t.Logf("%d examples", len(files))
	w.Audit()
}

// notApplied has the folders of the examples that need more than Kubernetes, and
// what the API server answers.
var notApplied = map[string]string{
	"quota/kueue": `no matches for kind "ClusterQueue"`, // of Kueue
}

// outcome is what the pods of a workload get.
type outcome struct {
	cards   []int // of each pod, in ascending order
	oneZone bool  // the cards of each pod are in one zone
	nodes   int   // on how many nodes the pods are; 0 for any number
}

// workloadOutcomes are those of the folders whose objects are not pods, by the
// label app. docs/workloads.md shows them one by one.
var workloadOutcomes = map[string]map[string]outcome{
	"workloads": {
		"chat":       {cards: []int{1, 1}, oneZone: true, nodes: 2},
		"ddp":        {cards: []int{4}, oneZone: true, nodes: 1},
		"multi-node": {cards: []int{8, 8}, nodes: 2},
		"notebook":   {cards: []int{1, 1}, oneZone: true},
	},
	"workloads/online-and-batch": {
		"assistant": {cards: []int{1, 1}, oneZone: true, nodes: 1},
		"summaries": {cards: []int{1, 1, 1, 1, 1, 1}, oneZone: true, nodes: 1},
	},
}

// TestExampleFolders applies each folder of the examples as a whole to nodes as
// the playground has them. Every pod is admitted and placed, and gets what the
// documentation shows; a pod that is not placed fails the test with the reason.
func TestExampleFolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.admission()
	w.AddNodes(4)
	w.Scheduler("scheduler")
	folders := exampleFolders(t)
	for _, name := range slices.Concat([]string{"hami", "koordinator", "budgets"}, slices.Collect(maps.Keys(workloadOutcomes)), slices.Collect(maps.Keys(notApplied))) {
		if folders[name] == 0 {
			t.Errorf("there is no folder examples/%s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		folder := "examples/" + name + "/"
		if answer, ok := notApplied[name]; ok {
			cmd := exec.CommandContext(w.Ctx, bin("kubectl"), "--kubeconfig", w.Kubeconfig("admin"), "apply", "--dry-run=server", "-f", folder)
			cmd.Dir = root
			_, err := machine.Output(cmd)
			gputest.ErrorHas(t, folder, answer, err)
			continue
		}
		w.Kubectl("apply", "-f", folder)
		want := workloadOutcomes[name]
		n := folders[name] // a pod in each file
		if want != nil {
			n = 0
			for _, o := range want {
				n += len(o.cards)
			}
		}
		w.Eventually("the pods of "+folder, time.Minute, func() error { return w.allRun(n) })
		got := w.outcomes()
		for app, o := range want {
			if o.nodes == 0 {
				o.nodes = got[app].nodes
			}
			if !cmp.Equal(o, got[app], cmp.AllowUnexported(outcome{})) {
				t.Errorf("%s of %s: %+v, want %+v", app, folder, got[app], o)
			}
		}
		if name == "hami" {
			p := w.Bound("sgpu-specific-card")
			if cards := w.CardsOf(p); p.Spec.NodeName != "metax-3" || !cmp.Equal(cards, []int{7}) {
				t.Errorf("cards %v of %s, want card 7 of metax-3", cards, p.Spec.NodeName)
			}
		}
		w.Audit()
		w.Kubectl("delete", "-f", folder, "--wait=false")
		w.Eventually(folder+" removed", time.Minute, w.removePods)
	}
}

// exampleFolders returns the folders of the examples with manifests, and how many
// each has.
func exampleFolders(t *testing.T) map[string]int {
	t.Helper()
	folders := map[string]int{}
	top := filepath.Join(root, "examples")
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		folder, err := filepath.Rel(top, filepath.Dir(path))
		if folder != "." { // the files of the examples' own folder are read by commands
			folders[filepath.ToSlash(folder)]++
		}
		return err
	})
	gputest.Must(t, err)
	return folders
}

// allRun returns why not n pods exist, all of them running.
func (w *world) allRun(n int) error {
	list, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	problems := []string{fmt.Sprintf("%d pods, want %d", len(list.Items), n)}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase != corev1.PodRunning {
			problems = append(problems, fmt.Sprintf("%s is %s: %v", p.Name, p.Status.Phase, p.Status.Conditions))
		}
	}
	if len(list.Items) == n && len(problems) == 1 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// outcomes returns what the pods of the cluster get, by their label app. A pod
// without cards fails the test.
func (w *world) outcomes() map[string]outcome {
	w.Helper()
	list, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{})
	w.Must(err)
	nodes := map[string]*ledger.Node{}
	for _, n := range w.Snapshot().Nodes {
		nodes[n.Name] = n
	}
	out, seen := map[string]outcome{}, map[string]bool{}
	for i := range list.Items {
		p := &list.Items[i]
		app := p.Labels["app"]
		o, known := out[app]
		cards, zones := 0, map[int]bool{}
		node := nodes[p.Spec.NodeName]
		for j := range node.Holdings() {
			if h := &node.Holdings()[j]; h.Holder == allocation.HolderOf(p) {
				for _, card := range h.Cards().Indices() {
					cards++
					zone, _ := node.Topology().ZoneOf(card)
					zones[zone] = true
				}
			}
		}
		if cards == 0 {
			w.Errorf("pod %s has no cards", p.Name)
		}
		o.cards = append(o.cards, cards)
		slices.Sort(o.cards)
		o.oneZone = len(zones) == 1 && (o.oneZone || !known)
		if at := app + " on " + node.Name; !seen[at] {
			seen[at] = true
			o.nodes++
		}
		out[app] = o
	}
	return out
}

// removePods deletes all pods and returns whether there were any.
func (w *world) removePods() error {
	list, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		err := w.Client.CoreV1().Pods(p.Namespace).Delete(w.Ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("%d pods", len(list.Items))
	}
	return nil
}

// exampleCluster makes the cluster of examples/cluster.yaml.
func (w *world) exampleCluster() {
	w.Helper()
	objects, err := cluster.ReadFiles([]string{filepath.Join(root, "examples", "cluster.yaml")}, nil)
	w.Must(err)
	for _, node := range objects.Nodes {
		w.Must(w.Simulator.AdoptNode(w.Ctx, node))
	}
	for _, d := range objects.Devices {
		device := d.Device.DeepCopy()
		device.ResourceVersion, device.UID = "", ""
		w.Must(w.Simulator.CreateDevice(w.Ctx, device))
	}
	for _, p := range objects.Pods {
		p := p.DeepCopy()
		_, err := w.Client.CoreV1().Namespaces().Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
		w.Eventually("service account", time.Minute, func() error {
			_, err := w.Client.CoreV1().ServiceAccounts(p.Namespace).Get(w.Ctx, "default", metav1.GetOptions{})
			return err
		})
		p.Status = corev1.PodStatus{}
		for i := range p.Spec.Containers { // what is read is trimmed
			p.Spec.Containers[i].Image = "example.com/image"
		}
		w.Create(p)
	}
	w.Eventually("running pods", time.Minute, func() error {
		list, err := w.Client.CoreV1().Pods("").List(w.Ctx, metav1.ListOptions{})
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
