package integration

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/local"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// bindAsHAMi does for a pod of another scheduler what HAMi does: it fails when
// the node is locked, and tries again a little later.
func (w *world) bindAsHAMi(name, node, card string) error {
	nodes := w.Client.CoreV1().Nodes()
	for range 300 {
		n, err := nodes.Get(w.Ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, locked := n.Annotations[wire.AnnotationLock]; locked {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:"%s,default,%s"}}}`,
			n.ResourceVersion, wire.AnnotationLock, time.Now().Format(time.RFC3339), name)
		if _, err = nodes.Patch(w.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return err
		}
		return w.Client.CoreV1().Pods("default").Bind(w.Ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				wire.AnnotationAllocated:     fmt.Sprintf(`[[{"uuid":%q,"compute":10,"vRam":4096}]]`, card),
				wire.AnnotationPredicateTime: strconv.FormatInt(time.Now().UnixNano(), 10),
				wire.AnnotationQoS:           "best-effort",
			}},
			Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	}
	return fmt.Errorf("%s: the node was locked all the time", name)
}

// cardNames returns the cards of the first node that the plugin serves.
func (w *world) cardNames() []string {
	w.Helper()
	n := w.Node("vendor-1")
	cards, err := inventory.DecodeNodeCards(n.Annotations[wire.AnnotationNodeCards])
	w.Must(err)
	var names []string
	for i := range cards {
		names = append(names, cards[i].UUID)
	}
	return names
}

// TestLockOfOthers: another scheduler binds to the same nodes under the same
// locks, and locks are there that no plugin will remove.
func TestLockOfOthers(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	v := w.plugin(2, random(50*time.Millisecond))
	const wait, expiry = 30, 6
	w.lockScheduler(wait, expiry)

	// Both at once: the other one has a card to itself, as two schedulers on one
	// card would need more than a lock.
	cards := w.cardNames()
	var names []string
	errs := make(chan error, 8)
	for i := range 8 {
		name := fmt.Sprintf("theirs-%d", i)
		p := slicePod(name, "")
		p.Spec.SchedulerName = "hami-scheduler"
		w.Create(p)
		go func() { errs <- w.bindAsHAMi(name, "vendor-1", cards[7]) }()
		mine := annotated(slicePod(fmt.Sprintf("ours-%d", i), "vendor-1"), wire.AnnotationNoUseCards, cards[7])
		w.Create(mine)
		names = append(names, name, mine.Name)
	}
	for range 8 {
		w.Must(<-errs)
	}
	w.running(time.Minute, names...)
	w.noRefusals(v)

	// Locks without an owner: what can't be read, what only names a time, what is of
	// the future, what is old.
	for i, value := range []string{"garbage!", "", "2099-01-01T00:00:00Z,default,none", "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"} {
		if value == "" {
			value = time.Now().Format(time.RFC3339)
		}
		w.setLock("vendor-1", value)
		start := time.Now()
		name := fmt.Sprintf("after-%d", i)
		w.Create(slicePod(name, "vendor-1"))
		w.running(time.Minute, name)
		t.Logf("lock %q kept a pod waiting for %s", value, time.Since(start).Round(100*time.Millisecond))
		if took := time.Since(start); took > (expiry+20)*time.Second {
			t.Errorf("lock %q kept a pod waiting for %s, want little more than the %d s it lives", value, took, expiry)
		}
	}
	// And with no pod waiting.
	w.setLock("vendor-2", "garbage!")
	w.quiet(v)
}

// TestLockStuck: pods that give up on a node's lock go to another node.
func TestLockStuck(t *testing.T) {
	t.Parallel()
	w := newOpenWorld(t)
	v := w.plugin(2, nil)
	w.lockScheduler(2, 300)
	w.Create(slicePod("first", "vendor-1"))
	w.running(time.Minute, "first")
	theirs := slicePod("theirs", "")
	theirs.Spec.SchedulerName = "hami-scheduler"
	w.Create(theirs)
	w.setLock("vendor-1", time.Now().Format(time.RFC3339)+",default,theirs")
	w.Create(slicePod("wanders", "")) // packs on vendor-1 at first
	w.running(time.Minute, "wanders")
	gputest.Equal(t, "node of the pod", "vendor-2", w.Bound("wanders").Spec.NodeName)
	// Its owner goes: the node is free at once, and taken again.
	w.Delete("theirs")
	w.Create(slicePod("packs", "vendor-1"))
	w.running(time.Minute, "packs")
	w.quiet(v)
}

// TestMixedCluster: both dialects on nodes of both kinds, by name and freely.
func TestMixedCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(3, random(50*time.Millisecond))
	w.AddNodes(3)
	w.Scheduler("scheduler")
	koordinator := func(name, node string) *corev1.Pod {
		p := slicePod(name, node)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			wire.ResourceSGPU: resource.MustParse("1"), wire.KoordShared: resource.MustParse("1"),
			wire.KoordCore: resource.MustParse("10"), wire.KoordMemory: resource.MustParse("4Gi"),
		}
		return p
	}
	var names []string
	for i := range 3 {
		for _, kind := range []string{"vendor", "metax"} {
			node := fmt.Sprintf("%s-%d", kind, i+1)
			w.Create(slicePod("hami-"+node, node), koordinator("koord-"+node, node))
			names = append(names, "hami-"+node, "koord-"+node)
		}
	}
	for i := range 20 {
		p := annotated(slicePod(fmt.Sprintf("free-%d", i), ""), wire.AnnotationNodePolicy, "spread")
		q := annotated(koordinator(fmt.Sprintf("koord-free-%d", i), ""), wire.AnnotationNodePolicy, "spread")
		w.Create(p, q)
		names = append(names, p.Name, q.Name)
	}
	w.Create(pod("whole", "gpu=2")) // only Daybreak's nodes serve both kinds
	w.running(time.Minute, append(names, "whole")...)
	count := map[string]int{}
	for _, p := range w.Pods() {
		if strings.Contains(p.Name, "free") {
			count[strings.Split(p.Name, "-")[0]+" on "+strings.Split(p.Spec.NodeName, "-")[0]]++
		}
		if koord := p.Annotations[wire.AnnotationKoordAllocated] != ""; koord != strings.HasPrefix(p.Name, "koord") {
			t.Errorf("pod %s has Koordinator's annotation: %v", p.Name, koord)
		}
	}
	t.Logf("where the others went: %v", count)
	if len(count) != 4 {
		t.Errorf("they went %v, want both dialects on both kinds", count)
	}
	w.noRefusals(v)
	w.quiet(v)
}

// TestWhatThePluginReads: several containers and init containers, classes, a
// foreign slice: annotations to the letter, as the stand-in serves by them.
func TestWhatThePluginReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(1, nil)
	w.Scheduler("scheduler")
	cards := w.cardNames()
	limits := func(sgpu, vcore, vmemory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{
			wire.ResourceSGPU: resource.MustParse(sgpu), wire.ResourceVCore: resource.MustParse(vcore), wire.ResourceVMemory: resource.MustParse(vmemory),
		}}
	}
	several := pod("several")
	always := corev1.ContainerRestartPolicyAlways
	several.Spec.InitContainers = []corev1.Container{
		{Name: "prepare", Image: "none", Resources: limits("1", "20", "2")},
		{Name: "nothing", Image: "none"},
		{Name: "beside", Image: "none", RestartPolicy: &always, Resources: limits("1", "5", "1")},
	}
	several.Spec.Containers = []corev1.Container{
		{Name: "a", Image: "none", Resources: limits("1", "60", "4")},
		{Name: "b", Image: "none"},
		{Name: "c", Image: "none", Resources: limits("1", "30", "8")},
	}
	initOnly := pod("init-only")
	initOnly.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "none", Resources: limits("1", "20", "2")}}
	exclusive := pod("exclusive", "sgpu=2")
	online := annotated(pod("online", "sgpu=1", "vmemory=4"), wire.AnnotationClass, "online")
	fixed := annotated(pod("fixed", "sgpu=1", "vcore=10", "vmemory=4"), wire.AnnotationQoS, "fixed-share")
	c0, c1, c2, c4, c5 := cards[0], cards[1], cards[2], cards[4], cards[5]
	share := func(card string, compute, memory int) string {
		if compute == 0 {
			return fmt.Sprintf(`{"uuid":%q,"vRam":%d}`, card, memory)
		}
		return fmt.Sprintf(`{"uuid":%q,"compute":%d,"vRam":%d}`, card, compute, memory)
	}
	tests := []struct {
		pod             *corev1.Pod
		wantCards, want string // the annotation, and the QoS class
	}{
		{several, "[[" + share(c0, 20, 2048) + "],[],[" + share(c0, 5, 1024) + "],[" + share(c0, 60, 4096) + "],[],[" + share(c0, 30, 8192) + "]]", "best-effort"},
		{initOnly, "[[" + share(c1, 20, 2048) + "],[]]", "best-effort"},
		{fixed, "[[" + share(c2, 10, 4096) + "]]", "fixed-share"},
		// Two cards that are linked, which only the other zone still has.
		{exclusive, "[[" + share(c4, 100, 65536) + "," + share(c5, 100, 65536) + "]]", "best-effort"},
		{online, "", ""},
	}
	for _, tt := range tests {
		w.Create(tt.pod)
		w.running(time.Minute, tt.pod.Name)
		got := w.Bound(tt.pod.Name)
		if tt.wantCards != "" && got.Annotations[wire.AnnotationAllocated] != tt.wantCards {
			t.Errorf("%s: %s\nis   %s\nwant %s", tt.pod.Name, wire.AnnotationAllocated, got.Annotations[wire.AnnotationAllocated], tt.wantCards)
		}
		if got.Annotations[wire.AnnotationQoS] != tt.want || len(got.Annotations[wire.AnnotationPredicateTime]) != 19 {
			t.Errorf("%s: QoS %q, decided at %q, want %q and Unix nanoseconds", tt.pod.Name,
				got.Annotations[wire.AnnotationQoS], got.Annotations[wire.AnnotationPredicateTime], tt.want)
		}
	}
	if got := w.Bound("online").Annotations[wire.AnnotationAllocated]; strings.Contains(got, "compute") || !strings.Contains(got, `"vRam":4096`) {
		t.Errorf("online: %s, want memory and no compute", got)
	}
	w.noRefusals(v)
	w.quiet(v)
}

// TestForeignSlices: slices that belong to no pod are respected, with their
// class and their memory, also while pods that wait for their turn are booked
// alongside them.
func TestForeignSlices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.plugin(1, constant(200*time.Millisecond))
	w.Scheduler("scheduler")
	cards := w.cardNames()
	// Strangers run fixed-share on the first card, which is the fullest, and
	// have most of the memory of all the others.
	w.Must(v.AddForeign(w.Ctx, "vendor-1", 0, 40, 32<<10, "fixed-share"))
	for card := range 7 {
		w.Must(v.AddForeign(w.Ctx, "vendor-1", card+1, 5, 48<<10, "best-effort"))
	}
	w.Create(annotated(slicePod("same-class", ""), wire.AnnotationQoS, "fixed-share"), slicePod("other-class", ""))
	w.running(time.Minute, "same-class", "other-class")
	for name, card := range map[string]string{"same-class": cards[0], "other-class": cards[1]} {
		if got := w.Bound(name).Annotations[wire.AnnotationAllocated]; !strings.Contains(got, card) {
			t.Errorf("%s got %s, want a share of %s", name, got, card)
		}
	}
	// 16 GiB are left on each of the six cards that no pod is on, 12 on one.
	var names []string
	for i := range 7 {
		p := pod(fmt.Sprintf("p%d", i), "sgpu=1", "vcore=10", "vmemory=12")
		names = append(names, p.Name)
		w.Create(p)
	}
	w.Create(pod("too-much", "sgpu=1", "vcore=10", "vmemory=8"))
	w.Refused("too-much", "")
	t.Logf("event: %s", w.Refusals("too-much")[0])
	w.running(time.Minute, names...)
	if len(v.Refused()) > 0 {
		t.Errorf("refused: %q", v.Refused())
	}
	w.Delete("too-much")
	w.quiet(v)
}

// TestVendorNative: whole cards where the plugin picks them: the node is chosen
// by the vendor's figures, without a lock and without cards in annotations.
func TestVendorNative(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Scheduler("scheduler")
	tables := map[string][2]string{
		// Two cards are worth more on the first, and cost less on the second.
		"native-1": {`{"1":0,"2":110,"3":330,"4":660}`, `{"1":150,"2":300,"3":390,"4":80}`},
		"native-2": {`{"1":0,"2":50,"3":90,"4":130}`, `{"1":150,"2":80,"3":90,"4":100}`},
	}
	for name, table := range tables {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationScores: table[0], wire.AnnotationLosses: table[1]}}}
		node.Status.Capacity = corev1.ResourceList{
			wire.ResourceGPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("100"), corev1.ResourceCPU: resource.MustParse("8"),
		}
		node.Status.Allocatable = node.Status.Capacity
		w.Must(w.Simulator.AdoptNode(w.Ctx, node))
	}
	for _, tt := range []struct{ name, policy, want string }{
		{"spread", "spread", "native-1"},
		{"binpack", "binpack", "native-2"},
		{"default", "", "native-1"},
	} {
		p := pod(tt.name, "gpu=2")
		if tt.policy != "" {
			annotated(p, wire.AnnotationNodePolicy, tt.policy)
		}
		w.Create(p)
		got := w.Bound(tt.name)
		gputest.Equal(t, tt.name+": on", tt.want, got.Spec.NodeName)
		if cards, found := got.Annotations[wire.AnnotationAllocated]; found {
			t.Errorf("%s: cards were written: %s", tt.name, cards)
		}
	}
	// Four cost less on the first, too: the figures of that number count.
	w.Create(annotated(pod("four", "gpu=4"), wire.AnnotationNodePolicy, "binpack"))
	gputest.Equal(t, "node of four cards", "native-1", w.Bound("four").Spec.NodeName)
	w.Create(slicePod("slice", ""))
	w.Refused("slice", "2 serve")
	if left := w.locks(); len(left) > 0 {
		t.Errorf("locks: %v, want none for whole cards", left)
	}
}

// TestDevicePluginAdaption: Koordinator's switch is known, also to an older
// Kubernetes; off, nothing is written for the vendor's plugin.
func TestDevicePluginAdaption(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, local.Config{APIServerArgs: []string{"--emulated-version=1.33"}})
	w.AddNodes(1)
	v := w.plugin(1, nil)
	s := w.Scheduler("on", "--feature-gates=DevicePluginAdaption=true")
	w.Create(slicePod("on", "vendor-1"))
	w.running(time.Minute, "on")
	s.Stop()
	w.Scheduler("off", "--feature-gates=DevicePluginAdaption=false")
	w.Create(slicePod("off", "metax-1"), slicePod("off-vendor", "vendor-1"))
	for _, name := range []string{"off", "off-vendor"} {
		p := w.Bound(name)
		text, err := json.Marshal(p.Annotations)
		w.Must(err)
		if p.Annotations[wire.AnnotationAllocated] != "" || p.Annotations[wire.AnnotationPredicateTime] != "" || p.Annotations[wire.AnnotationHAMiSGPU] == "" {
			t.Errorf("%s: annotations %s, want HAMi's and not the vendor's", name, text)
		}
	}
	// The stand-in goes by the lock, as the vendor's plugin does.
	w.Eventually("refused", time.Minute, func() error {
		if got := v.Refused(); len(got) != 1 || got[0] != "default/off-vendor on vendor-1: the node has no lock" {
			return fmt.Errorf("refused: %q", got)
		}
		return nil
	})
	w.Audit()
}
