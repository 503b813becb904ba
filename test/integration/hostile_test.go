package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/webhook"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/view"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/gputest/hostile"
)

// besieged is a cluster with all its parts, and nodes that something is wrong
// with.
type besieged struct {
	managed
	publisher kubernetes.Interface // who writes Devices and annotations of nodes
	manager   *running
	dashboard string
	scheduler *local.Process
	bad       []*badNode
	healed    bool // they are well by now
}

// badNode is a node whose data harms no other node.
type badNode struct {
	name string
	// want is why pods are kept off it.
	want place.Code
	// whole reports that it serves whole cards only.
	whole bool
	// heal puts it right.
	heal func() error
}

// listing is the time between two looks at everything, which is a lot.
const listing = time.Second

// devicesPath is where Devices are created.
const devicesPath = "/apis/scheduling.koordinator.sh/v1alpha1/devices"

// TestHostile: everything of the collection at once, on a cluster whose
// definition of Devices lets all of it pass, and two nodes that are well. The
// others go on being scheduled there, every bad node says what is wrong with it,
// nothing ends, and a node that was put right takes pods again.
func TestHostile(t *testing.T) {
	t.Parallel()
	w := besiege(t)
	w.Create(goodPod("before"))
	w.Bound("before")
	start := time.Now()
	refused := w.plantDevices() + w.plantNodes()
	w.plantAllocations()
	w.plantTwin()
	w.plantBytes()
	t.Logf("%d bad nodes after %s; the API server refused %d objects", len(w.bad), time.Since(start).Round(time.Second), refused)
	if len(w.bad) < 180 {
		t.Errorf("%d bad nodes, want nearly all of the collection", len(w.bad))
	}
	w.refuseWishes()
	w.breakModes()
	w.breakDevice("metax-1")

	probes := w.probe()
	w.scheduleOthers("meanwhile", 10)
	w.wantReasons(probes)
	w.wantStatus()
	w.wantAudit()
	w.wantEvents()
	w.wantDashboard(probes)

	w.heal(probes)
	w.scheduleOthers("after", 3)
	w.wantAlive()
}

// besiege starts all parts.
func besiege(t *testing.T) *besieged {
	t.Helper()
	w := &besieged{managed: managed{newWorld(t)}}
	w.dashboard = w.FreeAddress()
	w.Must(w.Apply(w.Ctx, bytes.NewReader(anythingGoes(w.TB))))
	w.publisher = w.ClientOf(w.RESTAs("simulator"))
	address := w.FreeAddress()
	w.Must(w.Webhook(w.Ctx, address))
	w.manager = w.managed.manager("manager", manager.Config{
		AuditInterval: time.Second,
		Admission:     manager.Admission{Address: address, Hosts: []string{"127.0.0.1"}, Rules: webhook.Rules{Schedulers: []string{"default-scheduler"}}},
		Dashboard:     manager.Dashboard{Address: w.dashboard},
	})
	w.admits()
	w.AddNodes(2)
	w.scheduler = w.Scheduler("scheduler")
	return w
}

// anythingGoes is the definition of Devices without what they look like: then
// wrong types are up to their readers.
func anythingGoes(t testing.TB) []byte {
	t.Helper()
	var definition map[string]any
	gputest.Must(t, yaml.Unmarshal(crd.Device, &definition))
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	}
	text, err := yaml.Marshal(definition)
	gputest.Must(t, err)
	return text
}

func goodPod(name string) *corev1.Pod { return pod(name, "sgpu=1", "vcore=5", "vmemory=1") }

// node adds a node without an agent that kubelet would give any of these pods.
func (w *besieged) node(name string, annotations map[string]string, resources ...corev1.ResourceName) error {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("100")}
	for _, r := range resources {
		list[r] = resource.MustParse("16")
	}
	return w.Simulator.AdoptNode(w.Ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: list, Allocatable: list.DeepCopy()},
	})
}

// unlocked reports that the node needs no lock: there is no plugin that would
// take the lock off.
var unlocked = map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}

// put writes a Device, new or in place of the one that is there.
func (w *besieged) put(name string, text []byte) error {
	rest := w.publisher.CoreV1().RESTClient()
	post := func() error {
		return rest.Post().AbsPath(devicesPath).SetHeader("Content-Type", "application/json").Body(text).Do(w.Ctx).Error()
	}
	err := post()
	// An agent may create its Device again in between.
	for attempt := 0; attempt < 20 && apierrors.IsAlreadyExists(err); attempt++ {
		if err = rest.Delete().AbsPath(devicesPath, name).Do(w.Ctx).Error(); err == nil || apierrors.IsNotFound(err) {
			err = post()
		}
	}
	return err
}

// each does something for all of a list, many at a time.
func each[T any](w *besieged, list []T, do func(int, T) error) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i, item := range list {
		group.Go(func() error { return do(i, item) })
	}
	w.Must(group.Wait())
}

// keep takes the bad nodes in that were made.
func (w *besieged) keep(list []*badNode) {
	w.bad = append(w.bad, slices.DeleteFunc(list, func(b *badNode) bool { return b == nil })...)
}

// plantDevices gives each Device of the collection a node, and returns how many
// of them the API server refused.
func (w *besieged) plantDevices() (refused int) {
	w.Helper()
	devices := hostile.Devices()
	bad := make([]*badNode, len(devices))
	each(w, devices, func(i int, d hostile.Device) error {
		name := "device-" + d.Name
		if err := w.node(name, unlocked, wire.ResourceSGPU); err != nil {
			return err
		}
		if err := w.put(name, d.JSON(name)); err != nil {
			w.Logf("Device %s is refused by the API server: %.200v", d.Name, err)
			return nil
		}
		if !d.Harmless {
			bad[i] = &badNode{name: name, want: place.BadInventory, heal: func() error {
				sound := hostile.Sound(name)
				return w.put(name, sound.JSON(name))
			}}
		}
		return nil
	})
	for i, d := range devices {
		if bad[i] == nil && !d.Harmless {
			refused++
		}
	}
	w.keep(bad)
	return refused
}

// plantNodes makes nodes of the vendor's with annotations of the collection.
func (w *besieged) plantNodes() (refused int) {
	w.Helper()
	annotations := hostile.NodeAnnotations()
	bad := make([]*badNode, len(annotations))
	each(w, annotations, func(i int, a hostile.Annotation) error {
		b := &badNode{name: "node-" + a.Name, want: place.BadInventory, whole: a.Key != wire.AnnotationNodeCards}
		kind, sound := wire.ResourceSGPU, any(fmt.Sprintf(`[{"uuid":"GPU-%s","healthy":true,"totalVRam":65536}]`, b.name))
		if b.whole {
			kind, sound = wire.ResourceGPU, nil
		}
		b.heal = func() error { return w.annotate(b.name, a.Key, sound) }
		err := w.node(b.name, map[string]string{a.Key: a.Value, wire.AnnotationServedBy: wire.ServedByVendor}, kind)
		if apierrors.IsInvalid(err) {
			w.Logf("annotation %s is refused by the API server: %.200v", a.Name, err)
			return nil
		}
		bad[i] = b
		return err
	})
	refused = len(bad)
	w.keep(bad)
	for name, lock := range hostile.Locks() {
		w.Must(w.node("lock-"+name, map[string]string{wire.AnnotationLock: lock, wire.AnnotationServedBy: "\x00", wire.AnnotationAdvertised: lock}, wire.ResourceGPU))
	}
	return refused - len(slices.DeleteFunc(bad, func(b *badNode) bool { return b == nil }))
}

func (w *besieged) annotate(node, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = w.publisher.CoreV1().Nodes().Patch(w.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// plantAllocations binds pods with annotations of the collection, as a scheduler
// that has lost its mind would.
func (w *besieged) plantAllocations() {
	w.Helper()
	mad := w.ClientOf(w.RESTAs("scheduler"))
	allocations := hostile.Allocations()
	bad := make([]*badNode, len(allocations))
	each(w, allocations, func(i int, a hostile.Annotation) error {
		name := "pod-" + a.Name
		sound := hostile.Sound(name)
		if err := errors.Join(w.node(name, unlocked, wire.ResourceSGPU), w.put(name, sound.JSON(name))); err != nil {
			return err
		}
		p := goodPod(name)
		p.Spec.SchedulerName = "mad"
		if _, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := mad.CoreV1().Pods("default").Bind(w.Ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{a.Key: strings.ReplaceAll(a.Value, "GPU-0", "GPU-"+name+"-0")}}, Target: corev1.ObjectReference{Kind: "Node", Name: name},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("bind %s: %w", name, err)
		}
		bad[i] = &badNode{name: name, want: place.Unaccounted, heal: func() error {
			return w.Client.CoreV1().Pods("default").Delete(w.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}}
		return nil
	})
	w.keep(bad)
}

// plantTwin adds a node that claims to have the cards of another one.
func (w *besieged) plantTwin() {
	w.Helper()
	text, err := w.publisher.CoreV1().RESTClient().Get().AbsPath(devicesPath, "metax-1").Do(w.Ctx).Raw()
	w.Must(err)
	var d map[string]any
	w.Must(json.Unmarshal(text, &d))
	d["metadata"] = map[string]any{"name": "twin"}
	text, err = json.Marshal(d)
	w.Must(err)
	w.Must(errors.Join(w.node("twin", nil), w.put("twin", text)))
}

// plantBytes sends what is no UTF-8, which JSON could not carry.
func (w *besieged) plantBytes() {
	w.Helper()
	config := w.RESTAs("simulator")
	config.ContentType = runtime.ContentTypeProtobuf
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "bytes", Annotations: map[string]string{wire.AnnotationNodeCards: "[{\"uuid\":\"\xff\xfe\"}]", wire.AnnotationLock: "\xc3\x28"},
	}}
	_, err := w.ClientOf(config).CoreV1().Nodes().Create(w.Ctx, node, metav1.CreateOptions{})
	w.Logf("annotations that are no UTF-8: %v", err)
}

// refuseWishes: invalid pods are rejected, and the sentence is short.
func (w *besieged) refuseWishes() {
	w.Helper()
	for _, a := range hostile.Wishes() {
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, annotated(goodPod("wish"), a.Key, a.Value), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || len(err.Error()) > 1000 {
			w.Errorf("pod with %s: %.300v", a.Name, err)
		}
	}
}

// breakModes: documents that can't be read change nothing.
func (w *besieged) breakModes() {
	w.Helper()
	maps := w.Client.CoreV1().ConfigMaps(local.AgentNamespace)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wire.ModesConfigMap}}
	config, err := maps.Create(w.Ctx, config, metav1.CreateOptions{})
	w.Must(err)
	for name, data := range hostile.ConfigMaps() {
		config.Data = data
		if config, err = maps.Update(w.Ctx, config, metav1.UpdateOptions{}); err != nil {
			w.Errorf("ConfigMap %s: %v", name, err)
			return
		}
	}
	w.wantEvent("metax-1", "BadModes", "is not used, the last good one stays")
	w.Must(maps.Delete(w.Ctx, config.Name, metav1.DeleteOptions{}))
}

// breakDevice writes rubbish over the Device of a node whose agent lives; it
// puts it right.
func (w *besieged) breakDevice(node string) {
	w.Helper()
	for _, d := range hostile.Devices() {
		if d.Name != "same-minor" && d.Name != "minor-is-a-word" && d.Name != "links-one-way" {
			continue
		}
		w.Must(w.put(node, d.JSON(node)))
		w.Eventually("the agent of "+node+" puts Device "+d.Name+" right", 30*time.Second, func() error {
			text, err := w.publisher.CoreV1().RESTClient().Get().AbsPath(devicesPath, node).Do(w.Ctx).Raw()
			if err != nil {
				return err
			}
			device, err := wire.DecodeDevice(text)
			if err != nil {
				return err
			}
			inv := inventory.ReadInventory(nil, device)
			if inv.Problem == nil && inv.Topology.Len() != 8 {
				return fmt.Errorf("%d cards", inv.Topology.Len())
			}
			return inv.Problem
		})
	}
}

// probe creates a pod for each bad node that can go nowhere else.
func (w *besieged) probe() []string {
	w.Helper()
	names := make([]string, len(w.bad))
	each(w, w.bad, func(i int, b *badNode) error {
		p := goodPod("probe-" + b.name)
		if b.whole {
			p = pod("probe-"+b.name, "gpu=1")
		}
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: b.name}
		names[i] = p.Name
		_, err := w.Client.CoreV1().Pods("default").Create(w.Ctx, p, metav1.CreateOptions{})
		return err
	})
	return names
}

// scheduleOthers: pods that may go anywhere are bound, and to nodes that are
// well.
func (w *besieged) scheduleOthers(prefix string, n int) {
	w.Helper()
	start := time.Now()
	for i := range n {
		w.Create(goodPod(fmt.Sprintf("%s-%d", prefix, i)))
	}
	w.Eventually("other pods are bound", 5*time.Minute, func() error {
		defer time.Sleep(listing)
		for _, p := range w.Pods() {
			if !strings.HasPrefix(p.Name, prefix+"-") {
				continue
			}
			if p.Spec.NodeName == "" {
				return fmt.Errorf("%s waits: %v", p.Name, p.Status.Conditions)
			}
			if !w.healed && slices.ContainsFunc(w.bad, func(b *badNode) bool { return b.name == p.Spec.NodeName }) {
				w.Errorf("pod %s went to %s", p.Name, p.Spec.NodeName)
			}
		}
		return nil
	})
	w.Logf("%d other pods were bound in %s", n, time.Since(start).Round(100*time.Millisecond))
}

// wantReasons waits until every pod that waits for a bad node says why.
func (w *besieged) wantReasons(probes []string) {
	w.Helper()
	w.Eventually("every probe has the reason why it waits", 5*time.Minute, func() error {
		defer time.Sleep(listing)
		byName := map[string]*corev1.Pod{}
		for _, p := range w.Pods() {
			byName[p.Name] = &p
		}
		for i, b := range w.bad {
			p := byName[probes[i]]
			if p.Spec.NodeName != "" {
				w.Fatalf("pod %s was bound to %s", p.Name, p.Spec.NodeName)
			}
			at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
			_, want, _ := strings.Cut(place.ListReasons([]place.Refusal{{Code: b.want}}, nil), " has ")
			if at < 0 || want == "" || !strings.Contains(p.Status.Conditions[at].Message, want) {
				return fmt.Errorf("pod %s: %+v, want %q", p.Name, p.Status.Conditions, want)
			}
		}
		return nil
	})
}

// wantStatus: the status command shows of each bad node what is wrong with it.
func (w *besieged) wantStatus() {
	w.Helper()
	byName := map[string]*view.NodeStatus{}
	for _, n := range w.statuses() {
		byName[n.Name] = &n
	}
	for _, b := range w.bad {
		n := byName[b.name]
		switch {
		case n == nil:
			w.Errorf("status does not show node %s", b.name)
		case b.want == place.BadInventory && (n.Problem == "" || len(n.Cards) > 0 || len(n.Problem) > 1000):
			w.Errorf("node %s: problem %.300q, %d cards", b.name, n.Problem, len(n.Cards))
		case b.want == place.Unaccounted && len(n.Unaccounted) != 1:
			w.Errorf("node %s: unaccounted %v", b.name, n.Unaccounted)
		}
	}
	if n := byName["metax-2"]; n == nil || n.Problem != "" || len(n.Cards) != 8 {
		w.Errorf("a node that is well: %+v", n)
	}
	if out, stderr, code := w.run("status"); code != 0 || strings.ContainsAny(out, "\x00\x1b") {
		w.Errorf("status as a table: exit code %d, %.300s", code, stderr)
	}
	if _, stderr, code := w.run("explain", "probe-device-same-uuid"); code == 2 {
		w.Errorf("explain: exit code %d, %s", code, stderr)
	}
}

// wantAudit: the audit names every bad node, live and from a file.
func (w *besieged) wantAudit() {
	w.Helper()
	for _, args := range [][]string{{"audit", "-o", "json"}, {"audit", "-o", "json", "-f", w.dump("json")}, {"audit", "-o", "json", "-f", w.dump("yaml")}} {
		out, stderr, code := w.run(args...)
		var found struct {
			Violations []struct{ Node, Rule, Message string }
		}
		if err := json.Unmarshal([]byte(out), &found); err != nil || code != 1 {
			w.Errorf("%v: exit code %d, %v: %.500s", args[:3], code, err, stderr)
			continue
		}
		rules, twice := map[string][]string{}, false
		for _, v := range found.Violations {
			rules[v.Node] = append(rules[v.Node], v.Rule)
			twice = twice || v.Rule == "CardDuplicated" && strings.Contains(v.Message, "twin")
		}
		for _, b := range w.bad {
			if !slices.Contains(rules[b.name], b.want.String()) {
				w.Errorf("%v: node %s has %v, want %s", args[:3], b.name, rules[b.name], b.want)
			}
		}
		if !twice {
			w.Errorf("%v: nothing is said of cards on two nodes", args[:3])
		}
		if slices.Contains(rules["metax-2"], "BadInventory") {
			w.Errorf("a node that is well: %v", rules["metax-2"])
		}
	}
}

// wantEvents: the manager says on every Node what is wrong with its Device.
func (w *besieged) wantEvents() {
	w.Helper()
	w.Eventually("an event on every bad node", 3*time.Minute, func() error {
		defer time.Sleep(listing)
		list, err := w.Client.CoreV1().Events("default").List(w.Ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		reported := map[string]bool{}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "BadInventory" && e.InvolvedObject.Kind == "Node" {
				reported[e.InvolvedObject.Name] = true
			}
		}
		for _, b := range w.bad {
			if b.want == place.BadInventory && !reported[b.name] {
				return fmt.Errorf("none on %s; %d nodes have one", b.name, len(reported))
			}
		}
		return nil
	})
}

// wantDashboard: the page goes on, and shows the bad nodes.
func (w *besieged) wantDashboard(probes []string) {
	w.Helper()
	text, err := get("http://" + w.dashboard + "/api/v1/state")
	w.Must(err)
	var state struct {
		Nodes []struct{ Name, Problem string }
	}
	w.Must(json.Unmarshal([]byte(text), &state))
	shown := map[string]string{}
	for _, n := range state.Nodes {
		shown[n.Name] = n.Problem
	}
	for i, b := range w.bad {
		if problem, ok := shown[b.name]; !ok || (problem == "") == (b.want == place.BadInventory) {
			w.Errorf("the page shows %s with problem %.100q, %t", b.name, problem, ok)
		}
		if i%20 == 0 {
			if _, err := get("http://" + w.dashboard + "/api/v1/pods/default/" + probes[i]); err != nil {
				w.Errorf("pod %s: %v", probes[i], err)
			}
		}
	}
}

// heal puts every node right, and wants all that wait for one bound.
func (w *besieged) heal(probes []string) {
	w.Helper()
	start := time.Now()
	each(w, w.bad, func(_ int, b *badNode) error { return b.heal() })
	w.Eventually("every probe is bound", 5*time.Minute, func() error {
		defer time.Sleep(listing)
		var waiting []string
		for _, p := range w.Pods() {
			if slices.Contains(probes, p.Name) && p.Spec.NodeName == "" {
				waiting = append(waiting, p.Name)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%d wait: %.500v", len(waiting), waiting)
		}
		return nil
	})
	w.healed = true
	each(w, w.bad, func(_ int, b *badNode) error { return w.annotate(b.name, wire.AnnotationLock, nil) }) // as a plugin would
	w.Logf("%d nodes healed and took pods again in %s", len(w.bad), time.Since(start).Round(time.Second))
}

// wantAlive: nothing ended, and nothing fell and got up again.
func (w *besieged) wantAlive() {
	w.Helper()
	select {
	case <-w.scheduler.Exited():
		w.Error("the scheduler has ended")
	case <-w.manager.Ended():
		w.Error("the manager has ended")
	default:
	}
	for _, path := range []string{w.scheduler.Log(), w.manager.Log()} {
		text, err := os.ReadFile(path)
		w.Must(err)
		if at := bytes.Index(text, []byte("panic")); at >= 0 {
			w.Errorf("%s: %s", path, text[at:min(len(text), at+2000)])
		}
	}
	if response, err := http.Get(w.manager.url + "/metrics"); err != nil { //nolint:noctx // the test's own time is the limit
		w.Error(err)
	} else {
		w.Must(response.Body.Close())
	}
}
