package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/daybreak-gpu/daybreak/internal/inventory"
	"github.com/daybreak-gpu/daybreak/internal/place"
	"github.com/daybreak-gpu/daybreak/internal/quota"
	"github.com/daybreak-gpu/daybreak/internal/wire"
	"github.com/daybreak-gpu/daybreak/test/gputest"
	"github.com/daybreak-gpu/daybreak/test/manifest"
)

// withLeases returns the snapshot of files with the Leases.
func withLeases(t *testing.T, leases ...string) *Snapshot {
	t.Helper()
	o, err := readText(manifest.Join(leases...))
	gputest.Must(t, err)
	return o.Snapshot()
}

// asKubeScheduler makes the Lease that of kube-scheduler.
func asKubeScheduler(lease string) string {
	return strings.ReplaceAll(lease, "daybreak-scheduler", "kube-scheduler")
}

// TestPolicy: the policy of the profile that a pod is for, as the scheduler's Lease has it.
func TestPolicy(t *testing.T) {
	two := manifest.Lease("scheduler", `"profiles":{"daybreak":{"policy":"spread"},"other":{}}`)
	spread := manifest.Lease("scheduler", `"profiles":{"daybreak":{"policy":"spread"}}`)
	cases := map[string]struct {
		leases    []string
		pod       string // its schedulerName
		want      place.Policy
		wantKnown bool
	}{
		"no scheduler is to be seen":              {pod: "daybreak"},
		"none is given":                           {leases: []string{manifest.Lease("scheduler", `"profiles":{"daybreak":{}}`)}, pod: "daybreak", wantKnown: true},
		"one is given":                            {leases: []string{spread}, pod: "daybreak", want: place.Spread, wantKnown: true},
		"in the place of kube-scheduler":          {leases: []string{asKubeScheduler(spread)}, pod: "daybreak", want: place.Spread, wantKnown: true},
		"a scheduler in both places":              {leases: []string{two, asKubeScheduler(manifest.Lease("scheduler", `"profiles":{"daybreak":{"policy":"binpack"}}`))}, pod: "daybreak", want: place.Binpack, wantKnown: true},
		"a word that is none":                     {leases: []string{manifest.Lease("scheduler", `"profiles":{"daybreak":{"policy":"fast"}}`)}, pod: "daybreak"},
		"two profiles, one by the pod's name":     {leases: []string{two}, pod: "other", wantKnown: true},
		"two profiles that differ, none by it":    {leases: []string{two}, pod: "third"},
		"the pod is yet to get its schedulerName": {leases: []string{spread}, want: place.Spread, wantKnown: true},
		"an earlier leader's":                     {leases: []string{strings.Replace(spread, "holderIdentity: a", "holderIdentity: b", 1)}, pod: "daybreak"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, known := withLeases(t, tc.leases...).Policy(&corev1.Pod{Spec: corev1.PodSpec{SchedulerName: tc.pod}})
			if got != tc.want || known != tc.wantKnown {
				t.Errorf("Policy() = %v, %v, want %v, %v", got, known, tc.want, tc.wantKnown)
			}
		})
	}
}

// TestQuotaKeys: HAMi's keys are enforced unless all profiles say otherwise.
func TestQuotaKeys(t *testing.T) {
	for profiles, want := range map[string]string{
		``: quota.Enforce, `"a":{}`: quota.Enforce, `"a":{"quotaKeys":"maybe"}`: quota.Enforce, `"a":{"quotaKeys":"off"}`: quota.Off,
		`"a":{"quotaKeys":"warn"},"b":{"quotaKeys":"warn"}`:   quota.Warn,
		`"a":{"quotaKeys":"off"},"b":{"quotaKeys":"enforce"}`: quota.Enforce,
	} {
		gputest.Equal(t, profiles+": QuotaKeys()", want, withLeases(t, manifest.Lease("scheduler", `"profiles":{`+profiles+`}`)).QuotaKeys())
	}
}

// TestUnknownSettings: where the settings are unknown, a note has the reasons, and the
// defaults count.
func TestUnknownSettings(t *testing.T) {
	const plain = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {namespace: kube-system, name: kube-scheduler}\nspec: {holderIdentity: a}\n"
	scheduler, manager := manifest.Lease("scheduler", `"profiles":{"x":{"quotaKeys":"off"}}`), manifest.Lease("manager", `"toleratedTaint":"a:NoSchedule"`)
	invalid := func(settings string) string { return manifest.Lease("scheduler", settings) }
	note := func(part, reasons string) string {
		return fmt.Sprintf("the %s's settings are unknown: %s; the chart's defaults are assumed", part, reasons)
	}
	for name, tc := range map[string]struct {
		leases []string
		want   []string // the notes
	}{
		"no Leases in files":            {},
		"settings of both":              {leases: []string{scheduler, manager}},
		"and a Lease of kube-scheduler": {leases: []string{scheduler, manager, plain}},
		"none of the scheduler": {
			leases: []string{manager, plain}, want: []string{note("scheduler", "Lease kube-system/daybreak-scheduler is missing, Lease kube-system/kube-scheduler has none")},
		},
		"none of the manager": {leases: []string{scheduler}, want: []string{note("manager", "Lease daybreak-system/daybreak-manager is missing")}},
		"an earlier leader's": {
			leases: []string{scheduler, strings.Replace(manager, "holderIdentity: a", "holderIdentity: b", 1)},
			want:   []string{note("manager", "Lease daybreak-system/daybreak-manager has those of an earlier leader")},
		},
		"the leader has left": {
			leases: []string{scheduler, strings.Replace(manager, "{holderIdentity: a}", "{}", 1)},
			want:   []string{note("manager", "Lease daybreak-system/daybreak-manager has those of an earlier leader")},
		},
		"a field of a later version": {
			leases: []string{invalid(`"queue":1`), manager},
			want:   []string{note("scheduler", `Lease kube-system/daybreak-scheduler has invalid ones: error unmarshaling JSON: while decoding JSON: json: unknown field "queue", Lease kube-system/kube-scheduler is missing`)},
		},
		"too many": {
			leases: []string{invalid(`"toleratedTaint":"` + strings.Repeat("x", wire.MaxAnnotation) + `"`), manager},
			want:   []string{note("scheduler", "Lease kube-system/daybreak-scheduler has invalid ones: 262178 bytes, at most 262144 are read, Lease kube-system/kube-scheduler is missing")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withLeases(t, tc.leases...)
			gputest.Equal(t, "notes", tc.want, s.Notes)
			_, profiles := s.Profiles()
			_, policy := s.Policy(&corev1.Pod{})
			known := len(tc.leases) > 0 && !slices.ContainsFunc(tc.want, func(note string) bool { return strings.Contains(note, "scheduler's") })
			if profiles != known || policy != known || (s.QuotaKeys() == quota.Off) != known {
				t.Errorf("profiles known %t, policy known %t, keys %s, want known %t", profiles, policy, s.QuotaKeys(), known)
			}
			known = len(tc.leases) > 0 && !slices.ContainsFunc(tc.want, func(note string) bool { return strings.Contains(note, "manager's") })
			if (s.Tolerations()[0].Key == "a") != known {
				t.Errorf("tolerations %v, want known %t", s.Tolerations(), known)
			}
		})
	}
}

// TestPosing: Leases of these names say nothing outside of the namespaces in which the
// parts keep them, where users cannot write.
func TestPosing(t *testing.T) {
	scheduler, manager := manifest.Lease("scheduler", `"profiles":{"x":{}}`), manifest.Lease("manager", `"toleratedTaint":"a:NoSchedule"`)
	o, err := readText(manifest.Join(strings.ReplaceAll(scheduler, "kube-system", "tenant"), strings.ReplaceAll(manager, wire.Namespace, "tenant")))
	gputest.Must(t, err)
	for _, own := range []bool{false, true} {
		if own {
			o.VendorPlugin.Daybreak = "tenant"
		}
		s := o.Snapshot()
		if _, known := s.Profiles(); known || (s.Tolerations()[0].Key == "a") != own {
			t.Errorf("in Daybreak's namespace %t: profiles known %t, tolerations %v", own, known, s.Tolerations())
		}
	}
}

// TestForbiddenLeases: without the right to read Leases, and with an API server that
// answers no other questions, commands answer with a note.
func TestForbiddenLeases(t *testing.T) {
	for want, refusal := range map[string]error{
		"is forbidden to this user (the chart's ClusterRole daybreak-viewer has the right)": apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil),
		"can't be read: try later": apierrors.NewServiceUnavailable("try later"),
		"is missing":               apierrors.NewNotFound(coordinationv1.Resource("leases"), ""),
	} {
		f := newFakes()
		f.typed.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		o, err := f.client().Read(t.Context(), "gpus")
		gputest.Must(t, err)
		o.VendorPlugin.Daybreak = "gpus"
		for _, note := range []string{
			"the manager's settings are unknown: Lease gpus/daybreak-manager " + want,
			"the scheduler's settings are unknown: Lease kube-system/daybreak-scheduler " + want + ", Lease kube-system/kube-scheduler " + want,
		} {
			if notes := o.Snapshot().Notes; !slices.Contains(notes, note+"; the chart's defaults are assumed") {
				t.Errorf("notes %q, want %q", notes, note)
			}
		}
	}
}

// TestPublish: a leader writes its settings once its Lease can be written, and not on
// one that another process holds.
func TestPublish(t *testing.T) {
	f := newFakes()
	leases := f.typed.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: wire.SchedulerComponent}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("host_1")}}
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refusals := []error{apierrors.NewConflict(coordinationv1.Resource("leases"), "", errors.New("renewed")), apierrors.NewForbidden(coordinationv1.Resource("leases"), "", nil)}
	f.typed.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(refusals) == 0 {
			return false, nil, nil
		}
		refusal := refusals[0]
		refusals = refusals[1:]
		return true, nil, refusal
	})
	Settings{Profiles: map[string]Profile{"daybreak": {Policy: "spread", QuotaKeys: quota.Warn}}}.Publish(t.Context(), leases, wire.SchedulerComponent, "host_1")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	Settings{Profiles: map[string]Profile{"daybreak": {}}}.Publish(short, leases, wire.SchedulerComponent, "host_2")
	got, err := leases.Get(t.Context(), wire.SchedulerComponent, metav1.GetOptions{})
	if want := `{"holder":"host_1","profiles":{"daybreak":{"policy":"spread","quotaKeys":"warn"}}}`; err != nil || got.Annotations[wire.AnnotationSettings] != want {
		t.Errorf("the Lease has %q, error %v, want %s", got.Annotations, err, want)
	}
}

// TestReaderFollowsSettings: a change of settings is one of the cluster, a renewal of
// the Lease is none.
func TestReaderFollowsSettings(t *testing.T) {
	f, changes := newFakes(), 0
	c := &objectsInformer{filled: true}
	r := NewReader(Informers{Nodes: c, Pods: c, Devices: c}, inventory.VendorPlugin{})
	gputest.Must(t, r.OnChange(func() { changes++ }))
	if _, err := r.Objects(); !errors.Is(err, ErrStarting) {
		t.Errorf("before the Leases are read: %v", err)
	}
	read := func(lease *coordinationv1.Lease, want int) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		f.typed.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { cancel(); return true, lease, nil })
		r.Run(ctx, f.typed)
		if changes != want {
			t.Errorf("%d changes, want %d", changes, want)
		}
	}
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
	read(lease, 1)
	lease.Spec.RenewTime = new(metav1.NowMicro())
	read(lease, 1)
	lease.Annotations = map[string]string{wire.AnnotationSettings: `{"holder":"a","toleratedTaint":"a:NoSchedule"}`}
	read(lease, 2)
	if o, err := r.Objects(); err != nil || o.Snapshot().Tolerations()[0].Key != "a" {
		t.Errorf("tolerations %v, error %v, want the manager's", o.Snapshot().Tolerations(), err)
	}
}

// TestQuotaEverywhere: the label of the manager's pods says it.
func TestQuotaEverywhere(t *testing.T) {
	for part, want := range map[string]bool{"manager": true, "scheduler": false} {
		pod := gputest.MakePod("s").App("cpu: 1").On("n1").Obj()
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: wire.Namespace, Labels: map[string]string{"app.kubernetes.io/name": "daybreak", "app.kubernetes.io/component": part}}
		o := &Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}, Pods: []*corev1.Pod{pod}}
		if o.Snapshot().QuotaEverywhere() {
			t.Errorf("%s without the label: enforced everywhere", part)
		}
		pod.Labels[wire.LabelQuota] = wire.QuotaEnforced
		gputest.Equal(t, part+" with the label: enforced everywhere", want, o.Snapshot().QuotaEverywhere())
		pod.Namespace = "tenant"
		if o.Snapshot().QuotaEverywhere() {
			t.Errorf("a tenant's pod with the labels of the %s: enforced everywhere", part)
		}
	}
}

// TestFreeCPU: what pods take of a node's CPU is off, whether or not they ask for
// cards, unless they have ended.
func TestFreeCPU(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: gputest.MakeResources("cpu: 64, gpu: 8")}}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	o := &Objects{Nodes: []*corev1.Node{node, bare}, Pods: []*corev1.Pod{
		gputest.MakePod("plain").App("cpu: 1500m").On("n1").Obj(), gputest.MakePod("card").App("gpu: 1, cpu: 2").On("n1").Obj(),
		gputest.MakePod("ended").App("cpu: 8").On("n1").Phase(corev1.PodSucceeded).Obj(), gputest.MakePod("elsewhere").App("cpu: 8").On("n2").Obj(),
	}}
	for _, p := range o.Pods {
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
	s := o.Snapshot()
	if n := s.Nodes[0]; !n.CPUKnown || n.FreeCPU != 60500 {
		t.Errorf("free CPU %d, known %v, want 60500", n.FreeCPU, n.CPUKnown)
	}
	if n := s.Nodes[1]; n.CPUKnown {
		t.Errorf("free CPU %d of a node without any", n.FreeCPU)
	}
}
