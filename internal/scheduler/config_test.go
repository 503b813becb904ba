package scheduler

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
)

// load reads the built-in configuration as kube-scheduler does: strictly.
func load(t *testing.T, o configOptions) *config.KubeSchedulerConfiguration {
	t.Helper()
	text, err := defaultConfig(o)
	if err != nil {
		t.Fatal(err)
	}
	return loadText(t, text)
}

func loadText(t *testing.T, text []byte) *config.KubeSchedulerConfiguration {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := options.LoadConfigFromFile(klog.Background(), path)
	if err != nil {
		t.Fatalf("kube-scheduler can't read\n%s\n%v", text, err)
	}
	return cfg
}

func TestDefaultConfig(t *testing.T) {
	tests := map[string]struct {
		options   configOptions
		wantLease string
		wantArgs  string
	}{
		"alongside another scheduler it has a lease of its own": {
			options:   configOptions{kubeconfig: "k", profiles: []string{"daybreak"}},
			wantLease: "daybreak-scheduler", wantArgs: "{}",
		},
		"in the place of kube-scheduler it shares that one's lease": {
			options:   configOptions{kubeconfig: "k", profiles: []string{"daybreak", "default-scheduler"}, policy: "spread", vendorPlugin: "app=plugin"},
			wantLease: "kube-scheduler", wantArgs: `{"policy":"spread","vendorPluginSelector":"app=plugin"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := load(t, tt.options)
			var names []string
			for i := range cfg.Profiles {
				names = append(names, cfg.Profiles[i].SchedulerName)
				if args := argsOf(t, &cfg.Profiles[i], Name); args == nil || string(args.(*runtime.Unknown).Raw) != tt.wantArgs { //nolint:errcheck // of another type it panics, which fails too
					t.Errorf("args = %v, want %s", args, tt.wantArgs)
				}
			}
			if diff := cmp.Diff(tt.options.profiles, names); diff != "" {
				t.Errorf("profiles (-want +got):\n%s", diff)
			}
			if got := cfg.LeaderElection; !got.LeaderElect || got.ResourceName != tt.wantLease || got.ResourceNamespace != metav1.NamespaceSystem {
				t.Errorf("leader election = %+v, want the lease %s", got, tt.wantLease)
			}
			if got := cfg.ClientConnection; got.QPS != 1000 || got.Burst != 2000 || got.Kubeconfig != "k" {
				t.Errorf("client connection = %+v", got)
			}
		})
	}
}

func argsOf(t *testing.T, p *config.KubeSchedulerProfile, plugin string) runtime.Object {
	t.Helper()
	for _, c := range p.PluginConfig {
		if c.Name == plugin {
			return c.Args
		}
	}
	t.Fatalf("no arguments for %s", plugin)
	return nil
}

// TestDefaultConfigOfOtherPlugins: what users wrote of a pod's neighbours counts
// as much as with kube-scheduler, and no plugin asks for every bound pod.
func TestDefaultConfigOfOtherPlugins(t *testing.T) {
	cfg := load(t, configOptions{profiles: []string{DefaultProfile}})
	for _, f := range newFrameworks(t, NewState(clock.RealClock{}), cfg) {
		weights := map[string]int32{}
		for _, plugin := range f.ListPlugins().Score.Enabled {
			weights[plugin.Name] = plugin.Weight
		}
		if weights[SpreadName] != 2 || weights[AffinityName] != 2 {
			t.Errorf("weights = %v, want 2 of %s and %s, as kube-scheduler's own have", weights, SpreadName, AffinityName)
		}
		for _, e := range f.EnqueueExtensions() {
			events, err := e.EventsToRegister(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range events {
				if event.Event.Resource == fwk.Pod && event.Event.ActionType&fwk.Add != 0 {
					t.Errorf("%s asks for every pod that is bound: all pending pods would be asked after each", e.Name())
				}
			}
		}
	}
}

// newFrameworks builds what kube-scheduler builds of the configuration, in an
// empty cluster.
func newFrameworks(t *testing.T, shared *State, cfg *config.KubeSchedulerConfiguration) []framework.Framework {
	t.Helper()
	return newFrameworksIn(t, shared, cfg, schedulercache.NewEmptySnapshot())
}

// newFrameworksIn builds them in a cluster with the objects, of which informers
// know.
func newFrameworksIn(t *testing.T, shared *State, cfg *config.KubeSchedulerConfiguration, snapshot fwk.SharedLister, objects ...runtime.Object) []framework.Framework {
	t.Helper()
	schedulermetrics.Register()
	registry := plugins.NewInTreeRegistry()
	if err := registry.Register(Name, shared.Factory()); err != nil {
		t.Fatal(err)
	}
	if err := registry.Merge(shared.standIns()); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	var all []framework.Framework
	for i := range cfg.Profiles {
		f, err := frameworkruntime.NewFramework(t.Context(), registry, &cfg.Profiles[i],
			frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory),
			frameworkruntime.WithSharedDRAManager(noClasses{}), frameworkruntime.WithSnapshotSharedLister(snapshot),
			frameworkruntime.WithLogger(klog.Logger{}))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if len(objects) > 0 {
		factory.Start(t.Context().Done())
		factory.WaitForCacheSync(t.Context().Done())
	}
	return all
}

func TestOrderOfPlugins(t *testing.T) {
	cfg := load(t, configOptions{profiles: []string{DefaultProfile}})
	got := newFrameworks(t, NewState(clock.RealClock{}), cfg)[0].ListPlugins()

	if diff := cmp.Diff([]string{Name, "DefaultBinder"}, namesOf(&got.Bind)); diff != "" {
		t.Errorf("bind (-want +got):\n%s", diff)
	}
	// DynamicResources, which comes with kube-scheduler, gives claims back.
	if diff := cmp.Diff([]string{Name, "DynamicResources"}, namesOf(&got.PostFilter)); diff != "" {
		t.Errorf("postFilter (-want +got):\n%s", diff)
	}
	if names := namesOf(&got.Filter); names[0] != Name || !slices.Contains(names, ResourcesName) {
		t.Errorf("filter = %v, want %s first and %s still there", names, Name, ResourcesName)
	}
	for _, where := range []*config.PluginSet{&got.PreEnqueue, &got.PreFilter, &got.PreScore, &got.Reserve} {
		if names := namesOf(where); !slices.Contains(names, Name) {
			t.Errorf("%v lacks %s", names, Name)
		}
	}
	for _, where := range []*config.PluginSet{&got.PreEnqueue, &got.PreFilter, &got.Filter, &got.PostFilter, &got.PreScore, &got.Score, &got.Reserve} {
		if names := namesOf(where); slices.Contains(names, "DefaultPreemption") {
			t.Errorf("%v has DefaultPreemption", names)
		}
	}
}

func TestPluginsThatScore(t *testing.T) {
	cfg := load(t, configOptions{profiles: []string{DefaultProfile}})
	got := newFrameworks(t, NewState(clock.RealClock{}), cfg)[0].ListPlugins()
	names := namesOf(&got.Score)
	for _, name := range []string{Name, ResourcesName, BalanceName, ImagesName, SpreadName, AffinityName, "TaintToleration", "NodeAffinity"} {
		if !slices.Contains(names, name) {
			t.Errorf("score = %v lacks %s", names, name)
		}
	}
	for _, name := range []string{"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "PodTopologySpread", "InterPodAffinity"} {
		if slices.Contains(names, name) {
			t.Errorf("score = %v has %s", names, name)
		}
	}
}

func namesOf(set *config.PluginSet) []string {
	var names []string
	for _, p := range set.Enabled {
		names = append(names, p.Name)
	}
	return names
}

func TestProfilesShareOneState(t *testing.T) {
	shared := NewState(clock.RealClock{})
	cfg := load(t, configOptions{profiles: []string{corev1.DefaultSchedulerName, DefaultProfile}, policy: "binpack"})
	factory, made := shared.Factory(), []*Plugin{}
	for i := range cfg.Profiles {
		client := fake.NewClientset()
		p, err := factory(t.Context(), argsOf(t, &cfg.Profiles[i], Name), &fakeHandle{client: client, informers: informers.NewSharedInformerFactory(client, 0)})
		if err != nil {
			t.Fatal(err)
		}
		plugin, ok := p.(*Plugin)
		if !ok || plugin.Name() != Name {
			t.Fatalf("factory made a %T called %s", p, p.Name())
		}
		made = append(made, plugin)
	}
	if made[0] == made[1] || made[0].shared != shared || made[1].shared != shared {
		t.Error("two profiles have to be two plugins with one state")
	}
	if got := len(newFrameworks(t, shared, cfg)); got != 2 {
		t.Errorf("%d frameworks, want 2", got)
	}
}

// TestKubeconfigOf: it has what the pod was given, and that answers are not to be
// compressed.
func TestKubeconfigOf(t *testing.T) {
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	for name, text := range map[string]string{ca: "authority", token: "secret"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := kubeconfigOf(&rest.Config{
		Host: "https://[fd00::1]:443", TLSClientConfig: rest.TLSClientConfig{CAFile: ca}, BearerToken: "secret", BearerTokenFile: token,
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("the token is in it:\n%s", text)
	}
	got, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "https://[fd00::1]:443" || got.CAFile != ca || got.BearerTokenFile != token || got.BearerToken != "secret" || !got.DisableCompression {
		t.Errorf("the pod would reach the API server by %+v", got)
	}
}

// TestKubeconfig: in a pod its own API server is asked, unless the user names
// another one, which is not sent the pod's token.
func TestKubeconfig(t *testing.T) {
	pod := func() (*rest.Config, error) {
		return &rest.Config{Host: "https://10.0.0.1:443", BearerTokenFile: "token"}, nil
	}
	outside := func() (*rest.Config, error) { return nil, rest.ErrNotInCluster }
	for name, tt := range map[string]struct {
		flags     []string
		inCluster func() (*rest.Config, error)
		want      string // the server of the kubeconfig that is written
		wantFile  string
	}{
		"a pod":                     {inCluster: pod, want: "https://10.0.0.1:443"},
		"a pod with --master":       {flags: []string{"--master=https://other"}, inCluster: pod},
		"a pod with --kubeconfig":   {flags: []string{"--kubeconfig=mine"}, inCluster: pod, wantFile: "mine"},
		"--kubeconfig and --master": {flags: []string{"--kubeconfig=mine", "--master=https://other"}, inCluster: pod, wantFile: "mine"},
		"no pod":                    {inCluster: outside},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			c := newCommand()
			c.inCluster = tt.inCluster
			cmd := c.cobra()
			if err := cmd.ParseFlags(tt.flags); err != nil {
				t.Fatal(err)
			}
			remove, err := c.configure(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer remove()
			cfg, err := options.LoadConfigFromFile(klog.Background(), c.options.ConfigFile)
			if err != nil {
				t.Fatal(err)
			}
			got := cfg.ClientConnection.Kubeconfig
			if tt.want == "" {
				if got != tt.wantFile {
					t.Errorf("kubeconfig %q, want %q", got, tt.wantFile)
				}
				return
			}
			written, err := clientcmd.LoadFromFile(got)
			if err != nil {
				t.Fatal(err)
			}
			if server := written.Clusters[written.CurrentContext].Server; server != tt.want {
				t.Errorf("the kubeconfig leads to %s, want %s", server, tt.want)
			}
		})
	}
}
