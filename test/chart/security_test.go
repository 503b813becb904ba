package chart

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// TestPodSecurity: the API server admits scheduler and manager in a namespace
// that enforces the strictest level, and agents only in a privileged one. Helm
// says what to label before anything is installed.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	srv.kubectl(nil, "create", "namespace", namespace)
	enforce := func(level string) {
		srv.kubectl(nil, "label", "--overwrite", "namespace", namespace, "pod-security.kubernetes.io/enforce="+level)
	}
	all := rendered(t)
	for _, name := range []string{"daybreak-scheduler", "daybreak-manager", "daybreak-agent"} {
		srv.kubectl(nil, "create", "serviceaccount", "-n", namespace, name)
	}
	admits := func(key string) error {
		pod := corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace},
			Spec: all.pod(t, key),
		}
		text, err := json.Marshal(pod)
		gputest.Must(t, err)
		_, err = srv.tryKubectl(text, "create", "--dry-run=server", "-f", "-")
		return err
	}
	for _, tt := range []struct {
		level, part string
		want        bool
	}{
		{"restricted", "Deployment/daybreak-scheduler", true},
		{"restricted", "Deployment/daybreak-manager", true},
		{"baseline", "DaemonSet/daybreak-agent", false},
		{"privileged", "DaemonSet/daybreak-agent", true},
	} {
		enforce(tt.level)
		if err := admits(tt.part); (err == nil) != tt.want || err != nil && !strings.Contains(err.Error(), "violates PodSecurity") {
			t.Errorf("%s with level %s: %v, want it admitted: %v", tt.part, tt.level, err, tt.want)
		}
	}
	for _, name := range []string{"daybreak-scheduler", "daybreak-manager", "daybreak-agent"} {
		srv.kubectl(nil, "delete", "serviceaccount", "-n", namespace, name)
	}

	enforce("baseline")
	const want = "run kubectl label --overwrite namespace " + namespace + " pod-security.kubernetes.io/enforce=privileged, or set agent.enabled=false"
	_, err := srv.helm("install", "daybreak", dir)
	gputest.ErrorHas(t, "agents where they would not be admitted", want, err)
	if _, err := srv.helm("install", "daybreak", dir, "--dry-run=server", "--set", "agent.enabled=false"); err != nil {
		t.Errorf("without agents: %v", err)
	}
	enforce("privileged")
	if _, err := srv.helm("install", "daybreak", dir); err != nil {
		t.Error(err)
	}
}
