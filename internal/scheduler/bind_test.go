package scheduler

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

var podResource = corev1.Resource("pods")

// Answers that the API server may give.
var (
	errConflict  = apierrors.NewConflict(podResource, "p", errors.New("the object has been modified"))
	errInternal  = apierrors.NewInternalError(errors.New("etcd is away"))
	errTimeout   = apierrors.NewTimeoutError("too slow", 1)
	errThrottled = apierrors.NewTooManyRequests("later", 1)
	errForbidden = apierrors.NewForbidden(podResource, "p", errors.New("no"))
	errGateway   = apierrors.NewGenericServerResponse(http.StatusBadGateway, "create", podResource, "p", "bad gateway", 0, true)
	errBroken    = errors.New("read: connection reset by peer")
)

// onBind answers the n-th Binding with the n-th error, and all later ones with
// success.
func onBind(client *fake.Clientset, answers ...error) {
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		if len(answers) == 0 {
			return true, nil, nil
		}
		err := answers[0]
		answers = answers[1:]
		return true, nil, err
	})
}

func sentBindings(t *testing.T, client *fake.Clientset) []*corev1.Binding {
	t.Helper()
	var sent []*corev1.Binding
	for _, action := range client.Actions() {
		if action.GetSubresource() != "binding" {
			continue
		}
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			t.Fatalf("%T is no create", action)
		}
		binding, ok := create.GetObject().(*corev1.Binding)
		if !ok {
			t.Fatalf("%T is no Binding", create.GetObject())
		}
		sent = append(sent, binding)
	}
	return sent
}

// reserved returns a rig with a pod that has a card of n1.
func reserved(t *testing.T) (*rig, *corev1.Pod) {
	t.Helper()
	r, pod := newRig(t), makePod("p", slice(30, 8))
	r.setDevice(t, makeDevice("n1", 1))
	r.addNode(t, makeNode("n1"))
	r.fakes.snapshot = snapshotOf(nodeInfo(makeNode("n1")))
	succeeds(t, r.Reserve(t.Context(), r.cycle(t, pod), pod, "n1"))
	return r, pod
}

// bind runs Bind while time passes.
func (r *rig) bind(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	done := make(chan *fwk.Status)
	go func() { done <- r.Bind(ctx, nil, pod, "n1") }()
	for {
		select {
		case status := <-done:
			return status
		case <-time.After(time.Millisecond):
			if r.clock.HasWaiters() {
				r.clock.Step(3 * time.Second)
			}
		}
	}
}

func TestBindIsOneWrite(t *testing.T) {
	r, pod := reserved(t)
	onBind(r.fakes.client)
	succeeds(t, r.bind(t.Context(), pod))
	if n := len(r.fakes.client.Actions()); n != 1 {
		t.Errorf("%d requests were sent, want 1: %v", n, r.fakes.client.Actions())
	}
	want := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	want.Namespace, want.Name, want.UID, want.ResourceVersion = "ns", "p", "uid-p", "7"
	want.Annotations = map[string]string{
		"metax-tech.com/gpu-devices-allocated": `[[{"uuid":"GPU-0","compute":30,"vRam":8192}]]`,
		"metax-tech.com/predicate-time":        "1767323045000000006",
		"metax-tech.com/sgpu-qos-policy":       "best-effort",
		"hami.io/vgpu-node":                    "n1",
		"hami.io/metax-sgpu-devices-allocated": "GPU-0,Metax-SGPU,8192,30:;",
	}
	gputest.Equal(t, "Binding", []*corev1.Binding{want}, sentBindings(t, r.fakes.client))
	if len(r.shared.pods.claimsOf(reservedClaim)) != 1 {
		t.Error("the cards were given back before the cache shows the pod with them")
	}
}

func TestBindWithoutReservation(t *testing.T) {
	r := newRig(t)
	if got := r.bind(t.Context(), makePod("p")); !got.IsSkip() {
		t.Errorf("Bind() = %v, want Skip", got)
	}
	if n := len(r.fakes.client.Actions()); n != 0 {
		t.Errorf("%d requests were sent, want none", n)
	}
}

func TestBindAfterAnswers(t *testing.T) {
	tests := map[string]struct {
		answers []error
		wantErr string
		want    int // Bindings sent
	}{
		"a timeout":                     {answers: []error{errTimeout}, want: 2},
		"a lost connection":             {answers: []error{errBroken}, want: 2},
		"the client's own timeout":      {answers: []error{context.DeadlineExceeded}, want: 2},
		"500":                           {answers: []error{errInternal}, want: 2},
		"502 from something in between": {answers: []error{errGateway}, want: 2},
		"429":                           {answers: []error{errThrottled}, want: 2},
		"a bad quarter of an hour":      {answers: []error{errTimeout, errBroken, errInternal, errThrottled, errBroken, errTimeout, errInternal, errBroken, errBroken}, want: 10},
		"404 is certain":                {answers: []error{apierrors.NewNotFound(podResource, "p")}, want: 1, wantErr: `bind to n1: pods "p" not found`},
		"403 is certain":                {answers: []error{errForbidden}, want: 1, wantErr: `bind to n1: pods "p" is forbidden: no`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, pod := reserved(t)
			onBind(r.fakes.client, tt.answers...)
			got := r.bind(t.Context(), pod)
			if said := message(got.AsError()); said != tt.wantErr {
				t.Errorf("Bind() says %q, want %q", said, tt.wantErr)
			}
			sent := sentBindings(t, r.fakes.client)
			if len(sent) != tt.want {
				t.Fatalf("%d Bindings were sent, want %d", len(sent), tt.want)
			}
			for _, again := range sent[1:] {
				if diff := cmp.Diff(sent[0], again); diff != "" {
					t.Errorf("another Binding was sent (-first +again):\n%s", diff)
				}
			}
			if len(r.shared.pods.claimsOf(reservedClaim)) != 1 {
				t.Error("Bind gave the cards back; that is for Unreserve")
			}
		})
	}
}

func TestBindEndsWithItsContext(t *testing.T) {
	r, pod := reserved(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the scheduler ends")
	r.fakes.client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel(cause)
		return true, nil, errTimeout
	})
	if got := r.Bind(ctx, nil, pod, "n1"); !errors.Is(got.AsError(), cause) {
		t.Errorf("Bind() = %v, want %v", got, cause)
	}
	if n := len(sentBindings(t, r.fakes.client)); n != 1 {
		t.Errorf("%d Bindings were sent, want 1", n)
	}
}

// TestBindsAtOnce: when enough Bindings are at the API server the next one waits
// for its turn, and can still be called off.
func TestBindsAtOnce(t *testing.T) {
	r, pod := reserved(t)
	onBind(r.fakes.client)
	limit := r.shared.bindLimit
	limit.slots.TryAcquire(firstBinds)
	b := binder{plugin: r.Plugin, pod: pod, node: "n1"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.send(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("send() of a cancelled Bind = %v", err)
	}
	done := make(chan error)
	go func() {
		_, err := b.send(t.Context())
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("send() out of turn = %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if n := len(sentBindings(t, r.fakes.client)); n != 0 {
		t.Errorf("%d Bindings were sent out of turn", n)
	}
	limit.release(time.Millisecond, 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := len(sentBindings(t, r.fakes.client)); n != 1 {
		t.Errorf("%d Bindings were sent, want 1", n)
	}
	if !limit.slots.TryAcquire(1) || limit.slots.TryAcquire(1) {
		t.Error("the turns that are taken are not those of the others")
	}
}
