package scheduler

import (
	"bytes"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// modelClient is a scheduler's client of the model. What is not here is not
// called, or the test panics.
type modelClient struct {
	kubernetes.Interface
	by *process
}

func (c *modelClient) CoreV1() corev1client.CoreV1Interface { return modelCore{by: c.by} }

type modelCore struct {
	corev1client.CoreV1Interface
	by *process
}

func (c modelCore) Pods(string) corev1client.PodInterface { return modelPods{by: c.by} }

type modelPods struct {
	corev1client.PodInterface
	by *process
}

// replyOf returns what the API server answered as what it is.
func replyOf[T any](result any, err error) (T, error) {
	value, _ := result.(T)
	return value, err
}

func (c modelPods) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	api := c.by.api
	return replyOf[*corev1.Pod](api.ask(ctx, c.by, verbGet, name, func() (any, error) {
		if pod := api.pod(name); pod != nil {
			return pod.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(modelPodResource, name)
	}))
}

func (c modelPods) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	api := c.by.api
	return replyOf[*corev1.PodList](api.ask(ctx, c.by, verbList, "pods", func() (any, error) {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: formatVersion(api.version)}}
		for _, name := range api.names(kindPod) {
			pod := api.pod(name)
			if strings.Contains(options.FieldSelector, "spec.nodeName=") && pod.Spec.NodeName != "" {
				continue
			}
			list.Items = append(list.Items, *pod.DeepCopy())
		}
		return list, nil
	}))
}

func (c modelPods) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	verb := verbStatus
	if bytes.Contains(data, []byte(wire.ConditionTerm)) {
		verb = verbTouch
	}
	return replyOf[*corev1.Pod](c.by.api.ask(ctx, c.by, verb, name, func() (any, error) {
		pod, err := c.by.api.patchStatus(name, data)
		return pod.DeepCopy(), err
	}))
}

func (c modelPods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	uid := ""
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		uid = string(*options.Preconditions.UID)
	}
	_, err := c.by.api.ask(ctx, c.by, verbDelete, name, func() (any, error) { return nil, c.by.api.deletePod(name, uid) })
	return err
}

func (c modelPods) Bind(ctx context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	_, err := c.by.api.ask(ctx, c.by, verbBind, b.Name, func() (any, error) { return nil, c.by.api.bind(b) })
	return err
}

// modelLease is the lease as client-go's lock shows it: a write holds for the
// version that was read or written last.
type modelLease struct {
	by   *process
	read uint64
}

func (l *modelLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	type answer struct {
		record resourcelock.LeaderElectionRecord
		at     uint64
	}
	api := l.by.api
	got, err := replyOf[answer](api.ask(ctx, l.by, verbGet, leaseName, func() (any, error) {
		if api.lease == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, leaseName)
		}
		return answer{*api.lease, api.leaseAt}, nil
	}))
	if err != nil {
		return nil, nil, err
	}
	l.read = got.at
	return &got.record, nil, nil
}

func (l *modelLease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.read = 0
	return l.Update(ctx, r)
}

func (l *modelLease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	read := l.read
	at, err := replyOf[uint64](l.by.api.ask(ctx, l.by, verbLease, r.HolderIdentity, func() (any, error) { return l.by.api.writeLease(r, read) }))
	if err == nil {
		l.read = at
	}
	return err
}

func (*modelLease) RecordEvent(string) {}

func (l *modelLease) Identity() string { return l.by.identity }

func (l *modelLease) Describe() string { return "lease of " + l.by.identity }
