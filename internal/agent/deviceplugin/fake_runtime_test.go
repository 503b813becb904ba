package deviceplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// fakeRuntime is a container runtime that says of itself and of each pod what
// the test does.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	scene *scene
}

func (f fakeRuntime) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	state := cri.ContainerState_CONTAINER_EXITED
	if f.scene.alive[types.UID(r.GetFilter().GetLabelSelector()[kubelettypes.KubernetesPodUIDLabel])] {
		state = cri.ContainerState_CONTAINER_RUNNING
	}
	answer := &cri.ListContainersResponse{Containers: []*cri.Container{{State: state}}}
	for name := range f.scene.exited {
		answer.Containers = append(answer.Containers, &cri.Container{Id: name, State: cri.ContainerState_CONTAINER_EXITED, Labels: map[string]string{kubelettypes.KubernetesContainerNameLabel: name}})
	}
	return answer, nil
}

func (f fakeRuntime) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{ExitCode: f.scene.exited[r.GetContainerId()]}}, nil
}

func (f fakeRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	f.scene.asked++
	if f.scene.runtimeDown {
		return nil, errors.New("it is down")
	}
	return &cri.VersionResponse{RuntimeName: f.scene.runtime.Name, RuntimeVersion: f.scene.runtime.Version}, nil
}

func (f fakeRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	if !r.GetVerbose() {
		return &cri.StatusResponse{}, nil
	}
	return &cri.StatusResponse{Info: f.scene.runtime.Info}, nil
}

// withCDI is a containerd that injects the devices of specs in any folder, and
// withoutCDI one that starts containers without them.
func withCDI() *RuntimeAnswer {
	return &RuntimeAnswer{Name: runtimeContainerd, Version: "1.7.28", Info: map[string]string{"config": `{"enableCDI":true}`}}
}

func withoutCDI() *RuntimeAnswer {
	return &RuntimeAnswer{Name: runtimeContainerd, Version: "1.7.28", Info: map[string]string{"config": `{"enableCDI":false,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`}}
}

// serveRuntime serves CRI on a socket until the function it returns is called.
func serveRuntime(t *testing.T, endpoint string, runtime cri.RuntimeServiceServer) (stop func()) {
	t.Helper()
	socket := strings.TrimPrefix(endpoint, EndpointScheme)
	gputest.Must(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "unix", socket)
	gputest.Must(t, err)
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, runtime)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// setRuntime makes the runtime another one, without notice to the agent.
func (s *scene) setRuntime(a *RuntimeAnswer, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime, s.runtimeDown = a, down
}

// restartRuntime makes the runtime another one, and its connections end.
func (s *scene) restartRuntime(a *RuntimeAnswer, down bool) {
	s.Helper()
	s.stopRuntime()
	s.setRuntime(a, down)
	s.stopRuntime = serveRuntime(s.T, s.cfg.Runtime, fakeRuntime{scene: s})
}
