package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

const pluginDir = "/var/lib/kubelet/device-plugins"

// vendorPlugin is a device plugin of whole cards as the vendor's is: an id is the
// UUID of a card, and kubelet picks.
type vendorPlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	*world
	cards   *cards
	server  *grpc.Server
	streams atomic.Int32 // to kubelet
}

// start serves the plugin's socket and registers it with kubelet.
func (p *vendorPlugin) start() {
	p.Helper()
	const socket = "metax-gpu-device.sock"
	var config net.ListenConfig
	listener, err := config.Listen(p.Ctx, "unix", filepath.Join(pluginDir, socket))
	p.Must(err)
	p.server = grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(pluginDir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	p.Must(err)
	defer conn.Close()
	_, err = deviceplugin.NewRegistrationClient(conn).Register(p.Ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: socket, ResourceName: string(wire.ResourceGPU), Options: &deviceplugin.DevicePluginOptions{},
	})
	p.Must(err)
}

func (p *vendorPlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *vendorPlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	p.streams.Add(1)
	defer p.streams.Add(-1)
	list := &deviceplugin.ListAndWatchResponse{}
	for i := range p.cards.machine.Cards {
		list.Devices = append(list.Devices, &deviceplugin.Device{ID: p.cards.machine.Cards[i].UUID, Health: deviceplugin.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *vendorPlugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	answer := &deviceplugin.AllocateResponse{}
	for _, c := range request.GetContainerRequests() {
		one := &deviceplugin.ContainerAllocateResponse{}
		for _, path := range p.devices(c.GetDevicesIds()) {
			one.Devices = append(one.Devices, &deviceplugin.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// devices are the paths that a container with these cards gets.
func (p *vendorPlugin) devices(ids []string) []string {
	paths := []string{"/dev/mxcd"}
	for _, id := range ids {
		card := &p.cards.machine.Cards[(&hardware{machine: p.cards.machine}).card(id, "")]
		paths = append(paths, fmt.Sprintf("/dev/dri/card%d", card.DRMCard), fmt.Sprintf("/dev/dri/renderD%d", card.Render))
	}
	slices.Sort(paths)
	return paths
}

// has waits until kubelet has this many whole cards to hand out.
func (w *world) has(n int64) {
	w.Helper()
	w.Eventually(fmt.Sprintf("kubelet has %d cards", n), time.Minute, func() error {
		node := w.Node(nodeName)
		if q := node.Status.Allocatable[wire.ResourceGPU]; q.Value() != n {
			return fmt.Errorf("it has %d", q.Value())
		}
		return nil
	})
}

// servedBy waits until the Node says who serves it; "" is none.
func (w *world) servedBy(who string) {
	w.Helper()
	w.Eventually("the node is served by "+who, time.Minute, func() error {
		node := w.Node(nodeName)
		if by := node.Annotations[wire.AnnotationServedBy]; by != who {
			return fmt.Errorf("it is served by %q", by)
		}
		return nil
	})
}

// TestVendorPlugin: the vendor's plugin comes, and the agent makes way. It restarts
// ten times, and the agent never registers over it. It leaves, an administrator
// gives the node back, and what it served restarts with the devices it had.
func TestVendorPlugin(t *testing.T) {
	w := newWorld(t)
	c := w.serve()
	w.setMode("native")
	w.serving("native")
	plugin := &vendorPlugin{world: w, cards: c}
	plugin.start()
	w.Cleanup(func() { plugin.server.Stop() })
	w.servedBy("")
	w.has(8)
	if plugin.streams.Load() != 1 {
		t.Error("kubelet closed its connection to the vendor's plugin when the agent made way")
	}
	w.create(pod("vendors", "gpu=1"))
	served := w.running(time.Minute, "vendors")[0]
	before, err := w.look(served, "main")
	w.Must(err)
	registered := w.registrations()
	for i := range 10 {
		plugin.server.Stop()
		if i%3 == 0 {
			w.has(0) // else it is back before anyone noticed
		}
		plugin.start()
		w.Eventually("kubelet has the plugin", time.Minute, func() error {
			if n := plugin.streams.Load(); n != 1 {
				return fmt.Errorf("%d streams", n)
			}
			return nil
		})
	}
	w.has(8)
	if n := w.registrations(); n != registered || plugin.streams.Load() != 1 {
		t.Fatalf("the agent registered %d times over the vendor's plugin", n-registered)
	}
	plugin.server.Stop()
	w.has(0)
	w.Kubectl("annotate", "node", nodeName, wire.AnnotationServedBy+"="+wire.ServedByVendor)
	w.Eventually("the agent has seen it", time.Minute, func() error {
		if out := w.Kubectl("get", "events", "--field-selector=reason=NodeNotServed"); !strings.Contains(out, "says vendor") {
			return errors.New(out)
		}
		return nil
	})
	w.Kubectl("annotate", "node", nodeName, wire.AnnotationServedBy+"-")
	w.serving("native")
	w.Must(w.endContainer(served))
	w.Eventually("the container is started again", time.Minute, func() error {
		p := w.running(time.Minute, "vendors")[0]
		if p.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("not restarted: %+v", p.Status.ContainerStatuses[0])
		}
		return nil
	})
	after, err := w.look(served, "main")
	w.Must(err)
	if !maps.Equal(before.nodes, after.nodes) || len(after.nodes) != 3 {
		t.Errorf("the container saw %v, after the takeover %v", before.nodes, after.nodes)
	}
	w.create(pod("ours", "gpu=7"))
	ours := w.running(time.Minute, "ours")
	for _, view := range w.inspect(c, ours...)[ours[0].UID] {
		for path := range view.nodes {
			if _, both := after.nodes[path]; both && path != "/dev/mxcd" {
				t.Errorf("two pods have %s", path)
			}
		}
	}
}
