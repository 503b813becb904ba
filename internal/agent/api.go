package agent

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// FieldManager is the name under which the agent writes.
const FieldManager = wire.AgentComponent

// Clients is how an agent reaches the cluster.
type Clients struct {
	Core     corev1client.CoreV1Interface
	Metadata metadata.Interface
	Devices  dynamic.Interface
	// Events takes what people should know.
	Events recorder
}

// Requests of an agent per second, unless the config has a limit. The usual 5 are too
// few when many pods of the node start or end at once.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

// paced returns the config with a limit on requests of its own.
func paced(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	}
	return config
}

// NewClients returns clients for the cluster. The caller sets Events: agents of one
// process may share a recorder.
func NewClients(config *rest.Config) (*Clients, error) {
	config = paced(config)
	core := rest.CopyConfig(config)
	core.ContentType, core.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var c Clients
	var err error
	if c.Core, err = corev1client.NewForConfig(core); err != nil {
		return nil, err
	}
	if c.Metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	c.Devices, err = dynamic.NewForConfig(config)
	return &c, err
}

// api is what the agent writes to the cluster.
type api interface {
	// applyDevice makes our part of the Device what it should be and returns it.
	applyDevice(ctx context.Context, d *v1alpha1.Device) (*v1alpha1.Device, error)
	// removeAnnotations removes annotations from this version of the Device.
	removeAnnotations(ctx context.Context, d *v1alpha1.Device, keys []string) error
	// applyNode makes our annotations of the Node exactly these. It fails with a
	// conflict when one of them is someone else's.
	applyNode(ctx context.Context, name string, annotations map[string]string) (*metav1.PartialObjectMetadata, error)
}

func (c *Clients) applyDevice(ctx context.Context, d *v1alpha1.Device) (*v1alpha1.Device, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", d.Name, err)
	}
	// Force: the list of cards is ours, even if another manager wrote it last.
	applied, err := c.Devices.Resource(deviceResource).Apply(ctx, d.Name, &unstructured.Unstructured{Object: object},
		metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return nil, fmt.Errorf("apply device %s: %w", d.Name, err)
	}
	return decodeDevice(applied), nil
}

func (c *Clients) removeAnnotations(ctx context.Context, d *v1alpha1.Device, keys []string) error {
	annotations := map[string]any{}
	for _, k := range keys {
		annotations[k] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": d.UID, "resourceVersion": d.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = c.Devices.Resource(deviceResource).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("patch device %s: %w", d.Name, err)
	}
	return nil
}

func (c *Clients) applyNode(ctx context.Context, name string, annotations map[string]string) (*metav1.PartialObjectMetadata, error) {
	meta := map[string]any{"name": name}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": meta})
	if err != nil {
		return nil, err
	}
	node, err := c.Metadata.Resource(nodeResource).Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return nil, fmt.Errorf("apply annotations of node %s: %w", name, err)
	}
	return node, nil
}
