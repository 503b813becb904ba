package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
)

// wrapped has the plugin of kube-scheduler that each of ours is.
var wrapped = map[string]string{
	ResourcesName: names.NodeResourcesFit, BalanceName: names.NodeResourcesBalancedAllocation, ImagesName: names.ImageLocality,
	AffinityName: names.InterPodAffinity, SpreadName: names.PodTopologySpread,
}

// TestOrdinaryPods: pods without cards are scheduled as by kube-scheduler, which
// finds the same nodes feasible and gives each the same scores, with default
// arguments and with arguments for every plugin that is wrapped.
func TestOrdinaryPods(t *testing.T) {
	arguments := map[string]map[string]string{
		"default arguments": nil,
		"other arguments": {
			ResourcesName: `{"ignoredResources":["example.com/nic"],"scoringStrategy":{"type":"MostAllocated","resources":[{"name":"cpu","weight":3},{"name":"memory"}]}}`,
			BalanceName:   `{"resources":[{"name":"cpu","weight":1},{"name":"example.com/nic","weight":1}]}`,
			AffinityName:  `{"hardPodAffinityWeight":70,"ignorePreferredTermsOfExistingPods":true}`,
			SpreadName: `{"defaultingType":"List","defaultConstraints":[
				{"maxSkew":2,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule"},
				{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"}]}`,
		},
	}
	setUps := map[string][]string{
		"a second scheduler":         {DefaultProfile},
		"in place of kube-scheduler": {corev1.DefaultSchedulerName, DefaultProfile},
	}
	for name, args := range arguments {
		for setUp, profiles := range setUps {
			t.Run(name+", "+setUp, func(t *testing.T) { testOrdinaryPods(t, profiles, args) })
		}
	}
}

func testOrdinaryPods(t *testing.T, profiles []string, args map[string]string) {
	plain := &configv1.KubeSchedulerConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: configv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"}}
	plain.Profiles = []configv1.KubeSchedulerProfile{{SchedulerName: new("plain")}}
	text, err := defaultConfig(configOptions{profiles: profiles})
	if err != nil {
		t.Fatal(err)
	}
	ours := &configv1.KubeSchedulerConfiguration{}
	gputest.Must(t, yaml.UnmarshalStrict(text, ours))
	for name, raw := range args {
		plain.Profiles[0].PluginConfig = append(plain.Profiles[0].PluginConfig, argsFor(wrapped[name], raw))
		for i := range ours.Profiles {
			ours.Profiles[i].PluginConfig = append(ours.Profiles[i].PluginConfig, argsFor(name, raw))
		}
	}
	both := loadConfig(t, ours)
	both.Profiles = append(both.Profiles, loadConfig(t, plain).Profiles...)

	decided, refused, decisive := 0, 0, map[string]int{}
	for seed := range uint64(40) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 20)))
		frameworks := newFrameworksIn(t, NewState(clock.RealClock{}), both, schedulercache.NewSnapshot(w.bound, w.nodes), w.owners...)
		for _, pod := range w.pending {
			want := judge(t, frameworks[len(frameworks)-1], pod)
			for _, f := range frameworks[:len(frameworks)-1] {
				if diff := cmp.Diff(want, judge(t, f, pod)); diff != "" {
					t.Fatalf("seed %d, pod %s, profile %s (-kube-scheduler +ours):\n%s", seed, pod.Name, f.ProfileName(), diff)
				}
			}
			decided++
			refused += min(1, len(w.nodes)-len(want))
			for plugin := range differing(want) {
				decisive[plugin]++
			}
		}
	}
	if refused < decided/10 {
		t.Errorf("nodes were refused to %d of %d pods: nothing is compared", refused, decided)
	}
	for _, plugin := range wrapped {
		if decisive[plugin] < decided/20 {
			t.Errorf("%s distinguished nodes for %d of %d pods: nothing is compared", plugin, decisive[plugin], decided)
		}
	}
}

func argsFor(plugin, raw string) configv1.PluginConfig {
	return configv1.PluginConfig{Name: plugin, Args: runtime.RawExtension{Raw: []byte(raw)}}
}

// loadConfig reads the configuration as kube-scheduler does.
func loadConfig(t *testing.T, cfg *configv1.KubeSchedulerConfiguration) *config.KubeSchedulerConfiguration {
	t.Helper()
	text, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return loadText(t, text)
}

// judge returns the feasible nodes with the score that each plugin gives, by
// the name of the plugin of kube-scheduler, and the total.
func judge(t *testing.T, f framework.Framework, pod *corev1.Pod) map[string]map[string]int64 {
	t.Helper()
	ctx, cs, verdict := t.Context(), framework.NewCycleState(), map[string]map[string]int64{}
	narrowed, status, _ := f.RunPreFilterPlugins(ctx, cs, pod)
	if status.IsRejected() {
		return verdict
	}
	if !status.IsSuccess() {
		t.Fatalf("%s: PreFilter: %v", f.ProfileName(), status)
	}
	all, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	var feasible []fwk.NodeInfo
	for _, ni := range all {
		if narrowed.AllNodes() || narrowed.NodeNames.Has(ni.Node().Name) {
			if status := f.RunFilterPlugins(ctx, cs, pod, ni); status.IsSuccess() {
				feasible = append(feasible, ni)
			} else if !status.IsRejected() {
				t.Fatalf("%s: Filter: %v", f.ProfileName(), status)
			}
		}
	}
	if len(feasible) == 0 {
		return verdict
	}
	if status := f.RunPreScorePlugins(ctx, cs, pod, feasible); !status.IsSuccess() {
		t.Fatalf("%s: PreScore: %v", f.ProfileName(), status)
	}
	scores, status := f.RunScorePlugins(ctx, cs, pod, feasible)
	if !status.IsSuccess() {
		t.Fatalf("%s: Score: %v", f.ProfileName(), status)
	}
	for _, s := range scores {
		verdict[s.Name] = map[string]int64{"total": s.TotalScore}
		for _, by := range s.Scores {
			name := by.Name
			if theirs, ok := wrapped[name]; ok {
				name = theirs
			}
			verdict[s.Name][name] = by.Score
		}
	}
	return verdict
}

// differing returns the plugins that gave different scores to the nodes.
func differing(verdict map[string]map[string]int64) map[string]bool {
	first, out := map[string]int64{}, map[string]bool{}
	for _, scores := range verdict {
		for plugin, score := range scores {
			if was, ok := first[plugin]; ok && was != score {
				out[plugin] = true
			}
			first[plugin] = score
		}
	}
	return out
}

// randomCluster is a cluster with workloads of several apps.
type randomCluster struct {
	*rand.Rand
	nodes          []*corev1.Node
	bound, pending []*corev1.Pod
	owners         []runtime.Object
}

func randomWorld(r *rand.Rand) *randomCluster {
	w := &randomCluster{Rand: r}
	for i := range 3 + r.IntN(12) {
		w.nodes = append(w.nodes, w.node(fmt.Sprintf("n%02d", i)))
	}
	for _, app := range apps {
		w.owners = append(w.owners, w.owner(app)...)
	}
	for i := range 4 * len(w.nodes) {
		pod := w.pod(fmt.Sprintf("bound-%02d", i))
		pod.Spec.NodeName = w.nodes[r.IntN(len(w.nodes))].Name
		if r.IntN(6) == 0 {
			slice(10, 1)(pod)
		}
		w.bound = append(w.bound, pod)
	}
	for i := range 12 {
		w.pending = append(w.pending, w.pod(fmt.Sprintf("pending-%02d", i)))
	}
	return w
}

var apps = []string{"service", "replicaset", "statefulset", "controller", "alone"}

func (w *randomCluster) often(percent int) bool { return w.IntN(100) < percent }

func (w *randomCluster) app() string { return apps[w.IntN(len(apps))] }

func (w *randomCluster) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{}}}
	if w.often(85) {
		n.Labels[corev1.LabelTopologyZone] = fmt.Sprint("zone-", w.IntN(3))
	}
	if w.often(50) {
		n.Labels["disk"] = "ssd"
	}
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule} {
		if w.often(15) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "taint", Value: string(effect), Effect: effect})
		}
	}
	n.Spec.Unschedulable = w.often(5)
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourcePods: *resource.NewQuantity(int64(6+w.IntN(20)), resource.DecimalSI), corev1.ResourceCPU: *resource.NewQuantity(int64(2+w.IntN(16)), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(4+w.IntN(60))<<30, resource.BinarySI), "example.com/nic": *resource.NewQuantity(int64(w.IntN(4)), resource.DecimalSI),
	}
	if w.often(60) {
		n.Status.Allocatable[wire.ResourceGPU], n.Status.Allocatable[wire.ResourceSGPU] = resource.MustParse("8"), resource.MustParse("128")
		n.Annotations[wire.AnnotationServedBy] = wire.ServedByDaybreak
	}
	for _, app := range apps {
		if w.often(40) {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{app + ":1"}, SizeBytes: int64(100+w.IntN(900)) << 20})
		}
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// owner makes what the pods of the app belong to.
func (w *randomCluster) owner(app string) []runtime.Object {
	meta, selector := metav1.ObjectMeta{Namespace: "ns", Name: app, UID: types.UID(app)}, map[string]string{"app": app}
	switch app {
	case "service":
		return []runtime.Object{&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: selector}}}
	case "replicaset":
		return []runtime.Object{&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector}}}}
	case "statefulset":
		return []runtime.Object{&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector}}}}
	case "controller":
		return []runtime.Object{&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: selector}}}
	}
	return nil
}

func (w *randomCluster) pod(name string) *corev1.Pod {
	app := w.app()
	pod := makePod(name, ofApp(app))
	for kind, group := range map[string]string{"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "ReplicationController": "v1"} {
		if strings.EqualFold(kind, app) || app == "controller" && kind == "ReplicationController" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: group, Kind: kind, Name: app, UID: types.UID(app), Controller: new(true)}}
		}
	}
	c := &pod.Spec.Containers[0]
	c.Image = app + ":1"
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(100*w.IntN(16)), resource.DecimalSI)}
	if w.often(70) {
		requests[corev1.ResourceMemory] = *resource.NewQuantity(int64(w.IntN(4096))<<20, resource.BinarySI)
	}
	if w.often(15) {
		requests["example.com/nic"] = resource.MustParse("1")
	}
	c.Resources.Requests = requests
	if w.often(10) {
		c.Ports = []corev1.ContainerPort{{HostPort: int32(8000 + w.IntN(2)), ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
	}
	if w.often(15) {
		pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if w.often(30) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "taint", Operator: corev1.TolerationOpExists}}
	}
	w.neighbours(pod)
	return pod
}

// neighbours has the pod want to be near others or away from them.
func (w *randomCluster) neighbours(pod *corev1.Pod) {
	key := func() string { return []string{corev1.LabelHostname, corev1.LabelTopologyZone}[w.IntN(2)] }
	selector := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.app()}}
	}
	if w.often(20) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: int32(1 + w.IntN(3)), TopologyKey: key(), LabelSelector: selector(),
			WhenUnsatisfiable: []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}[w.IntN(2)],
		}}
	}
	pod.Spec.Affinity = &corev1.Affinity{}
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: selector(), TopologyKey: key()}
	}
	if w.often(15) {
		pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	}
	if w.often(15) {
		pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	} else if w.often(25) {
		pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: int32(1 + w.IntN(100)), PodAffinityTerm: term()}}}
	}
}
