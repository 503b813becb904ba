package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostNames bounds what a shell is given to complete from.
const mostNames = 500

// Names returns names of objects, for shells that complete them: of nodes, pods,
// namespaces or workloads (deployments.apps), those of one namespace where they are
// in one. Only names are sent, and at most mostNames of them.
func (c *Client) Names(ctx context.Context, resource, namespace string) ([]string, error) {
	list, err := c.names.Resource(schema.ParseGroupResource(resource).WithVersion("v1")).Namespace(namespace).
		List(ctx, metav1.ListOptions{Limit: mostNames}) // a list at resourceVersion 0 comes whole, whatever the limit
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
