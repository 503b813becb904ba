package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"
)

// Limits of what kubelet is asked.
const (
	// listInterval is the least time between two lists: kubelet answers a
	// hundred calls a second, of whoever asks, and refuses the rest.
	listInterval = 50 * time.Millisecond
	listTimeout  = 5 * time.Second
	// maxAnswer is how long an answer of kubelet's may be.
	maxAnswer = 64 << 20
)

// holder is a container that kubelet gave ids to. The UID comes from kubelet's
// file, the name from its API; one of the two may be missing.
type holder struct {
	uid             types.UID
	namespace, name string
	// containers are those of the pod that have exactly these ids: one, or
	// several that take turns.
	containers []string
	// times is how many of the pod's containers have each id, by kubelet's file:
	// so often was it given for this pod.
	times map[string]int
}

// holders finds out who has which ids. All who ask at the same time share one
// question to kubelet, one that was put after they asked.
type holders struct {
	client     podresources.PodResourcesListerClient
	checkpoint string
	clock      clock.WithTicker
	turn       chan struct{} // held by the question that is being put

	mu   sync.Mutex
	next *listing // the question that will be put, and may still be joined
	last time.Time
}

// listing is one question and its answer.
type listing struct {
	done   chan struct{}
	answer *podresources.ListPodResourcesResponse
	err    error
}

func newHolders(client podresources.PodResourcesListerClient, checkpoint string, clk clock.WithTicker) *holders {
	return &holders{client: client, checkpoint: checkpoint, clock: clk, turn: make(chan struct{}, 1)}
}

// dialPodResources connects to kubelet's PodResources, lazily.
func dialPodResources(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
}

// list returns an answer that is newer than the call.
func (h *holders) list(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	h.mu.Lock()
	l := h.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		h.next = l
		go h.ask(l)
	}
	h.mu.Unlock()
	select {
	case <-l.done:
		return l.answer, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask puts a question to kubelet when the one before is answered, for everyone
// who has joined by then.
func (h *holders) ask(l *listing) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.mu.Lock()
	wait := listInterval - h.clock.Since(h.last)
	h.mu.Unlock()
	<-h.clock.After(wait)
	h.mu.Lock()
	h.next, h.last = nil, h.clock.Now()
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	l.answer, l.err = h.client.List(ctx, &podresources.ListPodResourcesRequest{})
	close(l.done)
}

// find returns who has exactly these ids of a resource, which are sorted. Plain
// init containers are in kubelet's file only.
func (h *holders) find(ctx context.Context, resource string, ids []string) (*holder, error) {
	answer, err := h.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask kubelet who holds %v: %w", ids, err)
	}
	found := fromList(answer, resource, ids)
	entries, unreadable := readCheckpoint(h.checkpoint)
	recorded, err := fromCheckpoint(entries, resource, ids)
	switch {
	case err != nil:
		return nil, err
	case recorded == nil && found == nil && unreadable != nil:
		return nil, fmt.Errorf("kubelet lists nobody who holds %v, and its file of devices can't be read: %w", ids, unreadable)
	case recorded == nil && found == nil:
		return nil, fmt.Errorf("no container holds devices %v", ids)
	case recorded == nil:
		return found, nil
	case found != nil:
		recorded.namespace, recorded.name = found.namespace, found.name
	}
	recorded.times = timesGiven(entries, resource, recorded.uid)
	return recorded, nil
}

// fromList finds the container in what kubelet lists.
func fromList(answer *podresources.ListPodResourcesResponse, resource string, ids []string) *holder {
	for _, pod := range answer.GetPodResources() {
		for _, c := range pod.GetContainers() {
			var has []string
			for _, d := range c.GetDevices() {
				if d.GetResourceName() == resource {
					has = append(has, d.GetDeviceIds()...)
				}
			}
			slices.Sort(has)
			if slices.Equal(has, ids) {
				return &holder{namespace: pod.GetNamespace(), name: pod.GetName(), containers: []string{c.GetName()}}
			}
		}
	}
	return nil
}

// fromCheckpoint finds the containers in kubelet's file. Pods that are gone may
// still be in it; then nothing is certain.
func fromCheckpoint(entries []checkpointEntry, resource string, ids []string) (*holder, error) {
	var h *holder
	for i := range entries {
		e := &entries[i]
		if e.ResourceName != resource {
			continue
		}
		var has []string
		for _, list := range e.DeviceIDs {
			has = append(has, list...)
		}
		slices.Sort(has)
		if !slices.Equal(has, ids) {
			continue
		}
		switch uid := types.UID(e.PodUID); {
		case h == nil:
			h = &holder{uid: uid, containers: []string{e.ContainerName}}
		case h.uid == uid:
			h.containers = append(h.containers, e.ContainerName)
		default:
			return nil, fmt.Errorf("kubelet's file says of two pods that they hold %v: %s and %s", ids, h.uid, uid)
		}
	}
	return h, nil
}

// timesGiven counts how many containers of a pod have each id.
func timesGiven(entries []checkpointEntry, resource string, uid types.UID) map[string]int {
	times := map[string]int{}
	for i := range entries {
		if e := &entries[i]; e.ResourceName == resource && types.UID(e.PodUID) == uid {
			for _, ids := range e.DeviceIDs {
				for _, id := range ids {
					times[id]++
				}
			}
		}
	}
	return times
}

// foreign returns, by resource of the vendor's, the first id that kubelet
// advertises, in any order, and this agent did not make up: another plugin serves
// the node.
func (h *holders) foreign(ctx context.Context) (map[string]string, error) {
	answer, err := h.allocatable(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, d := range answer.GetDevices() {
		for _, id := range d.GetDeviceIds() {
			first, ok := ids[d.GetResourceName()]
			if isVendors(d.GetResourceName()) && !isToken(id) && (!ok || id < first) {
				ids[d.GetResourceName()] = id
			}
		}
	}
	return ids, nil
}

// accepted reports whether kubelet knows devices of a resource by now.
func (h *holders) accepted(ctx context.Context, resource string) (bool, error) {
	answer, err := h.allocatable(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(answer.GetDevices(), func(d *podresources.ContainerDevices) bool {
		return d.GetResourceName() == resource && slices.ContainsFunc(d.GetDeviceIds(), isToken)
	}), nil
}

func (h *holders) allocatable(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := h.client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask kubelet which devices it has: %w", err)
	}
	return answer, nil
}
