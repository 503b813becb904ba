package kubelet

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labelPodUID is what kubelet marks containers with.
const labelPodUID = "io.kubernetes.pod.uid"

const runtimeTimeout = 5 * time.Second

// containers tells whether containers live, which kubelet does not say of pods
// that it was told to forget.
type containers struct{ client cri.RuntimeServiceClient }

// dialRuntime connects to the container runtime, lazily.
func dialRuntime(endpoint string) (*grpc.ClientConn, error) {
	return grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
}

// alive reports whether a container of the pod may run, now or in a moment.
func (c *containers) alive(ctx context.Context, uid types.UID) (bool, error) {
	if c == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	answer, err := c.client.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: map[string]string{labelPodUID: string(uid)}},
	})
	if err != nil {
		return true, fmt.Errorf("ask the container runtime for containers of pod %s: %w", uid, err)
	}
	for _, container := range answer.GetContainers() {
		if container.GetState() != cri.ContainerState_CONTAINER_EXITED {
			return true, nil
		}
	}
	return false, nil
}
