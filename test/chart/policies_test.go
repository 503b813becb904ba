package chart

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPolicies: API servers from 1.30 on have the policies; below, the manager has
// the same ones in a file, with the rights that it then needs, and webhooks have
// conditions from 1.28 on.
func TestPolicies(t *testing.T) {
	t.Parallel()
	own := rendered(t, "--kube-version", "1.30.14")
	for version, conditions := range map[string]bool{"1.23.17": false, "v1.27.3-vendor.1": false, "1.28.15": true, "1.29.0": true} {
		o := rendered(t, "--kube-version", version)
		if !slices.Contains(o.pod(t, "Deployment/daybreak-manager").Containers[0].Args, "--policies=/etc/daybreak/policies/policies.yaml") {
			t.Errorf("%s: the manager evaluates no policies", version)
		}
		text, _, err := unstructured.NestedString(o["ConfigMap/daybreak-policies"].Object, "data", "policies.yaml")
		gputest.Must(t, err)
		count := 0
		for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096); ; count++ {
			p := &unstructured.Unstructured{}
			if err := docs.Decode(&p.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			key := p.GetKind() + "/" + p.GetName()
			if diff := cmp.Diff(own[key], p); diff != "" || o[key] != nil {
				t.Errorf("%s: %s (-as an object +in the file):\n%s", version, key, diff)
			}
		}
		if count != 14 {
			t.Errorf("%s: %d objects in the file, want seven policies with their bindings", version, count)
		}
		for _, key := range []string{"MutatingWebhookConfiguration/daybreak", "ValidatingWebhookConfiguration/daybreak"} {
			webhooks, _, err := unstructured.NestedSlice(o[key].Object, "webhooks")
			gputest.Must(t, err)
			for _, w := range webhooks {
				if _, has, _ := unstructured.NestedSlice(w.(map[string]any), "matchConditions"); has != conditions { //nolint:errcheck // a list of objects
					t.Errorf("%s: %s: conditions %v, want %v", version, key, has, conditions)
				}
			}
		}
		rules, _, err := unstructured.NestedSlice(o["ClusterRole/daybreak-manager"].Object, "rules")
		gputest.Must(t, err)
		if text := string(encode(t, rules)); !strings.Contains(text, "validatingwebhookconfigurations") || !strings.Contains(text, "namespaces") {
			t.Errorf("%s: rights %s", version, text)
		}
	}
	for key := range own {
		if strings.HasPrefix(key, "ValidatingWebhookConfiguration/") || key == "ConfigMap/daybreak-policies" {
			t.Errorf("on 1.30 there is a %s", key)
		}
	}
}
