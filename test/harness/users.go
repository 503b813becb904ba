package harness

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/daybreak-gpu/daybreak/internal/local"
)

// ConfigAs returns how an administrator reaches the API server as a user, who has all
// rights unless groups are given.
func (w *World) ConfigAs(user string, groups ...string) *rest.Config {
	if groups == nil {
		groups = []string{"system:masters"}
	}
	config := w.as(user)
	config.Impersonate.Groups = groups
	return config
}

// Put creates objects.
func (w *World) Put(objects ...client.Object) {
	w.Helper()
	admin, err := client.New(w.REST(), client.Options{})
	w.Must(err)
	for _, o := range objects {
		w.Must(admin.Create(w.Ctx, o))
	}
}

// User is a subject that the API server knows by its name alone.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// Grant gives a subject rights in a namespace, or in the whole cluster if it is "".
func (w *World) Grant(who rbacv1.Subject, namespace string, rules ...rbacv1.PolicyRule) {
	w.Helper()
	meta := metav1.ObjectMeta{Name: who.Name, Namespace: namespace}
	subjects, role := []rbacv1.Subject{who}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: who.Name}
	if namespace != "" {
		w.Put(&rbacv1.Role{ObjectMeta: meta, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects})
		return
	}
	role.Kind = "ClusterRole"
	w.Put(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects})
}

// Tenant creates a user that has all rights on pods in the namespace, and those of
// the rules, and returns a client of that user.
func (w *World) Tenant(user, namespace string, rules ...rbacv1.PolicyRule) kubernetes.Interface {
	w.Helper()
	w.Grant(User(user), namespace, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{""}, Verbs: []string{"*"},
		Resources: []string{"pods", "pods/status", "pods/binding", "pods/ephemeralcontainers", "pods/resize", "bindings"},
	})...)
	return w.ClientOf(w.as(user))
}

// as returns how to reach the API server as a user without groups.
func (w *World) as(user string) *rest.Config {
	config := w.REST()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// Token returns a token of a service account that is bound to no pod.
func (w *World) Token(namespace, account string) string {
	w.Helper()
	token, err := w.Client.CoreV1().ServiceAccounts(namespace).CreateToken(w.Ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Must(err)
	return token.Status.Token
}

// AgentOf returns how to reach the API server as the agent that runs on the node.
func (w *World) AgentOf(node string) *rest.Config {
	w.Helper()
	config, err := Agent(w.Ctx, w.Cluster, node, "none")
	w.Must(err)
	return config
}

// Agent creates a pod of an agent on the node, unless there is one, and returns how to
// reach the API server as that pod.
func Agent(ctx context.Context, c *local.Cluster, node, image string) (*rest.Config, error) {
	core, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return nil, err
	}
	pods := core.CoreV1().Pods(local.AgentNamespace)
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
	return ConfigOf(ctx, c, pod)
}

// ConfigOf returns how to reach the API server as a pod: with a token that is bound to it,
// as kubelet provides it.
func ConfigOf(ctx context.Context, c *local.Cluster, pod *corev1.Pod) (*rest.Config, error) {
	core, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return nil, err
	}
	token, err := core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
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
