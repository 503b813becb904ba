package chart

import (
	"encoding/json"
	"testing"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

const definition = "devices.scheduling.koordinator.sh"

// TestDefinitionIsAlwaysRendered: without a cluster to look at, as in Argo CD,
// the definition of Device is rendered whatever APIs there are, also the one
// that it defines, and nothing that manages releases removes it.
func TestDefinitionIsAlwaysRendered(t *testing.T) {
	t.Parallel()
	first, err := render(t.Context(), "--show-only", "templates/crd.yaml")
	gputest.Must(t, err)
	second, err := render(t.Context(), "--show-only", "templates/crd.yaml", "--is-upgrade", "--api-versions", "scheduling.koordinator.sh/v1alpha1,scheduling.koordinator.sh/v1alpha1/Device")
	gputest.Must(t, err)
	gputest.Equal(t, "the definition of an installation and of an upgrade", string(first), string(second))
	annotations := rendered(t)["CustomResourceDefinition/"+definition].GetAnnotations()
	for key, want := range map[string]string{"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false"} {
		if annotations[key] != want {
			t.Errorf("annotation %s is %q, want %q: all Devices would go with the definition", key, annotations[key], want)
		}
	}
}

// TestDefinitionOfAnotherRelease: a definition that an earlier installation left
// behind, by another name or in another namespace, does not keep the chart from
// being installed, and stays that installation's. Koordinator's is no different.
func TestDefinitionOfAnotherRelease(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for _, installation := range []struct{ release, namespace string }{{"daybreak", "elsewhere"}, {"daybreak", namespace}, {"gpus", namespace}, {"daybreak", "elsewhere"}} {
		at := []string{"--namespace", installation.namespace}
		if _, err := srv.helm(append([]string{"install", installation.release, dir, "--create-namespace"}, at...)...); err != nil {
			t.Fatalf("%+v: %v", installation, err)
		}
		if _, err := srv.helm(append([]string{"uninstall", installation.release, "--wait"}, at...)...); err != nil {
			t.Fatalf("%+v: %v", installation, err)
		}
	}
	if got := srv.kubectl(nil, "get", "crd", definition, "-o", `jsonpath={.metadata.annotations.meta\.helm\.sh/release-namespace}`); got != "elsewhere" {
		t.Errorf("the definition went over to the release in namespace %s", got)
	}
}

func encode(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	gputest.Must(t, err)
	return text
}
