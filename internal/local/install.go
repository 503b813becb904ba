package local

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/api/v1alpha1"
	"github.com/daybreak-gpu/daybreak/api/v1alpha1/crd"
	"github.com/daybreak-gpu/daybreak/charts"
	"github.com/daybreak-gpu/daybreak/internal/manager"
	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Who the parts are to the API server. An agent is a service account, whose
// token names the node that it runs on.
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

// Install puts the Device definition, our namespace and the rights of our parts
// into the cluster and returns when Devices can be created.
func (c *Cluster) Install(ctx context.Context) error {
	if err := c.Apply(ctx, strings.NewReader(string(crd.Device))); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(v1alpha1.GroupVersion.WithResource("devices")).List(ctx, metav1.ListOptions{Limit: 1})
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
	everywhere := metav1.ObjectMeta{Name: "daybreak-" + part}
	inside := metav1.ObjectMeta{Name: "daybreak-" + part, Namespace: manager.DefaultNamespace}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: everywhere.Name}
	}
	for _, object := range []any{
		rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: everywhere, Rules: rights.Cluster},
		rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: everywhere, RoleRef: role("ClusterRole"), Subjects: []rbacv1.Subject{subject}},
		rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: inside, Rules: slices.Concat(rights.Namespace, rights.Previous)},
		rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: inside, RoleRef: role("Role"), Subjects: []rbacv1.Subject{subject}},
	} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if err := c.Apply(ctx, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
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

// guarded waits until the API server, which learns of policies by and by,
// refuses what each of the policies forbids.
func (c *Cluster) guarded(ctx context.Context, p policy.Params) error {
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	forged := metav1.ObjectMeta{
		Name: "forged", Namespace: metav1.NamespaceSystem,
		Annotations: map[string]string{wire.AnnotationAllocated: "[]", wire.AnnotationNodeCards: "[]"},
	}
	tries := map[string]func(context.Context) error{
		"pods": func(ctx context.Context) error {
			pod := &corev1.Pod{ObjectMeta: forged, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
			_, err := client.CoreV1().Pods(forged.Namespace).Create(ctx, pod, dry)
			return err
		},
		"bindings": func(ctx context.Context) error {
			return client.CoreV1().Pods(forged.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: forged, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}, dry)
		},
		"nodes": func(ctx context.Context) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: forged.Name, Annotations: forged.Annotations}}
			_, err := client.CoreV1().Nodes().Create(ctx, node, dry)
			return err
		},
	}
	if len(p.Managers) > 0 {
		config := c.REST()
		config.Impersonate = rest.ImpersonationConfig{UserName: p.Managers[0], Groups: []string{"system:masters"}}
		mighty, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		maps.Copy(tries, triesOf(mighty, forged, dry))
	}
	for name, try := range tries {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			err := try(ctx)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), nil
		})
		if err != nil {
			return fmt.Errorf("wait for the policy on %s: %w", name, err)
		}
	}
	return nil
}

// triesOf returns what is forbidden to a manager whatever rights it has.
func triesOf(client kubernetes.Interface, forged metav1.ObjectMeta, dry metav1.CreateOptions) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"secrets": func(ctx context.Context) error {
			_, err := client.CoreV1().Secrets(forged.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: forged}, dry)
			return err
		},
		"events": func(ctx context.Context) error {
			about := corev1.ObjectReference{Kind: "Node", Namespace: forged.Namespace, Name: forged.Name}
			_, err := client.CoreV1().Events(forged.Namespace).Create(ctx, &corev1.Event{ObjectMeta: forged, InvolvedObject: about}, dry)
			return err
		},
		"webhook configurations": func(ctx context.Context) error {
			_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx,
				&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: forged.Name}}, dry)
			return err
		},
	}
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
	client, err := dynamic.NewForConfig(c.REST())
	if err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.REST())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
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
		if err := applyOne(ctx, client, mapper, obj); err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

func applyOne(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := obj.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		target = client.Resource(mapping.Resource).Namespace(namespace)
	}
	_, err = target.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
