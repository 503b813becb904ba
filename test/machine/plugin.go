package machine

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// VendorPlugin is a device plugin of whole cards as the vendor's is: an id is the UUID
// of a card, and kubelet picks.
type VendorPlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	// Cards are the UUIDs, in the order in which they are listed.
	Cards []string
	// Devices returns the paths that a container with these cards gets; nil, none.
	Devices func(cards []string) []string
	// Streams is how many kubelet has open.
	Streams atomic.Int32

	server *grpc.Server
}

// Start serves the plugin's socket in kubelet's folder and registers it there.
func (p *VendorPlugin) Start(ctx context.Context, folder string) error {
	const socket = "metax-gpu-device.sock"
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", filepath.Join(folder, socket))
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = deviceplugin.NewRegistrationClient(conn).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: socket, ResourceName: string(wire.ResourceGPU), Options: &deviceplugin.DevicePluginOptions{},
	})
	return err
}

// Stop ends the plugin, which can be started again.
func (p *VendorPlugin) Stop() { p.server.Stop() }

// GetDevicePluginOptions implements the device plugin API, as do the next three.
func (*VendorPlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// ListAndWatch lists the cards.
func (p *VendorPlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	p.Streams.Add(1)
	defer p.Streams.Add(-1)
	list := &deviceplugin.ListAndWatchResponse{}
	for _, card := range p.Cards {
		list.Devices = append(list.Devices, &deviceplugin.Device{ID: card, Health: deviceplugin.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate answers with the devices of the cards.
func (p *VendorPlugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	answer := &deviceplugin.AllocateResponse{}
	for _, c := range request.GetContainerRequests() {
		one := &deviceplugin.ContainerAllocateResponse{}
		if p.Devices != nil {
			for _, path := range p.Devices(c.GetDevicesIds()) {
				one.Devices = append(one.Devices, &deviceplugin.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// PreStartContainer is called by the machine's kubelet for every plugin.
func (*VendorPlugin) PreStartContainer(context.Context, *deviceplugin.PreStartContainerRequest) (*deviceplugin.PreStartContainerResponse, error) {
	return &deviceplugin.PreStartContainerResponse{}, nil
}
