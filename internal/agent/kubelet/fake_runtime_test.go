package kubelet

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime is a container runtime that says of each pod what the test does.
type fakeRuntime struct {
	cri.RuntimeServiceClient
	scene *scene
}

func (f fakeRuntime) ListContainers(_ context.Context, r *cri.ListContainersRequest, _ ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	state := cri.ContainerState_CONTAINER_EXITED
	if f.scene.alive[types.UID(r.GetFilter().GetLabelSelector()[labelPodUID])] {
		state = cri.ContainerState_CONTAINER_RUNNING
	}
	return &cri.ListContainersResponse{Containers: []*cri.Container{{State: state}}}, nil
}
