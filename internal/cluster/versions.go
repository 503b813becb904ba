package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/internal/wire"
)

// Versions are those of a cluster.
type Versions struct {
	Kubernetes string `json:"kubernetes"`
	// Components are those of Daybreak that have pods; nil if pods can't be listed.
	Components []ComponentVersion `json:"components"`
}

// ComponentVersion is a version of a component, with the number of its pods.
type ComponentVersion struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Pods    int    `json:"pods"`
}

// ReadVersions reads the versions of a cluster. If its pods can't be listed, it
// returns the version of Kubernetes with the error.
func (c *Client) ReadVersions(ctx context.Context) (*Versions, error) {
	info, err := readVersion(ctx, c.typed.Discovery().RESTClient())
	if err != nil {
		return nil, err
	}
	v := &Versions{Kubernetes: info.GitVersion}
	pods, err := c.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: wire.ComponentSelector})
	if err != nil {
		return v, fmt.Errorf("list the pods of Daybreak: %w", err)
	}
	v.Components = componentVersions(pods.Items)
	return v, nil
}

// components are in the order in which they are shown.
var components = []string{"scheduler", "manager", "agent"}

// componentVersions counts the pods of each component by version.
func componentVersions(pods []corev1.Pod) []ComponentVersion {
	found := []ComponentVersion{}
	for i := range pods {
		pod := &pods[i]
		part := slices.IndexFunc(components, func(name string) bool { return wire.IsComponent(pod, name) })
		if part < 0 || wire.HasEnded(pod) {
			continue
		}
		version := podVersion(pod)
		at := slices.IndexFunc(found, func(c ComponentVersion) bool { return c.Name == components[part] && c.Version == version })
		if at < 0 {
			at, found = len(found), append(found, ComponentVersion{Name: components[part], Version: version})
		}
		found[at].Pods++
	}
	slices.SortFunc(found, func(a, b ComponentVersion) int {
		return cmp.Or(cmp.Compare(slices.Index(components, a.Name), slices.Index(components, b.Name)), cmp.Compare(a.Version, b.Version))
	})
	return found
}

// podVersion returns the tag of the pod's image or, if it has none, the version in
// the pod's labels.
func podVersion(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) > 0 {
		image, _, _ := strings.Cut(pod.Spec.Containers[0].Image, "@")
		name := image[strings.LastIndex(image, "/")+1:] // a registry may have a port
		if _, tag, ok := strings.Cut(name, ":"); ok {
			return tag
		}
	}
	return cmp.Or(pod.Labels["app.kubernetes.io/version"], "unknown")
}
