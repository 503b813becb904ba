// Package identity has the users of the API server that tests act as.
package identity

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

// Tenant creates a user that has all rights on pods in the namespace, and those of
// the rules, and returns how to reach the API server as that user.
func Tenant(ctx context.Context, c *local.Cluster, user, namespace string, rules ...rbacv1.PolicyRule) (*rest.Config, error) {
	config := c.REST()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Name: user, Namespace: namespace}
	_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: append(rules, rbacv1.PolicyRule{
		APIGroups: []string{""}, Verbs: []string{"*"},
		Resources: []string{"pods", "pods/status", "pods/binding", "pods/ephemeralcontainers", "pods/resize", "bindings"},
	})}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config, err
}

// Agent creates a pod of an agent on the node, unless there is one, and returns how to
// reach the API server as that pod.
func Agent(ctx context.Context, c *local.Cluster, node, image string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return nil, err
	}
	pods := client.CoreV1().Pods(local.AgentNamespace)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: local.AgentAccount, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "agent", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "infinity"},
			}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		pod, err = pods.Get(ctx, "agent-"+node, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("pod of the agent: %w", err)
	}
	return Pod(ctx, c, pod)
}

// Pod returns how to reach the API server as a pod: with a token that is bound to it, as
// kubelet provides it.
func Pod(ctx context.Context, c *local.Cluster, pod *corev1.Pod) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return nil, err
	}
	token, err := client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(24 * 3600)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of pod %s: %w", pod.Name, err)
	}
	config := rest.AnonymousClientConfig(c.REST())
	config.BearerToken = token.Status.Token
	return config, nil
}
