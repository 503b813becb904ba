package scheduler

import (
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/clock"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestBetaCapacities: on a server before 1.24 kube-scheduler's informer for
// capacities reads v1beta1, as a list and as a watch, and VolumeBinding is not
// there to ask for v1.
func TestBetaCapacities(t *testing.T) {
	shared := NewState(clock.RealClock{})
	shared.betaCapacities = true
	capacity := &storagev1beta1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "a"}, StorageClassName: "fast", Capacity: new(resource.MustParse("3Gi")),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "z"}},
	}
	cfg := load(t, configOptions{profiles: []string{DefaultProfile, "other"}, betaCapacities: true})
	f := newFrameworksIn(t, shared, cfg, schedulercache.NewEmptySnapshot(), capacity)[0]
	plugins := f.ListPlugins()
	if got := namesOf(&plugins.Filter); !slices.Contains(got, VolumesName) || slices.Contains(got, names.VolumeBinding) {
		t.Errorf("filter = %v, want %s in the place of %s", got, VolumesName, names.VolumeBinding)
	}
	if !ranksByCards(plugins.Score.Enabled) {
		t.Errorf("score = %v: %s would keep pods with cards from all nodes", namesOf(&plugins.Score), VolumesName)
	}
	lister := f.SharedInformerFactory().Storage().V1().CSIStorageCapacities().Lister()
	got, err := lister.CSIStorageCapacities("kube-system").Get("a")
	if err != nil || got.StorageClassName != "fast" || got.Capacity.String() != "3Gi" || got.NodeTopology.MatchLabels["zone"] != "z" {
		t.Fatalf("got %+v, %v", got, err)
	}
	beta := f.ClientSet().StorageV1beta1().CSIStorageCapacities("kube-system")
	has := func(what string, check func([]*storagev1.CSIStorageCapacity) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			all, err := lister.List(labels.Everything())
			if err == nil && check(all) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the informer has %v, %v; want %s", all, err, what)
			}
		}
	}
	// What changes between the list and the watch, the fake client never shows.
	capacity.Capacity = new(resource.MustParse("4Gi"))
	has("the new size of a", func(all []*storagev1.CSIStorageCapacity) bool {
		_, err := beta.Update(t.Context(), capacity.DeepCopy(), metav1.UpdateOptions{})
		return err == nil && len(all) == 1 && all[0].Capacity.String() == "4Gi"
	})
	gputest.Must(t, beta.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	capacity.Name = "b"
	if _, err := beta.Create(t.Context(), capacity, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("b only", func(all []*storagev1.CSIStorageCapacity) bool { return len(all) == 1 && all[0].Name == "b" })
}
