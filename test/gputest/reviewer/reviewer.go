// Package reviewer stands in for an API server that knows users and their rights.
package reviewer

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// NewClient returns a client of an API server that reviews tokens and rights. A token
// is its user's name, and rights returns what a user may list, as "nodes" or
// "pods/namespace", and whether there is such a user.
func NewClient(rights func(user string) (may []string, known bool)) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy() //nolint:errcheck // a test may panic
		_, known := rights(review.Spec.Token)
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy() //nolint:errcheck // as above
		a := review.Spec.ResourceAttributes
		name := a.Resource
		if a.Namespace != "" {
			name += "/" + a.Namespace
		}
		may, _ := rights(review.Spec.User)
		review.Status.Allowed = a.Verb == "list" && slices.Contains(may, name)
		return true, review, nil
	})
	return client
}
