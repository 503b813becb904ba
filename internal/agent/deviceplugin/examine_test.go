package deviceplugin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/daybreak-gpu/daybreak/internal/gpu"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

func (f fakeRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f.scene.mu.Lock()
	defer f.scene.mu.Unlock()
	answer := &cri.ListPodSandboxResponse{}
	for _, name := range f.scene.sandboxes {
		answer.Items = append(answer.Items, &cri.PodSandbox{Labels: map[string]string{kubelettypes.KubernetesPodNamespaceLabel: "default", kubelettypes.KubernetesPodNameLabel: name}})
	}
	return answer, nil
}

// What a node answers, without a word of its pods.
func TestExamine(t *testing.T) {
	t.Parallel()
	s := newScene(t, gpu.ModeSGPU)
	s.slicePod("tenant", "GPU-a", 50, 8)
	s.admit(slice, "tenant", "daybreak-sgpu-000")
	secret := withCDI()
	secret.Info["config"] = `{"registry":{"auths":{"r":{"password":"tenant-password"}}},"enableCDI":true}`
	s.setRuntime(secret, false)
	examine := func() *Facts {
		t.Helper()
		f, err := Examine(t.Context(), &s.cfg, s.clock)
		gputest.Must(t, err)
		return f
	}
	s.sandboxes = []string{"other"}
	f := examine()
	if f.Pods != 1 || f.Sandboxes != 0 || f.SandboxesError != "" {
		t.Errorf("another runtime: %+v", f)
	}
	s.locked(func() { s.sandboxes = []string{"other", "tenant"} })
	f = examine()
	if f.Sandboxes != 1 || f.Fault.Reason != "" || f.Runtime.Name != runtimeContainerd || f.Advertised[slice] != 32 || f.Foreign != "" ||
		f.Plugins+f.PodResources+f.Checkpoint+f.Folders[s.cfg.State]+f.Folders[s.cfg.CDI] != "" {
		t.Errorf("facts %+v", f)
	}
	text, err := json.Marshal(f)
	if err != nil || strings.Contains(string(text), "tenant") || !strings.Contains(string(text), `enableCDI`) {
		t.Errorf("%v, facts %s", err, text)
	}
	s.setRuntime(withCDI(), true)
	cfg := s.cfg
	cfg.State, cfg.Plugins, cfg.CDI = "/proc/none", "/proc/none", "/proc"
	f, err = Examine(t.Context(), &cfg, s.clock)
	if err != nil || f.Fault.Reason != ReasonRuntimeUnreachable || f.Runtime != nil || f.Plugins == "" || f.Folders["/proc/none"] == "" ||
		!strings.HasPrefix(f.Persists, "/proc is on") {
		t.Errorf("%v, facts %+v", err, f)
	}
	cfg.CDI = "/dev/shm" // which is on tmpfs
	if f, err = Examine(t.Context(), &cfg, s.clock); err != nil || f.Persists != "" {
		t.Errorf("%v, facts %+v", err, f)
	}
}
