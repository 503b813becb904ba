package scheduler

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// VolumesName stands in for VolumeBinding on API servers before 1.24, which serve
// CSIStorageCapacities as v1beta1 only.
const VolumesName = "DaybreakVolumes"

// volumes is VolumeBinding.
type volumes struct{ *volumebinding.VolumeBinding }

var (
	_ fwk.PreFilterPlugin   = (*volumes)(nil)
	_ fwk.FilterPlugin      = (*volumes)(nil)
	_ fwk.PreScorePlugin    = (*volumes)(nil)
	_ fwk.ScorePlugin       = (*volumes)(nil)
	_ fwk.ReservePlugin     = (*volumes)(nil)
	_ fwk.PreBindPlugin     = (*volumes)(nil)
	_ fwk.SignPlugin        = (*volumes)(nil)
	_ fwk.EnqueueExtensions = (*volumes)(nil)
)

func (s *State) newVolumes(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	if s.betaCapacities {
		// The first informer that is made for a type is the factory's.
		h.SharedInformerFactory().InformerFor(&storagev1.CSIStorageCapacity{}, newBetaCapacityInformer)
	}
	plugin, err := newWrapped[*volumebinding.VolumeBinding](ctx, VolumesName, names.VolumeBinding, volumebinding.New, obj, h)
	return &volumes{VolumeBinding: plugin}, err
}

// Name returns the plugin's name.
func (*volumes) Name() string { return VolumesName }

// newBetaCapacityInformer returns an informer that reads v1beta1 and holds v1.
func newBetaCapacityInformer(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	beta := client.StorageV1beta1().CSIStorageCapacities(metav1.NamespaceAll)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := beta.List(ctx, o)
			if err != nil {
				return nil, err
			}
			stable := &storagev1.CSIStorageCapacityList{ListMeta: list.ListMeta}
			for i := range list.Items {
				stable.Items = append(stable.Items, storagev1.CSIStorageCapacity(list.Items[i]))
			}
			return stable, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := beta.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return apiwatch.Filter(w, func(e apiwatch.Event) (apiwatch.Event, bool) {
				if c, ok := e.Object.(*storagev1beta1.CSIStorageCapacity); ok {
					stable := storagev1.CSIStorageCapacity(*c)
					e.Object = &stable
				}
				return e, true
			}), nil
		},
	}, client), &storagev1.CSIStorageCapacity{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}
