package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/request"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// podSource lists and watches the pods of a node and trims each as it is read: 110 pods
// of the largest size are more than the memory of an agent.
type podSource struct {
	client rest.Interface
	node   string
	vendor *inventory.VendorPlugin
}

func (p *podSource) request(o metav1.ListOptions) *rest.Request {
	o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", p.node).String()
	return p.client.Get().Resource("pods").VersionedParams(&o, scheme.ParameterCodec)
}

func (p *podSource) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	events, err := p.request(o).Watch(ctx)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Bookmark {
			e.Object = p.trim(pod)
		}
		return e, true
	}), nil
}

// list is used with API servers that do not stream lists as events. It reads the pods of
// the answer one by one. Pages would not do: only etcd has them, and there a page of a
// node's pods takes reading those of all nodes.
func (p *podSource) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	answer, err := p.request(o).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	list := &corev1.PodList{}
	if err := p.decode(json.NewDecoder(answer), list); err != nil {
		return nil, fmt.Errorf("list of pods: %w", err)
	}
	return list, nil
}

func (p *podSource) decode(d *json.Decoder, list *corev1.PodList) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		switch key {
		case "metadata":
			err = d.Decode(&list.ListMeta)
		case "items":
			err = p.decodeItems(d, list)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return err
		}
	}
	return expect(d, '}')
}

func (p *podSource) decodeItems(d *json.Decoder, list *corev1.PodList) error {
	first, err := d.Token()
	if err != nil || first == nil { // null is an empty list
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("%v in place of items", first)
	}
	for d.More() {
		var pod corev1.Pod
		if err := d.Decode(&pod); err != nil {
			return err
		}
		list.Items = append(list.Items, *p.trim(&pod))
	}
	return expect(d, ']')
}

// expect reads a sign. An answer that ends early is not a shorter list.
func expect(d *json.Decoder, sign json.Delim) error {
	token, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && token != sign {
		err = fmt.Errorf("%v in place of %v", token, sign)
	}
	return err
}

// trim returns what the agent reads of a pod. Of one without cards that is its name, and
// what shows that it is of the vendor's plugin or resembles it.
func (p *podSource) trim(full *corev1.Pod) *corev1.Pod {
	if !wire.Asks(full) && !p.vendor.Resembles(full) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: full.Spec.NodeName}, Status: corev1.PodStatus{Phase: full.Status.Phase}}
		pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = full.Namespace, full.Name, full.UID, full.ResourceVersion
		return pod
	}
	_, _ = request.Trim(full)                                                         // no error: it is a pod
	full.Spec.NodeSelector, full.Spec.Affinity, full.Spec.Tolerations = nil, nil, nil // it is on its node
	return full
}
