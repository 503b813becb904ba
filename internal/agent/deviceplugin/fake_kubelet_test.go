package deviceplugin

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// fakeKubelet is kubelet at its sockets.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	scene *scene

	mu       sync.Mutex
	servers  []*grpc.Server
	plugins  map[string]pluginapi.DevicePluginClient
	devices  map[string][]*pluginapi.Device
	held     []*podresources.PodResources
	lists    int
	refuse   int // lists to refuse
	foreign  string
	old      error // the answer of one that does not report its devices
	register int
	// slow is held by who wants kubelet to take no list of devices for a while.
	slow sync.Mutex
}

func newFakeKubelet(t *testing.T, s *scene) *fakeKubelet {
	k := &fakeKubelet{scene: s}
	k.start(t)
	t.Cleanup(k.stop)
	return k
}

// start serves the sockets, like a kubelet that knows nothing of plugins.
func (k *fakeKubelet) start(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugins, k.devices = map[string]pluginapi.DevicePluginClient{}, map[string][]*pluginapi.Device{}
	for path, register := range map[string]func(*grpc.Server){
		filepath.Join(k.scene.cfg.Plugins, "kubelet.sock"): func(g *grpc.Server) { pluginapi.RegisterRegistrationServer(g, k) },
		k.scene.cfg.PodResources:                           func(g *grpc.Server) { podresources.RegisterPodResourcesListerServer(g, k) },
	} {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "unix", path)
		gputest.Must(t, err)
		g := grpc.NewServer()
		register(g)
		k.servers = append(k.servers, g)
		go func() { _ = g.Serve(listener) }()
	}
}

func (k *fakeKubelet) stop() {
	k.mu.Lock()
	servers := k.servers
	k.servers = nil
	k.mu.Unlock()
	for _, g := range servers {
		g.Stop()
	}
}

func (k *fakeKubelet) Register(_ context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.scene.cfg.Plugins, r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	k.mu.Lock()
	k.plugins[r.GetResourceName()] = client
	k.register++
	k.mu.Unlock()
	go func() {
		defer conn.Close()
		stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
		for err == nil {
			var answer *pluginapi.ListAndWatchResponse
			if answer, err = stream.Recv(); err == nil {
				k.slow.Lock()
				k.mu.Lock()
				k.devices[r.GetResourceName()] = answer.GetDevices()
				k.mu.Unlock()
				k.slow.Unlock()
			}
		}
	}()
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lists++
	if k.refuse > 0 {
		k.refuse--
		return nil, errors.New("rejected by rate limit")
	}
	return &podresources.ListPodResourcesResponse{PodResources: slices.Clone(k.held)}, nil
}

func (k *fakeKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.old != nil {
		return nil, k.old
	}
	answer := &podresources.AllocatableResourcesResponse{}
	for name, devices := range k.devices {
		list := &podresources.ContainerDevices{ResourceName: name}
		for _, d := range devices {
			if d.GetHealth() == pluginapi.Healthy {
				list.DeviceIds = append(list.DeviceIds, d.GetID())
			}
		}
		answer.Devices = append(answer.Devices, list)
	}
	if k.foreign != "" {
		answer.Devices = append(answer.Devices, &podresources.ContainerDevices{ResourceName: "metax-tech.com/sgpu", DeviceIds: k.shuffled(k.foreign, "GPU-b-0:0")})
	}
	return answer, nil
}

// shuffled returns ids in any order, as kubelet does.
func (*fakeKubelet) shuffled(ids ...string) []string {
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// plugin is the client of what serves a resource.
func (k *fakeKubelet) plugin(resource string) pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plugins[resource]
}

// change changes what kubelet answers.
func (k *fakeKubelet) change(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// health counts the healthy and unhealthy devices of a resource.
func (k *fakeKubelet) health(name string) (healthy, unhealthy int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices[name] {
		if d.GetHealth() == pluginapi.Healthy {
			healthy++
		} else {
			unhealthy++
		}
	}
	return healthy, unhealthy
}

// admit gives the container main of a pod ids, as kubelet does when a pod comes,
// and returns the CDI names that it would start with.
func (s *scene) admit(resource, pod string, ids ...string) []string {
	s.Helper()
	answer, err := s.kubelet.plugin(resource).Allocate(s.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	gputest.Must(s, err)
	var names []string
	one := answer.GetContainerResponses()[0]
	for _, d := range one.GetCdiDevices() {
		names = append(names, d.GetName())
	}
	// kubelet before 1.29 has no field for them. A key must not be that of the other resource.
	keys, annotated, err := cdi.ParseAnnotations(one.GetAnnotations())
	if err != nil || !slices.Equal(names, annotated) || len(keys) != 1 || !strings.HasSuffix(keys[0], strings.ReplaceAll(resource, "/", "_")) {
		s.Fatalf("CDI devices %v, annotations %v: %v", names, one.GetAnnotations(), err)
	}
	s.kubelet.mu.Lock()
	defer s.kubelet.mu.Unlock()
	s.kubelet.held = slices.DeleteFunc(slices.Clone(s.kubelet.held), func(p *podresources.PodResources) bool {
		return slices.ContainsFunc(p.Containers[0].Devices[0].DeviceIds, func(id string) bool { return slices.Contains(ids, id) })
	})
	s.kubelet.held = append(s.kubelet.held, podWith(pod, resource, ids...))
	return names
}

// podWith is what kubelet lists of a pod whose container has ids.
func podWith(name, resource string, ids ...string) *podresources.PodResources {
	return &podresources.PodResources{Namespace: "default", Name: name, Containers: []*podresources.ContainerResources{{
		Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}},
	}}}
}

// begin calls PreStart.
func (s *scene) begin(resource string, ids ...string) error {
	_, err := s.kubelet.plugin(resource).PreStartContainer(s.Context(), &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// starts calls PreStart for a container that is to start.
func (s *scene) starts(resource string, ids ...string) {
	s.Helper()
	if err := s.begin(resource, ids...); err != nil {
		s.Fatalf("the container does not start: %v", err)
	}
}

// waits calls PreStart for a container that is not to start within a time of the scene.
// The answer comes later.
func (s *scene) waits(d time.Duration, resource string, ids ...string) <-chan error {
	s.Helper()
	done := make(chan error, 1)
	go func() { done <- s.begin(resource, ids...) }()
	s.pass(d)
	select {
	case err := <-done:
		s.Fatalf("the container is answered for: %v", err)
	default:
	}
	return done
}

// startSlice starts a pod with a slice, and returns the CDI names of its container.
func (s *scene) startSlice(name, card string, compute, gib int, id string) []string {
	s.Helper()
	s.slicePod(name, card, compute, gib)
	names := s.admit(slice, name, id)
	s.starts(slice, id)
	return names
}
