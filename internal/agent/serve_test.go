package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
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

// serving is the condition on the Device, without its message; "" if there is none.
func (s *scene) serving() string {
	if s.seen.device == nil {
		return ""
	}
	f := strings.Fields(s.condition(wire.ConditionServing))
	return strings.Join(f[:min(len(f), 2)], " ")
}

// reported returns the events with one of the words, up to now.
func (s *scene) reported(words ...string) []string {
	return slices.DeleteFunc(slices.Clone(s.events), func(e string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(e, word) })
	})
}

// The Device says that the node is served once kubelet has the plugins and the
// Node says who serves it, and not a moment longer than it is.
func TestServing(t *testing.T) {
	s := newScene(t)
	server := &fakeServer{}
	s.agent.server = server
	s.looks(1, seen("a", "b"))
	if _, ok := s.seen.node.Annotations[wire.AnnotationServedBy]; ok || s.agent.Ready() == nil {
		t.Error("the Node says who serves it, or the agent is ready, before anyone serves it")
	}
	for _, step := range []struct {
		when   string
		change func(*deviceplugin.Status)
		want   string
	}{
		{"before kubelet has the plugins", func(*deviceplugin.Status) {}, "False PluginsNotRegistered"},
		{"before kubelet says what pods hold", func(st *deviceplugin.Status) { st.Serving, st.Mode = true, gpu.ModeNative }, "False HoldersUnknown"},
		{"kubelet has the devices of another mode", func(st *deviceplugin.Status) {
			st.Given, st.GivenKnown = map[types.UID]inventory.PluginAllocation{}, true
		}, "False ModeChanging"},
		{"served", func(st *deviceplugin.Status) { st.Mode = gpu.ModeSGPU }, "True PluginsRegistered"},
		{"kubelet restarts", func(st *deviceplugin.Status) { st.Serving = false }, "False PluginsNotRegistered"},
		{"the disk is full", func(st *deviceplugin.Status) { st.Disk = "no space left on device" }, "False DiskNotWritable"},
		{"served again", func(st *deviceplugin.Status) { st.Disk, st.Serving = "", true }, "True PluginsRegistered"},
		{"the agent ends", func(*deviceplugin.Status) { s.agent.stopping = true }, "False AgentStopping"},
	} {
		step.change(&server.status)
		s.step()
		s.step() // what the Device says depends on the Node
		gputest.Equal(t, step.when, step.want, s.serving())
	}
	gputest.Equal(t, "served by", wire.ServedByDaybreak, s.seen.node.Annotations[wire.AnnotationServedBy])
	gputest.Equal(t, "what other plugins gave", "[]", s.seen.device.Annotations[wire.AnnotationPluginAllocations])
	if server.node == nil || len(server.node.Cards) != 2 || server.node.Mode != gpu.ModeSGPU || server.node.Inventory.Problem != nil {
		t.Errorf("the server has %+v", server.node)
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
			if err := s.agent.Ready(); s.serving() != "False "+reason || err == nil || !strings.Contains(err.Error(), "what to do") {
				t.Errorf("condition %q, ready: %v", s.serving(), err)
			}
			server.status.Runtime, server.status.Serving, server.status.Waits = deviceplugin.RuntimeFault{}, true, ""
			s.looks(3, seen("a", "b"))
			if got := s.serving(); got != "True PluginsRegistered" || s.agent.Ready() != nil {
				t.Errorf("condition %q, ready %v", got, s.agent.Ready())
			}
			if got := s.reported(reason, eventRuntimeReady); len(got) != 2 || !strings.Contains(got[0], "what to do") || !strings.Contains(got[1], eventRuntimeReady) {
				t.Errorf("reported %q", got)
			}
		})
	}
}

// A kubelet that is too old keeps the node from being served, and is reported once.
func TestOldKubelet(t *testing.T) {
	s := newScene(t)
	s.agent.server = &fakeServer{status: deviceplugin.Status{OldKubelet: "kubelet 1.23 or later is needed", RuntimeKnown: true}}
	s.looks(3, seen("a", "b"))
	gputest.Equal(t, "condition", "False KubeletTooOld", s.serving())
	if got := s.reported("KubeletTooOld no pod with cards is placed here: kubelet 1.23 or later is needed"); len(got) != 1 {
		t.Errorf("events %q", s.events)
	}
}

// Where someone else serves, the agent says nothing about it but an event.
func TestServedByOthers(t *testing.T) {
	cases := map[string]struct {
		foreign, servedBy string
		want              string
	}{
		"another plugin":     {foreign: "metax-tech.com/gpu with device GPU-1", want: "another device plugin serves it: kubelet advertises metax-tech.com/gpu with device GPU-1"},
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
			if got := s.seen.node.Annotations[wire.AnnotationServedBy]; got != tc.servedBy || s.serving() != "" {
				t.Errorf("served by %q, condition %q", got, s.serving())
			}
			if got := s.reported("node/n1 NodeNotServed Daybreak's agent only observes this node: " + tc.want); len(got) != 1 {
				t.Errorf("events %q", s.events)
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

// The watch knows the pod of the vendor's plugin by its DaemonSet and namespace, also
// while the pod does not run.
func TestVendorPod(t *testing.T) {
	clients, err := NewClients(&rest.Config{Host: "http://127.0.0.1:1"})
	gputest.Must(t, err)
	w := newWatcher(&Config{Node: "n1"}, clients)
	for _, namespace := range []string{"tenant", wire.VendorNamespace} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpu-device-x", GenerateName: "gpu-device-"}, Spec: corev1.PodSpec{NodeName: "n1"}}
		source := podSource{vendor: &w.cfg.VendorPlugin}
		gputest.Must(t, w.pods.GetStore().Add(source.trim(pod)))
		want := ""
		if namespace == wire.VendorNamespace {
			want = namespace + "/gpu-device-x"
		}
		if v := w.view(); v.vendorPod != want || v.strayPods != 1 {
			t.Errorf("pod in %s: the plugin's is %q, %d resemble it", namespace, v.vendorPod, v.strayPods)
		}
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
	gputest.Equal(t, "annotation", want, s.seen.device.Annotations[wire.AnnotationForeignSlices])
	server.status.ForeignSlices = nil
	s.writes = nil
	s.agent.step(t.Context())
	if len(s.writes) == 0 || s.writes[0] != "device" {
		t.Errorf("the Device was not written again: %v", s.writes)
	}
}
