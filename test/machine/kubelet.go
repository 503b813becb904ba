package machine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// kubelet is a kubelet and a container runtime as an agent sees them: their
// sockets. It admits the pods of its node, gives them device ids, has them
// prepared by the plugin, and says that they run; nothing runs. Like the real
// one it fails pods for good that come while the plugin is away.
type kubelet struct {
	deviceplugin.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	cri.UnimplementedRuntimeServiceServer

	Config
	client  kubernetes.Interface
	ctx     context.Context //nolint:containedctx // of the machine, which its sockets serve for
	servers []*grpc.Server
	running sync.WaitGroup
	// changed is called when the node has other devices than before.
	changed chan struct{}

	mu        sync.Mutex
	endpoints map[string]*endpoint
	pods      map[types.UID]*podRun
	// grants are the ids of another plugin that pods were given, by name.
	grants   map[string][]string
	rejected int
}

// endpoint is a plugin that has registered.
type endpoint struct {
	client  deviceplugin.DevicePluginClient
	devices []*deviceplugin.Device
	// answered reports that it has listed its devices.
	answered bool
}

// podRun is a pod of the node, from when it was first seen until it is gone.
type podRun struct {
	pod *corev1.Pod
	// stop is closed when the pod is to end, gone when the API server has
	// forgotten it.
	stop, gone chan struct{}
	containers []*containerRun
	ended      bool // its containers have
}

// containerRun is a container with what kubelet gave it.
type containerRun struct {
	name     string
	resource string
	ids      []string
	cdi      []string
	alive    bool
	// granted: another plugin served it.
	granted bool
}

// resources are those that device plugins serve here.
var resources = wire.DeviceResources()

func newKubelet(ctx context.Context, cfg Config, client kubernetes.Interface) (*kubelet, error) {
	k := &kubelet{
		Config: cfg, client: client, ctx: ctx, changed: make(chan struct{}, 1),
		endpoints: map[string]*endpoint{}, pods: map[types.UID]*podRun{}, grants: map[string][]string{},
	}
	if err := os.MkdirAll(k.plugins(), 0o755); err != nil {
		return nil, err
	}
	for path, register := range map[string]func(*grpc.Server){
		filepath.Join(k.plugins(), "kubelet.sock"): func(g *grpc.Server) { deviceplugin.RegisterRegistrationServer(g, k) },
		k.podResources(): func(g *grpc.Server) { podresources.RegisterPodResourcesListerServer(g, k) },
		k.runtime():      func(g *grpc.Server) { cri.RegisterRuntimeServiceServer(g, k) },
	} {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "unix", path)
		if err != nil {
			k.Stop()
			return nil, err
		}
		g := grpc.NewServer()
		register(g)
		k.servers = append(k.servers, g)
		k.running.Go(func() { _ = g.Serve(listener) })
	}
	return k, nil
}

func (k *kubelet) plugins() string      { return filepath.Join(k.Dir, "p") }
func (k *kubelet) podResources() string { return filepath.Join(k.Dir, "r.sock") }
func (k *kubelet) runtime() string      { return filepath.Join(k.Dir, "c.sock") }

// Stop ends it; its context must have ended.
func (k *kubelet) Stop() {
	for _, g := range k.servers {
		g.Stop()
	}
	k.running.Wait()
}

// Register takes in a plugin, and listens to it until it ends.
func (k *kubelet) Register(_ context.Context, r *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.plugins(), r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	e := &endpoint{client: deviceplugin.NewDevicePluginClient(conn)}
	k.mu.Lock()
	k.endpoints[r.GetResourceName()] = e
	k.mu.Unlock()
	k.running.Go(func() {
		defer conn.Close()
		k.listen(r.GetResourceName(), e)
	})
	return &deviceplugin.Empty{}, nil
}

// listen follows the devices of a plugin. When it goes, so do they.
func (k *kubelet) listen(resource string, e *endpoint) {
	stream, err := e.client.ListAndWatch(k.ctx, &deviceplugin.Empty{})
	for err == nil {
		var answer *deviceplugin.ListAndWatchResponse
		if answer, err = stream.Recv(); err == nil {
			k.mu.Lock()
			e.devices, e.answered = answer.GetDevices(), true
			k.mu.Unlock()
			notify(k.changed)
		}
	}
	k.mu.Lock()
	if k.endpoints[resource] == e {
		delete(k.endpoints, resource)
	}
	k.mu.Unlock()
	notify(k.changed)
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Serving reports whether all plugins have registered and listed their devices.
func (k *kubelet) Serving() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range resources {
		if e := k.endpoints[string(r)]; e == nil || !e.answered {
			return false
		}
	}
	return true
}

// healthy counts the devices of a resource that can be given.
func (k *kubelet) healthy(resource corev1.ResourceName) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.endpoints[string(resource)]
	if e == nil {
		return 0
	}
	n := int64(0)
	for _, d := range e.devices {
		if d.GetHealth() == deviceplugin.Healthy {
			n++
		}
	}
	return n
}

// List returns which containers have which devices.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, r := range k.pods {
		if r.ended {
			continue
		}
		pod := &podresources.PodResources{Namespace: r.pod.Namespace, Name: r.pod.Name}
		for _, c := range r.containers {
			pod.Containers = append(pod.Containers, &podresources.ContainerResources{
				Name: c.name, Devices: []*podresources.ContainerDevices{{ResourceName: c.resource, DeviceIds: c.ids}},
			})
		}
		answer.PodResources = append(answer.PodResources, pod)
	}
	return answer, nil
}

// GetAllocatableResources returns which devices there are.
func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	for name, e := range k.endpoints {
		list := &podresources.ContainerDevices{ResourceName: name}
		for _, d := range e.devices {
			if d.GetHealth() == deviceplugin.Healthy {
				list.DeviceIds = append(list.DeviceIds, d.GetID())
			}
		}
		answer.Devices = append(answer.Devices, list)
	}
	return answer, nil
}

// Version and Status say that the runtime injects CDI devices.
func (*kubelet) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.2.1"}, nil
}

// Status implements CRI.
func (*kubelet) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Info: map[string]string{"config": `{"enableCDI":true}`}}, nil
}

// ListContainers returns which containers of a pod live.
func (k *kubelet) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &cri.ListContainersResponse{}
	run := k.pods[types.UID(r.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"])]
	if run == nil {
		return answer, nil
	}
	for _, c := range run.containers {
		state := cri.ContainerState_CONTAINER_EXITED
		if c.alive {
			state = cri.ContainerState_CONTAINER_RUNNING
		}
		answer.Containers = append(answer.Containers, &cri.Container{State: state})
	}
	return answer, nil
}

// see takes in what the API server says of a pod of the node.
func (k *kubelet) see(pod *corev1.Pod) {
	if k.Foreign != nil && k.Foreign(pod) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.pods[pod.UID]
	if r == nil {
		if wire.HasEnded(pod) {
			return
		}
		r = &podRun{pod: pod, stop: make(chan struct{}), gone: make(chan struct{})}
		k.pods[pod.UID] = r
		k.running.Go(func() { k.run(r) })
	}
	if pod.DeletionTimestamp != nil {
		shut(r.stop)
	}
}

// forget takes in that the API server does not know the pod any more.
func (k *kubelet) forget(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.pods[uid]; r != nil {
		shut(r.stop)
		shut(r.gone)
	}
}

func shut(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// run is the life of a pod.
func (k *kubelet) run(r *podRun) {
	defer func() {
		k.mu.Lock()
		r.ended = true
		k.mu.Unlock()
		select {
		case <-r.gone:
		case <-k.ctx.Done():
		}
		k.mu.Lock()
		delete(k.pods, r.pod.UID)
		k.mu.Unlock()
	}()
	if err := k.admit(r); err != nil {
		k.reject(r, err)
	} else if k.start(r) {
		k.say(r, Running(r.pod))
	}
	select {
	case <-r.stop:
	case <-k.ctx.Done():
		return
	}
	// Containers take their time to end, also when the pod was forced out of
	// the API server: what they hold is not free before they have.
	Sleep(k.ctx, time.Duration(r.pod.UID[0]%8)*100*time.Millisecond)
	k.mu.Lock()
	for _, c := range r.containers {
		c.alive = false
	}
	r.ended = true
	_ = k.writeDown() // those of pods that have ended may stay
	k.mu.Unlock()
	k.remove(r)
}

// Grant makes a pod that is to come one that the vendor's plugin served, before it
// was removed: its container has these ids of whole cards.
func (k *kubelet) Grant(pod string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grants[pod] = ids
}

// admit gives the containers devices, as kubelet does before anything starts.
func (k *kubelet) admit(r *podRun) error {
	if granted, err := k.admitGranted(r); granted {
		return err
	}
	for i := range r.pod.Spec.Containers {
		c := &r.pod.Spec.Containers[i]
		for _, name := range resources {
			if q, ok := c.Resources.Limits[name]; ok && q.Value() > 0 {
				if err := k.allocate(r, c.Name, string(name), int(q.Value())); err != nil {
					return fmt.Errorf("container %s: %w", c.Name, err)
				}
			}
		}
	}
	return nil
}

// admitGranted does so for a pod that the vendor's plugin served.
func (k *kubelet) admitGranted(r *podRun) (granted bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := k.grants[r.pod.Name]
	if ids == nil {
		return false, nil
	}
	r.containers = []*containerRun{{name: r.pod.Spec.Containers[0].Name, resource: string(wire.ResourceGPU), ids: ids, alive: true, granted: true}}
	return true, k.writeDown()
}

func (k *kubelet) allocate(r *podRun, container, resource string, n int) error {
	k.mu.Lock()
	e := k.endpoints[resource]
	if e == nil {
		k.mu.Unlock()
		return fmt.Errorf("no plugin serves %s", resource)
	}
	ids := k.free(e, n)
	if len(ids) < n {
		k.mu.Unlock()
		return fmt.Errorf("%d devices of %s are free, %d are wanted", len(ids), resource, n)
	}
	c := &containerRun{name: container, resource: resource, ids: ids}
	r.containers = append(r.containers, c)
	err := k.writeDown()
	k.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second)
	defer cancel()
	answer, err := e.client.Allocate(ctx, &deviceplugin.AllocateRequest{ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return err
	}
	for _, d := range answer.GetContainerResponses()[0].GetCdiDevices() {
		c.cdi = append(c.cdi, d.GetName())
	}
	return nil
}

// writeDown keeps what containers were given in kubelet's file. The mutex must be
// held.
func (k *kubelet) writeDown() error {
	var entries []checkpoint.PodDevicesEntry
	for uid, r := range k.pods {
		for _, c := range r.containers {
			if !r.ended {
				entries = append(entries, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: c.name, ResourceName: c.resource, DeviceIDs: checkpoint.DevicesPerNUMA{0: c.ids},
				})
			}
		}
	}
	text, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err != nil {
		return err
	}
	path := filepath.Join(k.plugins(), "kubelet_internal_checkpoint")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// free returns up to n devices without a holder. The mutex must be held.
func (k *kubelet) free(e *endpoint, n int) []string {
	taken := map[string]bool{}
	for _, r := range k.pods {
		for _, c := range r.containers {
			for _, id := range c.ids {
				taken[id] = taken[id] || !r.ended
			}
		}
	}
	var ids []string
	for _, d := range e.devices {
		if len(ids) < n && d.GetHealth() == deviceplugin.Healthy && !taken[d.GetID()] {
			ids = append(ids, d.GetID())
		}
	}
	slices.Sort(ids)
	return ids
}

// startRetry is how long kubelet waits after a container could not be started.
const startRetry = time.Second

// start has the plugin prepare the containers until it has; false means that
// the pod ended before.
func (k *kubelet) start(r *podRun) bool {
	for _, c := range r.containers {
		for !c.granted {
			select {
			case <-r.stop:
				return false
			default:
			}
			if err := k.prepare(c); err == nil {
				break
			}
			if !Sleep(k.ctx, startRetry) {
				return false
			}
		}
	}
	return true
}

// prepare calls PreStartContainer and lets the container live if that is
// answered. A container whose CDI devices are not there does not start.
func (k *kubelet) prepare(c *containerRun) error {
	k.mu.Lock()
	e := k.endpoints[c.resource]
	k.mu.Unlock()
	if e == nil {
		return errors.New("the plugin is away")
	}
	ctx, cancel := context.WithTimeout(k.ctx, 30*time.Second)
	defer cancel()
	if _, err := e.client.PreStartContainer(ctx, &deviceplugin.PreStartContainerRequest{DevicesIds: c.ids}); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c.alive = true
	return nil
}

// Restart has the containers of a pod prepared again, as kubelet does for each that
// ended.
func (k *kubelet) Restart(uid types.UID) error {
	k.mu.Lock()
	r := k.pods[uid]
	k.mu.Unlock()
	if r == nil {
		return fmt.Errorf("no pod of %s has UID %s", k.Node, uid)
	}
	for _, c := range r.containers {
		k.mu.Lock()
		c.alive = false
		k.mu.Unlock()
		if err := k.prepare(c); err != nil {
			return fmt.Errorf("container %s of pod %s: %w", c.name, r.pod.Name, err)
		}
	}
	return nil
}

// reject fails the pod for good.
func (k *kubelet) reject(r *podRun, why error) {
	k.mu.Lock()
	r.ended = true // what it was given is free again
	k.rejected++
	k.mu.Unlock()
	k.say(r, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: why.Error()})
}

// Rejections returns how many pods it has failed for good.
func (k *kubelet) Rejections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rejected
}

// containersOf returns what the containers of a pod were given by the agent, nil if
// it is not known.
func (k *kubelet) containersOf(uid types.UID) []containerRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []containerRun
	if r := k.pods[uid]; r != nil {
		for _, c := range r.containers {
			if !c.granted {
				out = append(out, *c)
			}
		}
	}
	return out
}
