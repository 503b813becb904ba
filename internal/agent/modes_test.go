package agent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/agent/deviceplugin"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func vendorModes(mode string) []*corev1.ConfigMap {
	return []*corev1.ConfigMap{modesIn(wire.VendorNamespace, map[string]string{"cluster-config": "mode: " + mode})}
}

func (s *scene) wantMode(want string) {
	s.Helper()
	s.step()
	if got := s.mode(); got != want {
		s.Fatalf("mode %s, want %s", got, want)
	}
}

// A node follows the ConfigMap of the plugin that serves it, there and back.
func TestModesFollowServer(t *testing.T) {
	s := newScene(t, func(c *Config) { c.VendorNamespace = wire.VendorNamespace })
	server := &fakeServer{status: deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, GivenKnown: true}}
	s.agent.server = server
	s.seen.vendorModes = vendorModes("native")
	s.look(seen("a", "b"))
	s.wantMode("sgpu") // Daybreak's, where the operator's does not count
	s.events = nil

	server.status.Foreign, server.status.Serving = "metax-tech.com/gpu with device a", false
	s.wantMode("native")
	s.seen.vendorModes = vendorModes("sgpu")
	s.wantMode("sgpu")
	s.events = nil
	s.seen.modes = modes("native")
	s.wantMode("sgpu")
	s.wantEvents("node/n1 ModesIgnored ConfigMap daybreak-system/metax-device-config asks for mode native and is not used: the vendor's plugin serves this node and reads ConfigMap metax-operator/metax-device-config, mode sgpu")
	s.looks(3, seen("a", "b"))
	s.wantEvents()
	s.seen.vendorModes = vendorModes("sliced")
	s.wantMode("sgpu")
	s.wantEvents(`node/n1 BadModes ConfigMap metax-operator/metax-device-config is not used, the last good one stays: cluster-config: mode "sliced": write native, sgpu, shared or vgpu`)
	s.seen.vendorModes = nil
	s.wantMode("native") // Daybreak's own is better than a guess
	s.events = nil

	s.seen.modes = nil
	s.seen.strayPods = 2
	s.wantMode("sgpu")
	s.wantEvents("node/n1 ModesNotFound the vendor's plugin serves this node, but its mode is not known and taken from the hardware: namespace metax-operator has no ConfigMap metax-device-config; pods on this node that resemble the plugin's in other namespaces: 2; name the operator's namespace with vendorOperator.namespace",
		"node/n1 ModeChanged the node's mode is sgpu, it was native")

	s.seen.vendorModes, s.seen.modes = vendorModes("native"), modes("sgpu")
	s.wantMode("native")
	server.status.Foreign, server.status.Serving = "", true
	s.wantMode("sgpu")
}

// A node that can make no slices has none, unless the vendor's plugin serves it, which
// makes them in its own way.
func TestModesWithoutSlices(t *testing.T) {
	s := newScene(t, func(c *Config) { c.VendorNamespace = wire.VendorNamespace })
	server := &fakeServer{}
	s.agent.server = server
	s.seen.modes, s.seen.vendorModes = modes("sgpu"), vendorModes("sgpu")
	found := seen("a")
	found.NoSlices = "no library"
	s.look(found)
	s.wantMode("sgpu") // it is not known yet who serves it
	server.status = deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, GivenKnown: true}
	s.events = nil
	s.wantMode("native")
	gputest.Equal(t, "condition", "False NoSlices no library: the node allocates whole GPUs only", s.condition(wire.ConditionSlices))
	s.wantEvents("node/n1 ModeChanged the node's mode is native, it was sgpu", "node/n1 SlicesNotSupported no library: the node allocates whole GPUs only")
	server.status.Foreign, server.status.Serving = "metax-tech.com/sgpu with device a", false
	s.wantMode("sgpu")
}

// A library that fails makes no slices until it works, unless an earlier agent served
// them with the same driver: then it is a failure that passes.
func TestModesOfFailedLibrary(t *testing.T) {
	serving := deviceplugin.Status{Serving: true, Mode: gpu.ModeSGPU, GivenKnown: true}
	failing, working := seen("a"), seen("a")
	failing.LibraryFailed = "the library is broken"
	s := newScene(t)
	start := func(st deviceplugin.Status) {
		s.restart()
		s.agent.server = &fakeServer{status: st}
		s.events = nil
	}
	s.seen.modes = modes("sgpu")
	start(deviceplugin.Status{})
	s.look(failing)
	s.wantMode("sgpu") // it is not known yet who serves the node, and it takes no pods
	start(serving)
	s.look(failing)
	s.wantMode("native") // which is no record of slices that were served
	gputest.Equal(t, "condition", "False NoSlices the library is broken: the node allocates whole GPUs only", s.condition(wire.ConditionSlices))
	if got := s.reported("SlicesNotSupported"); len(got) != 1 {
		t.Errorf("reported %q", got)
	}
	s.looks(3, working)
	s.wantMode("sgpu")

	start(deviceplugin.Status{})
	s.look(failing)
	s.wantMode("sgpu")
	s.agent.server = &fakeServer{status: serving}
	s.looks(3, failing)
	s.wantMode("sgpu")
	if got := s.reported("ModeChanged", "SlicesNotSupported"); len(got) > 0 {
		t.Errorf("reported %q", got)
	}
	s.agent.stopping = true
	s.wantMode("sgpu")
	start(serving)
	s.look(failing)
	s.wantMode("sgpu")
	start(serving)
	failing.Driver = "4.0.0"
	s.look(failing)
	s.wantMode("native")
}

// Two ConfigMaps with the labels contradict each other: neither is used.
func TestModesTwice(t *testing.T) {
	s := newScene(t, func(c *Config) { c.VendorNamespace = wire.VendorNamespace })
	s.seen.node.Annotations = map[string]string{wire.AnnotationServedBy: wire.ServedByVendor}
	s.seen.vendorModes = vendorModes("native")
	s.look(seen("a"))
	s.wantMode("native")
	second := vendorModes("sgpu")[0]
	second.Name = "of-a-test"
	s.seen.vendorModes, s.events = append(s.seen.vendorModes, second), nil
	s.wantMode("native")
	s.wantEvents("node/n1 BadModes ConfigMap metax-operator/metax-device-config, metax-operator/of-a-test is not used, the last good one stays: more than one has the labels of the vendor's: leave them on one, or select it by other labels with vendorOperator.selector")
	s.seen.vendorModes = s.seen.vendorModes[1:]
	s.wantMode("sgpu")
}

// After a restart of the agent a node without annotation keeps its mode until kubelet
// has been asked who serves it.
func TestModesWaitForKubelet(t *testing.T) {
	vendor := func(c *Config) { c.VendorNamespace = wire.VendorNamespace }
	s := newScene(t, vendor)
	s.seen.vendorModes = vendorModes("native")
	s.agent.server = &fakeServer{status: deviceplugin.Status{Foreign: "metax-tech.com/gpu with device a"}}
	s.look(seen("a"))
	s.wantMode("native")
	s.restart(vendor)
	server := &fakeServer{}
	s.agent.server, s.events = server, nil
	s.looks(3, seen("a"))
	s.wantMode("native")
	server.status.Foreign = "metax-tech.com/gpu with device a"
	s.looks(3, seen("a"))
	s.wantMode("native")
	if got := s.reported("ModeChanged"); len(got) > 0 {
		t.Errorf("reported %q", got)
	}
}

// The watch takes Daybreak's own ConfigMap and the operator's, by name or by labels,
// and none of another namespace.
func TestModesWatched(t *testing.T) {
	clients, err := NewClients(&rest.Config{Host: "http://127.0.0.1:1"})
	gputest.Must(t, err)
	for selector, want := range map[string]string{"": "metax-device-config", "app=gpu-device": "device-config"} {
		w := newWatcher(&Config{Namespace: "daybreak-system", VendorNamespace: "metax-operator", VendorSelector: selector}, clients)
		for _, namespace := range []string{"a-user", "daybreak-system", "metax-operator"} {
			trimmed, err := w.trimModes(modesIn(namespace, map[string]string{"cluster-config": "mode: sgpu"}))
			if err == nil {
				err = w.maps.GetStore().Add(trimmed)
			}
			gputest.Must(t, err)
			if kept := len(mapAt(w.maps.GetStore(), namespace).Data); (kept > 0) != (namespace != "a-user") {
				t.Errorf("%d keys are kept of the ConfigMap in namespace %s", kept, namespace)
			}
		}
		if w.labelled != nil {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "metax-operator", Name: "device-config"}}
			gputest.Must(t, w.labelled.GetStore().Add(m))
		}
		v := w.view()
		if v.modes == nil || v.modes.Namespace != "daybreak-system" || len(v.vendorModes) != 1 || nameOf(v.vendorModes[0]) != "metax-operator/"+want {
			t.Errorf("selector %q: own %v, vendor's %v", selector, v.modes, v.vendorModes)
		}
	}
}
