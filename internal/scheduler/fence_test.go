package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// fencing is a fencer whose touches get the versions 101, 102, ...
type fencing struct {
	fencer
	client *fake.Clientset

	mu      sync.Mutex
	touched []string
	patches []string
}

func newFencing(errs map[string]error, pods ...*corev1.Pod) *fencing {
	var objects []runtime.Object
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	f := &fencing{client: fake.NewClientset(objects...)}
	f.fencer = fencer{client: f.client, schedulers: sets.New("daybreak", "second"), identity: "me", seen: func() string { return "1000" }}
	f.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := action.(clienttesting.PatchAction)
		if !ok || action.GetSubresource() != "status" {
			return true, nil, fmt.Errorf("a %T of %q", action, action.GetSubresource())
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if err := errs[patch.GetName()]; err != nil {
			return true, nil, err
		}
		f.touched = append(f.touched, patch.GetName())
		f.patches = append(f.patches, string(patch.GetPatch()))
		pod := makePod(patch.GetName())
		pod.ResourceVersion = strconv.Itoa(100 + len(f.touched))
		return true, pod, nil
	})
	return f
}

func of(scheduler string) podOption {
	return func(pod *corev1.Pod) { pod.Spec.SchedulerName = scheduler }
}

func TestFencerTouches(t *testing.T) {
	tests := map[string]struct {
		pods    []*corev1.Pod
		errs    map[string]error
		want    []string
		wantErr string
	}{
		"nobody waits": {},
		"pods with cards, of its own schedulers": {
			pods: []*corev1.Pod{makePod("a", whole(1)), makePod("b", slice(10, 8), of("second")), makePod("c", whole(1), of("default-scheduler")), makePod("d")},
			want: []string{"a", "b"},
		},
		"one is gone, one is another pod by now": {
			pods: []*corev1.Pod{makePod("a", whole(1)), makePod("b", whole(1)), makePod("c", whole(1))},
			errs: map[string]error{"a": apierrors.NewNotFound(podResource, "a"), "b": errConflict},
			want: []string{"c"},
		},
		"one can't be touched": {
			pods:    []*corev1.Pod{makePod("a", whole(1)), makePod("b", whole(1))},
			errs:    map[string]error{"a": errForbidden},
			want:    []string{"b"},
			wantErr: `touch pod ns/a: pods "p" is forbidden: no`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFencing(tt.errs, tt.pods...)
			last, err := f.touchAll(t.Context())
			if said := message(err); said != tt.wantErr {
				t.Errorf("touchAll() says %q, want %q", said, tt.wantErr)
			}
			slices.Sort(f.touched)
			if diff := cmp.Diff(tt.want, f.touched); diff != "" {
				t.Errorf("touched (-want +got):\n%s", diff)
			}
			if want := uint64(100 + len(tt.want)); err == nil && len(tt.want) > 0 && last != want {
				t.Errorf("highest version = %d, want %d", last, want)
			}
		})
	}
}

// TestFencerReads: only a list without a resourceVersion is sure to be from
// etcd, and a bound pod needs no touch.
func TestFencerReads(t *testing.T) {
	f := newFencing(nil, makePod("a", whole(1)))
	if _, err := f.touchAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, ok := f.client.Actions()[0].(clienttesting.ListActionImpl)
	if !ok {
		t.Fatalf("first request is a %T, want a list", f.client.Actions()[0])
	}
	if got := list.ListRestrictions.Fields.String(); got != "spec.nodeName=" || list.ListOptions.ResourceVersion != "" || list.ListOptions.Limit != 0 {
		t.Errorf("list with %q and %+v, want all pending pods, consistently", got, list.ListOptions)
	}
	want := `{"metadata":{"uid":"uid-a"},"status":{"conditions":[{"type":"daybreak-gpu.io/Term","status":"True","reason":"SchedulerStarted","message":"waiting for me"}]}}`
	if f.patches[0] != want {
		t.Errorf("patch is\n%s\nwant\n%s", f.patches[0], want)
	}
}

func TestFencerWaitsForTheInformer(t *testing.T) {
	f := newFencing(nil, makePod("a", whole(1)), makePod("b", whole(1)))
	var asked atomic.Int32
	answers := []string{"", "none", "101", "102"}
	f.seen = func() string { return answers[min(int(asked.Add(1)), len(answers))-1] }
	if err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := asked.Load(); got != 4 {
		t.Errorf("the informer was asked %d times, want until it has come to version 102", got)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	f.seen = func() string { return "103" } // two pods touched again: 103 and 104
	if err := f.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run() = %v with an informer that is behind, want that it waits", err)
	}
}

func TestFencerTriesAgain(t *testing.T) {
	f := newFencing(nil, makePod("a", whole(1)))
	var lists atomic.Int32
	f.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return lists.Add(1) == 1, nil, errInternal
	})
	if err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lists.Load(); got != 2 || len(f.touched) != 1 {
		t.Errorf("%d lists and %v touched, want 2 and a", got, f.touched)
	}
	if _, err := f.touchAll(t.Context()); err != nil {
		t.Errorf("touchAll() = %v", err)
	}
}

func TestFence(t *testing.T) {
	shared := NewShared(clocktesting.NewFakeClock(start))
	f := newFencing(nil, makePod("a", whole(1)))
	done := make(chan struct{})
	go func() { defer close(done); shared.fence(t.Context(), &f.fencer) }()
	time.Sleep(5 * time.Millisecond)
	if n := len(f.client.Actions()); n != 0 || closed(shared.term.fenced) {
		t.Errorf("%d requests before this process leads, want none", n)
	}
	shared.term.begin()
	<-done
	if !closed(shared.term.fenced) || strings.Join(f.touched, "") != "a" {
		t.Errorf("fenced with %v touched, want a", f.touched)
	}
}
