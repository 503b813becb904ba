package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/daybreak-gpu/daybreak/internal/manager/policy"
)

const (
	// knownPods is more than a cluster has agents.
	knownPods = 16384
	// lookupTimeout is less than the API server waits for an answer.
	lookupTimeout = time.Second
)

// Policies evaluates the policies of package policy, for API servers below 1.30.
type Policies struct {
	evaluator *policy.Evaluator
	client    kubernetes.Interface
	// nodes are the nodes of service accounts' pods by UID: a bound pod stays
	// where it is.
	nodes *lru.Cache
	// metrics count the answers. [Handler] sets them.
	metrics *metrics
}

// NewPolicies returns policies that look up pods by the client.
func NewPolicies(evaluator *policy.Evaluator, client kubernetes.Interface) *Policies {
	return &Policies{evaluator: evaluator, client: client, nodes: lru.New(knownPods)}
}

// Handle answers one request.
func (p *Policies) Handle(ctx context.Context, req admission.Request) admission.Response {
	unknown := p.addNode(ctx, &req.UserInfo)
	err := p.evaluator.Evaluate(ctx, &req.AdmissionRequest)
	if err != nil && unknown != nil {
		err = unknown // with the node it might have been allowed
	}
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		p.metrics.policies.WithLabelValues(resultAllowed).Inc()
		return admission.Allowed("")
	case !errors.As(err, &status):
		p.metrics.policies.WithLabelValues(resultError).Inc()
		return admission.Errored(http.StatusInternalServerError, err)
	}
	p.metrics.policies.WithLabelValues(resultDenied).Inc()
	result := status.Status()
	if d := result.Details; d != nil && len(d.Causes) > 0 {
		// The API server puts the name of the webhook in front, as it puts that of
		// the object in front of what its own policies deny.
		result.Message = d.Causes[0].Message
	}
	klog.FromContext(ctx).V(2).Info("Request denied", "resource", req.Resource.Resource, "subresource", req.SubResource, "namespace", req.Namespace,
		"name", req.Name, "user", req.UserInfo.Username, "reason", result.Message)
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &result}}
}

// addNode puts the node of a service account's pod where tokens of Kubernetes 1.30
// have it. The token of an earlier version names the pod only. It returns an error when
// the API server does not answer which node that is.
func (p *Policies) addNode(ctx context.Context, user *authenticationv1.UserInfo) error {
	namespace, account, err := serviceaccount.SplitUsername(user.Username)
	names, uids := user.Extra[serviceaccount.PodNameKey], user.Extra[serviceaccount.PodUIDKey]
	if _, has := user.Extra[serviceaccount.NodeNameKey]; has || err != nil || len(names) != 1 || len(uids) != 1 {
		return nil //nolint:nilerr // not a service account
	}
	node, err := p.nodeOf(ctx, namespace, account, names[0], types.UID(uids[0]))
	if err != nil {
		klog.FromContext(ctx).Info("The node of a service account is not known", "user", user.Username, "pod", names[0], "reason", err.Error())
		if errors.Is(err, errLookup) {
			return err
		}
		return nil
	}
	user.Extra[serviceaccount.NodeNameKey] = authenticationv1.ExtraValue{node}
	return nil
}

// errLookup is that of a pod that could not be looked up.
var errLookup = errors.New("try again")

// nodeOf returns the node of a pod that has this UID and service account.
func (p *Policies) nodeOf(ctx context.Context, namespace, account, name string, uid types.UID) (string, error) {
	key := strings.Join([]string{namespace, account, name, string(uid)}, "/")
	if node, ok := p.nodes.Get(key); ok {
		return node.(string), nil //nolint:errcheck // see below
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", err
	case err != nil:
		return "", fmt.Errorf("the pod %s, which the token names, could not be looked up (%v): %w", name, err, errLookup) //nolint:errorlint // only the other is asked for
	case pod.UID != uid:
		return "", fmt.Errorf("the token is of the pod with UID %s, and the pod %s has %s", uid, name, pod.UID)
	case cmp.Or(pod.Spec.ServiceAccountName, "default") != account:
		return "", fmt.Errorf("the pod %s runs as the service account %s", name, pod.Spec.ServiceAccountName)
	case pod.Spec.NodeName == "":
		return "", fmt.Errorf("the pod %s is not bound", name)
	}
	p.nodes.Add(key, pod.Spec.NodeName)
	return pod.Spec.NodeName, nil
}
