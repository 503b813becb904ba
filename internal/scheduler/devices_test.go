package scheduler

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func TestCompact(t *testing.T) {
	d := makeDevice("n1", 2)
	d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "agent"}}
	got := trimmed(t, d)
	want := makeDevice("n1", 2)
	if diff := cmp.Diff(want, got.spec); diff != "" || got.err != nil {
		t.Errorf("spec (-want +got):\n%s%v", diff, got.err)
	}
	if got.Name != "n1" || got.UID != "device-n1" || got.ResourceVersion != "1" {
		t.Errorf("metadata = %+v", got.ObjectMeta)
	}
	if again, err := trim(got); again != any(got) || err != nil {
		t.Errorf("trim() of what is trim = %v, %v; want the same", again, err)
	}
	if got.DeepCopyObject() != runtime.Object(got) {
		t.Error("DeepCopyObject() made another one")
	}
}

// TestCompactKeepsErrors: a Device that can't be decoded must not look like a
// node without cards.
func TestCompactKeepsErrors(t *testing.T) {
	bad := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "n1"}, "spec": map[string]any{"devices": "none"},
	}}
	obj, err := trim(bad)
	if err != nil {
		t.Fatalf("trim() = %v; the informer would drop the Device", err)
	}
	kept, ok := obj.(*device)
	if !ok || kept.Name != "n1" || kept.spec != nil || kept.err == nil {
		t.Fatalf("trim() = %+v, want a device with an error", obj)
	}
	r := newRig(t)
	gputest.Must(t, r.shared.devices.store.Add(kept))
	pod := makePod("p", whole(1))
	if got := r.filter(t, pod, nodeInfo(makeNode("n1"))); got.Code() != fwk.UnschedulableAndUnresolvable || got.Message() != place.BadInventory.Reason() {
		t.Errorf("Filter() = %v, want %s", got, place.BadInventory.Reason())
	}
}

func TestDevicesGet(t *testing.T) {
	if got := (&devices{}).get("n1"); got != nil {
		t.Errorf("get() before the informer = %v, want nil", got)
	}
	r := newRig(t)
	d := r.setDevice(t, makeDevice("n1", 1))
	if got := r.shared.devices.get("n1"); got != d {
		t.Errorf("get() = %v, want %v", got, d)
	}
	if got := r.shared.devices.get("n2"); got != nil {
		t.Errorf("get() of a node without = %v, want nil", got)
	}
	gputest.Must(t, r.shared.devices.store.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}}))
	if got := r.shared.devices.get("n3"); got != nil {
		t.Errorf("get() of something else = %v, want nil", got)
	}
}

// dynamicClient knows Devices by their list kind only.
func dynamicClient(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{deviceResource: "DeviceList"}, objects...)
}

func TestDevicesWatch(t *testing.T) {
	u := toUnstructured(t, makeDevice("n1", 2))
	u.SetAPIVersion(deviceResource.GroupVersion().String())
	u.SetKind("Device")
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient(u), 0)
	d := &devices{pods: newPods()}
	gputest.Must(t, d.watch(factory))
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if got := d.get("n1"); got == nil || len(got.spec.Spec.Devices) != 2 {
		t.Errorf("get() = %+v, want the Device in trim form", got)
	}
}

func TestCheckDevices(t *testing.T) {
	resource := deviceResource.GroupResource()
	tests := map[string]struct {
		answer  error
		wantErr string
	}{
		"all is well": {},
		"no CustomResourceDefinition": {
			answer:  apierrors.NewNotFound(resource, ""),
			wantErr: "the API server knows no devices: apply the CustomResourceDefinition devices.scheduling.koordinator.sh first",
		},
		"no right": {
			answer:  apierrors.NewForbidden(resource, "", errors.New("no")),
			wantErr: "this scheduler may not list devices.scheduling.koordinator.sh: give its account the verbs get, list and watch on them",
		},
		"no API server": {answer: errBroken, wantErr: "list devices: read: connection reset by peer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := dynamicClient()
			if tt.answer != nil {
				client.PrependReactor("list", "devices", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.answer })
			}
			if said := message(checkDevices(t.Context(), client)); said != tt.wantErr {
				t.Errorf("checkDevices() says\n%s\nwant\n%s", said, tt.wantErr)
			}
		})
	}
}
