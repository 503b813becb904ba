package cluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestWatcher: the cluster as it is comes first, then what changes; the end of
// the context is its end.
func TestWatcher(t *testing.T) {
	f := newFakes()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := NewWatcher(ctx, f.client(), inventory.VendorPlugin{})
	gputest.Must(t, err)
	shown, done := make(chan names, 100), make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(s Sight) error {
			shown <- namesOf(s.Objects)
			return nil
		})
	}()
	want := names{Nodes: []string{"n1"}, Devices: []string{"n1", "n2"}, Pods: []string{"a/p1"}}
	gputest.Equal(t, "at first", want, <-shown)
	pod := gputest.MakePod("new").App("sgpu: 1").Obj()
	pod.Namespace = "a"
	_, err = f.typed.CoreV1().Pods("a").Create(ctx, pod, metav1.CreateOptions{})
	gputest.Must(t, err)
	gputest.Must(t, f.dynamic.Resource(devices).Delete(ctx, "n2", metav1.DeleteOptions{}))
	want = names{Nodes: []string{"n1"}, Devices: []string{"n1"}, Pods: []string{"a/new", "a/p1"}}
	timeout := time.After(30 * time.Second)
	for {
		var got names
		select {
		case got = <-shown:
		case <-timeout:
			t.Fatal("the changes are not shown")
		}
		if slices.Equal(got.Pods, want.Pods) && slices.Equal(got.Devices, want.Devices) {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestWatcherFindsDefinition: Devices that are defined while the cluster is watched
// are read from then on.
func TestWatcherFindsDefinition(t *testing.T) {
	f := newFakes()
	var defined atomic.Bool
	f.dynamic.PrependReactor("list", "devices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !defined.Load(), nil, apierrors.NewNotFound(devices.GroupResource(), "")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := NewWatcher(ctx, f.client(), inventory.VendorPlugin{})
	gputest.Must(t, err)
	var last *Objects
	err = w.Run(ctx, func(s Sight) error {
		last = s.Objects
		switch {
		case s.Objects.Undefined == (len(s.Objects.Devices) > 0):
			t.Errorf("undefined is %v with %d Devices", s.Objects.Undefined, len(s.Objects.Devices))
		case s.Objects.Undefined:
			defined.Store(true)
		default:
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || last == nil || len(last.Devices) != 2 {
		t.Errorf("ended with %v and %+v, want two Devices", err, last)
	}
}
