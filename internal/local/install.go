package local

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
	"github.com/daybreak-gpu/daybreak/charts"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// The users of the parts. An agent is a service account, whose token names the
// node that it runs on.
const (
	SchedulerUser = "daybreak-scheduler"
	ManagerUser   = "daybreak-manager"
	SimulatorUser = "daybreak-simulator"
	AgentAccount  = "daybreak-agent"
)

//go:embed rbac.yaml
var rbac string

// fieldManager names us in server-side apply.
const fieldManager = "daybreak-playground"

// Install puts the Device definition, our namespace, the rights of our parts and the
// Secret of the manager into the cluster and returns when Devices can be created.
func (c *Cluster) Install(ctx context.Context) error {
	if err := c.Apply(ctx, bytes.NewReader(crd.Device)); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.client.Discovery().RESTClient().Get().AbsPath("apis", v1alpha1.GroupVersion.String(), "devices").Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for the Device definition: %w", err)
	}
	if err := c.Apply(ctx, strings.NewReader(rbac)); err != nil {
		return err
	}
	for part, subject := range map[string]rbacv1.Subject{
		"scheduler": {APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: SchedulerUser},
		"manager":   {APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ManagerUser},
		"agent":     {Kind: rbacv1.ServiceAccountKind, Name: AgentAccount, Namespace: AgentNamespace},
	} {
		if err := c.grant(ctx, part, subject); err != nil {
			return fmt.Errorf("rights of the %s: %w", part, err)
		}
	}
	return nil
}

// grant gives a part the rights that the chart gives it.
func (c *Cluster) grant(ctx context.Context, part string, subject rbacv1.Subject) error {
	rights, err := charts.RightsOf(part)
	if err != nil {
		return err
	}
	name := "daybreak-" + part
	everywhere := metav1.ObjectMeta{Name: name}
	inside := metav1.ObjectMeta{Name: name, Namespace: manager.DefaultNamespace}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	subjects := []rbacv1.Subject{subject}
	var text bytes.Buffer
	for _, object := range []any{
		rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: everywhere, Rules: slices.Concat(rights.Cluster, rights.Policies)},
		rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: everywhere, RoleRef: role("ClusterRole"), Subjects: subjects},
		rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: inside, Rules: rights.Namespace},
		rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: inside, RoleRef: role("Role"), Subjects: subjects},
	} {
		if err := json.NewEncoder(&text).Encode(object); err != nil {
			return err
		}
	}
	return c.Apply(ctx, &text)
}

// Policies are the parameters of a local cluster's policies: who may write which
// cards pods hold and nodes have. The simulator stands for the agents of all its
// nodes.
func (c *Cluster) Policies() policy.Params {
	return policy.Params{
		Namespace:  manager.DefaultNamespace,
		Schedulers: []string{SchedulerUser},
		Managers:   []string{ManagerUser},
		Agents:     []string{policy.ServiceAccount(manager.DefaultNamespace, AgentAccount)},
		Publishers: []string{SimulatorUser},
	}
}

// Guard puts the policies into the cluster and returns when they hold.
func (c *Cluster) Guard(ctx context.Context, p policy.Params) error {
	text, err := policy.Guards(p)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, bytes.NewReader(text)); err != nil {
		return err
	}
	return c.guarded(ctx, p)
}

// guarded waits until the API server, which loads policies in the background,
// denies what each of the policies forbids.
func (c *Cluster) guarded(ctx context.Context, p policy.Params) error {
	forged := metav1.ObjectMeta{
		Name: "forged", Namespace: metav1.NamespaceSystem,
		Annotations: map[string]string{wire.AnnotationAllocated: "[]", wire.AnnotationNodeCards: "[]"},
	}
	pod := &corev1.Pod{ObjectMeta: forged, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	err := waitDenied(ctx, c.REST(), pod,
		&corev1.Binding{ObjectMeta: forged, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: forged.Name, Annotations: forged.Annotations}})
	if err != nil || len(p.Managers) == 0 {
		return err
	}
	config := c.REST() // what is forbidden to a manager whatever rights it has
	config.Impersonate = rest.ImpersonationConfig{UserName: p.Managers[0], Groups: []string{"system:masters"}}
	return waitDenied(ctx, config,
		&corev1.Event{ObjectMeta: forged, InvolvedObject: corev1.ObjectReference{Kind: "Node", Namespace: forged.Namespace, Name: forged.Name}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: forged.Name}})
}

// waitDenied waits until a policy denies the creation of each object.
func waitDenied(ctx context.Context, config *rest.Config, objects ...client.Object) error {
	dry, err := client.New(config, client.Options{DryRun: new(true)})
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			var err error
			if binding, ok := object.(*corev1.Binding); ok {
				err = dry.SubResource("binding").Create(ctx, &corev1.Pod{ObjectMeta: binding.ObjectMeta}, binding.DeepCopy())
			} else {
				err = dry.Create(ctx, object.DeepCopyObject().(client.Object)) //nolint:errcheck // a copy of a client.Object
			}
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), nil
		})
		if err != nil {
			return fmt.Errorf("wait for the policy that denies a %T: %w", object, err)
		}
	}
	return nil
}

// Webhook makes the API server ask the manager at this address about pods that
// ask for cards.
func (c *Cluster) Webhook(ctx context.Context, address string) error {
	p := c.Policies()
	p.URL = "https://" + address
	text, err := policy.Webhook(p)
	if err != nil {
		return err
	}
	return c.Apply(ctx, bytes.NewReader(text))
}

// Apply applies the objects of a YAML stream, as kubectl apply --server-side.
func (c *Cluster) Apply(ctx context.Context, r io.Reader) error {
	docs := utilyaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(obj.Object) == 0 {
			continue
		}
		if namespaced, err := c.objects.IsObjectNamespaced(obj); err == nil && namespaced && obj.GetNamespace() == "" {
			obj.SetNamespace(metav1.NamespaceDefault)
		}
		err := c.objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner(fieldManager), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}
