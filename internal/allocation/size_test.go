package allocation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// withInits adds so many init containers with the given limits.
func withInits(b *gputest.PodBuilder, n int, limits string) *gputest.PodBuilder {
	for range n {
		b.Init(limits)
	}
	return b
}

func TestCheckSize(t *testing.T) {
	const slice = "sgpu: 1, vcore: 1, vmemory: 1"
	cases := map[string]struct {
		pod  *gputest.PodBuilder
		want string
	}{
		"a slice":                            {pod: app(slice)},
		"a slice and much of its own":        {pod: app(slice).Annotate("a", strings.Repeat("x", 261_000))},
		"a long allocation that is replaced": {pod: app(slice).Annotate(wire.AnnotationHAMiNode, strings.Repeat("x", 262_000))},
		"all cards of a node":                {pod: app("gpu: 64")},
		"as many containers as are read":     {pod: withInits(app(slice), wire.MaxListedContainers-1, "")},
		"slices in many containers":          {pod: withInits(app(slice), 900, slice)},
		"a slice and more of its own": {
			pod: app(slice).Annotate("a", strings.Repeat("x", 262_000)),
			want: "metadata.annotations: Forbidden: the pod's own annotations have 262001 bytes and the allocation needs 694, " +
				"and an object has at most 262144: shorten the pod's own by 551",
		},
		"the allocation alone is too long": {
			pod: withInits(app(""), 1000, "sgpu: 2, vcore: 1, vmemory: 1"),
			want: "metadata.annotations: Forbidden: the allocation needs 521436 bytes of annotations, and an object has at most 262144: " +
				"ask for cards in fewer containers",
		},
		"so many cards that nothing need be made up": {
			pod:  withInits(app(""), 1000, "gpu: 3"),
			want: "metadata.annotations: Forbidden: the allocation needs more than 262144 bytes of annotations, the most that an object has: request GPUs in fewer containers",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.Obj()
			ask, problems := request.Read(pod)
			if ask == nil {
				t.Fatal(problems)
			}
			got := ""
			if err := CheckSize(pod, ask).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestCheckSizeBound: no node writes more than what is checked for.
func TestCheckSizeBound(t *testing.T) {
	placed := 0
	for seed := range uint64(400) {
		r := gputest.Rand(seed)
		pod := randomPod(r, "p")
		ask, _ := request.Read(pod)
		if ask == nil {
			continue
		}
		cards := gputest.MakeDevice()
		for i := range int32(12) {
			id := fmt.Sprintf("GPU-%0*d", wire.MaxUUID-len("GPU-"), i)
			cards.Spec.Devices = append(cards.Spec.Devices, gputest.CardInfo(id, 1<<31-1-i, gputest.WithMemory("16777088Mi")))
		}
		inv := inventory.ReadInventory(gputest.MakeNode(""), cards)
		if r.IntN(4) == 0 {
			inv = inventory.ReadInventory(gputest.MakeNode("gpu: 12"), nil)
		}
		n := inv.NewNode()
		n.Name = strings.Repeat("n", 253)
		written, ok := bind(t, n, pod)
		if !ok {
			continue
		}
		placed++
		most := 0
		for _, large := range largestNodes() {
			largest, err := largestAnnotations(large, ask)
			gputest.Must(t, err)
			most = max(most, bytesOf(largest))
		}
		if got := bytesOf(written); got > most {
			t.Fatalf("seed %d: %d bytes are written, checked for %d: %v", seed, got, most, written)
		}
	}
	if placed < 200 {
		t.Errorf("only %d pods were placed", placed)
	}
}
