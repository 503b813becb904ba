package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// start is when every test begins.
var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// fakeHandle has what the plugin asks kube-scheduler for, and nothing else.
type fakeHandle struct {
	fwk.Handle
	client    *fake.Clientset
	real      kubernetes.Interface // in its place, if there is one
	informers informers.SharedInformerFactory
	snapshot  fwk.SharedLister
	nominated map[string][]fwk.PodInfo
	filter    func(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status
	recorder  *events.FakeRecorder
	extenders []fwk.Extender
	// activated has the names of pods that were to be tried at once.
	activated chan string
}

func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for _, pod := range pods {
		h.activated <- pod.Name
	}
}

func (h *fakeHandle) EventRecorder() events.EventRecorderLogger { return h.recorder }

func (h *fakeHandle) ClientSet() kubernetes.Interface {
	if h.real != nil {
		return h.real
	}
	return h.client
}

func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.informers }

func (h *fakeHandle) SnapshotSharedLister() fwk.SharedLister { return h.snapshot }

func (h *fakeHandle) NominatedPodsForNode(node string) []fwk.PodInfo { return h.nominated[node] }

func (*fakeHandle) Parallelizer() fwk.Parallelizer { return parallelize.NewParallelizer(1) }

func (*fakeHandle) SharedDRAManager() fwk.SharedDRAManager { return noClasses{} }

func (h *fakeHandle) Extenders() []fwk.Extender { return h.extenders }

// RunFilterPluginsWithNominatedPods runs the filter as the framework does: first
// with the nominated pods of the same or a higher priority, then without.
func (h *fakeHandle) RunFilterPluginsWithNominatedPods(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	with := ni.Snapshot()
	for _, pi := range h.nominated[ni.Node().Name] {
		if corev1helpers.PodPriority(pi.GetPod()) >= corev1helpers.PodPriority(pod) && pi.GetPod().UID != pod.UID {
			with.AddPodInfo(pi)
		}
	}
	if len(with.GetPods()) > len(ni.GetPods()) {
		if status := h.filter(ctx, cs.Clone(), pod, with); !status.IsSuccess() {
			return status
		}
	}
	return h.filter(ctx, cs, pod, ni)
}

func (*fakeHandle) RunPreFilterExtensionRemovePod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (*fakeHandle) RunPreFilterExtensionAddPod(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// rig is the plugin among fakes, with its decisions already fenced.
type rig struct {
	*Plugin
	fakes *fakeHandle
	clock *clocktesting.FakeClock
	// suspended is how long the machine was, which the clock does not show.
	suspended time.Duration
}

func newRig(t testing.TB) *rig {
	t.Helper()
	schedulermetrics.Register()
	r := &rig{clock: clocktesting.NewFakeClock(start), fakes: newHandle()}
	shared := NewState(r.clock)
	shared.devices.store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	shared.term.elapsed = func() time.Duration { return r.clock.Since(start) + r.suspended }
	leads(shared.term)
	shared.term.open()
	plugin, err := shared.newPlugin(t.Context(), nil, r.fakes)
	if err != nil {
		t.Fatal(err)
	}
	shared.pods.lister = nil // pods of tests need not be in the store
	r.Plugin = plugin
	r.fakes.filter = plugin.Filter
	return r
}

// setDevice stores a Device as the informer would.
func (r *rig) setDevice(t testing.TB, d *v1alpha1.Device) *device {
	t.Helper()
	return storeDevice(t, r.shared, d)
}

func storeDevice(t testing.TB, shared *State, d *v1alpha1.Device) *device {
	t.Helper()
	kept := trimmed(t, d)
	gputest.Must(t, shared.devices.store.Add(kept))
	shared.devices.touch(d.Name)
	return kept
}

// newHandle returns what a plugin asks kube-scheduler for, with these objects in the
// informers' client.
func newHandle(objects ...runtime.Object) *fakeHandle {
	client := fake.NewClientset(objects...)
	return &fakeHandle{
		client: client, informers: informers.NewSharedInformerFactory(client, 0), nominated: map[string][]fwk.PodInfo{},
		snapshot: schedulercache.NewEmptySnapshot(), recorder: events.NewFakeRecorder(10), activated: make(chan string, 100),
	}
}

// cycle runs PreFilter for the pod without nodes: the index knows none of those
// that are asked about later.
func (r *rig) cycle(t *testing.T, pod *corev1.Pod) fwk.CycleState {
	t.Helper()
	return r.cycleOver(t, pod, nil)
}

// cycleOver runs PreFilter for the pod over the nodes.
func (r *rig) cycleOver(t *testing.T, pod *corev1.Pod, infos []fwk.NodeInfo) fwk.CycleState {
	t.Helper()
	cs := framework.NewCycleState()
	if _, status := r.PreFilter(t.Context(), cs, pod, infos); !status.IsSuccess() {
		t.Fatalf("PreFilter(%s) = %v", pod.Name, status)
	}
	return cs
}

// nodes returns the nodes of the snapshot.
func (r *rig) nodes(t testing.TB) []fwk.NodeInfo {
	t.Helper()
	infos, err := r.fakes.snapshot.NodeInfos().List()
	gputest.Must(t, err)
	return infos
}

// stateOf returns what the cycle knows.
func stateOf(t testing.TB, cs fwk.CycleState) *cycle {
	t.Helper()
	c, err := readState(cs)
	gputest.Must(t, err)
	return c
}

// filter asks Filter about the node both ways, by the index and without it, and
// returns the answer, which has to be the same.
func (r *rig) filter(t *testing.T, pod *corev1.Pod, ni fwk.NodeInfo) *fwk.Status {
	t.Helper()
	slow := r.Filter(t.Context(), r.cycle(t, pod), pod, ni)
	fast := r.Filter(t.Context(), r.cycleOver(t, pod, []fwk.NodeInfo{ni}), pod, ni)
	if fast.Code() != slow.Code() || fast.Message() != slow.Message() {
		t.Errorf("Filter(%s) = %v by the index, %v without it", pod.Name, fast, slow)
	}
	return slow
}

// trimmed is the Device as the informer's transform leaves it.
func trimmed(t testing.TB, d *v1alpha1.Device) *device {
	t.Helper()
	obj, err := trim(toUnstructured(t, d))
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := obj.(*device)
	if !ok {
		t.Fatalf("trim() = %T, want a device", obj)
	}
	return kept
}

func toUnstructured(t testing.TB, d *v1alpha1.Device) *unstructured.Unstructured {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}

// makeDevice returns the Device of a node with n healthy cards of 64 GiB, called
// GPU-0, GPU-1 and so on. Its agent serves and has not listed yet what other
// plugins gave, so that a pod without a readable allocation may hold cards; see
// [listing].
func makeDevice(node string, n int) *v1alpha1.Device {
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("device-" + node), ResourceVersion: "1"}}
	for i := range n {
		d.Spec.Devices = append(d.Spec.Devices, v1alpha1.DeviceInfo{
			Type: v1alpha1.DeviceTypeGPU, UUID: cardName(i), Minor: new(int32(i)), Health: true,
			Resources:  corev1.ResourceList{wire.KoordMemory: resource.MustParse("64Gi")},
			Labels:     map[string]string{wire.LabelLinkZone: "1"},
			Conditions: []metav1.Condition{{Type: wire.ConditionServing, Status: metav1.ConditionTrue}},
		})
	}
	return d
}

// listing makes the agent list what other plugins gave to pods.
func listing(d *v1alpha1.Device, given string) *v1alpha1.Device {
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, wire.AnnotationPluginAllocations, given)
	return d
}

func cardName(i int) string { return fmt.Sprintf("GPU-%d", i) }

func makeNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{wire.AnnotationServedBy: wire.ServedByDaybreak}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{wire.ResourceGPU: resource.MustParse("16"), wire.ResourceSGPU: resource.MustParse("256")}},
	}
}

// nodeInfo is the node with pods on it as kube-scheduler shows it.
func nodeInfo(node *corev1.Node, pods ...*corev1.Pod) *framework.NodeInfo {
	ni := framework.NewNodeInfo(pods...)
	ni.SetNode(node)
	return ni
}

func podInfo(t *testing.T, pod *corev1.Pod) fwk.PodInfo {
	t.Helper()
	pi, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return pi
}

type podOption func(*corev1.Pod)

// makePod returns a pod of one container that asks for nothing yet.
func makePod(name string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{SchedulerName: DefaultProfile, Containers: []corev1.Container{{Name: "c"}}},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

func asking(amounts map[corev1.ResourceName]string) podOption {
	return func(pod *corev1.Pod) {
		limits := corev1.ResourceList{}
		for name, amount := range amounts {
			limits[name] = resource.MustParse(amount)
		}
		pod.Spec.Containers[0].Resources.Limits = limits
	}
}

// whole asks for n whole cards.
func whole(n int) podOption {
	return asking(map[corev1.ResourceName]string{wire.ResourceGPU: strconv.Itoa(n)})
}

// slice asks for a slice of one card.
func slice(compute, gib int) podOption {
	return asking(map[corev1.ResourceName]string{
		wire.ResourceSGPU: "1", wire.ResourceVCore: strconv.Itoa(compute), wire.ResourceVMemory: fmt.Sprintf("%dGi", gib),
	})
}

func annotated(key, value string) podOption {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

func ofApp(app string) podOption {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{"app": app} }
}

func priority(p int32) podOption { return func(pod *corev1.Pod) { pod.Spec.Priority = &p } }

// started says how many minutes after the test's beginning the pod started.
func started(minute int) podOption {
	return func(pod *corev1.Pod) {
		pod.Status.StartTime = &metav1.Time{Time: start.Add(time.Duration(minute) * time.Minute)}
	}
}

func boundTo(node string) podOption { return func(pod *corev1.Pod) { pod.Spec.NodeName = node } }

// holds binds the pod to node n1 with the given cards. It comes after what the
// pod asks for.
func holds(cards ...int) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = "n1"
		type share struct {
			UUID    string `json:"uuid"`
			Compute int64  `json:"compute,omitempty"`
			VRam    int64  `json:"vRam,omitempty"`
		}
		compute, memory := int64(100), int64(64<<10)
		limits := pod.Spec.Containers[0].Resources.Limits
		if core, ok := limits[wire.ResourceVCore]; ok {
			asked := limits[wire.ResourceVMemory]
			compute, memory = core.Value(), asked.Value()>>20
		}
		var shares []share
		for _, c := range cards {
			shares = append(shares, share{cardName(c), compute, memory})
		}
		text, err := json.Marshal([][]share{shares})
		if err != nil {
			panic(err)
		}
		pod.Annotations[wire.AnnotationAllocated] = string(text)
	}
}

// makeQuota returns a ResourceQuota of the pods' namespace.
func makeQuota(name string, hard map[corev1.ResourceName]string) *corev1.ResourceQuota {
	rq := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	rq.Spec.Hard = corev1.ResourceList{}
	for key, amount := range hard {
		rq.Spec.Hard[key] = resource.MustParse(amount)
	}
	return rq
}

var errNoNode = errors.New("no such node")

// succeeds ends the test unless the status is a success.
func succeeds(t testing.TB, status *fwk.Status) {
	t.Helper()
	if !status.IsSuccess() {
		t.Fatalf("status %v %q, want success", status.Code(), status.Message())
	}
}

// wantHint returns a check of a queueing hint.
func wantHint(t testing.TB, want fwk.QueueingHint) func(fwk.QueueingHint, error) {
	t.Helper()
	return func(got fwk.QueueingHint, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("hint %v, %v; want %v", got, err, want)
		}
	}
}
