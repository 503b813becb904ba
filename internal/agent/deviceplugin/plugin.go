package deviceplugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
)

// plugin is the device plugin of one resource.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	server   *Server
	resource corev1.ResourceName
	socket   string

	mu      sync.Mutex
	grpc    *grpc.Server
	changed chan struct{} // closed and replaced when the list may have changed
	streams int           // to kubelet, of which one is right
	// sent: the current stream has carried a list. sure is the mode in which
	// kubelet was seen to have it; none until then.
	sent bool
	sure gpu.Mode
	// registered is kubelet's socket at the last registration, at is its time, and
	// asked: kubelet has asked for the devices since.
	registered os.FileInfo
	at         time.Time
	asked      bool
	// silent: another plugin serves the resource; kubelet's stream stays open.
	silent bool
}

// socketPrefix is what the names of our sockets begin with.
const socketPrefix = "daybreak-"

// streamTimeout is how long kubelet may take to ask for the devices.
const streamTimeout = 5 * time.Second

func newPlugin(s *Server, resource corev1.ResourceName) *plugin {
	name := socketPrefix + strings.TrimPrefix(string(resource), vendorPrefix) + ".sock"
	return &plugin{server: s, resource: resource, socket: filepath.Join(s.cfg.Plugins, name), changed: make(chan struct{})}
}

func (p *plugin) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grpc != nil
}

// confirmed reports whether kubelet was seen to have the list of this mode.
func (p *plugin) confirmed(mode gpu.Mode) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sure == mode
}

// confirm notes that kubelet has the list of the mode; empty: it may have none.
func (p *plugin) confirm(mode gpu.Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent {
		p.sure = mode
	}
}

// refresh sends kubelet the list again if it has changed.
func (p *plugin) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// ensureRegistered registers the plugin if kubelet does not know it, and returns
// what is missing. A kubelet that restarts forgets it and deletes its socket.
func (p *plugin) ensureRegistered(ctx context.Context) error {
	kubelet, err := os.Stat(p.server.cfg.kubeletSocket())
	if err != nil {
		p.stop()
		return fmt.Errorf("kubelet takes no plugins: %w", err)
	}
	_, err = os.Stat(p.socket)
	p.mu.Lock()
	lost := p.grpc == nil || p.silent || err != nil || p.registered == nil || !os.SameFile(p.registered, kubelet) ||
		!p.registered.ModTime().Equal(kubelet.ModTime()) || p.streams == 0 && (p.asked || p.server.clock.Since(p.at) > streamTimeout)
	sent := p.sent
	p.mu.Unlock()
	if lost {
		if err := p.register(ctx, kubelet); err != nil {
			return err
		}
		return errors.New("registered, and kubelet has not asked for the devices yet")
	}
	if !sent {
		return errors.New("kubelet has not asked for the devices yet")
	}
	return nil
}

// register serves the socket again and registers it with kubelet.
func (p *plugin) register(ctx context.Context, kubelet os.FileInfo) error {
	if err := p.server.checkAlone(ctx); err != nil {
		return err
	}
	p.stop()
	p.server.forgetGrants()
	if err := p.listen(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+p.server.cfg.kubeletSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(p.resource),
		Options: &pluginapi.DevicePluginOptions{PreStartRequired: true},
	})
	if err != nil {
		p.stop()
		return fmt.Errorf("register with kubelet: %w", err)
	}
	p.mu.Lock()
	p.registered, p.at = kubelet, p.server.clock.Now()
	p.mu.Unlock()
	p.server.metrics.registrations.WithLabelValues(string(p.resource)).Inc()
	klog.FromContext(ctx).Info("Registered with kubelet", "resource", p.resource)
	return nil
}

func (p *plugin) listen(ctx context.Context) error {
	if err := os.Remove(p.socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	p.mu.Lock()
	p.grpc, p.sent, p.sure, p.asked = server, false, "", false
	p.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
	return nil
}

// yield leaves the resource to another plugin. The stream stays open if kubelet has
// that plugin: kubelet drops it when any stream of the resource ends.
func (p *plugin) yield(replaced bool) {
	p.mu.Lock()
	p.silent = replaced && p.streams > 0
	silent := p.silent
	p.mu.Unlock()
	if !silent {
		p.stop()
	}
}

// stop ends the plugin; kubelet notices.
func (p *plugin) stop() {
	p.mu.Lock()
	server := p.grpc
	p.grpc, p.registered, p.sent, p.sure, p.silent = nil, nil, false, "", false
	p.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// GetDevicePluginOptions makes kubelet call PreStartContainer.
func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true}, nil
}

// ListAndWatch sends the devices to kubelet, and again whenever they change.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	p.mu.Lock()
	p.streams++
	p.asked = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.streams--
		if p.streams == 0 {
			p.sent, p.sure = false, ""
		}
		p.mu.Unlock()
		notify(p.server.wake)
	}()
	var last []*pluginapi.Device
	for first := true; ; {
		p.mu.Lock()
		changed, silent := p.changed, p.silent
		p.mu.Unlock()
		same := func(a, b *pluginapi.Device) bool { return proto.Equal(a, b) }
		if list := p.server.devices(p); !silent && (first || !slices.EqualFunc(last, list, same)) {
			if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
			last, first = list, false
			p.mu.Lock()
			p.sent = true
			p.mu.Unlock()
			notify(p.server.wake)
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

// Allocate answers with CDI names, whose specs are written at PreStart. They are also in
// an annotation of the container: kubelet before 1.29 and containerd before 1.7.2 do not
// have the field, and runtimes with both skip a name that they have.
func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, c := range request.GetContainerRequests() {
		ids := slices.Sorted(slices.Values(c.GetDevicesIds()))
		if err := check(ids); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		names, err := p.server.allocate(ids)
		p.server.sawWrite(err)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		p.server.ahead(string(p.resource), ids)
		one := &pluginapi.ContainerAllocateResponse{}
		for i, name := range names {
			names[i] = parser.QualifiedName(cdiVendor, cdiClass, name)
			one.CdiDevices = append(one.CdiDevices, &pluginapi.CDIDevice{Name: names[i]})
		}
		if one.Annotations, err = cdi.UpdateAnnotations(nil, cdiVendor, string(p.resource), names); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// PreStartContainer prepares the container that has these ids.
func (p *plugin) PreStartContainer(ctx context.Context, request *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	ids := slices.Sorted(slices.Values(request.GetDevicesIds()))
	if err := check(ids); err != nil && !isForeign(ids) {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := p.server.preStart(ctx, string(p.resource), ids); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// check rejects ids of others, which could become names of files.
func check(ids []string) error {
	if len(ids) == 0 {
		return errors.New("no device ids")
	}
	for _, id := range ids {
		if !isToken(id) {
			return fmt.Errorf("device id %.60q is not one of this plugin's", id)
		}
	}
	return nil
}

// isForeign reports whether another plugin gave the ids, all of them.
func isForeign(ids []string) bool { return len(ids) > 0 && !slices.ContainsFunc(ids, isToken) }

// newName makes up a CDI name for an id.
func newName(id string) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return id + "-" + hex.EncodeToString(random[:])
}
