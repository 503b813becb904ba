// Package charts holds the Helm chart, and for the sources what both have in
// common: the rights of each part.
package charts

import (
	"embed"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

//go:embed daybreak/rbac/*.yaml
var files embed.FS

// Rights are what a part may do.
type Rights struct {
	// Cluster holds everywhere, Namespace in the part's own namespace.
	Cluster   []rbacv1.PolicyRule `json:"cluster"`
	Namespace []rbacv1.PolicyRule `json:"namespace"`
	// Policies are those of a part that evaluates the policies, everywhere.
	Policies []rbacv1.PolicyRule `json:"policies"`
}

// RightsOf returns the rights that the chart gives to "agent", "manager" or
// "scheduler", or that its role "viewer" has.
func RightsOf(part string) (Rights, error) {
	text, err := files.ReadFile("daybreak/rbac/" + part + ".yaml")
	if err != nil {
		return Rights{}, err
	}
	var r Rights
	if err := yaml.UnmarshalStrict(text, &r); err != nil {
		return Rights{}, fmt.Errorf("rights of %s: %w", part, err)
	}
	return r, nil
}
