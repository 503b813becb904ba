package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/daybreak-gpu/daybreak/internal/agent/discover"
	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// checkStart checks that the container gets its own cards, and that no other has
// them. What the vendor's plugin gave is kubelet's to hand out again.
func (w *walk) checkStart(p *walkPod) {
	w.Helper()
	if !p.vendor {
		w.checkDevices(p)
	}
	for _, q := range w.pods {
		for _, card := range q.cards {
			if q == p || !q.alive || !slices.Contains(p.cards, card) {
				continue
			}
			if p.whole || q.whole || w.taken(card)+p.compute > 100 {
				w.violated("%s gets %s, which %s has", p.Name, card, q.Name)
			}
		}
	}
}

// checkDevices checks that the container gets the devices of its own cards.
func (w *walk) checkDevices(p *walkPod) {
	w.Helper()
	want := []string{"250:0"}
	for _, card := range p.cards {
		at := slices.Index(walkCards, card)
		if p.whole {
			want = append(want, fmt.Sprintf("226:%d", at), fmt.Sprintf("226:%d", 128+at))
			continue
		}
		x := w.sliceOf(p, card)
		if x == nil || int(x.ComputePercent) != p.compute || x.Memory != 4<<10 {
			w.violated("%s starts with slice %+v of %s", p.Name, x, card)
			return
		}
		want = append(want, fmt.Sprintf("%d:%d", majorSlice, x.Minor))
	}
	var got []string
	for _, name := range p.names {
		devices, ok := w.devicesOf(name)
		if !ok {
			w.violated("%s starts, and there is no spec %s", p.Name, name)
		}
		got = append(got, devices...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		w.violated("%s gets devices %v, its own are %v", p.Name, got, want)
	}
}

// taken is how much of a card containers have that live.
func (w *walk) taken(card gpu.CardID) int {
	return w.sum(card, func(p *walkPod) bool { return p.alive })
}

// placed is how much of a card a scheduler would take to be held.
func (w *walk) placed(card gpu.CardID) int {
	return w.sum(card, func(p *walkPod) bool { return p.alive || p.known })
}

func (w *walk) sum(card gpu.CardID, counts func(p *walkPod) bool) int {
	sum := 0
	for _, p := range w.pods {
		if counts(p) && slices.Contains(p.cards, card) {
			sum += p.compute
		}
	}
	return sum
}

// sliceOf is the pod's slice of a card, by its name.
func (w *walk) sliceOf(p *walkPod, card gpu.CardID) *discover.Slice {
	alias := aliasOf(&record{PodUID: p.UID, Container: "main"}, card)
	now, err := w.driver.Slices(context.Background(), bdfOf(slices.Index(walkCards, card)))
	if err != nil {
		return nil
	}
	if at := slices.IndexFunc(now.Slices, func(x discover.Slice) bool { return x.Alias == alias }); at >= 0 {
		return &now.Slices[at]
	}
	return nil
}

// devicesOf are the devices that a container with a CDI name would get.
func (w *walk) devicesOf(name string) ([]string, bool) {
	spec, err := cdi.ReadSpec(filepath.Join(w.cfg.CDI, specFile(name)), 0)
	if err != nil {
		return nil, false
	}
	var list []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		list = append(list, fmt.Sprintf("%d:%d", n.Major, n.Minor))
	}
	return list, true
}

// check: every spec there is shows what its name's own pod has, and every token
// stands for the card that it was given for.
func (w *walk) check() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != "" {
		w.violated("%s", w.wrong)
	}
	shown := map[string]*walkPod{} // by device of a slice
	for name, p := range w.owner {
		devices, ok := w.devicesOf(name)
		if !ok {
			continue
		}
		for _, d := range devices {
			w.checkDevice(p, name, d)
			if q := shown[d]; q != nil && q != p && strings.HasPrefix(d, strconv.Itoa(majorSlice)+":") {
				w.violated("specs of %s and %s show one slice, %s", q.Name, p.Name, d)
			}
			shown[d] = p
		}
	}
	for token, card := range w.server.journal.now().held() {
		if w.stands[token] != card {
			w.violated("token %s stands for %s, it was given for %s", token, card, w.stands[token])
		}
	}
}

func (w *walk) checkDevice(p *walkPod, name, device string) {
	w.Helper()
	var major, minor int
	_, err := fmt.Sscanf(device, "%d:%d", &major, &minor)
	gputest.Must(w, err)
	switch major {
	case majorDRM:
		if card := walkCards[minor%128]; !p.whole || !slices.Contains(p.cards, card) {
			w.violated("spec %s was given to %s and shows %s", name, p.Name, card)
		}
	case majorSlice:
		own, others := false, false // a driver may make two with one number
		for i, card := range walkCards {
			now, _ := w.driver.Slices(context.Background(), bdfOf(i))
			for _, x := range now.Slices {
				is := x.Alias == aliasOf(&record{PodUID: p.UID, Container: "main"}, card)
				own, others = own || x.Minor == minor && is, others || x.Minor == minor && !is
			}
		}
		if others && !own {
			w.violated("spec %s was given to %s and shows slice %d, which is another pod's", name, p.Name, minor)
		}
	}
}

// Held, Get and Event are the agent's view of pods.
func (w *walk) Held() ([]*corev1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blind {
		return nil, false
	}
	var list []*corev1.Pod
	for _, p := range w.pods {
		if p.known && !p.hidden {
			list = append(list, p.Pod)
		}
	}
	return list, true
}

func (w *walk) Get(_ context.Context, _, name string) (*corev1.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if p.known && p.Name == name {
			return p.Pod, nil
		}
	}
	return nil, nil
}

func (*walk) Event(*corev1.Pod, string, string, string) {}

// walkKubelet answers what kubelet's PodResources does.
type walkKubelet struct{ *walk }

func (k walkKubelet) List(context.Context, *podresources.ListPodResourcesRequest, ...grpc.CallOption) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, p := range k.pods {
		if p.admitted {
			answer.PodResources = append(answer.PodResources, podWith(p.Name, p.resource, p.ids...))
		}
	}
	return answer, nil
}

func (k walkKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest, ...grpc.CallOption) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	if k.foreign {
		answer.Devices = []*podresources.ContainerDevices{{ResourceName: whole, DeviceIds: []string{"GPU-a", "GPU-b"}}}
	}
	return answer, nil
}

func (walkKubelet) Get(context.Context, *podresources.GetPodResourcesRequest, ...grpc.CallOption) (*podresources.GetPodResourcesResponse, error) {
	return nil, errors.New("not asked for")
}

// walkRuntime knows which containers live.
type walkRuntime struct {
	cri.RuntimeServiceClient
	walk *walk
}

func (r walkRuntime) ListContainers(_ context.Context, q *cri.ListContainersRequest, _ ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	r.walk.mu.Lock()
	defer r.walk.mu.Unlock()
	answer := &cri.ListContainersResponse{}
	for _, p := range r.walk.pods {
		if p.alive && string(p.UID) == q.GetFilter().GetLabelSelector()[kubelettypes.KubernetesPodUIDLabel] {
			answer.Containers = append(answer.Containers, &cri.Container{State: cri.ContainerState_CONTAINER_RUNNING})
		}
	}
	return answer, nil
}

func (walkRuntime) Version(context.Context, *cri.VersionRequest, ...grpc.CallOption) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: runtimeCRIO, RuntimeVersion: "1.33.0"}, nil
}

func (walkRuntime) Status(context.Context, *cri.StatusRequest, ...grpc.CallOption) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{}, nil
}
