package agent

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// fakeServer is a server whose state is the test's.
type fakeServer struct {
	status deviceplugin.Status
	node   *deviceplugin.Node
}

func (f *fakeServer) Run(context.Context) error   { return nil }
func (f *fakeServer) Update(n *deviceplugin.Node) { f.node = n }
func (f *fakeServer) Status() deviceplugin.Status { return f.status }
func (*fakeServer) Changed() <-chan struct{}      { return nil }

// serving is the condition on the Device, "" if there is none.
func (s *scene) serving() string {
	if s.seen.device == nil {
		return ""
	}
	for _, c := range s.seen.device.Spec.Devices[0].Conditions {
		if c.Type == wire.ConditionServing {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// The Device says that the node is served once kubelet has the plugins and the
// Node says who serves it, and not a moment longer than it is.
func TestServing(t *testing.T) {
	s := newScene(t)
	server := &fakeServer{}
	s.agent.server = server
	s.looks(1, seen("a", "b"))
	if got := s.serving(); got != "False PluginsNotRegistered" {
		t.Errorf("before kubelet has the plugins: %q", got)
	}
	if _, ok := s.seen.node.Annotations[wire.AnnotationServedBy]; ok {
		t.Error("the Node says who serves it before anyone does")
	}
	if s.agent.Ready() == nil {
		t.Error("ready before the node is served")
	}
	server.status.Serving, server.status.Mode = true, gpu.ModeNative
	s.agent.step(t.Context())
	if got := s.seen.node.Annotations[wire.AnnotationServedBy]; got != wire.ServedByDaybreak {
		t.Errorf("served by %q", got)
	}
	s.agent.step(t.Context())
	if got := s.serving(); got != "False HoldersUnknown" {
		t.Errorf("kubelet has not said yet what pods hold: %q", got)
	}
	server.status.Given, server.status.GivenKnown = map[types.UID]inventory.PluginAllocation{}, true
	s.agent.step(t.Context())
	if got := s.serving(); got != "False ModeChanging" {
		t.Errorf("kubelet has the devices of another mode: %q", got)
	}
	server.status.Mode = gpu.ModeSGPU
	s.agent.step(t.Context())
	if got := s.serving(); got != "True PluginsRegistered" {
		t.Errorf("served: %q", got)
	}
	if got := s.seen.device.Annotations[wire.AnnotationPluginAllocations]; got != "[]" {
		t.Errorf("what other plugins gave: %q", got)
	}
	if server.node == nil || len(server.node.Cards) != 2 || server.node.Mode != gpu.ModeSGPU || server.node.Inventory.Problem != nil {
		t.Errorf("the server has %+v", server.node)
	}
	server.status.Serving = false
	s.agent.step(t.Context())
	if got := s.serving(); got != "False PluginsNotRegistered" {
		t.Errorf("kubelet restarts: %q", got)
	}
	if got := s.seen.node.Annotations[wire.AnnotationServedBy]; got != wire.ServedByDaybreak {
		t.Errorf("kubelet restarts: served by %q", got)
	}
	server.status.Disk = "/var/lib/daybreak can't be written to: no space left on device"
	s.agent.step(t.Context())
	if got := s.serving(); got != "False DiskNotWritable" {
		t.Errorf("the disk is full: %q", got)
	}
	server.status.Disk, server.status.Serving = "", true
	s.agent.step(t.Context())
	s.agent.stopping = true
	s.agent.step(t.Context())
	if got := s.serving(); got != "False AgentStopping" {
		t.Errorf("the agent ends: %q", got)
	}
}

// A container runtime that can't be left containers is a reason of its own, reported
// once, and so is its return; the agent is not ready meanwhile.
func TestRuntimeKeepsFromServing(t *testing.T) {
	for _, reason := range []string{deviceplugin.ReasonNoCDI, deviceplugin.ReasonRuntimeUnreachable, deviceplugin.ReasonCDIUnknown} {
		t.Run(reason, func(t *testing.T) {
			s := newScene(t)
			fault := deviceplugin.RuntimeFault{Reason: reason, Message: "what to do"}
			server := &fakeServer{status: deviceplugin.Status{Mode: gpu.ModeSGPU, GivenKnown: true, RuntimeKnown: true, Runtime: fault, Waits: fault.Message}}
			s.agent.server = server
			s.looks(3, seen("a", "b"))
			if got := s.serving(); got != "False "+reason {
				t.Errorf("condition %q", got)
			}
			if err := s.agent.Ready(); err == nil || !strings.Contains(err.Error(), "what to do") {
				t.Errorf("ready: %v", err)
			}
			server.status.Runtime, server.status.Serving, server.status.Waits = deviceplugin.RuntimeFault{}, true, ""
			s.looks(3, seen("a", "b"))
			if got := s.serving(); got != "True PluginsRegistered" || s.agent.Ready() != nil {
				t.Errorf("condition %q, ready %v", got, s.agent.Ready())
			}
			var reported []string
			for _, e := range s.events {
				if strings.Contains(e, reason) || strings.Contains(e, eventRuntimeReady) {
					reported = append(reported, e)
				}
			}
			if len(reported) != 2 || !strings.Contains(reported[0], "what to do") || !strings.Contains(reported[1], eventRuntimeReady) {
				t.Errorf("reported %q", reported)
			}
		})
	}
}

// A kubelet that is too old keeps the node from being served, and is reported once, with
// its version.
func TestOldKubelet(t *testing.T) {
	s := newScene(t)
	s.agent.server = &fakeServer{status: deviceplugin.Status{OldKubelet: "kubelet 1.23 or later is needed", RuntimeKnown: true}}
	s.looks(3, seen("a", "b"))
	if got := s.serving(); got != "False KubeletTooOld" {
		t.Errorf("condition %q", got)
	}
	if text := strings.Join(s.events, "\n"); strings.Count(text, "KubeletTooOld no pod with cards is placed here: kubelet is v1.22.17: kubelet 1.23 or later is needed") != 1 {
		t.Errorf("events %q", text)
	}
}

// Where someone else serves, the agent says nothing about it but an event.
func TestServedByOthers(t *testing.T) {
	cases := map[string]struct {
		foreign, servedBy string
		want              string
	}{
		"another plugin":     {foreign: "metax-tech.com/gpu with device GPU-1", want: "kubelet advertises metax-tech.com/gpu with device GPU-1"},
		"a word on the Node": {servedBy: wire.ServedByVendor, want: "its annotation daybreak-gpu.io/served-by says vendor"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.agent.server = &fakeServer{status: deviceplugin.Status{Foreign: tc.foreign}}
			if tc.servedBy != "" {
				s.seen.node.Annotations = map[string]string{wire.AnnotationServedBy: tc.servedBy}
			}
			s.looks(2, seen("a", "b"))
			if got := s.serving(); got != "" {
				t.Errorf("condition %q", got)
			}
			if got := s.seen.node.Annotations[wire.AnnotationServedBy]; got != tc.servedBy {
				t.Errorf("served by %q", got)
			}
			reported := 0
			for _, e := range s.events {
				if strings.HasPrefix(e, "node/n1 NodeNotServed") && strings.Contains(e, tc.want) {
					reported++
				}
			}
			if reported != 1 {
				t.Errorf("reported %d times: %v", reported, s.events)
			}
		})
	}
}

// annotateByHand writes an annotation of the Node as an administrator does.
func (s *scene) annotateByHand(key, value string) {
	node := s.seen.node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	node.ManagedFields = append(node.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kubectl-annotate", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + key + `":{}}}}`),
	})
	node.ResourceVersion = s.next()
	s.seen.node = node
}

// The server gets what the API server shows of the vendor's plugin, once the
// pods of the node are known.
func TestVendorOn(t *testing.T) {
	s := newScene(t)
	server := &fakeServer{}
	s.agent.server = server
	s.seen.podsKnown = false
	s.clock.Step(2 * syncTimeout)
	s.looks(1, seen("a", "b"))
	if server.node != nil {
		t.Error("the server is updated before the pods are known")
	}
	s.seen.podsKnown, s.seen.vendorPod = true, "metax/gpu-device-x"
	s.annotateByHand(wire.AnnotationScores, "{}")
	s.agent.step(t.Context())
	want := deviceplugin.Vendor{Pod: "its pod metax/gpu-device-x", Marks: "annotation " + wire.AnnotationScores}
	if server.node == nil || server.node.Vendor != want {
		t.Errorf("the server has %+v, want %+v", server.node, want)
	}
	server.status.Serving = true
	s.seen.vendorPod = ""
	s.agent.step(t.Context())
	s.agent.step(t.Context())
	if !server.node.Vendor.Ours || server.node.UID != s.seen.node.UID {
		t.Errorf("the server has %+v", server.node)
	}
}

// The watch knows the pod of the vendor's plugin by its DaemonSet, also while the
// pod does not run.
func TestVendorPod(t *testing.T) {
	clients, err := NewClients(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher(&Config{Node: "n1"}, clients)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "metax", Name: "gpu-device-x", GenerateName: "gpu-device-"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	trimmed, err := request.Trim(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.pods.GetStore().Add(trimmed); err != nil {
		t.Fatal(err)
	}
	if got := w.view().vendorPod; got != "metax/gpu-device-x" {
		t.Errorf("pod %q", got)
	}
}

// A second agent of the node writes nothing while the first works: the two would
// contradict each other.
func TestSecondAgent(t *testing.T) {
	s := newScene(t)
	server := &fakeServer{status: deviceplugin.Status{Second: true, Waits: "another agent works with it"}}
	s.agent.server = server
	s.looks(2, seen("a", "b"))
	if err := s.agent.Ready(); len(s.writes) > 0 || err == nil || !strings.Contains(err.Error(), "another agent works with it") {
		t.Errorf("it wrote %v and is ready: %v", s.writes, err)
	}
	server.status = deviceplugin.Status{}
	s.agent.step(t.Context())
	if len(s.writes) == 0 {
		t.Error("nothing is written when the other agent has ended")
	}
}

// Slices of others are in the Device for as long as they are on the cards.
func TestForeignSlices(t *testing.T) {
	s := newScene(t)
	server := &fakeServer{status: deviceplugin.Status{Serving: true, ForeignSlices: map[gpu.CardID]inventory.ForeignSlice{"a": {Slices: 1, Compute: 5, Memory: 1024, QoS: gpu.BestEffort}}}}
	s.agent.server = server
	s.looks(1, seen("a", "b"))
	want := `[{"card":"a","slices":1,"compute":5,"memoryMiB":1024,"qosPolicy":"best-effort"}]`
	if got := s.seen.device.Annotations[wire.AnnotationForeignSlices]; got != want {
		t.Errorf("annotation %s", got)
	}
	server.status.ForeignSlices = nil
	s.writes = nil
	s.agent.step(t.Context())
	if len(s.writes) == 0 || s.writes[0] != "device" {
		t.Errorf("the Device was not written again: %v", s.writes)
	}
}

// What someone else wrote under a key of ours goes, also where the agent has
// nothing to say there: server-side apply takes off only what it owns.
func TestGarbageUnderOurKeys(t *testing.T) {
	for _, key := range []string{wire.AnnotationForeignSlices, wire.AnnotationPluginAllocations, wire.AnnotationModePending} {
		t.Run(key, func(t *testing.T) {
			s := newScene(t)
			s.agent.server = &fakeServer{status: deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, GivenKnown: true}}
			s.looks(2, seen("a", "b"))
			d := s.seen.device.DeepCopy()
			d.Annotations[key], d.ResourceVersion = "garbage", s.next()
			s.seen.device = d
			s.looks(3, seen("a", "b"))
			if text, ok := s.seen.device.Annotations[key]; ok {
				t.Errorf("it still says %q", text)
			}
		})
	}
}
