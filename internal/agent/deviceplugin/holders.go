package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Limits of what kubelet is asked.
const (
	// listInterval is the least time between two lists: kubelet rejects more than a
	// hundred calls a second, of all clients together.
	listInterval = 50 * time.Millisecond
	listTimeout  = 5 * time.Second
	// maxAnswer is how long an answer of kubelet's may be.
	maxAnswer = 64 << 20
)

// assignment is what kubelet gave one container of one resource. kubelet's file
// has the UID of the pod and init containers too, its API has the pod's name.
type assignment struct {
	uid                 types.UID
	pod                 types.NamespacedName
	container, resource string
	ids                 []string // sorted
}

func listed(answer *podresources.ListPodResourcesResponse) []assignment {
	var list []assignment
	for _, pod := range answer.GetPodResources() {
		name := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}
		for _, c := range pod.GetContainers() {
			ids := map[string][]string{}
			for _, d := range c.GetDevices() {
				ids[d.GetResourceName()] = append(ids[d.GetResourceName()], d.GetDeviceIds()...)
			}
			for resource, has := range ids {
				slices.Sort(has)
				list = append(list, assignment{pod: name, container: c.GetName(), resource: resource, ids: has})
			}
		}
	}
	return list
}

func recorded(entries []checkpointEntry) []assignment {
	list := make([]assignment, len(entries))
	for i := range entries {
		e := &entries[i]
		list[i] = assignment{uid: types.UID(e.PodUID), container: e.ContainerName, resource: e.ResourceName, ids: sets.List(e.DeviceIDs.Devices())}
	}
	return list
}

// has reports whether these, which are sorted, are all ids of the resource.
func (a *assignment) has(resource string, ids []string) bool {
	return a.resource == resource && slices.Equal(a.ids, ids)
}

// holder is a container that kubelet gave ids to. The UID or the name may be missing.
type holder struct {
	uid types.UID
	pod types.NamespacedName
	// containers have exactly these ids: one, or several that take turns.
	containers []string
	// times is how many of the pod's containers have each id, by kubelet's file.
	times map[string]int
}

// holders finds the containers that have ids. Callers that ask at the same time
// share one request to kubelet, which is sent after they asked.
type holders struct {
	client     podresources.PodResourcesListerClient
	checkpoint string
	clock      clock.WithTicker

	requests singleflight.Group // may be joined until they are sent
	asking   sync.Mutex         // held by the request that is being sent
	last     time.Time
}

func dialPodResources(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
}

// list returns an answer that is newer than the call.
func (h *holders) list(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	select {
	case l := <-h.requests.DoChan("", h.ask):
		answer, _ := l.Val.(*podresources.ListPodResourcesResponse)
		return answer, l.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask sends a request, after the previous one, for all callers that have joined.
func (h *holders) ask() (any, error) {
	h.asking.Lock()
	defer h.asking.Unlock()
	<-h.clock.After(listInterval - h.clock.Since(h.last))
	h.requests.Forget("") // callers from here on need a newer answer
	h.last = h.clock.Now()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return h.client.List(ctx, &podresources.ListPodResourcesRequest{})
}

// find returns the container that has exactly these ids of a resource, which are
// sorted. Plain init containers are in kubelet's file only.
func (h *holders) find(ctx context.Context, resource string, ids []string) (*holder, error) {
	answer, err := h.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask kubelet which container holds %v: %w", ids, err)
	}
	found := findListed(listed(answer), resource, ids)
	entries, unreadable := readCheckpoint(h.checkpoint)
	inFile := recorded(entries)
	holder, err := findRecorded(inFile, resource, ids)
	switch {
	case err != nil:
		return nil, err
	case holder == nil && found == nil && unreadable != nil:
		return nil, fmt.Errorf("kubelet lists no container with devices %v, and its file of devices can't be read: %w", ids, unreadable)
	case holder == nil && found == nil:
		return nil, fmt.Errorf("no container holds devices %v", ids)
	case holder == nil:
		return found, nil
	case found != nil:
		holder.pod = found.pod
	}
	holder.times = map[string]int{}
	for i := range inFile {
		if a := &inFile[i]; a.resource == resource && a.uid == holder.uid {
			for _, id := range a.ids {
				holder.times[id]++
			}
		}
	}
	return holder, nil
}

func findListed(list []assignment, resource string, ids []string) *holder {
	at := slices.IndexFunc(list, func(a assignment) bool { return a.has(resource, ids) })
	if at < 0 {
		return nil
	}
	return &holder{pod: list[at].pod, containers: []string{list[at].container}}
}

// findRecorded searches kubelet's file, which may still have deleted pods.
func findRecorded(list []assignment, resource string, ids []string) (*holder, error) {
	var h *holder
	for i := range list {
		switch a := &list[i]; {
		case !a.has(resource, ids):
		case h == nil:
			h = &holder{uid: a.uid, containers: []string{a.container}}
		case h.uid == a.uid:
			h.containers = append(h.containers, a.container)
		default:
			return nil, fmt.Errorf("kubelet's file has devices %v for two pods: %s and %s", ids, h.uid, a.uid)
		}
	}
	return h, nil
}

// foreignIDs returns, by resource of the vendor's, the first id of another plugin.
func foreignIDs(answer *podresources.AllocatableResourcesResponse) map[string]string {
	first := map[string]string{}
	for _, d := range answer.GetDevices() {
		for _, id := range d.GetDeviceIds() {
			lowest, ok := first[d.GetResourceName()]
			if isVendors(d.GetResourceName()) && !isToken(id) && (!ok || id < lowest) {
				first[d.GetResourceName()] = id
			}
		}
	}
	return first
}

// accepted reports whether kubelet has devices of this agent for a resource.
func (h *holders) accepted(ctx context.Context, resource string) (bool, error) {
	answer, err := h.allocatable(ctx)
	return slices.ContainsFunc(answer.GetDevices(), func(d *podresources.ContainerDevices) bool {
		return d.GetResourceName() == resource && slices.ContainsFunc(d.GetDeviceIds(), isToken)
	}), err
}

func (h *holders) allocatable(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := h.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	switch {
	case err == nil:
		return answer, nil
	case status.Code(err) == codes.Unimplemented, strings.Contains(plain(err), "GetAllocatableResources disabled"):
		return nil, fmt.Errorf("%w (%s): upgrade it, or leave the node to the vendor's device plugin with the annotation %s=%s",
			errOldKubelet, plain(err), wire.AnnotationServedBy, wire.ServedByVendor)
	}
	return nil, fmt.Errorf("ask kubelet which devices it has: %w", err)
}

// errOldKubelet is a kubelet without the method GetAllocatableResources: 1.20 does not
// have it, 1.21 and 1.22 have it off by default.
var errOldKubelet = errors.New("kubelet does not report its devices, so it is older than 1.23, or its feature gate KubeletPodResourcesGetAllocatable is off; kubelet 1.23 or later is needed")
