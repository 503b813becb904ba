package scheduler

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// modelProfiles returns the profile of the built-in configuration, as the command
// reads it.
func modelProfiles(t *testing.T) []config.KubeSchedulerProfile {
	t.Helper()
	text, err := defaultConfig(configOptions{profiles: []string{DefaultProfile}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Profiles
}

// registry makes the plugins of the profile, and keeps those at hand whose state is
// checked.
func (p *process) registry() frameworkruntime.Registry {
	registry := p.shared.standIns()
	for _, name := range []string{AffinityName, SpreadName} {
		factory := registry[name]
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, h)
			if n, ok := plugin.(*neighbours); ok {
				p.neighbours = append(p.neighbours, n)
			}
			return plugin, err
		}
	}
	registry[Name] = func(_ context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		plugin, err := p.shared.newPlugin(p.ctx, args, h)
		return &watchedPlugin{Plugin: plugin, process: p}, err
	}
	return registry
}

// watchedPlugin is the plugin, whose accounts of namespaces are compared with a count
// from scratch whenever a decision has read them, and whose cycles can be paused.
type watchedPlugin struct {
	*Plugin
	process *process
}

// PreFilter is the plugin's own.
func (c *watchedPlugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c.process.rest(pauseBefore)
	result, status := c.Plugin.PreFilter(ctx, cs, pod, infos)
	if found := c.process.miscounted(pod.Namespace); found != "" {
		c.process.report(found)
	}
	c.process.rest(pauseAfter)
	return result, status
}

// Where a scheduling cycle may pause, which lets others do something between the
// snapshot of kube-scheduler's cache and the decision.
const (
	pauseBefore = "before PreFilter"
	pauseAfter  = "after PreFilter"
)

// rest pauses the cycle if it is to pause here.
func (p *process) rest(where string) {
	if p.pauseAt != where {
		return
	}
	p.pauseAt = ""
	p.paused.Store(true)
	select {
	case <-p.grants:
	case <-p.ctx.Done():
	}
	p.paused.Store(false)
}
